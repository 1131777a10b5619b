"""F25, on a whole site, again and again: Redis loses the end of the log in every way, and each client has an account.

The gateways stay up. A batch begins with an empty log and new clients: some stay connected, some are away for a part of a trial
or for several and come back with an old position at any gateway, some ask for a past (`since`) from a position of
before the loss, one asks for a part of the log again (`replay`). A consumer does every event. Publishers try again every 50 ms.

`HEADGATE_SEED` repeats the random choices of a run, not its timing. `HEADGATE_BATCHES` says how many batches there are.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.publisher import Publisher, Receipt
from headgate.redis.keys import epochs_key
from tests.fault.checker import History, Subscribed, Welcomed
from tests.fault.consumed import Consumed
from tests.fault.figures import Figures
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.pair import Lose, Pair, copy, crash, promoted, put_back, two_servers
from tests.fault.retrying import Retrying
from tests.fault.site import NAMESPACE, Load, Site, topics_of

SMALL = Load("trials", gateways=2, clients=8, per_s=40, payload_bytes=100, offline_s=1)
AWAY, PUBLISHERS, NEWCOMERS = 8, 2, 12
# Batches, and trials in each. A full one has a thousand.
TRIALS = {"short": (1, 5), "full": (40, 25)}
# How often each is tried. A replica that is to fall behind has to be filled first, which takes as long as the rest of a trial.
KINDS = {"crash": 8, "copy": 3, "put back": 3, "promoted": 3, "two servers": 3}
LONGEST_S = 1.0  # of what is lost
Line = list[tuple[str, int]]


@dataclass(slots=True)
class Asked:
    """A `replay`: the range that was meant, in which epoch, on which of a client's connections, and the whole answer."""

    epoch: str
    first: int
    last: int
    lines: int  # of how many lines the log has had when it was asked
    session: int
    refused: Counter[str] = field(default_factory=Counter)
    events: list[tuple[int, str]] = field(default_factory=list)
    gap: dict[str, Any] | None = None
    over: bool = False


class Lines:
    """The lines of epochs that the log has consisted of, one after the other: where a position lies on the newest."""

    def __init__(self) -> None:
        self.past: list[Line] = []

    def add(self, line: Line) -> None:
        """The log consists of these epochs now, each with its first offset."""
        self.past.append(line)

    def place(self, epoch: str, offset: int) -> int:
        """Return the highest offset up to which the holder of a position has what is in the log now.

        Each line is the one before it up to some place, and goes on in its own epochs from there.
        """
        born = max(index for index, line in enumerate(self.past) if any(name == epoch for name, _ in line))
        for before, after in zip(self.past[born:], self.past[born + 1 :], strict=False):
            known = {name for name, _ in before}
            offset = min(offset, next((first - 1 for name, first in after if name not in known), offset))
        own = self.past[born]
        index = [name for name, _ in own].index(epoch)
        return min(offset, own[index + 1][1] - 1) if index + 1 < len(own) else offset


