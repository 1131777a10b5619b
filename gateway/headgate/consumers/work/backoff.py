"""The delay before the next attempt: exponential back-off with full jitter. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable

# After this many doublings every ceiling is reached. Keeps 2 ** n small.
_MAX_DOUBLINGS = 40


def delay_s(failures: int, first_s: float, last_s: float, draw: Callable[[], float] = random.random) -> float:
    """Return the delay after the `failures`-th failure in a row (1: the first), from 0 to a ceiling, in seconds.

    The ceiling is `first_s`, doubled for each further failure, at most `last_s`. Full jitter spreads the retries of tasks that
    failed together. `draw` returns a number from 0 to 1.
    """
    ceiling_s = min(last_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return ceiling_s * draw()
