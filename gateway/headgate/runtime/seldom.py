"""When a thing that may happen at any rate is worth a line of a log. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable

SELDOM_S = 10.0


class Seldom:
    """Says when a thing that may happen ten thousand times a second is worth a line: once in SELDOM_S for each name.

    Names are words of our own, never a client's.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._told: dict[str, tuple[float, int]] = {}  # name → when it was told, how often it happened since

    def due(self, name: str) -> int | None:
        """Return how often it was left out since the last line; None when this time is to be left out too."""
        now_s = self._now()
        told_s, left_out = self._told.get(name, (-SELDOM_S, 0))
        if now_s - told_s < SELDOM_S:
            self._told[name] = (told_s, left_out + 1)
            return None
        self._told[name] = (now_s, 0)
        return left_out