class Batch:
    """Some trials over one log, with one set of clients, and their account."""

    def __init__(self, site: Site, pair: Pair, moments: random.Random, number: int, ended: contextlib.ExitStack) -> None:
        self._site, self._pair, self._moments = site, pair, moments
        pair.call("FLUSHALL")
        self._lines = Lines()
        whole = number % 2 == 1
        wanted = {0: ["#"], 1: ["#"]} if whole else {}
        self._stay = Swarm(site.urls, SMALL.clients, lambda index: wanted.get(index) or topics_of(index), name="stays")
        ended.callback(self._stay.close)
        for client in self._stay.clients[::4]:
            client.patterns = dict.fromkeys(client.patterns, "drop")
        for client in self._stay.clients[1::4]:
            client.patterns, client.record.latest = dict.fromkeys(client.patterns, "latest"), True
        self._away = [BrowserClient(f"away-{n}", site.urls[n % 2], NAMESPACE, _wanted(n), None) for n in range(AWAY)]
        self._new: list[BrowserClient] = []
        self._asked: list[Asked] = []
        site.wait_until_ready()
        site.wait_until_followed()
        self._stay.open()
        self._join(self._away)
        self.history = History()
        self._publishing = [ended.enter_context(Retrying(pair.url, SMALL, history=self.history)) for _ in range(PUBLISHERS)]
        self._consumed = ended.enter_context(Consumed(pair.url, f"trials-{number}"))
        self._publish(30)

    @property
    def clients(self) -> list[BrowserClient]:
        """All of them."""
        return self._stay.clients

    def trial(self, prepare: Callable[[Pair], Lose]) -> None:
        """Lose the end of the log once."""
        moments, pair = self._moments, self._pair
        self._publish(moments.randrange(1, 16))
        self._leave(0.2)
        self._note_line()
        lose = prepare(pair)
        self._leave(0.2)
        self._publish_for(moments.uniform(0.0, LONGEST_S))
        self._leave(0.3)
        held_up = [relay for relay in pair.relays if moments.random() < 0.3]
        for relay in held_up:
            relay.pause()
        self._ask_again(check=False)  # what gateways then keep of the log must not be taken for what is in it afterwards
        held = [(client.epoch or "", client.offset) for client in self.clients if client.up and client.offset]
        lose()
        self._publish(moments.choice([0, 1, 10, 50]))
        self._come_back(0.4)
        for relay in held_up:
            relay.heal()
        if pair.replica.call("INFO", "replication")["role"] != "slave":
            self._leave_old_primary()
        self._site.wait_until_ready()
        self._site.wait_until_followed()
        self._come_back(0.7)
        self._note_line()
        if held:
            epoch, offset = moments.choice(held)
            self._newcomer(epoch, max(1, offset - moments.randrange(30)))
            self._ask_again(epoch, offset)

    def account(self) -> None:
        """Everybody comes back; every promise must have been kept."""
        self._come_back(1.0)
        self._stay.wait(lambda: all(client.up for client in self.clients), "everybody to be back")
        for publishing in self._publishing:
            publishing.stop()
        self._site.come_to_rest(self._stay, self.history)
        self._note_line()
        head = self._site.head()
        self._consumed.assert_kept(self.history, head)
        self._check_replays()
        self._check_receipts()
        ids = Counter(event.id for event in self.history.log(head[0]))
        assert max(ids.values()) == 1, f"ids that are in the log twice: {[name for name, count in ids.items() if count > 1][:5]}"

    def _publish(self, count: int) -> None:
        for publishing in self._publishing:
            publishing.wait_for(count // PUBLISHERS)

    def _publish_for(self, duration_s: float) -> None:
        until_s = time.monotonic() + duration_s
        while time.monotonic() < until_s:
            self._publishing[0].wait_for(1)

    def _leave(self, chance: float) -> None:
        going = [client for client in self._away if client.up and self._moments.random() < chance]
        self._stay.each(lambda client: client.leave(hard=self._moments.random() < 0.5), going)

    def _come_back(self, chance: float) -> None:
        for client in self._away:
            if not client.up and self._moments.random() < chance:
                url = self._moments.choice(self._site.urls)
                client.address = ("127.0.0.1", int(url.rpartition(":")[2]))
                self._stay.run(client.open())

    def _join(self, clients: list[BrowserClient]) -> None:
        self._stay.clients += clients
        for client in clients:
            self._stay.run(client.open())
        self._stay.wait(lambda: all(client.up for client in clients), "newcomers to be welcomed")

    def _newcomer(self, epoch: str, offset: int) -> None:
        """Somebody without a position asks for everything after one; that is owed from where the position is in the log."""
        number = len(self._new)
        if number == NEWCOMERS or self._moments.random() < 0.4:
            return
        client = BrowserClient(f"since-{number}", self._moments.choice(self._site.urls), NAMESPACE, {"load.#": "catch_up"}, None)
        client.since["load.#"] = {"offset": offset, "epoch": epoch}
        self._join([client])
        self._new.append(client)
        place, entries = self._lines.place(epoch, offset), client.record.entries
        at = next(index for index, entry in enumerate(entries) if isinstance(entry, Welcomed))
        welcomed, subscribed = entries[at : at + 2]
        assert isinstance(welcomed, Welcomed)
        assert isinstance(subscribed, Subscribed)
        entries[at] = Welcomed(welcomed.at_s, welcomed.epoch, place, None)
        entries[at + 1] = Subscribed(subscribed.at_s, "load.#", place)

    def _ask_again(self, epoch: str = "", offset: int = 0, *, check: bool = True) -> None:
        """Ask for the newest part of the log, in the epoch in which it was seen."""
        asking = next((client for client in self._stay.clients if client.up and client.offset), None)
        if asking is None:
            return
        last = offset or asking.offset
        asked = Asked(epoch or asking.epoch or "", max(1, last - 60), last, len(self._lines.past), asking.sessions)
        self._stay.each(lambda client: _replay(client, asked, asked.first), [asking])
        if not check:
            return
        self._stay.wait(lambda: asked.over or asking.sessions != asked.session, f"{asking.record.name}: the answer to {asked}")
        if asked.over:
            self._asked.append(asked)
        else:
            print(f"{asking.record.name} was disconnected before its answer came: {asked}", flush=True)
            self._ask_again(epoch, offset)

    def _leave_old_primary(self) -> None:
        """The old primary, if it lives, may go on for a while; then it is made a replica."""
        old, moments = self._pair.replica, self._moments
        if moments.random() < 0.5:
            self._publish_for(moments.uniform(0, 0.5))
        self._pair.redirect(self._pair.primary)
        old.call("REPLICAOF", "127.0.0.1", self._pair.primary.port)

    def _note_line(self) -> None:
        epochs = self._pair.call("HGETALL", epochs_key(NAMESPACE))
        found = [(name.decode(), *map(int, value.split())) for name, value in epochs.items()]
        self._lines.add([(name, first) for name, first, _ in sorted(found, key=lambda each: each[2])])

    def _check_replays(self) -> None:
        """Each answer was what was in the log then, up to where the epoch that was meant ends, and a gap for the rest.

        A line may have begun that was not noted yet when this was asked: the answer is right without it, or with it. What was in
        the log may have been lost since.
        """
        for asked in self._asked:
            faults = [self._fault_of(asked, self._lines.past[:noted]) for noted in (asked.lines, asked.lines + 1)]
            assert None in faults, f"{asked}: {faults}"

    def _fault_of(self, asked: Asked, past: list[Line]) -> str | None:
        """Return what is wrong with an answer, if the log has consisted of these lines and no more."""
        lines = Lines()
        lines.past = past
        end = lines.place(asked.epoch, asked.last)
        if asked.gap is not None and asked.gap["reason"] == "log_lost":
            return "events of a log that is lost" if asked.events else None
        if [offset for offset, _ in asked.events] != list(range(asked.first, end + 1)):
            return f"expected all from {asked.first} to {end}"
        for offset, event_id in asked.events:
            epoch = next((epoch for epoch, first in reversed(past[-1]) if first <= offset), "")
            published = self.history.events.get((epoch, offset))
            # An event whose publisher was not told of it may have been lost before anybody else was.
            if published is None and event_id not in self.history.ids | self.history.doubts:
                return f"{event_id}, at {offset}, was never published"
            if published is not None and published.id != event_id:
                return f"{event_id} at {offset}, where {published.id} is in epoch {epoch}"
        if end < asked.last:
            if asked.gap is None:
                return f"nothing said that the log ends at {end}"
            if (asked.gap["reason"], asked.gap["from"]) != ("rolled_back", max(asked.first, end + 1)):
                return f"another gap than one that is rolled back from {end + 1}"
        return None

    def _check_receipts(self) -> None:
        """Receipts of lost events are known to be."""
        head = self._site.head()
        log = {(event.epoch, event.offset) for event in self.history.log(head[0])}
        events = self._moments.sample(list(self.history.events.values()), 20)
        with contextlib.closing(Publisher(self._pair.url)) as publisher:
            for event in events:
                state = publisher.check(Receipt(event.epoch, event.offset, duplicate=False, id=event.id))
                assert (state == "in_log") == ((event.epoch, event.offset) in log), (event, state)


def _wanted(number: int) -> dict[str, str]:
    return dict.fromkeys(["load.#"] if number % 2 else topics_of(number), "catch_up")


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

    body = {"pattern": "load.#", "from": first, "to": asked.last, "epoch": asked.epoch}
    client.request("replay", body, answered)


@pytest.fixture
def seed() -> int:
    """A new seed for each run, printed."""
    seed = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(10**9))
    print(f"HEADGATE_SEED={seed}")
    return seed


