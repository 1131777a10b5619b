"""Shedding refuses newcomers while there is no room for them, or the event loop lags. No I/O.

In: the lag of each beat of the loop (runtime/watchdog.py), and every new session and CONNECT. Out: an error with a random time
to retry after, so that clients refused together return apart.

Rules. 1. Joined clients are never disconnected. 2. While the loop lags, all newcomers are refused, at the handshake, where it
is cheapest. 3. The last twentieth of `max_clients` is for returning clients. Their CONNECT has `resume`, which costs nothing to
read. A client that claims it falsely gains only a part of this reserve.

One late beat is a pause of the process or its machine, so shedding begins after LATE_BEATS in a row. It ends after CALM_S without
a beat later than half of LAG_S.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randint
from time import monotonic

import structlog

from headgate.errors import LimitReached, Overloaded
from headgate.runtime.metrics import SHED, SHEDDING

log = structlog.get_logger("headgate.shedding")

LATE_BEATS = 3
CALM_S = 5.0
RETURNING_SHARE = 20  # one place in this many is for returning clients
LAG_S = 1.0  # of a late beat
# The ranges of the time after which a refused client may come back. A client must leave first, or the loop catch up.
FULL_RETRY_S = (5, 20)
LAG_RETRY_S = (3, 10)


class Shedding:
    """See the module. `count` returns the number of clients. Their limit, `max_clients` (0: none), may be replaced."""

    def __init__(
        self,
        max_clients: int,
        count: Callable[[], int],
        now_s: Callable[[], float] = monotonic,
        spread: Callable[[int, int], int] = randint,
    ) -> None:
        self.max_clients, self._count = max_clients, count
        self._now_s, self._spread = now_s, spread
        self._is_refusing = False
        self._late_beats = 0  # in a row
        self._late_at_s = 0.0  # time of the last late beat

    def beat(self, lag_s: float) -> None:
        """Take one beat of the loop with its lag. Runs in the hub, never waits."""
        if lag_s >= (LAG_S / 2 if self._is_refusing else LAG_S):
            self._late_beats += 1
            self._late_at_s = self._now_s()
            if not self._is_refusing and self._late_beats >= LATE_BEATS:
                self._refuse(True)
                log.error("shedding began", lag_s=round(lag_s, 2), effect="newcomers are refused until the loop has caught up")
            return
        self._late_beats = 0
        if self._is_refusing and self._now_s() - self._late_at_s >= CALM_S:
            self._refuse(False)
            log.info("shedding ended")

    def check_session(self, sessions: int) -> None:
        """Refuse a new session beyond `sessions`. Raises Overloaded if the loop lags, and LimitReached (`clients`)."""
        if self._is_refusing:
            raise self._overloaded()
        if 0 < self.max_clients <= max(sessions, self._count()):
            raise self._full()

    def check_client(self, *, returning: bool) -> None:
        """Refuse another client. `returning` means that it was here before. Raises as `check_session`."""
        if self._is_refusing:
            raise self._overloaded()
        reserved = 0 if returning else self.max_clients // RETURNING_SHARE
        if 0 < self.max_clients <= self._count() + reserved:
            raise self._full()

    def word(self) -> str:
        """Return the state as a word for people: `admitting`, `full` or `shedding`."""
        if self._is_refusing:
            return "shedding"
        return "full" if 0 < self.max_clients <= self._count() else "admitting"

    def _overloaded(self) -> Overloaded:
        SHED.labels("lag").inc()
        return Overloaded(self._spread(*LAG_RETRY_S))

    def _full(self) -> LimitReached:
        SHED.labels("clients").inc()
        return LimitReached("clients", self.max_clients, self._spread(*FULL_RETRY_S))

    def _refuse(self, is_refusing: bool) -> None:
        self._is_refusing = is_refusing
        SHEDDING.set(is_refusing)
