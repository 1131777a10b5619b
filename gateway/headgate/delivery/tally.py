"""Tallies of what this gateway did with single events, over all of its clients, for `headgate trace`. No I/O.

In: logged events from the router, and each place where an event does not go straight to a socket. Out: from time to time, the
changed tallies, for node/cluster/tracer.py, which keeps them. A gateway with few events counts each. One with many counts those
at offsets that are multiples of a number, so that all gateways count the same. Writes straight to a socket are the rest.

A tally belongs to the epoch in which its event came here. When the log continues in another epoch, each tally keeps its
unreported counts, and still counts events that wait in queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from time import time
from typing import NamedTuple

from headgate.events.event import Event
from headgate.events.traceparent import is_sampled
from headgate.events.wire.frames import Frame

# Up to this many in a round of one second, each event has a tally. They are 1 % of what a gateway can route, and 12 KB for Redis.
QUIET_EVENTS = 100
# Older tallies take no more changes.
MAX_TALLIES = 4096
# Records of traced events between two calls of `Traced.take`.
MAX_TRACED = 1000
# The loop may run after this many, which take a quarter of a millisecond.
_STRIDE = 256


class Tally:
    """One event.

    Attributes:
        matched: its clients when it came.
        queued: of these, clients without room or with events waiting before it; it was queued in its place.
        kept: clients with a full queue that keep the newest event of its topic.
        discarded, conflated, left_to_log, gone: as in the ledger (ledger.py).
        from_log: clients that read it from the log, later.
    """

    __slots__ = ("conflated", "discarded", "epoch", "from_log", "gone", "kept", "left_to_log", "matched", "offset", "queued")

    def __init__(self, epoch: str, offset: int) -> None:
        self.epoch, self.offset = epoch, offset
        self.matched = self.queued = self.kept = self.discarded = 0
        self.conflated = self.left_to_log = self.gone = self.from_log = 0

    @property
    def written(self) -> int:
        """Clients that it was written to at once."""
        return self.matched - self.queued - self.kept - self.discarded - self.conflated - self.left_to_log - self.gone


class Tallies:
    """The tallies of one namespace. `epoch` returns the present epoch of the log.

    While at most QUIET_EVENTS come in a round, from one call of `changed` to the next, each event has a tally, and above that one
    in `every` (0: none). An event without one gets none later, so a tally counts everything that its event met here.

    Attributes:
        step: events at multiples of it have a tally now.
        singles: tallies made in the last round at offsets that are no multiples of `every`.
    """

    def __init__(self, every: int, epoch: Callable[[], str | None] = lambda: None) -> None:
        self.every = every
        self.step = min(every, 1)
        self.singles = 0
        self._epoch = epoch
        self._by_epoch: dict[str, dict[int, Tally]] = {}
        self._kept = self._came = self._singles = 0
        self._reported: dict[Tally, tuple[int, ...]] = {}
        # Up to these offsets, a tally may have been forgotten or left out.
        self._forgotten_to = self._left_out_to = 0
        # The range of tallies at offsets that are no multiples of `every`.
        self._single_from, self._single_to = inf, 0

    def of(self, offset: int) -> Tally | None:
        """Return the tally of an event that has come here, a new one if necessary; None if it has none."""
        if not self.every:
            return None
        self._count(1)
        if offset % self.step:
            self._left_out_to = max(self._left_out_to, offset)
            return None
        return self._here().get(offset) or self._add(offset)

    def left_out(self, events: int, last: int) -> None:
        """Note events that came here without a tally, at offsets up to `last`."""
        if events and self.every:
            self._count(events)
            self._left_out_to = max(self._left_out_to, last)

    def read(self, frames: Sequence[Frame]) -> None:
        """Count frames that a client has read from the log, in order. Most chunks of a busy log have no tallied event."""
        if not self.every or not frames:
            return
        first, last = frames[0].offset or 0, frames[-1].offset or 0
        has_single = last > self._left_out_to or (first <= self._single_to and last >= self._single_from)
        if not has_single and last // self.every == (first - 1) // self.every:
            return
        here = self._here()
        for frame in frames:
            offset = frame.offset or 1
            tally = here.get(offset)
            if tally is None and offset > self._forgotten_to and (offset > self._left_out_to or not offset % self.every):
                tally = self.of(offset)
            if tally is not None:
                tally.from_log += 1

    def changed(self) -> Iterator[list[Tally]]:
        """Begin a round; yield the tallies that changed since the last report, in parts between which the loop may run."""
        self.step = 1 if self._came <= QUIET_EVENTS else self.every
        self.singles, self._came, self._singles = self._singles, 0, 0
        known = [tally for tallies in self._by_epoch.values() for tally in tallies.values()]
        for begin in range(0, len(known), _STRIDE):
            fresh = []
            for tally in known[begin : begin + _STRIDE]:
                now = values(tally)
                if self._reported.get(tally) != now and tally.offset in self._by_epoch.get(tally.epoch, ()):
                    self._reported[tally] = now
                    fresh.append(tally)
            yield fresh

    def not_written(self, tallies: Iterable[Tally]) -> None:
        """Yield these again from `changed`, as they could not be reported."""
        for tally in tallies:
            self._reported.pop(tally, None)

    def _count(self, events: int) -> None:
        self._came += events
        if self._came > QUIET_EVENTS:
            self.step = self.every

    def _here(self) -> dict[int, Tally]:
        """Return the tallies of the log's present epoch, by offset."""
        return self._by_epoch.setdefault(self._epoch() or "", {})

    def _add(self, offset: int) -> Tally:
        epoch = self._epoch() or ""
        tally = self._here()[offset] = Tally(epoch, offset)
        self._kept += 1
        if offset % self.every:
            self._singles += 1
            self._single_from, self._single_to = min(self._single_from, offset), max(self._single_to, offset)
        if self._kept <= MAX_TALLIES:
            return tally
        epoch = next(epoch for epoch, tallies in self._by_epoch.items() if tallies)
        oldest = self._by_epoch[epoch].pop(next(iter(self._by_epoch[epoch])))
        if not self._by_epoch[epoch]:
            del self._by_epoch[epoch]
        self._reported.pop(oldest, None)
        self._kept -= 1
        self._forgotten_to = max(self._forgotten_to, oldest.offset)
        return tally


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
    """Events with recorded traces on their way through this gateway. `left_out` counts the newest ones beyond MAX_TRACED."""

    def __init__(self, now_s: Callable[[], float] = time) -> None:
        self._now_s = now_s
        self._open: dict[Frame, tuple[Event, float]] = {}
        self._delivered: list[Delivered] = []
        self.left_out = 0

    def route(self, event: Event, frame: Frame) -> None:
        """Note an event with clients here, if its trace is recorded."""
        if event.traceparent is None or event.offset is None or not is_sampled(event.traceparent):
            return
        if len(self._open) + len(self._delivered) >= MAX_TRACED:
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
            if (routed := self._open.pop(frame, None)) is None:
                continue
            event, routed_ms = routed
            counts = dict(zip(NAMES, values(frame.tally), strict=True))
            place = (event.traceparent or "", event.topic, event.id or "", event.offset or 0)
            self._delivered.append(Delivered(*place, event.time_ms, routed_ms, now_ms, counts))

    def take(self) -> list[Delivered]:
        """Return the events delivered since the last call."""
        taken, self._delivered = self._delivered, []
        return taken


NAMES = ("matched", "written", "queued", "kept", "discarded", "conflated", "left_to_log", "gone", "from_log")
# The counts of a tally, in the order of NAMES.
values: Callable[[Tally], tuple[int, ...]] = attrgetter(*NAMES)
