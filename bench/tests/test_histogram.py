"""The histogram of the load generator against plain arithmetic: every percentile, up to the maximum."""

from __future__ import annotations

import ctypes
import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench.tests.compiled import compiled

# Each power of two is cut into 128 parts.
ERROR = 1 / 128
PRINTED_US = 0.06

Distribution = Callable[[Sequence[int]], dict[str, Any]]


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    """A function from durations in nanoseconds to the figures that the histogram prints for them."""
    folder = tmp_path_factory.mktemp("histogram")
    histogram = compiled("histogram", folder)
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    room = ctypes.create_string_buffer(1 << 20)

    def printed(durations_ns: Sequence[int]) -> dict[str, Any]:
        histogram.histogram_clear(room)
        for duration_ns in durations_ns:
            histogram.histogram_record(room, ctypes.c_uint64(duration_ns))
        file = ctypes.c_void_p(libc.fopen(str(folder / "printed").encode(), b"w"))
        histogram.histogram_print(room, file)
        libc.fclose(file)
        found: dict[str, Any] = json.loads((folder / "printed").read_text())
        return found

    return printed


def exact_us(durations_ns: Sequence[int], percentile: float) -> float:
    """Return the least of them that at least so many per cent do not exceed."""
    ordered = sorted(durations_ns)
    return ordered[max(0, math.ceil(round(percentile / 100 * len(ordered), 6)) - 1)] / 1000


@pytest.mark.parametrize("seed", range(5))
def test_each_percentile_is_right_to_one_part_of_the_scale(distribution: Distribution, seed: int) -> None:
    """Durations from a microsecond to minutes: never below the exact value, and above it by less than one part."""
    draw = random.Random(seed)
    durations_ns = [round(1000 * 10 ** draw.uniform(0, 8)) for _ in range(draw.choice([3, 1000, 4321]))]
    found = distribution(durations_ns)
    assert found["count"] == len(durations_ns)
    for percentile, microseconds in found["distribution"]:
        exact = exact_us(durations_ns, percentile)
        assert exact - PRINTED_US <= microseconds <= exact * (1 + ERROR) + PRINTED_US, percentile


def test_the_distribution_goes_to_the_very_maximum(distribution: Distribution) -> None:
    """One slow value among 100,000 stands at the end, exactly, and does not blur the nines below it."""
    found = distribution([1_000_000] * 99_999 + [7_654_321_000])
    shares = dict(found["distribution"])
    assert found["max"] == shares[100] == 7_654_321.0
    below = max(percentile for percentile in shares if percentile <= 99.999)
    assert below > 99.99
    assert shares[below] == pytest.approx(1000, rel=ERROR)


def test_percentiles_rise_and_each_half_of_the_rest_has_its_steps(distribution: Distribution) -> None:
    """A curve can be drawn from them: nothing is out of order, and the tail is as fine as the middle."""
    percentiles = [percentile for percentile, _ in distribution(range(1000, 2_000_000, 1000))["distribution"]]
    assert percentiles == sorted(set(percentiles))
    for left in (100.0, 50.0, 25.0, 12.5, 6.25):
        assert len([p for p in percentiles if 100 - left < p <= 100 - left / 2]) == 5
