"""A histogram of times, with counts in some 500 buckets, their sum, and the maximum. No I/O.

In: durations in seconds, each with its number of occurrences. Out: counts by bucket, which add up over processes without loss.

Each doubling has sixteen buckets, so a bucket is 4.4 % wide, over thirty doublings from LEAST_S to GREATEST_S. Shorter times
are in the first bucket, longer ones in the last; `greatest_s` is exact. So an export as a classic histogram with powers of two
as limits estimates nothing.

`record` takes less than a microsecond. Call it once per batch, never once per client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import frexp
from time import monotonic

_PER_DOUBLING = 16
# Powers of two in seconds: 0.95 µs and 1,024 s.
LEAST_EXPONENT, GREATEST_EXPONENT = -20, 10
LEAST_S, GREATEST_S = 2.0**LEAST_EXPONENT, 2.0**GREATEST_EXPONENT
# Bucket n holds values above 2 ** ((n - 1) / 16), up to and including 2 ** (n / 16).
FIRST, LAST = LEAST_EXPONENT * _PER_DOUBLING, GREATEST_EXPONENT * _PER_DOUBLING
# The limits between the buckets of one doubling, as mantissas of frexp: from 0.5 to 1.
_LIMITS = [0.5 * 2.0 ** (step / _PER_DOUBLING) for step in range(_PER_DOUBLING)]
# `recent_s` covers the last one to two of these periods.
WINDOW_S = 60.0


def bucket_of(seconds: float) -> int:
    """Return the number of the bucket of a duration; the first or last if out of range."""
    if seconds <= LEAST_S:
        return FIRST
    if seconds >= GREATEST_S:
        return LAST
    part, exponent = frexp(seconds)
    return (exponent - 1) * _PER_DOUBLING + bisect_left(_LIMITS, part)


def limit_of(bucket: int) -> float:
    """Return the upper limit of a bucket, in seconds."""
    return float(2.0 ** (bucket / _PER_DOUBLING))


def quantile(counts: Mapping[int, float], share: float) -> float:
    """Return the duration that this share of all does not exceed, as the limit of its bucket; 0.0 for an empty histogram."""
    left = share * sum(counts.values())
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return limit_of(bucket)
    return 0.0


def up_to(counts: Mapping[int, float], exponents: Iterable[int]) -> list[tuple[float, float]]:
    """Return (2 ** exponent, number of durations up to it) for each exponent, as the buckets of a classic histogram."""
    return [
        (2.0**exponent, sum(count for bucket, count in counts.items() if bucket <= exponent * _PER_DOUBLING))
        for exponent in exponents
    ]


class Histogram:
    """See the module. Attributes: `sum_s` of all durations, `greatest_s` since the process began."""

    __slots__ = ("_before_s", "_counts", "_turned_s", "_window_s", "greatest_s", "sum_s")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # at most 480 buckets, of which few are used
        self.sum_s = self.greatest_s = 0.0
        self._window_s = self._before_s = self._turned_s = 0.0

    def record(self, seconds: float, times: int = 1) -> None:
        """Count a duration `times` times. A negative one, from two differing clocks, counts as zero."""
        if seconds < 0.0:
            seconds = 0.0
        bucket = bucket_of(seconds)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.sum_s += seconds * times
        if seconds > self._window_s:
            self._window_s = seconds
            if seconds > self.greatest_s:
                self.greatest_s = seconds

    @property
    def counts(self) -> dict[int, int]:
        """The counts of all non-empty buckets."""
        return dict(self._counts)

    @property
    def count(self) -> int:
        """The total count."""
        return sum(self._counts.values())

    def recent_s(self, now_s: float | None = None) -> float:
        """Return the maximum of the last one to two minutes, or since the previous call if that is longer ago.

        Any number of callers see the same value, because reading resets nothing.
        """
        now_s = monotonic() if now_s is None else now_s
        if now_s - self._turned_s >= WINDOW_S:
            self._before_s, self._window_s, self._turned_s = self._window_s, 0.0, now_s
        return max(self._before_s, self._window_s)