@contextlib.contextmanager
def started(folder: Path) -> Iterator[tuple[Site, Pair]]:
    """Start servers, relays and gateways."""
    with Pair(folder, SMALL.gateways) as pair:
        settings: dict[str, Any] = {"fence_interval_s": 0.1, "log_max_events": 100_000, "log_max_age_s": 3600, "read_per_s": 1000}
        with Site(folder, SMALL, behind=pair, addresses=pair.addresses, **settings) as site:
            yield site, pair
            for gateway in site.gateways:
                print(f"--- {gateway.url} ---\n" + "\n".join(gateway.output.splitlines()[-40:]))


@pytest.mark.timeout(5400)
def test_whatever_is_lost_each_client_has_all_that_is_there_and_knows_all_that_is_not(
    tmp_path: Path, load: Load, figures: Figures, seed: int
) -> None:
    """Trials in every way of losing the end of a log."""
    moments = random.Random(seed)
    batches, trials = TRIALS[load.name]
    batches = int(os.environ.get("HEADGATE_BATCHES") or batches)
    tried: Counter[str] = Counter()
    accounts = seen = rolled_back = 0
    prepare: dict[str, Callable[[Pair], Lose]] = {
        "crash": crash,
        "copy": copy,
        "put back": put_back,
        "promoted": promoted,
        "two servers": lambda pair: two_servers(pair, moments),
    }
    with started(tmp_path) as (site, pair):
        for number in range(batches):
            began_s = time.monotonic()
            with contextlib.ExitStack() as ended:
                batch = Batch(site, pair, moments, number, ended)
                kinds = moments.choices(list(KINDS), list(KINDS.values()), k=trials) if number or trials > 5 else list(KINDS)
                for kind in kinds:
                    at_s = time.monotonic()
                    batch.trial(prepare[kind])
                    print(f"batch {number}: {kind}, {time.monotonic() - at_s:.1f} s", flush=True)
                    tried[kind] += 1
                batch.account()
                accounts += len(batch.clients) + 1
                records = [client.record for client in batch.clients]
                seen += sum(len(record.seen()) for record in records)
                rolled_back += sum(len(record.gaps("rolled_back")) for record in records)
            took_s = time.monotonic() - began_s
            print(f"batch {number}: {trials} trials in {took_s:.0f} s, {dict(tried)}, {seen:,} seen", flush=True)
    assert rolled_back
    figures("F25", "trials, in five ways to lose the end of the log", sum(tried.values()), "", "1,000; 0 unreported (checked)")
    figures("F25", "trials: accounts of clients and consumers", accounts, "", "each checked")
    figures("F25", "trials: deliveries in these accounts", seen, "", "each checked")
    figures("F25", "trials: gaps that told what was lost", rolled_back, "", "exact (checked)")
    figures("F26", "trials of F25 in which the old primary lived on", tried["two servers"], "", "0 unreported (checked)")
