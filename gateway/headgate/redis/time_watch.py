"""A watch over the clock of some data in Redis (clock.lua): the time that this process was told, and how long ago that was.

In: each time that Redis tells. Out: the words for the next call, every WATCH_EVERY_S. By them the clock knows whether its wall
clock was set, or nobody has called for so long. No I/O.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# A clock gives its watchers 20 s to speak up.
WATCH_EVERY_S = 5.0


def awake_or_asleep_s() -> float:
    """Return a monotonic time that goes on while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class TimeWatch:
    """The last time that was told. Owned by one thread or greenlet. `now_s` is a monotonic clock of this machine."""

    def __init__(self, now_s: Callable[[], float] = awake_or_asleep_s) -> None:
        self._now_s = now_s
        self._told_ms = 0
        self._heard_s = 0.0

    def words(self) -> tuple[int, ...]:
        """Return (the time that was told, how many ms ago), or nothing if none was."""
        return (self._told_ms, int((self._now_s() - self._heard_s) * 1000)) if self._told_ms else ()

    def hear(self, told_ms: int) -> None:
        """Be told a time, just now; 0: there is no clock, and what was told before is of no use."""
        self._told_ms, self._heard_s = told_ms, self._now_s()
