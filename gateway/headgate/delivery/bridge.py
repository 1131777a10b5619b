"""The bridge from the log to the live feed holds what the feed hands on during the last read of a client. No I/O.

At a high rate the feed is always ahead of the last answer of Redis, so a client that only reads would never reach it. The bridge
of its last read spans from the position of the feed before the read to that at the answer.

In: events of the live feed (live_feed.py) while it is open. Out: frames above an offset, for the client that reads
(log_readers.py), or None if some are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.events.event import Event
from headgate.protocol.frames import Frame, event_frame

# Of one read. With more, the client reads once more.
MAX_BRIDGE_BYTES = 1024 * 1024
# Memory of an event without its payload.
EVENT_BYTES = 400


class Bridge:
    """Closed, or open from a position of the feed on. While `is_open`, the feed adds its events."""

    __slots__ = ("_bytes", "_events", "_first", "_namespace", "is_open")

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace.encode()
        self.is_open = False
        self._first = self._bytes = 0
        self._events: list[Event] = []

    def open(self, position: int) -> None:
        """Begin after the position of the feed."""
        self.is_open, self._first, self._bytes, self._events = True, position, 0, []

    def close(self) -> None:
        """Forget everything, after the read or when the feed reports missing events. Idempotent."""
        self.is_open, self._events = False, []

    def add(self, events: Iterable[Event]) -> None:
        """Add events of the feed, in order."""
        for event in events:
            if event.offset is not None:
                self._events.append(event)
                self._bytes += EVENT_BYTES + len(event.data)
        if self._bytes > MAX_BRIDGE_BYTES:
            self.close()

    def above(self, position: int, wanted: Callable[[Frame], bool]) -> list[Frame] | None:
        """Return the wanted events from above `position` to the feed, framed as from the log; None if some are missing."""
        if not self.is_open or position < self._first:
            return None
        frames = (event_frame(self._namespace, each, replayed=True) for each in self._events if (each.offset or 0) > position)
        return [frame for frame in frames if wanted(frame)]
