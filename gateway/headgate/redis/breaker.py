"""A circuit breaker: whether a call of a Redis that has stood still may try, or fails at once. No I/O, no clock, no lock.

In: the time (s, of any clock that only grows) at which a call asks to begin, and how each has ended. Out: whether it may begin,
and whether it is the probe. After a call has timed out, all fail at once for OPEN_S. Then one at a time tries, the probe. Its
answer closes the breaker, and its timeout opens it for as long again. An answer to a call that began earlier closes it too.
"""

from __future__ import annotations

from enum import Enum

from headgate.runtime.machine import Machine

OPEN_S = 1.0


class State(Enum):
    """Whether calls may begin."""

    CLOSED = "closed"  # all
    OPEN = "open"  # none, for OPEN_S
    PROBING = "probing"  # one is under way, and no other begins


class Step(Enum):
    """What moves the state."""

    ANSWERED = "answered"
    TIMED_OUT = "timed out"
    PROBE_BEGAN = "probe began"
    PROBE_TIMED_OUT = "probe timed out"
    PROBE_STOPPED = "probe stopped"  # an interrupt, or an error before Redis was asked


class Admission(Enum):
    """What a call that asks to begin is."""

    CALL = "call"
    PROBE = "probe"
    REFUSED = "refused"


MACHINE = Machine(
    "breaker",
    {
        (State.CLOSED, Step.ANSWERED): State.CLOSED,
        (State.CLOSED, Step.TIMED_OUT): State.OPEN,
        (State.CLOSED, Step.PROBE_TIMED_OUT): State.OPEN,  # the answer to an earlier call had closed it
        (State.CLOSED, Step.PROBE_STOPPED): State.CLOSED,
        (State.OPEN, Step.ANSWERED): State.CLOSED,
        (State.OPEN, Step.TIMED_OUT): State.OPEN,
        (State.OPEN, Step.PROBE_BEGAN): State.PROBING,
        (State.OPEN, Step.PROBE_TIMED_OUT): State.OPEN,
        (State.OPEN, Step.PROBE_STOPPED): State.OPEN,
        (State.PROBING, Step.ANSWERED): State.CLOSED,
        (State.PROBING, Step.TIMED_OUT): State.PROBING,  # a call that began before the first timeout
        (State.PROBING, Step.PROBE_TIMED_OUT): State.OPEN,
        (State.PROBING, Step.PROBE_STOPPED): State.OPEN,
    },
)


class Breaker:
    """See the module. One for each address; its owner lets one thread at a time call it."""

    __slots__ = ("_retry_at_s", "state")

    def __init__(self) -> None:
        self.state = State.CLOSED
        self._retry_at_s = 0.0

    def admit(self, now_s: float) -> Admission:
        """Return what a call that begins now is. Unless it is REFUSED, `ended` must follow."""
        if self.state is State.CLOSED:
            return Admission.CALL
        if self.state is State.PROBING or now_s < self._retry_at_s:
            return Admission.REFUSED
        self._move(Step.PROBE_BEGAN)
        return Admission.PROBE

    def ended(self, admission: Admission, now_s: float, *, answered: bool, timed_out: bool) -> bool:
        """A call is over: `answered` (or failed at once), `timed_out`, or neither is known. Return whether that opened it."""
        probe = admission is Admission.PROBE
        before = self.state
        if answered:
            self._move(Step.ANSWERED)
        elif timed_out:
            self._move(Step.PROBE_TIMED_OUT if probe else Step.TIMED_OUT)
        elif probe:
            self._move(Step.PROBE_STOPPED)  # the next call may probe at once
        if self.state is State.OPEN and before is not State.OPEN and timed_out:
            self._retry_at_s = now_s + OPEN_S
            return True
        return False

    def reset(self) -> None:
        """A forked child has none of its parent's calls."""
        self.state, self._retry_at_s = State.CLOSED, 0.0

    def _move(self, step: Step) -> None:
        self.state = MACHINE.after(self.state, step)
