"""Pauses between attempts on a failing server. No I/O.

In: when attempts began and ended. Out: a `Retry` for each task during a pause. So a hanging server neither keeps a consumer
from reading its log before it is trimmed, nor uses up the attempts of every waiting task, and a wrong password is not tried a
thousand times.
"""

from __future__ import annotations

from headgate.consumers.base import Retry

# Longest pause between attempts on a failing server, unless the last attempt took longer.
PAUSE_LAST_S = 60.0


class Pause:
    """The pause for further tasks after failures independent of the task. Times are monotonic seconds.

    The first failure in a row pauses for as long as it took, because the connection may have broken by chance. Each further one
    pauses for 1, 2, 4 … PAUSE_LAST_S seconds, but at least as long as it took, so a hanging server costs at most half of a
    consumer's time.
    """

    def __init__(self) -> None:
        self._failures, self._until_s, self._trouble = 0, 0.0, ""

    def check(self, now_s: float) -> None:
        """Return if an attempt may be made. During a pause, raises Retry with the trouble of the last attempt."""
        if left_s := self.left_s(now_s):
            raise Retry(self._trouble, after_s=left_s)

    def left_s(self, now_s: float) -> float:
        """Return how long the pause still lasts, 0 if there is none."""
        return max(0.0, self._until_s - now_s)

    def begin(self, began_s: float, now_s: float, trouble: str) -> Retry:
        """Record an attempt that began and failed at these times, and return the Retry for its task."""
        took_s = now_s - began_s
        self._failures += 1
        pause_s = max(took_s, min(2.0 ** min(self._failures - 2, 10), PAUSE_LAST_S)) if self._failures > 1 else took_s
        self.until(now_s + pause_s, trouble)
        return Retry(trouble, after_s=pause_s)

    def until(self, until_s: float, why: str) -> None:
        """Pause until a time requested by the server."""
        self._until_s, self._trouble = until_s, why

    def end(self) -> None:
        """End the pause, because the server works."""
        self._failures = 0
