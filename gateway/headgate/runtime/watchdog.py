"""The watchdog names the code that blocks the event loop, from one thread of the operating system per process.

In: four beats a second from the loop. Out: after STALL_S without a beat, a log line with the stack of the loop's thread; when the
loop runs again, a log line with the duration; and two counters. While the loop is blocked, so is every client of this process.
The cause is nearly always application code that waits or computes without yielding.

The report is late when Python gives this thread no turn. Code that repeatedly releases the interpreter and takes it back at
once (a loop of short system calls, each after some milliseconds of C) has delayed it for seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import FrameType

import structlog

from headgate.runtime.metrics import LOOP_LAG, LOOP_STALLED_SECONDS, LOOP_STALLS

from .loop import Watcher, in_native_thread, native_ident, native_sleep, repeat

# Each beat wakes an idle process twice, once for the thread. At ten a second they took a third of the processor time of a
# gateway without clients.
BEAT_S = 0.25
STALL_S = 0.5
MAX_FRAMES = 12

log = structlog.get_logger("headgate.watchdog")


class Watchdog:
    """Watches the loop of the thread that starts it, between `start` and `close`. Times are monotonic.

    Args:
        on_beat: called in the hub with the delay of each beat.
    """

    def __init__(self, on_beat: Callable[[float], None] = lambda lag_s: None) -> None:
        self._on_beat = on_beat
        self._beat_s = self._used_s = 0.0
        self._lags = LOOP_LAG.of()
        self._loop_thread = 0
        self._timer: Watcher | None = None

    def start(self) -> None:
        """Begin. Idempotent."""
        if self._timer is None:
            self._beat_s, self._used_s = time.monotonic(), time.process_time()
            self._loop_thread = native_ident()
            self._timer = repeat(BEAT_S, self._beat)
            timer = self._timer
            in_native_thread(lambda: self._watch(timer))

    def close(self) -> None:
        """End; the thread ends within a beat. Idempotent."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _beat(self) -> None:
        now_s = time.monotonic()
        stalled_s, self._beat_s, self._used_s = now_s - self._beat_s, now_s, time.process_time()
        if stalled_s > _unanswered_s():
            LOOP_STALLS.inc()
            LOOP_STALLED_SECONDS.inc(stalled_s)
            log.warning("loop ran again", after_s=round(stalled_s, 2))
        lag_s = max(0.0, stalled_s - BEAT_S)
        self._lags.record(lag_s)
        self._on_beat(lag_s)

    def _watch(self, timer: Watcher) -> None:
        # Measured from the last beat, because the process may have been stopped before this thread began.
        reported_s, seen_s, stood_s, looked_s, used_s = 0.0, 0.0, 0.0, self._beat_s, self._used_s
        while self._timer is timer:
            native_sleep(BEAT_S)
            before_s, looked_s = looked_s, time.monotonic()
            was_used_s, used_s = used_s, time.process_time()
            beat_s = self._beat_s
            if beat_s != seen_s:
                seen_s, stood_s = beat_s, 0.0
            # This thread overslept because the process or its machine was stopped, so no code is to blame. (Code that holds the
            # interpreter uses the processor.)
            stood_s += max(0.0, looked_s - before_s - BEAT_S - (used_s - was_used_s))
            # (If it was closed while this thread slept or waited for the interpreter, the thread no longer sees its own loop.)
            if self._timer is timer and looked_s - beat_s - stood_s > _unanswered_s() and beat_s != reported_s:
                reported_s = beat_s
                frame = sys._current_frames().get(self._loop_thread)
                # Almost no CPU time means waiting code, and some means an overloaded machine.
                cpu_s = round(used_s - self._used_s, 2)
                log.error("loop blocked", for_s=round(looked_s - beat_s, 2), cpu_s=cpu_s, at=stack_of(frame))


def _unanswered_s() -> float:
    """Return how long after a beat the loop counts as blocked. On average, blocking began half a beat after it."""
    return STALL_S + BEAT_S / 2


def stack_of(frame: FrameType | None) -> str:
    """Return file, line and function of a thread's innermost frames, the innermost first, without data."""
    places: list[str] = []
    while frame is not None and len(places) < MAX_FRAMES:
        code = frame.f_code
        places.append(f"{_short(code.co_filename)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(places) or "unknown"


def _short(path: str) -> str:
    """Return the last two parts of a path, which identify the file and reveal nothing about the machine."""
    return os.path.join(*path.split(os.sep)[-2:])
