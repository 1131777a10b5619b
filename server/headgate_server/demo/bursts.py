"""Bursts: many events at once, or spread over some seconds, which show how a board copes and that no event is lost.

In: requests for a number of events over a time. Out: that many changes of the book (orders.py), each published and stamped with
the burst's id and its own number, and a record of how many the bus has accepted. One burst runs at a time, and the events per
WINDOW_S seconds are limited: the demo floods a browser, not a shared Redis.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from headgate.errors import HeadgateError, InvalidRequest, LimitReached

# The choices on the page. A request may use any number up to the last.
BURST_SIZES = (50, 500)
MAX_BURST_EVENTS = BURST_SIZES[-1]
MAX_OVER_S = 10.0
WINDOW_S = 10.0
MAX_EVENTS_PER_WINDOW = 2000
# Kept records of bursts.
MAX_RECORDS = 16
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)

_log = structlog.get_logger("headgate.server")


class BurstNotFound(HeadgateError):
    """There is no record of this burst (any more)."""

    code = "not_found"

    def __init__(self, burst_id: str) -> None:
        super().__init__(f"there is no record of burst {burst_id[:40]}", id=burst_id[:40])


@dataclass(slots=True)
class Burst:
    """The current state of a burst. `published` counts receipts, not plans; the log has `lost` some of these since."""

    id: str
    by: str
    events: int
    over_s: float
    published: int = 0
    lost: int = 0
    done: bool = False
    error: str = ""


class Bursts:
    """`scan(turn, by, stamp)` makes one change and returns once it is published, or raises. `after` ends each burst."""

    def __init__(
        self,
        scan: Callable[[int, str, Mapping[str, object]], object],
        after: Callable[[], object] = lambda: None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._scan, self._after = scan, after
        self._now_s = now_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._records: dict[str, Burst] = {}
        self._started: deque[tuple[float, int]] = deque()

    def start(self, asked: Mapping[str, object], by: str) -> Burst:
        """Run the burst in `asked`: `{events?, over_s?, id?}`; by default 50 events at once.

        Returns when it is over, or, with an `over_s` above zero, as soon as it has started. May switch greenlets.

        Raises:
            InvalidRequest: a value is of the wrong type or out of its range, or the id is taken.
            LimitReached: another one is running, or there were too many events in the last WINDOW_S seconds.
            OrderNotFound, BusUnavailable, BusRefused: of an immediate burst; the events before it are published and saved.
        """
        burst = self._admit(_read(asked, by))
        if burst.over_s:
            # A greenlet under the gateway. A daemon, so that the end of a server does not wait for it.
            threading.Thread(target=self._run_paced, args=(burst,), daemon=True, name="demo burst").start()
        else:
            self._run(burst)
        return burst

    def check(self, asked: Mapping[str, object], by: str) -> None:
        """Raise the errors of `start` without starting."""
        with self._lock:
            self._forget_started()
            self._check(_read(asked, by))

    def remember(self, record: Mapping[str, Any]) -> None:
        """Add the record of a burst of the previous process."""
        burst = Burst(**record)
        with self._lock:
            self._records[burst.id] = burst

    def lost(self, events: int) -> None:
        """Record that the log has lost its newest `events`, which belong to the last burst as far as it has so many."""
        with self._lock:
            if self._records:
                burst = list(self._records.values())[-1]
                burst.lost = min(burst.published, burst.lost + events)

    def record(self, burst_id: str) -> Burst:
        """Return the current state of a burst.

        Raises:
            BurstNotFound: it never existed, or MAX_RECORDS others followed it.
        """
        with self._lock:
            if (burst := self._records.get(burst_id)) is None:
                raise BurstNotFound(burst_id)
            return replace(burst)

    def _admit(self, burst: Burst) -> Burst:
        with self._lock:
            self._forget_started()
            self._check(burst)
            self._started.append((self._now_s(), burst.events))
            self._records[burst.id] = burst
            while len(self._records) > MAX_RECORDS:
                del self._records[next(iter(self._records))]
        return burst

    def _forget_started(self) -> None:
        now_s = self._now_s()
        while self._started and self._started[0][0] <= now_s - WINDOW_S:
            self._started.popleft()

    def _check(self, burst: Burst) -> None:
        if any(not each.done for each in self._records.values()):
            raise LimitReached("bursts at a time", 1, MAX_OVER_S)
        if burst.id in self._records:
            raise InvalidRequest("id: there was a burst of this id already")
        if sum(events for _, events in self._started) + burst.events > MAX_EVENTS_PER_WINDOW:
            raise LimitReached(f"burst events in {WINDOW_S:g} seconds", MAX_EVENTS_PER_WINDOW, WINDOW_S)

    def _run_paced(self, burst: Burst) -> None:
        try:
            self._run(burst)
        except HeadgateError as error:
            _log.warning("burst cut short", published=burst.published, events=burst.events, code=error.code)

    def _run(self, burst: Burst) -> None:
        """Publish each event at its planned time. A slow bus does not stretch the plan, but moves the remaining events closer
        together.
        """
        began_s = self._now_s()
        try:
            for turn in range(burst.events):
                wait_s = began_s + turn * burst.over_s / burst.events - self._now_s()
                if wait_s > 0:
                    self._sleep(wait_s)
                self._scan(turn, burst.by, {"id": burst.id, "number": turn + 1, "of": burst.events})
                burst.published += 1
        except HeadgateError as error:
            burst.error = str(error)
            raise
        finally:
            burst.done = True
            self._after()


def _read(asked: Mapping[str, object], by: str) -> Burst:
    if unknown := sorted(set(asked) - {"events", "over_s", "id"}):
        raise InvalidRequest(f"{unknown[0][:40]}: not a part of a burst")
    events, over_s, burst_id = asked.get("events", BURST_SIZES[0]), asked.get("over_s", 0), asked.get("id", secrets.token_hex(8))
    if isinstance(events, bool) or not isinstance(events, int) or not 1 <= events <= MAX_BURST_EVENTS:
        raise InvalidRequest(f"events: expected a whole number from 1 to {MAX_BURST_EVENTS}")
    if isinstance(over_s, bool) or not isinstance(over_s, int | float) or not 0 <= over_s <= MAX_OVER_S:
        raise InvalidRequest(f"over_s: expected seconds from 0 to {MAX_OVER_S:g}")
    if not isinstance(burst_id, str) or not _ID.fullmatch(burst_id):
        raise InvalidRequest("id: expected 1 to 40 of A-Z, a-z, 0-9, _ and -")
    return Burst(burst_id, by, events, float(over_s))
