"""A log that does not repeat itself: each kind of trouble at most once a minute, with how often it was left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

EVERY_S = 60.0


class SparseLog:
    """Passes events on to `write(event, **fields)`. Threads may share one.

    It remembers one time for each event name: use it with the fixed names of the code only.
    """

    def __init__(self, write: Callable[..., object], now: Callable[[], float] = time.monotonic) -> None:
        self._write, self._now = write, now
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def __call__(self, event: str, **fields: object) -> None:
        """Write the event, unless it was written less than EVERY_S ago."""
        with self._lock:
            now = self._now()
            if now - self._since.get(event, -EVERY_S) < EVERY_S:
                self._left_out[event] = self._left_out.get(event, 0) + 1
                return
            self._since[event] = now
            left_out = self._left_out.pop(event, 0)
        self._write(event, **fields, **({"left_out": left_out} if left_out else {}))
