"""Does a measurement grow? A straight line through samples, with the uncertainty of its slope. No I/O.

In: samples over time, each taken from a process at rest. Out: a slope and the range of the true one, or the names of growing
counts. Samples of memory jump when the allocator asks the system for more, so a slope alone proves nothing. The scatter of the
samples around the line cannot explain a leak.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

HOUR_S = 3600.0
MIN_SAMPLES = 6
# The range of a slope in standard errors, where the true one is below it once in a thousand soaks.
CERTAIN = 3.0


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth in units per hour, and its uncertainty, as the true one is hardly ever below `least`, or above `most`."""

    per_hour: float
    error: float

    @property
    def least(self) -> float:
        return self.per_hour - CERTAIN * self.error

    @property
    def most(self) -> float:
        return self.per_hour + CERTAIN * self.error


def slope_of(samples: Sequence[tuple[float, float]]) -> Slope:
    """Return the slope of samples (time in seconds, value).

    The scatter counts for as many samples as are independent, because memory stays where it is after a jump.

    Raises:
        ValueError: too few samples.
    """
    if len(samples) < MIN_SAMPLES:
        raise ValueError(f"{len(samples)} samples, {MIN_SAMPLES} are needed")
    mean_s, mean = fmean(at_s for at_s, _ in samples), fmean(value for _, value in samples)
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in samples)
    per_s = sum((at_s - mean_s) * (value - mean) for at_s, value in samples) / spread
    left = [value - mean - per_s * (at_s - mean_s) for at_s, value in samples]
    scatter = sum(rest**2 for rest in left)
    error = math.sqrt(scatter / (len(samples) - 2) / spread)
    if scatter:
        likeness = sum(one * next_one for one, next_one in pairwise(left)) / scatter
        likeness = min(0.9, max(0.0, likeness))
        error *= math.sqrt((1 + likeness) / (1 - likeness))
    return Slope(per_s * HOUR_S, error * HOUR_S)


def has_grown(values: Sequence[float], slack: float = 0.0) -> bool:
    """Return whether a count is higher at the end than at the beginning, by the medians of its first and last third."""
    if len(values) < MIN_SAMPLES:
        raise ValueError(f"{len(values)} samples, {MIN_SAMPLES} are needed")
    third = len(values) // 3
    return median(values[-third:]) > median(values[:third]) + slack
