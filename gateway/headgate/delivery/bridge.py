"""The bridge from the log to the live feed: what the feed hands on while the last read of a client is under way. No I/O.

At a high rate the feed is always some events ahead of what Redis answered a moment ago, so a client that only reads never gets to
where the feed is. So its last read has a bridge: from the place where the feed was before the read, which the log holds by then,
to where the feed is when the answer is here.

In: events as the live feed hands them on (live_feed.py), while it is open. Out: frames above a place, for the one client that is
read for (log_readers.py); or nothing, when a part of the way is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.events.event import Event
from headgate.protocol.frames import Frame, event_frame

# What comes during one read. More, and the client reads once more.
MAX_BRIDGE_BYTES = 1024 * 1024
# Memory of an event beside its payload.
EVENT_BYTES = 400


class Bridge:
    """Closed, or open from a place of the feed on. `is_open`: the feed is to add what it hands on."""

    __slots__ = ("_bytes", "_events", "_first", "_namespace", "is_open")

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace.encode()
        self.is_open = False
        self._first = self._bytes = 0
        self._events: list[Event] = []

    def open(self, position: int) -> None:
        """Begin behind the place of the feed."""
        self.is_open, self._first, self._bytes, self._events = True, position, 0, []

    def close(self) -> None:
        """Forget everything: it has served, or the feed has told of events that will not come. Idempotent."""
        self.is_open, self._events = False, []

    def add(self, events: Iterable[Event]) -> None:
        """Add events that the feed hands on, in order."""
        for event in events:
            if event.offset is not None:
                self._events.append(event)
                self._bytes += EVENT_BYTES + len(event.data)
        if self._bytes > MAX_BRIDGE_BYTES:
            self.close()

    def above(self, position: int, wanted: Callable[[Frame], bool]) -> list[Frame] | None:
        """Return the wanted events above a place up to that of the feed, as the log brings them; None: some are not here."""
        if not self.is_open or position < self._first:
            return None
        frames = (event_frame(self._namespace, each, replayed=True) for each in self._events if (each.offset or 0) > position)
        return [frame for frame in frames if wanted(frame)]
