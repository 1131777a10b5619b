"""Trouble that reaches beyond a tab: the gateway is restarted, or the log loses its last second.

In: a user who asks. Out: what an operator (the process that was started with `--demo`, headgate/cli/demo_operator.py) does, and a
burst (bursts.py) to tell what came of it: one that is published while every browser is disconnected, or the note in the record of
the last one that the log has lost events. The orders outlive a restart. Without an operator nothing here can be asked for. One
trouble at a time, and at most MAX_PER_WINDOW in WINDOW_S seconds, restarts included.
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

# Published while the gateway has no browsers, so that there is something to catch up on.
AWAY_EVENTS = 25
LOST_S = 1.0
MAX_PER_WINDOW = 6
WINDOW_S = 60.0


class Operator(Protocol):
    """Who runs this gateway: `app.extensions["headgate.operator"]`, where it may be troubled.

    Attributes:
        carried: what `while_away` returned before the restart that this process comes from; empty otherwise.
    """

    @property
    def carried(self) -> Mapping[str, Any]: ...

    def restart(self, while_away: Callable[[], Mapping[str, object]]) -> None:
        """Restart the gateway soon; call `while_away` when no browser is connected, and carry over what it returns."""
        ...

    def lose_end(self, seconds: float) -> tuple[int, int]:
        """Have the log lose its last seconds; return its newest offset before and after. May switch greenlets.

        Raises:
            BusRefused, BusUnavailable: it did not.
        """
        ...


@dataclass(frozen=True, slots=True)
class Loss:
    """Events `first` to `last`, by offset, that the log had and has no longer; `count` may be 0."""

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
        """Restart the gateway; return how many events are published, as burst `burst_id`, while browsers are disconnected.

        Raises:
            InvalidRequest, LimitReached: as `Bursts.start`, or there was too much trouble lately; nothing happens.
        """
        asked = {"events": AWAY_EVENTS, "id": burst_id}
        self._bursts.check(asked, by)
        self._admit()
        self._operator.restart(lambda: self._away(asked, by))
        return AWAY_EVENTS  # and the lock is kept: this process has no time for more

    def lose(self, by: str) -> Loss:
        """Have the log lose its last LOST_S seconds; return what it lost, which is in the record of the last burst as well.

        Raises:
            LimitReached: a burst is running, or there was too much trouble lately; nothing happens.
            BusRefused, BusUnavailable: Redis was not put back, or is not back yet.
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
            burst = None  # its page is told that it did not run
        return {"times": self._times, "burst": burst}
