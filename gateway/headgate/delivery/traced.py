"""Events with recorded traces on their way through this gateway, with the times of routing and delivery. No I/O.

In: events with a sampled traceparent, from the router; the end of each pass, from the live feed. Out: times and counts, one
record for each event and never for each client. node/cluster/tracer.py makes spans of them. Beyond MAX_KEPT records between two
calls of `take`, the newest are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time
from typing import NamedTuple

from headgate.events.event import Event
from headgate.events.traceparent import is_sampled
from headgate.protocol.frames import Frame

from .tally import NAMES, Tally, values

MAX_KEPT = 1000


class Delivered(NamedTuple):
    """An event handed to all of its clients here. Times in ms since 1970; `counts` by the names of tally.py."""

    traceparent: str
    topic: str
    id: str
    offset: int
    published_ms: int
    routed_ms: float
    delivered_ms: float
    counts: dict[str, int]


class Traced:
    """See the module. `left_out` counts events beyond MAX_KEPT."""

    def __init__(self, now_s: Callable[[], float] = time) -> None:
        self._now_s = now_s
        self._open: dict[Frame, tuple[Event, float]] = {}
        self._delivered: list[Delivered] = []
        self.left_out = 0

    def route(self, event: Event, frame: Frame) -> None:
        """Note an event with clients here, if its trace is recorded."""
        if event.traceparent is None or event.offset is None or not is_sampled(event.traceparent):
            return
        if len(self._open) + len(self._delivered) >= MAX_KEPT:
            self.left_out += 1
            return
        if frame.tally is None:
            frame.tally = Tally(event.epoch or "", event.offset)
        self._open[frame] = event, self._now_s() * 1000

    def passed(self, frames: Iterable[Frame]) -> None:
        """Record the delivery of these frames after their pass."""
        if not self._open:
            return
        now_ms = self._now_s() * 1000
        for frame in frames:
            found = self._open.pop(frame, None)
            if found is None:
                continue
            event, routed_ms = found
            counts = dict(zip(NAMES, values(frame.tally), strict=True))
            self._delivered.append(
                Delivered(
                    event.traceparent or "",
                    event.topic,
                    event.id or "",
                    event.offset or 0,
                    event.time_ms,
                    routed_ms,
                    now_ms,
                    counts,
                )
            )

    def take(self) -> list[Delivered]:
        """Return the events delivered since the last call."""
        taken, self._delivered = self._delivered, []
        return taken
