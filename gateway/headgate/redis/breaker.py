"""A circuit breaker: decides whether a call to a stalled Redis may try or fails at once. No I/O, no clock, no lock.

In: the time (s, by any monotonic clock) at which a call begins, and its outcome. Out: whether it may begin, and whether it is
the probe. After a timeout all calls fail at once for OPEN_S. Then one call at a time, the probe, may try. An answer to the
probe, or to an earlier call, closes the breaker. A timeout of the probe opens it for another OPEN_S.
"""

from __future__ import annotations

from enum import Enum

from headgate.runtime.machine import Machine

OPEN_S = 1.0


class State(Enum):
    """Which calls may begin."""

    CLOSED = "closed"  # all
    OPEN = "open"  # none, for OPEN_S
    PROBING = "probing"  # one is under way, and no other begins


class Step(Enum):
    """An event that changes the state."""

    ANSWERED = "answered"
    TIMED_OUT = "timed out"
    PROBE_BEGAN = "probe began"
    PROBE_TIMED_OUT = "probe timed out"
    PROBE_STOPPED = "probe stopped"  # an interrupt, or an error before Redis was asked


class Admission(Enum):
    """The answer to a call that wants to begin."""

    CALL = "call"
    PROBE = "probe"
    REFUSED = "refused"


MACHINE = Machine(
    "breaker",
    {
        (State.CLOSED, Step.ANSWERED): State.CLOSED,
        (State.CLOSED, Step.TIMED_OUT): State.OPEN,
        (State.CLOSED, Step.PROBE_TIMED_OUT): State.OPEN,  # an answer to an earlier call had closed it
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
    """A circuit breaker for one address. Its owner serialises calls."""

    __slots__ = ("_retry_at_s", "state")

    def __init__(self) -> None:
        self.state = State.CLOSED
        self._retry_at_s = 0.0

    def admit(self, now_s: float) -> Admission:
        """Admit or refuse a call that begins now. Unless it is REFUSED, `ended` must follow."""
        if self.state is State.CLOSED:
            return Admission.CALL
        if self.state is State.PROBING or now_s < self._retry_at_s:
            return Admission.REFUSED
        self._move(Step.PROBE_BEGAN)
        return Admission.PROBE

    def ended(self, admission: Admission, now_s: float, *, answered: bool, timed_out: bool) -> bool:
        """Note how a call ended: `answered` (or failed at once), `timed_out`, or unknown. Return whether that opened it."""
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
        """Forget all calls, as in a forked child."""
        self.state, self._retry_at_s = State.CLOSED, 0.0

    def _move(self, step: Step) -> None:
        self.state = MACHINE[self.state, step]
