"""One timer for every deadline of a session, on the monotonic clock.

It is a wheel of slots. Adding is an append, and a tick costs as much as its due callbacks. Callbacks are not cancelled; each
checks whether it still applies. Ten thousand idle clients take ten thousand small tuples and one timer.

After a stall of the process the loop runs timers before sockets. A late tick waits for one turn of the loop, so that pongs that
arrived during the stall count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVarTuple

import structlog

from headgate.runtime.loop import Watcher, repeat

log = structlog.get_logger("headgate.deadlines")

monotonic = time.monotonic

Arguments = TypeVarTuple("Arguments")

# A tick later than this means that our process stalled.
STALL_TICKS = 2


class Deadlines:
    """Calls back in the hub, at most two ticks late, or with the second tick after a stall."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._slots: dict[int, list[tuple[Callable[..., object], tuple[object, ...]]]] = {}
        self._reached = self._last_tick = int(monotonic() / tick_s)
        self._timer: Watcher | None = None

    def after(self, delay_s: float, callback: Callable[[*Arguments], object], *args: *Arguments) -> None:
        """Call `callback(*args)` in the hub after `delay_s`. The callback must not switch greenlets."""
        slot = max(int((monotonic() + delay_s) / self._tick_s), self._reached) + 1
        self._slots.setdefault(slot, []).append((callback, args))
        if self._timer is None:
            self._last_tick = int(monotonic() / self._tick_s)
            self._timer = repeat(self._tick_s, self._advance)

    def close(self) -> None:
        """Drop all callbacks and stop the timer. Idempotent."""
        self._slots.clear()
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _advance(self) -> None:
        now = int(monotonic() / self._tick_s)
        late = now - self._last_tick > STALL_TICKS
        # Sockets have had a turn since the last tick, so deadlines before it are reached. A loop that is always late thus still
        # ends dead sessions.
        reached, self._last_tick = self._last_tick if late else now, now
        self._reached = reached
        for slot in sorted(slot for slot in self._slots if slot <= reached):
            for callback, args in self._slots.pop(slot, ()):  # a callback may have closed us
                try:
                    callback(*args)
                except Exception:  # the other callbacks must still run
                    log.exception("deadline callback failed", callback=repr(callback))
