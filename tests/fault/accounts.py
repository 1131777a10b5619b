"""The checker's other half: the accounts of publishers and consumers, beside those of browsers (checker.py). No I/O.

In: the receipts of every publisher, the work of consumers, the log as it was at the end (`History`), and the faults. Out: every
violation.

- unreported: a receipt is for an event that is not in the log, and `check` does not say that it was rolled back. Where all of its
  epoch is lost, `check` may also say that it does not know that epoch.
- denied: an event is in the log, and `check` says that it is not.
- unbounded: an event is lost, and no fault that loses events lay between the beginning of its publish and its receipt.
- twice: an id is in the log at two places.
- skipped: a consumer never did an event of the log.
- doubled: a consumer did an event again, and no fault began or lasted between the two times.
- phantom: a consumer did what was not published, or two events at one place.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic
from typing import NamedTuple

from headgate.redis.lineage import Fate
from tests.fault.checker import History, Record, Seen, Violation

# A publisher may get receipts of an old primary for so long after another server has taken over. The figures say how long it was.
FOLLOW_S = 10.0
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A receipt, and when its publish began and ended (monotonic, s)."""

    publisher: str
    sent_s: float
    at_s: float
    epoch: str
    offset: int
    id: str

    @property
    def place(self) -> Place:
        """Where it is, or was, in a log."""
        return self.epoch, self.offset


@dataclass(frozen=True, slots=True)
class Done:
    """An event that a consumer was given, and when."""

    at_s: float
    epoch: str
    offset: int
    id: str


@dataclass(slots=True)
class Fault:
    """An excuse for a lost event or a repeated delivery, from when to when.

    Attributes:
        moved_s: when another server took over.
        lives_on: the old one takes events after the fault, and its users are not notified.
    """

    name: str
    loses: bool
    began_s: float
    ended_s: float = math.inf
    moved_s: float | None = None
    lives_on: bool = False

    def overlaps(self, first_s: float, last_s: float) -> bool:
        """Whether it lasted at any moment of this time."""
        return self.began_s <= last_s and first_s <= self.ended_s


class Flow(NamedTuple):
    """How long it took until a browser had an event of a new primary; and of that the longest time without any event.

    A browser with a backlog gets older events all the time. One with a waiting reader gets none.
    """

    took_s: float
    silent_s: float


@dataclass(slots=True)
class Faults:
    """The faults of Redis, publishers and consumers."""

    past: list[Fault] = field(default_factory=list)

    @contextmanager
    def one(self, name: str, *, loses: bool = False) -> Iterator[Fault]:
        """Note one that lasts as long as the block; longer, if an old primary lives on."""
        fault = Fault(name, loses, monotonic())
        self.past.append(fault)
        try:
            yield fault
        finally:
            fault.ended_s = max(monotonic(), (fault.moved_s or 0.0) + FOLLOW_S if fault.lives_on else 0.0)


def lost(history: History, receipts: Iterable[Acknowledged], epoch: str) -> list[Acknowledged]:
    """Return the receipts of events that are not in the log that has an epoch."""
    log = {(event.epoch, event.offset, event.id) for event in history.log(epoch)}
    return [receipt for receipt in receipts if (receipt.epoch, receipt.offset, receipt.id) not in log]


def check_receipts(
    history: History, receipts: Iterable[Acknowledged], fates: Mapping[Place, str], faults: Faults, epoch: str
) -> list[Violation]:
    """Return the violations of receipts.

    Args:
        fates: the answers of `Publisher.check` about every lost event and some others.
        epoch: the log's at the end.
    """
    receipts = list(receipts)
    gone = {receipt.place for receipt in lost(history, receipts, epoch)}
    line = {name for name, _ in history.lineage}
    violations: list[Violation] = []

    def violate(kind: str, receipt: Acknowledged, told: str) -> None:
        violations.append(Violation(kind, receipt.publisher, *receipt.place, f"{receipt.id} {told}"))

    for receipt in receipts:
        fate, is_lost = fates.get(receipt.place), receipt.place in gone
        if is_lost and fate != Fate.ROLLED_BACK and (fate != Fate.UNKNOWN or receipt.epoch in line):
            violate("unreported", receipt, f"is lost, and check says {fate}")
        if not is_lost and fate not in (None, Fate.IN_LOG):
            violate("denied", receipt, f"is in the log, and check says {fate}")
        if is_lost and not any(fault.loses and fault.overlaps(receipt.sent_s, receipt.at_s) for fault in faults.past):
            violate("unbounded", receipt, f"is lost, and nothing lost events from {receipt.sent_s} to {receipt.at_s}")
    for event_id, count in Counter(event.id for event in history.log(epoch)).items():
        if count > 1:
            violations.append(Violation("twice", "log", epoch, 0, f"{event_id} is in the log {count} times"))
    return violations


def latest_s(gone: Iterable[Acknowledged], faults: Faults) -> float:
    """Return how long after another server took over the last publish of a lost event began, in s; 0: none did."""
    latest = 0.0
    for receipt in gone:
        moved = [fault.moved_s for fault in faults.past if fault.moved_s and fault.overlaps(receipt.sent_s, receipt.at_s)]
        latest = max(latest, min((receipt.sent_s - moved_s for moved_s in moved), default=0.0))  # of several the last one did it
    return latest


def flows(records: Iterable[Record], faults: Faults) -> list[Flow]:
    """Return the effect of each takeover on the browser that had a newer event first."""
    lives, found = [record.seen() for record in records], []
    for moved_s in (fault.moved_s for fault in faults.past if fault.moved_s is not None):
        firsts = [_flow(life, moved_s) for life in lives]
        if any(firsts):
            found.append(min(filter(None, firsts)))
    return found


def _flow(life: Sequence[Seen], moved_s: float) -> Flow | None:
    """Return when a browser had an event that was published after a moment, and how long it had none before that."""
    since = life[bisect_left(life, moved_s, key=lambda entry: entry.at_s) :]
    first = next((index for index, entry in enumerate(since) if entry.at_s - entry.took_s > moved_s), None)
    if first is None:
        return None
    times = [moved_s, *(entry.at_s for entry in since[: first + 1])]
    return Flow(times[-1] - moved_s, max(later - earlier for earlier, later in pairwise(times)))


def check_consumer(history: History, name: str, done: Iterable[Done], faults: Faults, epoch: str) -> list[Violation]:
    """Return the violations of one consumer with processes that share its work. `epoch` is the log's at the end."""
    violations: list[Violation] = []
    last: dict[Place, Done] = {}
    for each in sorted(done, key=lambda each: each.at_s):
        place = (each.epoch, each.offset)

        def violate(kind: str, told: str, place: Place = place) -> None:
            violations.append(Violation(kind, name, *place, told))

        before, known = last.get(place), history.events.get(place)
        published = known.id == each.id if known else each.id in history.ids or each.id in history.doubts
        if not published:
            violate("phantom", f"did {each.id}, published was {known.id if known else 'nothing'}")
        elif before is not None and before.id != each.id:
            violate("phantom", f"did {before.id} and {each.id} at one place")
        elif before is not None and not any(fault.overlaps(before.at_s, each.at_s) for fault in faults.past):
            violate("doubled", f"did {each.id} at {before.at_s} and at {each.at_s}, and nothing happened between")
        last[place] = each
    for event in history.log(epoch):
        if (event.epoch, event.offset) not in last:
            violations.append(Violation("skipped", name, event.epoch, event.offset, f"never did {event.id}"))
    return violations
