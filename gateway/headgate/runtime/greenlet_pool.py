"""A pool of greenlets that are used again. A new greenlet takes and returns memory of the operating system: some 30 µs each time.

In: functions to run, also from the hub. Out: each is run in a greenlet in which nothing else runs meanwhile, and starts in the
order in which they came. A function that never ends keeps its greenlet, as with `spawn`.

Only for functions of ours: the locals of a greenlet (`threading.local`, context variables) outlive a function here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from .loop import Idle, Watcher, repeat, spawn

log = structlog.get_logger("headgate.greenlets")

# Those of a burst are kept for the next one, and end when they have not been needed for so long.
REST_S = 1.0
MAX_IDLE = 256


class GreenletPool:
    """See the module."""

    def __init__(self) -> None:
        self._idle: list[Idle] = []
        self._ready: deque[Callable[[], object]] = deque()
        self._spare = 0  # so many have been idle since the last look
        self._timer: Watcher | None = None

    @property
    def idle(self) -> int:
        """How many greenlets wait for a function."""
        return len(self._idle)

    def start(self, function: Callable[[], object]) -> None:
        """Run `function` in a greenlet, starting in the next turn of the loop. Callable from the hub."""
        self._ready.append(function)
        if self._idle:
            self._idle.pop().wake()
            self._spare = min(self._spare, len(self._idle))
        else:
            spawn(self._work)

    def _work(self) -> None:
        while self._ready:
            try:
                self._ready.popleft()()
            except Exception:
                log.exception("a function in a greenlet failed")
            if len(self._idle) >= MAX_IDLE:
                return
            rest = Idle()
            self._idle.append(rest)
            if self._timer is None:
                self._timer, self._spare = repeat(REST_S, self.look), 0
            try:
                rest.wait()
            except BaseException:
                # Somebody has ended this greenlet; what it was woken for is another's.
                if rest.is_woken:
                    spawn(self._work)
                raise
            finally:
                if not rest.is_woken:
                    self._forget(rest)

    def _forget(self, rest: Idle) -> None:
        self._idle.remove(rest)
        self._spare = min(self._spare, len(self._idle))

    def look(self) -> None:
        """End the greenlets that have not been needed since the last look. The timer calls it."""
        for _ in range(self._spare):
            self._idle.pop(0).wake()  # to nothing
        self._spare = len(self._idle)
        if not self._idle and self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None
