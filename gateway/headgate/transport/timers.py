"""One timer for every deadline of a session, on the monotonic clock.

It is a wheel of slots. Adding is an append, and a tick costs what is due in it. Nothing is cancelled: each callback checks
whether it still applies. Ten thousand idle clients are ten thousand small tuples and one timer.

After a stall of the process the loop serves its timers before its sockets. A late tick waits for one turn of the loop, so that
pongs that came during the stall are not taken for silence.
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

# A tick that is later than this was delayed by us.
STALL_TICKS = 2


class Deadlines:
    """Calls back in the hub, at most two ticks late; after a stall, with the second tick after it."""

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
        """Forget everything and stop the timer. Idempotent."""
        self._slots.clear()
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _advance(self) -> None:
        now = int(monotonic() / self._tick_s)
        late = now - self._last_tick > STALL_TICKS
        # Deadlines that passed before the last tick have had their turn of the loop since, so a loop that is always late still
        # ends the dead.
        reached, self._last_tick = self._last_tick if late else now, now
        # After a stall longer than the slots in use, walk the slots instead of every tick that went by.
        if reached - self._reached > len(self._slots):
            due = sorted(slot for slot in self._slots if slot <= reached)
        else:
            due = [slot for slot in range(self._reached + 1, reached + 1) if slot in self._slots]
        self._reached = reached
        for slot in due:
            for callback, args in self._slots.pop(slot, ()):  # a callback may have closed us
                try:
                    callback(*args)
                except Exception:  # one broken callback must not cost the others theirs
                    log.exception("deadline callback failed", callback=repr(callback))
