"""A clock for greenlets. Time passes only when the test says so, and all due callbacks run before `advance` returns."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import gevent
from gevent.event import Event


class LoopClock:
    """See the module. `now_s` serves as both clocks, monotonic and Unix.

    A fixture puts `time`, `sleep` and `signal` in the place of `time.monotonic`, and of the loop's `sleep` and `Signal`, in the
    module under test.
    """

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s
        self._due: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float = 0) -> None:
        """Wait until the test has let so much time pass; with 0, let the loop run once."""
        if seconds > 0:
            self._timer(seconds).wait()
        else:
            gevent.sleep()

    def signal(self) -> ClockSignal:
        return ClockSignal(self)

    def advance(self, seconds: float) -> None:
        """Let time pass, so that everything due happens in order, each at its own time."""
        end_s = self.now_s + seconds
        gevent.idle(-2)
        while self._due and self._due[0][0] <= end_s:
            due_s, _, timer = heapq.heappop(self._due)
            self.now_s = max(self.now_s, due_s)
            timer.set()
            gevent.idle(-2)
        self.now_s = end_s

    def _timer(self, seconds: float) -> Event:
        timer = Event()
        heapq.heappush(self._due, (self.now_s + seconds, next(self._numbers), timer))
        return timer


class ClockSignal(Event):  # type: ignore[misc]
    """The loop's `Signal`, with timeouts by a `LoopClock`."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until it is set, for at most `timeout` seconds of the clock; return whether it is."""
        if timeout is None or self.is_set():
            return super().wait()
        if timeout <= 0:
            return False
        gevent.wait([self, self._clock._timer(timeout)], count=1)
        return self.is_set()
