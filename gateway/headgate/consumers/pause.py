"""How long a server without service is left alone. No I/O.

In: when attempts began and ended. Out: a `Retry` for each task that is not to be attempted yet. So a server that hangs neither
keeps a consumer from reading its log, which is trimmed meanwhile, nor uses up the attempts of every task that waits.
"""

from __future__ import annotations

from headgate.consumers.base import Retry

# Between attempts while there is no service; never shorter than the last attempt took.
PAUSE_LAST_S = 60.0


class Pause:
    """How long the next tasks wait without an attempt, after attempts that failed whatever the task. Times are monotonic seconds.

    The first failure in a row pauses for as long as it took, as the connection may have broken by chance. Each further one pauses
    for 1, 2, 4 … PAUSE_LAST_S seconds, and no shorter than it took: a server that hangs costs half of a consumer's time at most.
    """

    def __init__(self) -> None:
        self._failures, self._until_s, self._trouble = 0, 0.0, ""

    def check(self, now_s: float) -> None:
        """Return if an attempt may be made.

        Raises:
            Retry: the server is to be left alone for longer, with the trouble that the last attempt found.
        """
        if now_s < self._until_s:
            raise Retry(self._trouble, after_s=self._until_s - now_s)

    def begin(self, began_s: float, now_s: float, trouble: str) -> Retry:
        """Note an attempt that failed between these times, and return the Retry for its task."""
        took_s = now_s - began_s
        self._failures += 1
        pause_s = max(took_s, min(2.0 ** min(self._failures - 2, 10), PAUSE_LAST_S)) if self._failures > 1 else took_s
        self._until_s, self._trouble = now_s + pause_s, trouble
        return Retry(trouble, after_s=pause_s)

    def end(self) -> None:
        """Note that the server gives service."""
        self._failures = 0
