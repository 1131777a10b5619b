"""The readers of the past in a mixture: newcomers that want everything since a position, and a part of the log asked for again.

A position may be of a line of history that the log has left since. `Pasts` knows the lines of the log, and so where each
position lies now, and the right answer to each request.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headgate.redis.keys import epochs_key
from tests.fault.checker import History, Subscribed, Welcomed
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.site import NAMESPACE, Site

NEWCOMERS = 12
REPLAYED = 60
# A past of more events takes minutes where all others want the log too.
RECENT = 1000
# Where all browsers catch up at the same time, each page waits for its turn.
ANSWER_S = 180.0
Line = list[tuple[str, int]]


@dataclass(slots=True)
class Asked:
    """A `replay`: the intended range, in which epoch, on which of a client's connections, and the whole answer."""

    epoch: str
    first: int
    last: int
    lines: int  # of how many lines the log has had when it was asked
    session: int
    refused: Counter[str] = field(default_factory=Counter)
    events: list[tuple[int, str]] = field(default_factory=list)
    gap: dict[str, Any] | None = None
    over: bool = False


def place_on(lines: list[Line], epoch: str, offset: int) -> int | None:
    """Return the highest offset up to which the holder of a position has what is on the last of these lines; None: not known.

    Each line is the one before it up to some place, and goes on in its own epochs from there.
    """
    born = max((index for index, line in enumerate(lines) if any(name == epoch for name, _ in line)), default=None)
    if born is None:
        return None
    for before, after in zip(lines[born:], lines[born + 1 :], strict=False):
        known = {name for name, _ in before}
        offset = min(offset, next((first - 1 for name, first in after if name not in known), offset))
    own = lines[born]
    index = [name for name, _ in own].index(epoch)
    return min(offset, own[index + 1][1] - 1) if index + 1 < len(own) else offset


class Pasts:
    """The lines of one piece's log, its newcomers, and the repeated requests."""

    def __init__(self, site: Site, swarm: Swarm, call: Callable[..., Any]) -> None:
        self._site, self._swarm, self._call = site, swarm, call
        self._lines: list[Line] = []
        self._asked: list[Asked] = []
        self._newcomers = 0

    def note_line(self) -> None:
        """The log consists of these epochs now, each with its first offset."""
        epochs = self._call("HGETALL", epochs_key(NAMESPACE))
        found = [(name.decode(), *map(int, value.split())) for name, value in epochs.items()]
        self._lines.append([(name, first) for name, first, _ in sorted(found, key=lambda each: each[2])])

    def held(self, moments: random.Random) -> tuple[str, int] | None:
        """Return the position of a browser, and ask for a part of the log; the answer does not matter.

        A gateway's later copy of the log must not be taken for the log.
        """
        held = [(client.epoch or "", client.offset) for client in self._swarm.clients if client.up and client.offset]
        if not held:
            return None
        newest = max(offset for _, offset in held)
        position = moments.choice([(epoch, offset) for epoch, offset in held if offset > newest - RECENT])
        self._ask(*position, check=False)
        return position

    def ask(self, position: tuple[str, int], moments: random.Random) -> None:
        """Ask for the events at a position of some time ago, once all gateways are where the log is."""
        self._site.wait_until_ready()
        self._site.wait_until_followed()
        self.note_line()
        epoch, offset = position
        self._join(epoch, max(1, offset - moments.randrange(30)), moments)
        self._ask(epoch, offset)

    def assert_kept(self, history: History) -> None:
        """Each answer was the log of that time, up to the end of the intended epoch, and a gap for the rest.

        A line may have begun unnoticed before this was asked, and the answer is right without it, or with it. Events of the log
        may have been lost since.
        """
        for asked in self._asked:
            faults = [_fault_of(asked, self._lines[:noted], history) for noted in (asked.lines, asked.lines + 1)]
            assert None in faults, f"{asked}: {faults}"

    def _join(self, epoch: str, offset: int, moments: random.Random) -> None:
        """A browser without a position asks for everything after one; that is owed from where the position is in the log."""
        place = place_on(self._lines, epoch, offset)
        if self._newcomers == NEWCOMERS or place is None:
            return
        url = moments.choice(self._site.urls)
        client = BrowserClient(f"since-{self._newcomers}", url, NAMESPACE, {"load.#": "catch_up"}, None)
        self._newcomers += 1
        client.since["load.#"] = {"offset": offset, "epoch": epoch}
        self._swarm.clients.append(client)
        self._swarm.run(client.open())
        self._swarm.wait(lambda: client.up, "a newcomer to be welcomed")
        entries = client.record.entries
        at = next(index for index, entry in enumerate(entries) if isinstance(entry, Welcomed))
        welcomed, subscribed = entries[at : at + 2]
        assert isinstance(welcomed, Welcomed)
        assert isinstance(subscribed, Subscribed)
        entries[at] = Welcomed(welcomed.at_s, welcomed.epoch, place, None)
        entries[at + 1] = Subscribed(subscribed.at_s, "load.#", place)

    def _ask(self, epoch: str, last: int, *, check: bool = True) -> None:
        """Ask for the part of the log up to an offset, in the epoch in which it was seen."""
        asking = next((client for client in self._swarm.clients if client.up and client.reading), None)
        if asking is None or (check and place_on(self._lines, epoch, last) is None):
            return
        asked = Asked(epoch, max(1, last - REPLAYED), last, len(self._lines), asking.sessions)
        self._swarm.each(lambda client: _replay(client, asked, asked.first), [asking])
        if not check:
            return
        self._swarm.wait(
            lambda: asked.over or asking.sessions != asked.session or not asking.up, f"the answer to {asked}", ANSWER_S
        )
        if asked.over:
            self._asked.append(asked)


def _fault_of(asked: Asked, lines: list[Line], history: History) -> str | None:
    """Return the fault of an answer, if the log has consisted of these lines and no more."""
    end = place_on(lines, asked.epoch, asked.last)
    assert end is not None
    if asked.gap is not None and asked.gap["reason"] == "log_lost":
        return "events of a log that is lost" if asked.events else None
    if [offset for offset, _ in asked.events] != list(range(asked.first, end + 1)):
        return f"expected all from {asked.first} to {end}"
    for offset, event_id in asked.events:
        epoch = next((epoch for epoch, first in reversed(lines[-1]) if first <= offset), "")
        published = history.events.get((epoch, offset))
        # An event without a receipt may have been lost before any other process had it.
        if published is None and event_id not in history.ids and event_id not in history.doubts:
            return f"{event_id}, at {offset}, was never published"
        if published is not None and published.id != event_id:
            return f"{event_id} at {offset}, where {published.id} is in epoch {epoch}"
    if end < asked.last:
        if asked.gap is None:
            return f"nothing said that the log ends at {end}"
        if (asked.gap["reason"], asked.gap["from"]) != ("rolled_back", max(asked.first, end + 1)):
            return f"another gap than one that is rolled back from {end + 1}"
    return None


def _replay(client: BrowserClient, asked: Asked, first: int) -> None:
    def answered(answer: Any) -> None:
        if not answer["ok"]:
            assert answer["error"]["retry"], answer
            asked.refused[answer["error"]["code"]] += 1
            _replay(client, asked, first)
            return
        asked.events += [(meta["offset"], meta["id"]) for _, _, meta in answer["events"]]
        asked.gap = answer.get("gap") or asked.gap
        asked.over = answer["next"] is None
        if not asked.over:
            _replay(client, asked, answer["next"])

    body = {"pattern": "#", "from": first, "to": asked.last, "epoch": asked.epoch}
    client.request("replay", body, answered)
