"""A wait that begins awake: whether a thread asks for its answer again and again for some tens of microseconds before it sleeps.

Redis on the same machine, or in the same rack, answers a publish in 15 to 50 µs. To fall asleep and to be woken takes a thread as
long again, and Redis too, which sleeps meanwhile: a receipt took 136 µs by the clock and 60 of the publisher's CPU where 25 were
Redis' work. Awake it takes half of the time, and no more CPU (docs/decisions/0055-a-brief-wait.md).

It must not cost where it does not pay: over a network, or where all processors are busy. So each answer that came in time is a
credit and each that did not takes several. Without credit the next calls sleep at once, and then one more is tried. Of several
threads none waits awake: it would take the interpreter from the others, which could send meanwhile. No I/O, no clock.
"""

from __future__ import annotations

from enum import Enum
from threading import Lock

# How long a wait is awake: most answers from the same machine come within half of it.
AWAKE_S = 100e-6
# An answer in time saves some 60 µs of waiting; one that is late has cost AWAKE_S of a processor for nothing.
PRICE, MOST_CREDIT = 4, 16
# So many calls sleep at once before another is tried.
REST_CALLS = 256


class Waiting(Enum):
    """How the next wait begins."""

    AWAKE = "awake"
    ASLEEP = "asleep"


class Outcome(Enum):
    """What came of a wait."""

    IN_TIME = "in time"
    LATE = "late"  # the credit lasts
    TOO_OFTEN_LATE = "too often late"
    RESTED = "rested"


TRANSITIONS = {
    (Waiting.AWAKE, Outcome.IN_TIME): Waiting.AWAKE,
    (Waiting.AWAKE, Outcome.LATE): Waiting.AWAKE,
    (Waiting.AWAKE, Outcome.TOO_OFTEN_LATE): Waiting.ASLEEP,
    (Waiting.ASLEEP, Outcome.RESTED): Waiting.AWAKE,
}


class BriefWait:
    """The waits for one server. Threads may share it: a count that is lost between two of them changes nothing that matters."""

    __slots__ = ("_credit", "_rest", "state")

    def __init__(self) -> None:
        self.state = Waiting.AWAKE
        self._credit = PRICE
        self._rest = 0

    def begins_awake(self) -> bool:
        """Return whether this wait is to begin awake. If so, `ended` must follow."""
        if self.state is Waiting.AWAKE:
            return True
        self._rest -= 1
        if self._rest > 0:
            return False
        self._credit = 0  # one try
        self._move(Outcome.RESTED)
        return True

    def ended(self, *, in_time: bool) -> None:
        """A wait that began awake is over."""
        if in_time:
            self._credit = min(self._credit + 1, MOST_CREDIT)
            self._move(Outcome.IN_TIME)
            return
        self._credit -= PRICE
        if self._credit > 0:
            self._move(Outcome.LATE)
        else:
            self._rest = REST_CALLS
            self._move(Outcome.TOO_OFTEN_LATE)

    def _move(self, outcome: Outcome) -> None:
        # Another thread may have moved it meanwhile: then that was the step.
        self.state = TRANSITIONS.get((self.state, outcome), self.state)


class UnderWay:
    """Counts the round trips of this process that are under way, in all threads: `with` it, for each."""

    __slots__ = ("_count", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    @property
    def is_alone(self) -> bool:
        """Whether there is one at the most."""
        return self._count < 2

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1

    def forget(self) -> None:
        """A forked child has none of its parent's."""
        self._lock = Lock()
        self._count = 0
