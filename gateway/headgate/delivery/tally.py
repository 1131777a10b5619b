"""The tally of single events: what this gateway did with one of them, over all of its clients. For `headgate trace`. No I/O.

In: every n-th logged event from the router, and each place where an event takes another way than straight to a socket. Out: the
tallies that have changed, now and then, for node/cluster/tracer.py. All gateways have tallies of the same events:
those whose offset is a multiple of n. A write straight to a socket is not counted by itself: these are the rest.

A tally belongs to the epoch in which its event came here: when the log goes on in another epoch, each keeps what is still to be
told, and takes what still becomes of events that wait in queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.protocol.frames import Frame

# The newest; an older one takes no more changes.
MAX_TALLIES = 4096
# Let the loop run after so many, a quarter of a millisecond.
_STRIDE = 256


class Tally:
    """One event.

    Attributes:
        epoch, offset: its place.
        matched: clients that it was for when it came.
        queued: of these, those that had something waiting before it, or no room: it went into their queues, in its place.
        kept: those whose queue was full, and that keep the newest of its topic.
        discarded, conflated, left_to_log, gone: as the ledger has them (ledger.py).
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
    """The tallies of one namespace. `every`: of every so many events; 0: of none. `epoch` says in which one the log is now."""

    def __init__(self, every: int, epoch: Callable[[], str | None] = lambda: None) -> None:
        self.every = every
        self._epoch = epoch
        self._by_place: dict[tuple[str, int], Tally] = {}
        self._told: dict[tuple[str, int], tuple[int, ...]] = {}

    def of(self, offset: int) -> Tally | None:
        """Return the tally of an event, a new one if need be; None: there is none of this offset."""
        if not self.every or offset % self.every:
            return None
        place = self._epoch() or "", offset
        tally = self._by_place.get(place)
        if tally is None:
            tally = self._by_place[place] = Tally(*place)
            if len(self._by_place) > MAX_TALLIES:
                oldest = next(iter(self._by_place))
                del self._by_place[oldest]
                self._told.pop(oldest, None)
        return tally

    def read(self, frames: Sequence[Frame]) -> None:
        """Count frames that a client has read from the log, in order; most chunks have none that is counted."""
        if not self.every or not frames:
            return
        first, last = frames[0].offset or 0, frames[-1].offset or 0
        if last // self.every == (first - 1) // self.every:
            return
        for frame in frames:
            tally = self.of(frame.offset or 1)
            if tally is not None:
                tally.from_log += 1

    def changed(self) -> Iterator[list[Tally]]:
        """Yield those that have changed since they were last returned, in parts; the loop may run between two."""
        known = list(self._by_place.items())
        for begin in range(0, len(known), _STRIDE):
            found = []
            for place, tally in known[begin : begin + _STRIDE]:
                now = _counted(tally)
                if self._told.get(place) != now and place in self._by_place:
                    self._told[place] = now
                    found.append(tally)
            yield found

    def not_told(self, tallies: Iterable[Tally]) -> None:
        """Return these once more from `changed`: nobody could be told."""
        for tally in tallies:
            self._told.pop((tally.epoch, tally.offset), None)


def values(tally: Tally) -> tuple[int, ...]:
    """Return the counts of a tally, in the order of NAMES."""
    return tuple(getattr(tally, name) for name in NAMES)


_counted = attrgetter("matched", "queued", "kept", "discarded", "conflated", "left_to_log", "gone", "from_log")
NAMES = ("matched", "written", "queued", "kept", "discarded", "conflated", "left_to_log", "gone", "from_log")
