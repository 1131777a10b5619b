"""Causes trouble on purpose, by bursts of events, a restart of the gateway, or a loss of the end of its log.

In: requests of a user. Out: changes of the book (orders.py), each stamped with the burst's id and its number, and actions of an
operator (headgate/cli/demo_operator.py), which only the process of `headgate demo` has. There is one trouble at a time, with at
most EVENTS_PER_S events, because the demo floods a browser, not a shared Redis.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog

from headgate.errors import HeadgateError, InvalidRequest, LimitReached
from headgate.runtime.rates import TokenBucket

from .orders import OrderBook

MAX_BURST_EVENTS = 500
MAX_OVER_S = 10.0
EVENTS_PER_S, MAX_EVENTS_AT_ONCE = 200, 2000
# A slow burst is published in slices.
SLICE_S = 0.1
# Events published while no browser is connected, for the browsers to catch up on.
AWAY_EVENTS = 25
LOST_S = 1.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)

_log = structlog.get_logger("headgate.server")


class Troubles:
    """See the module."""

    def __init__(
        self, book: OrderBook, *, now_s: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._book, self._now_s, self._sleep = book, now_s, sleep
        self._lock = threading.Lock()
        self._budget = TokenBucket(EVENTS_PER_S, MAX_EVENTS_AT_ONCE, now_s())

    def burst(self, asked: Mapping[str, object], by: str) -> int:
        """Run the burst in `asked`, `{events, over_s, id}`, and return the number of published events. May switch greenlets.

        A slow bus does not stretch `over_s`, but moves the remaining events closer together.

        Raises:
            InvalidRequest: a value is missing, of the wrong type or out of its range.
            LimitReached: there is another trouble, or there were too many events lately.
            BusUnavailable, BusRefused: the events before it are published and saved.
        """
        events, over_s, burst_id = asked.get("events"), asked.get("over_s"), _checked_id(asked.get("id"))
        if isinstance(events, bool) or not isinstance(events, int) or not 1 <= events <= MAX_BURST_EVENTS:
            raise InvalidRequest(f"events: expected a whole number from 1 to {MAX_BURST_EVENTS}")
        if isinstance(over_s, bool) or not isinstance(over_s, int | float) or not 0 <= over_s <= MAX_OVER_S:
            raise InvalidRequest(f"over_s: expected seconds from 0 to {MAX_OVER_S:g}")
        with self._alone():
            began_s = self._now_s()
            if not self._budget.spend(began_s, events):
                raise LimitReached("events of bursts", MAX_EVENTS_AT_ONCE, events / EVENTS_PER_S)
            slices = max(1, round(over_s / SLICE_S))
            for nth in range(slices):
                self._sleep(max(0.0, began_s + nth * over_s / slices - self._now_s()))
                self._book.scan(range(1 + events * nth // slices, 1 + events * (nth + 1) // slices), by, burst_id)
        return events

    def restart(self, restart: Callable[[Callable[[], object]], object], burst_id: object, by: str) -> int:
        """Restart the gateway; return the number of events that burst `burst_id` publishes while browsers are disconnected.

        `restart` is the operator's. It restarts soon, and calls its argument when no browser is connected.

        Raises InvalidRequest, LimitReached: as `burst`; nothing happens.
        """
        checked = _checked_id(burst_id)

        def while_away() -> None:
            try:
                self._book.scan(range(1, AWAY_EVENTS + 1), by, checked)
            except HeadgateError as error:  # the page misses its events and shows this
                _log.warning("burst cut short", events=AWAY_EVENTS, code=error.code)

        self._admit()  # for good, because this process ends soon
        restart(while_away)
        return AWAY_EVENTS

    def lose(self, lose_end: Callable[[float], tuple[int, int]]) -> int:
        """Make the log lose its last LOST_S seconds, but none of the orders; return the number of lost events.

        `lose_end` is the operator's. It returns the newest offset before and after.

        Raises:
            LimitReached: there is another trouble; nothing happens.
            BusRefused, BusUnavailable: Redis was not set back, or does not answer yet.
        """
        with self._alone():
            before, after = lose_end(LOST_S)
            self._book.save()
        return max(0, before - after)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._admit()
        try:
            yield
        finally:
            self._lock.release()

    def _admit(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise LimitReached("troubles at a time", 1, MAX_OVER_S)


def _checked_id(burst_id: object) -> str:
    if not isinstance(burst_id, str) or not _ID.fullmatch(burst_id):
        raise InvalidRequest("id: expected 1 to 40 of A-Z, a-z, 0-9, _ and -")
    return burst_id
