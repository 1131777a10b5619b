"""A range of a namespace's log for people and their programs: `headgate tail --since`, `headgate replay`.

In: a start (an offset, or a time) and a pattern. Out: events in log order, read a page at a time, and a call for each entry
that cannot be delivered. No gateway waits for it, because it has its own client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

from .client import Client, call
from .entries import Entry
from .keys import head_key, log_key
from .log import EventLog, time_or_zero

RATE_WINDOW_S = 10.0


class LogRange:
    """A reader of a range of a log. Methods wait for Redis.

    Raises (all): BusUnavailable, BusRefused: as `redis.client.call`.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._key, self._head = client, log_key(namespace), head_key(namespace)
        self._log = EventLog(namespace, client, HARD_MAX_PAYLOAD_BYTES)

    def head(self) -> tuple[str, int]:
        """Return the epoch and the newest offset (0: nothing was ever published)."""
        epoch, offset = call(self._client, "HMGET", self._head, "epoch", "offset")
        return (epoch or b"").decode(), int(offset or 0)

    def first_since(self, time_ms: int) -> int:
        """Return the offset of the first kept event at or after a time; newest offset + 1 if all are older.

        Times never decrease within an epoch, so a bisection finds it in about twenty round trips at most.
        """
        low = self._edge("XRANGE", "-", "+")
        high = max(low, self._edge("XREVRANGE", "+", "-") + 1) if low <= self.head()[1] else low
        while low < high:
            middle = (low + high) // 2
            found = call(self._client, "XRANGE", self._key, f"{middle}-0", "+", "COUNT", 1)
            if found and time_or_zero(found[0][1].get(b"time", b"")) < time_ms:
                low = int(found[0][0].partition(b"-")[0]) + 1
            else:
                high = middle
        return low

    def events_per_s(self, now_ms: int) -> float:
        """Return the recent rate of events: over the last RATE_WINDOW_S, or over the log's whole time if it is shorter.

        Args:
            now_ms: the time by Redis' clock, in milliseconds since 1970.
        """
        begin_ms = now_ms - int(RATE_WINDOW_S * 1000)
        first = self.first_since(begin_ms)
        found = call(self._client, "XRANGE", self._key, f"{first}-0", "+", "COUNT", 1)
        if not found:
            return 0.0
        is_cut = first > 1 and first == self._edge("XRANGE", "-", "+")
        since_ms = time_or_zero(found[0][1].get(b"time", b"")) if is_cut else begin_ms
        return (self.head()[1] - first + 1) / max((now_ms - since_ms) / 1000, 0.001)

    def events(
        self, pattern: str, first: int, upto: int | None = None, aside: Callable[[Entry], None] = lambda entry: None
    ) -> Iterator[Event]:
        """Yield the matching events from offset `first` to `upto`, or to the end of the log at the time it is reached.

        Args:
            pattern, first, upto: as above.
            aside: called with each entry that cannot be delivered.
        """
        epoch, _ = self.head()
        after = first - 1
        while page := self._log.page(after, upto):
            for entry in page:
                if entry.event is None:
                    aside(entry)
                elif matches(pattern, entry.event.topic):
                    yield msgspec.structs.replace(entry.event, epoch=epoch)
            after = page[-1].offset

    def _edge(self, command: str, begin: str, end: str) -> int:
        found = call(self._client, command, self._key, begin, end, "COUNT", 1)
        return int(found[0][0].partition(b"-")[0]) if found else self.head()[1] + 1
