"""How long to wait before the next try: exponential back-off with full jitter. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable

# Beyond this many doublings every longest wait is reached; keeps 2 ** n small.
_MAX_DOUBLINGS = 40


def delay_s(failures: int, first_s: float, last_s: float, draw: Callable[[], float] = random.random) -> float:
    """Return the wait after the `failures`-th failure in a row (1: the first): anywhere from 0 to its ceiling, in seconds.

    The ceiling is `first_s`, doubled for each further failure, at most `last_s`. Full jitter: those that failed together do
    not come back together. `draw` returns a number from 0 to 1.
    """
    ceiling_s = min(last_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return ceiling_s * draw()
