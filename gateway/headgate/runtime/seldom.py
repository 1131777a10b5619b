"""When a thing that may happen at any rate is worth a line of a log. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable

SELDOM_S = 10.0
MAX_NAMES = 256


class Seldom:
    """Says when a thing that may happen ten thousand times a second is worth a line: once in `every_s` for each name.

    It remembers `most_names` at once. While that many are recent, all further ones share one line, as clients may make names up.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, every_s: float = SELDOM_S, most_names: int = MAX_NAMES
    ) -> None:
        self._now, self._every_s, self._most_names = now, every_s, most_names
        self._told: dict[str, tuple[float, int]] = {}  # name → when it was told, how often it happened since

    def due(self, name: str) -> int | None:
        """Return how often it was left out since the last line; None when this time is to be left out too."""
        now_s = self._now()
        if name not in self._told and len(self._told) >= self._most_names:
            self._told = {other: told for other, told in self._told.items() if now_s - told[0] < self._every_s}
            name = name if len(self._told) < self._most_names else ""
        told_s, left_out = self._told.get(name, (-self._every_s, 0))
        if now_s - told_s < self._every_s:
            self._told[name] = (told_s, left_out + 1)
            return None
        self._told[name] = (now_s, 0)
        return left_out
