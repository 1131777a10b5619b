"""Rounds: a function that is called again and again in a greenlet of its own, sooner when somebody is in a hurry.

In: what one round does. Out: calls of it, one at a time, until the rounds are ended. What tells Redis something now and then,
off the hot path, does so in such rounds.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.runtime.loop import Lock, Signal, sleep, spawn


class Rounds:
    """See the module.

    Args:
        step: one round; returns the seconds until the next, if nobody is in a hurry. May wait.
        failed: called where `step` has raised, to log it: a fault of ours must not end the rounds for good.
        retry_s: seconds until the round after that.
        gap_s: seconds between two rounds at least, however many are in a hurry.
    """

    def __init__(self, step: Callable[[], float], failed: Callable[[], None], retry_s: float, gap_s: float = 0.0) -> None:
        self._step, self._failed = step, failed
        self._retry_s, self._gap_s = retry_s, gap_s
        self._wakeup = Signal()
        self._lock = Lock()
        self.begun = self.ended = False

    def start(self) -> None:
        """Begin with a round. Idempotent."""
        if not self.begun:
            self.begun = True
            spawn(self._run)

    def hurry(self) -> None:
        """Have a round soon. Never waits."""
        self._wakeup.set()

    @property
    def is_hurried(self) -> bool:
        """Whether a round is due soon."""
        return self._wakeup.is_set()

    def end(self) -> bool:
        """Begin no more rounds, and wait for the one under way; return whether they are ended by this call, and had begun."""
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
            except Exception:  # noqa: BLE001 - told by `failed`
                self._failed()
            if self._gap_s:
                sleep(self._gap_s)
            self._wakeup.wait(max(0.0, wait_s - self._gap_s))
