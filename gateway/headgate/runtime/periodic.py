"""Calls a function periodically in a separate greenlet, or sooner on request.

In: the function for one step. Out: its calls, one at a time, until `close`. Periodic writes to Redis use this, off the hot
path.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.runtime.loop import Lock, Signal, sleep, spawn


class PeriodicTask:
    """See the module.

    Args:
        step: returns the seconds until the next step, unless `hurry` is called. May wait.
        failed: called to log an exception of `step`, which must not end the task.
        retry_s: seconds until the step after an exception.
        gap_s: least seconds between two steps, for any number of `hurry` calls.
    """

    def __init__(self, step: Callable[[], float], failed: Callable[[], None], retry_s: float, gap_s: float = 0.0) -> None:
        self._step, self._failed = step, failed
        self._retry_s, self._gap_s = retry_s, gap_s
        self._wakeup = Signal()
        self._lock = Lock()
        self.begun = self.ended = False

    def start(self) -> None:
        """Begin with a step. Idempotent."""
        if not self.begun:
            self.begun = True
            spawn(self._run)

    def hurry(self) -> None:
        """Request a step soon. Never waits."""
        self._wakeup.set()

    def close(self) -> bool:
        """Start no more steps and wait for the current one; return whether this call ended a started task."""
        if self.ended:
            return False
        self.ended = True
        self._wakeup.set()
        with self._lock:
            return self.begun

    def _run(self) -> None:
        while not self.ended:
            self._wakeup.clear()
            wait_s = self._retry_s
            try:
                with self._lock:
                    if not self.ended:
                        wait_s = self._step()
            except Exception:  # noqa: BLE001 - logged by `failed`
                self._failed()
            if self._gap_s:
                sleep(self._gap_s)
            self._wakeup.wait(max(0.0, wait_s - self._gap_s))
