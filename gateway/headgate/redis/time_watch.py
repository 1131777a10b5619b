"""Keeps the last time from the clock of some data in Redis (clock.lua), and its age. No I/O.

In: times from Redis. Out: the arguments of the next call, every WATCH_EVERY_S. They show whether the wall clock of Redis was
set or calls have paused.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# A clock gives its watchers 20 s.
WATCH_EVERY_S = 5.0


def awake_or_asleep_s() -> float:
    """Return a monotonic time, which continues while the machine sleeps if the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class TimeWatch:
    """The last time from Redis. Owned by one thread or greenlet. `now_s` is a monotonic clock of this machine."""

    def __init__(self, now_s: Callable[[], float] = awake_or_asleep_s) -> None:
        self._now_s = now_s
        self._redis_ms = 0
        self._received_s = 0.0

    def words(self) -> tuple[int, ...]:
        """Return (the last time, its age in ms), or nothing without one."""
        return (self._redis_ms, int((self._now_s() - self._received_s) * 1000)) if self._redis_ms else ()

    def observe(self, reported_ms: int) -> None:
        """Take a fresh time. 0 means that there is no clock, and voids the last time."""
        self._redis_ms, self._received_s = reported_ms, self._now_s()
