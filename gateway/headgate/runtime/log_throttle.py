"""A throttle that passes one log line per name every `every_s` seconds. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 10.0
MAX_NAMES = 256


class LogThrottle:
    """Decides whether a line of a name is due.

    Args:
        every_s: the least time between two lines of a name.
        max_names: names to remember. While all of them are recent, other names share one line, because clients can invent names.
    """

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, *, every_s: float = EVERY_S, max_names: int = MAX_NAMES
    ) -> None:
        self._now_s, self._every_s, self._max_names = now_s, every_s, max_names
        self._lines: dict[str, tuple[float, int]] = {}  # name → time of its last line, number left out since

    def due(self, name: str = "") -> int | None:
        """Return the number of lines left out since the last one, or None to leave out this one, too."""
        now_s = self._now_s()
        if name not in self._lines and len(self._lines) >= self._max_names:
            self._lines = {other: line for other, line in self._lines.items() if now_s - line[0] < self._every_s}
            name = name if len(self._lines) < self._max_names else ""
        last_s, left_out = self._lines.get(name, (-self._every_s, 0))
        if now_s - last_s < self._every_s:
            self._lines[name] = (last_s, left_out + 1)
            return None
        self._lines[name] = (now_s, 0)
        return left_out
