"""Pages with Headgate's own client, many in one process (pages.mjs), and the records of what their handlers saw."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.fault.checker import Entry, Gap, Record, Seen, Subscribed, Unsubscribed, Welcomed
from tests.fault.participants import Participant


class Pages(Participant):
    """Pages of one address. `read` brings the attributes up to date.

    Attributes:
        patterns: by page, those that are subscribed, or were asked to be.
        last: by page, the offset of the event that it saw last.
        rooms: by page, the users in its room, as it has them.
        waiting: (page, pattern) of subscriptions that have not been acknowledged yet.
    """

    def __init__(self, url: str, journal: Path) -> None:
        super().__init__("pages", url, journal)
        self.patterns: dict[str, list[str]] = {}
        self.last: dict[str, int] = {}
        self.rooms: dict[str, list[str]] = {}
        self.waiting: set[tuple[str, str]] = set()
        self._first: dict[str, tuple[str, ...]] = {}

    def open(self, page: str, patterns: Iterable[str], room: str | None = None, **options: Any) -> None:
        """Connect another page. `options`: of `connect`; `room`: the topic in which its user is present."""
        self.patterns[page] = list(patterns)
        self._first[page] = tuple(patterns)
        self._say("open", page, options, self.patterns[page], room)

    def subscribe(self, page: str, pattern: str) -> None:
        """Ask for another pattern, which must overlap with none of the page's, because its handlers see an event once each."""
        self.patterns[page].append(pattern)
        self.waiting.add((page, pattern))
        self._say("subscribe", page, pattern)

    def unsubscribe(self, page: str, pattern: str) -> None:
        """Ask for the end of a subscription."""
        self.patterns[page].remove(pattern)
        self.waiting.discard((page, pattern))
        self._say("unsubscribe", page, pattern)

    def close(self, page: str) -> None:
        """End a page."""
        self._say("close", page)

    def read(self) -> list[list[Any]]:
        """As for each participant; a page that was refused something for good is a failure."""
        known = len(self.entries)
        for kind, page, _, *rest in super().read()[known:]:
            assert kind != "error", f"{page}: {rest}"
            if kind == "saw":
                self.last[page] = rest[0]
            elif kind == "room":
                (self.rooms[page],) = rest
            elif kind == "subscribed":
                self.waiting.discard((page, rest[0]))
        return self.entries

    def records(self, epoch: str, head_at: Callable[[float], int] = lambda at_s: 0) -> list[Record]:
        """Return the events of each page's handlers.

        A handler sees no cursors, so all counts as of the epoch at the end, and earlier ones were reported as rolled back.

        Args:
            epoch: that of the log at the end.
            head_at: an offset of which all later ones were published after a moment: events above it are owed to a page with a
                subscription acknowledged then.
        """
        records = {page: Record(page) for page in self.patterns}
        for kind, page, at_s, *rest in self.read():
            records[page].entries += self._entries(kind, page, at_s, rest, epoch, head_at)
        return list(records.values())

    def _entries(
        self, kind: str, page: str, at_s: float, rest: list[Any], epoch: str, head_at: Callable[[float], int]
    ) -> list[Entry]:
        match kind:
            case "up":
                subscribed = [Subscribed(at_s, pattern, rest[0]) for pattern in self._first[page]]
                return [Welcomed(at_s, epoch, rest[0], None), *subscribed]
            case "saw":
                return [Seen(at_s, *rest)]
            case "gap":
                first, last, count, reason = rest
                return [Gap(at_s, first, last, count, reason, epoch=epoch)]
            case "subscribed":
                return [Subscribed(at_s, rest[0], head_at(at_s))]
            case "unsubscribed":
                return [Unsubscribed(at_s, rest[0])]
        return []

    def _say(self, *command: object) -> None:
        self.ask(msgspec.json.encode(command).decode())
