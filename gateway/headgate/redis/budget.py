"""The time budget of a call, with one deadline for all of its Redis commands and a circuit breaker for each address.

In: `with Budget(address, limit_s):` around a call that may take several steps (a connection, the Sentinels, a Cluster's nodes,
a retry). Out: `left_s()` and `wait_s()`, which bound each step on the way (bounded.py), and BusUnavailable at once while the
address is stalled (`Breaker`). Without a budget, as in a gateway's own clients, each step has its own limit.

A budget belongs to its thread or greenlet. A nested budget is part of the outer one. A signal handler that raises may end a
call anywhere, also in `__enter__` and `__exit__`. So the context and the breaker refer to a budget weakly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextvars import ContextVar, Token
from threading import RLock
from time import monotonic
from types import TracebackType
from typing import Literal
from weakref import ref

from headgate.errors import BusRefused, BusUnavailable, HeadgateError

from .faults import ALL_IN_USE, NO_REPLY, translate

# A call without an answer for this long (at most half of its limit) is taken as stalled. A refused connection fails sooner.
SILENT_S = 0.5
# Share of the limit for waits. The rest is for raising the error within the limit.
_SHARE = 0.98
# Breakers that a process keeps. Beyond that it forgets them all.
MAX_ADDRESSES = 1000
# How long calls fail at once after a timeout.
OPEN_S = 1.0

log = logging.getLogger("headgate.publisher")


def _none() -> None:
    """Stand for a reference to a call that is over."""


class Breaker:
    """Decides whether a call to a stalled Redis may try or fails at once. No I/O, clock or lock. Its owner serializes calls.

    After a timeout all calls fail at once for OPEN_S. Then one call at a time, the probe, may try. An answer to the probe, or
    to an earlier call, closes the breaker. A timeout of the probe opens it for another OPEN_S.
    """

    __slots__ = ("_probe", "_retry_at_s")

    def __init__(self) -> None:
        self._retry_at_s: float | None = None  # None: closed
        self._probe: Callable[[], object] = _none

    @property
    def is_open(self) -> bool:
        """Whether calls fail at once, or a probe is under way."""
        return self._retry_at_s is not None

    def admit(self, call: object, now_s: float) -> bool:
        """Return whether a call may begin now. Then `ended` must follow."""
        if self._retry_at_s is None:
            return True
        if self._probe() is not None or now_s < self._retry_at_s:
            return False
        self._probe = ref(call)
        return True

    def ended(self, call: object, now_s: float, *, answered: bool, timed_out: bool) -> bool:
        """Note how a call ended: `answered` (or failed at once), `timed_out`, or unknown. Return whether that opened it.

        After a probe with an unknown end, such as an interrupt, the next call may probe at once. Timeouts of calls that began
        before the first timeout change nothing.
        """
        is_probe = call is self._probe()
        if answered or is_probe:
            self._probe = _none
        if answered:
            self._retry_at_s = None
        elif timed_out and (is_probe or self._retry_at_s is None):
            self._retry_at_s = now_s + OPEN_S
            return True
        return False


# The counted events of all breakers of a process.
Counted = Literal["opened", "closed", "refused"]


_current: ContextVar[Callable[[], Budget | None]] = ContextVar("headgate_redis_budget", default=_none)
_breakers: dict[tuple[str, float], Breaker] = {}
_lock = RLock()  # a signal handler may publish, too
_counter: Callable[[Counted], object] | None = None


def count_with(counter: Callable[[Counted], object]) -> None:
    """Call `counter` for each opening, closing and refusal in this process, one at a time. It must not wait."""
    global _counter
    _counter = counter


def answered(address: str) -> None:
    """Close the breaker of an address, after Redis answered another part of this process there. Never waits."""
    with _lock:
        for (place, _), breaker in _breakers.items():
            if place == address and breaker.is_open:
                breaker.ended(breaker, 0.0, answered=True, timed_out=False)
                _count("closed")


def left_s() -> float | None:
    """Return the seconds that the current call has left (negative: overdue), or None without a budget."""
    budget = _active()
    return None if budget is None else budget.end_s - monotonic()


def wait_s(usual_s: float) -> float | None:
    """Return the most seconds to wait for a reply, or None for the usual wait."""
    budget = _active()
    if budget is None:
        return None
    left = budget.end_s - monotonic()
    return max(left, 0.0) if budget.is_patient or left < usual_s else None


def check_left() -> None:
    """Raise TimeoutError if the current call has no time left."""
    left = left_s()
    if left is not None and left <= 0:
        raise TimeoutError("no time left for the rest of the reply")


def renew() -> None:
    """Restart the time without an answer, because Redis is at work on the current call."""
    budget = _active()
    if budget is not None:
        budget.end_s = monotonic() + budget.limit_s * _SHARE


class Budget:
    """See the module.

    Args:
        address: the displayed address of the server, the Sentinels or a part of a Cluster. Calls with the same address and
            limit share a breaker.
        limit_s: the time of the whole call.
        is_patient: whether each step may take all of the time, because none is retried.
    """

    __slots__ = ("__weakref__", "_began_s", "_breaker", "_is_over", "_token", "address", "end_s", "is_patient", "limit_s")

    def __init__(self, address: str, limit_s: float, *, is_patient: bool = False) -> None:
        self.address, self.limit_s, self.is_patient = address, limit_s, is_patient
        self.end_s = self._began_s = 0.0
        self._is_over = False
        self._token: Token[Callable[[], Budget | None]] | None = None
        self._breaker = _breakers.get((address, limit_s)) or _new_breaker(address, limit_s)

    def __enter__(self) -> None:
        """Begin. Raises BusUnavailable, without sending anything, if Redis is stalled."""
        if _active() is not None:
            return
        now_s = monotonic()
        if self._breaker.is_open:
            with _lock:
                is_admitted = self._breaker.admit(self, now_s)
            if not is_admitted:
                refuse_while_stalled(self.address, self.limit_s)
        self._began_s = now_s
        self.end_s = now_s + self.limit_s * _SHARE
        self._token = _current.set(ref(self))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End. Raises BusRefused in place of an error of code that reads a reply, as `faults.reading` does."""
        if not isinstance(error, NO_REPLY):  # a generator around this would add 25 µs to its 10 µs on a busy machine
            return self._end(error)
        fault = translate(error, self.address)
        self._end(fault)
        raise fault from error

    def _end(self, error: BaseException | None) -> None:
        if self._token is None:
            return
        _current.reset(self._token)
        self._token = None
        self._is_over = True
        if error is None and not self._breaker.is_open:
            return
        now_s = monotonic()
        took_s = now_s - self._began_s
        is_silent = isinstance(error, BusUnavailable) and not error.redis_code and took_s >= min(SILENT_S, self.limit_s / 2)
        is_answer = error is None or (isinstance(error, HeadgateError) and error.is_from_redis)
        if isinstance(error, BusUnavailable | BusRefused):
            is_answer = not is_silent and error.redis_code != ALL_IN_USE
        with _lock:
            was_open = self._breaker.is_open
            opened = self._breaker.ended(self, now_s, answered=is_answer, timed_out=is_silent)
            closed = was_open and not self._breaker.is_open
            if opened or closed:
                _count("opened" if opened else "closed")
        if opened and not was_open:
            log.warning("%s did not answer in %.1f s: calls fail at once until it answers", self.address, took_s)
        elif closed:
            log.warning("%s answers again", self.address)


def refuse_while_stalled(address: str, limit_s: float) -> None:
    """Raise BusUnavailable if Redis is stalled, for a call that would wait for the end of another one. Never waits."""
    breaker = _breakers.get((address, limit_s))
    if breaker is not None and breaker.is_open:
        with _lock:
            _count("refused")
        raise BusUnavailable(
            f"{address} did not answer in time a moment ago, so nothing was sent; the next call after {OPEN_S:g} s tries again",
            shown="it does not answer",
        )


def _active() -> Budget | None:
    """Return the budget of this thread or greenlet. A greenlet started inside a call inherits its budget and may outlive it."""
    budget = _current.get()()
    return None if budget is None or budget._is_over else budget


def _count(what: Counted) -> None:
    if _counter is not None:
        _counter(what)


def _new_breaker(address: str, limit_s: float) -> Breaker:
    with _lock:
        if len(_breakers) >= MAX_ADDRESSES:
            _breakers.clear()
        return _breakers.setdefault((address, limit_s), Breaker())


def _in_child() -> None:
    """Forget all breakers in a forked child, which has none of its parent's calls."""
    global _lock
    _lock = RLock()
    _breakers.clear()


os.register_at_fork(after_in_child=_in_child)
