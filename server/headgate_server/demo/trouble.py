"""Trouble beyond a single tab: the gateway restarts, or the log loses its last second.

In: requests of a user. Out: actions of an operator (the process started with `--demo`, headgate/cli/demo_operator.py), and a
burst (bursts.py) that shows the result: one published while every browser is disconnected, or the note in the last one's record
that the log has lost events. The orders survive a restart. Without an operator, every request fails. One trouble at a time, and
at most MAX_PER_WINDOW in WINDOW_S seconds, restarts included.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from headgate.errors import HeadgateError, LimitReached

from .bursts import Bursts
from .orders import OrderBook

# Events published while no browser is connected, for the browsers to catch up on.
AWAY_EVENTS = 25
LOST_S = 1.0
MAX_PER_WINDOW = 6
WINDOW_S = 60.0


class Operator(Protocol):
    """The operator of this gateway: `app.extensions["headgate.operator"]`, if trouble is allowed.

    Attributes:
        carried: the result of `while_away` before the restart that started this process; empty otherwise.
    """

    @property
    def carried(self) -> Mapping[str, Any]: ...

    def restart(self, while_away: Callable[[], Mapping[str, object]]) -> None:
        """Restart the gateway soon; call `while_away` when no browser is connected, and carry over its result."""
        ...

    def lose_end(self, seconds: float) -> tuple[int, int]:
        """Make the log lose its last seconds; return its newest offset before and after. May switch greenlets.

        Raises:
            BusRefused, BusUnavailable: it failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Loss:
    """Events `first` to `last`, by offset, that the log has lost; `count` may be 0."""

    first: int
    last: int
    count: int


class Trouble:
    """See the module. `now_s` is monotonic over restarts of the process."""

    def __init__(
        self, operator: Operator, bursts: Bursts, book: OrderBook, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._operator, self._bursts, self._book, self._now_s = operator, bursts, book, now_s
        self._lock = threading.Lock()
        times = operator.carried.get("times", [])
        self._times = [float(at) for at in times][-MAX_PER_WINDOW:]
        if burst := operator.carried.get("burst"):
            bursts.remember(burst)

    def restart(self, burst_id: object, by: str) -> int:
        """Restart the gateway; return the number of events that burst `burst_id` publishes while browsers are disconnected.

        Raises:
            InvalidRequest, LimitReached: as `Bursts.start`, or there was too much trouble recently; nothing happens.
        """
        asked = {"events": AWAY_EVENTS, "id": burst_id}
        self._bursts.check(asked, by)
        self._admit()
        self._operator.restart(lambda: self._away(asked, by))
        return AWAY_EVENTS  # and keep the lock, as this process ends soon

    def lose(self, by: str) -> Loss:
        """Make the log lose its last LOST_S seconds; return the loss, which the record of the last burst has as well.

        Raises:
            LimitReached: a burst is running, or there was too much trouble recently; nothing happens.
            BusRefused, BusUnavailable: Redis was not set back, or does not answer yet.
        """
        self._bursts.check({}, by)
        self._admit()
        try:
            before, after = self._operator.lose_end(LOST_S)
        finally:
            self._lock.release()
        self._book.keep_all()
        loss = Loss(after + 1, before, max(0, before - after))
        self._bursts.lost(loss.count)
        return loss

    def _admit(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise LimitReached("troubles at a time", 1, WINDOW_S / MAX_PER_WINDOW)
        now_s = self._now_s()
        self._times = [at for at in self._times if at > now_s - WINDOW_S]
        if len(self._times) >= MAX_PER_WINDOW:
            self._lock.release()
            raise LimitReached(f"troubles in {WINDOW_S:g} seconds", MAX_PER_WINDOW, self._times[0] + WINDOW_S - now_s)
        self._times.append(now_s)

    def _away(self, asked: Mapping[str, object], by: str) -> Mapping[str, object]:
        try:
            burst = asdict(self._bursts.start(asked, by))
        except HeadgateError:
            burst = None  # its page learns that it did not run
        return {"times": self._times, "burst": burst}
