"""A histogram of times: its buckets, its sum, its greatest, sums without loss, and its form as text."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headgate.runtime.histogram import (
    FIRST,
    GREATEST_S,
    LAST,
    LEAST_S,
    WINDOW_S,
    Histogram,
    bucket_of,
    limit_of,
    quantile,
    up_to,
)
from headgate.runtime.metrics import HISTOGRAMS, Histograms

TIMED = Histograms("headgate_of_a_test", "Of this test.")
HISTOGRAMS.remove(TIMED)
REGISTRY.unregister(TIMED)
ALONE = CollectorRegistry()
ALONE.register(TIMED)
seconds = st.floats(LEAST_S, GREATEST_S)


@given(seconds)
def test_a_duration_is_in_the_bucket_between_two_limits(each: float) -> None:
    """Above the limit of the bucket before it, and not above its own, but for the last digit of a float."""
    bucket = bucket_of(each)
    assert FIRST <= bucket <= LAST
    assert each <= limit_of(bucket) * (1 + 1e-15)
    assert each == LEAST_S or each > limit_of(bucket - 1) * (1 - 1e-15)


@pytest.mark.parametrize("exponent", range(-20, 11))
def test_a_power_of_two_is_the_limit_of_a_bucket(exponent: int) -> None:
    """So a classic histogram with these limits is exact."""
    assert bucket_of(2.0**exponent) == 16 * exponent
    assert bucket_of(2.0**exponent * (1 + 1e-9)) == min(16 * exponent + 1, LAST)


@pytest.mark.parametrize(("each", "bucket"), [(0.0, FIRST), (-3.0, FIRST), (1e-9, FIRST), (1e6, LAST), (float("inf"), LAST)])
def test_what_is_out_of_range_is_in_the_first_or_the_last_bucket(each: float, bucket: int) -> None:
    """The number of buckets is bounded, whatever is recorded."""
    assert bucket_of(each) == bucket


@given(st.lists(st.tuples(seconds, st.integers(1, 9)), max_size=30), st.integers(0, 30))
def test_two_histograms_added_are_that_of_all(recorded: list[tuple[float, int]], cut: int) -> None:
    """Counts of several processes add up without loss."""
    one, two, both = Histogram(), Histogram(), Histogram()
    for number, (each, times) in enumerate(recorded):
        (one if number < cut else two).record(each, times)
        both.record(each, times)
    assert Counter(one.counts) + Counter(two.counts) == Counter(both.counts)
    assert one.sum_s + two.sum_s == pytest.approx(both.sum_s)
    assert max(one.greatest_s, two.greatest_s) == both.greatest_s == max((each for each, _ in recorded), default=0.0)
    assert both.count == sum(times for _, times in recorded)


@given(st.lists(seconds, min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_is_within_the_width_of_a_bucket(each: list[float], share: float) -> None:
    """Against the sorted list of all, at most 4.4 % above the true one."""
    histogram = Histogram()
    for one in each:
        histogram.record(one)
    rank = max(1, -(-int(share * len(each) * 1e9) // 10**9))
    true = sorted(each)[min(rank, len(each)) - 1]
    assert true * (1 - 1e-9) <= quantile(histogram.counts, share) <= max(true, LEAST_S) * 2 ** (1 / 16) * (1 + 1e-9)


def test_an_empty_histogram_has_no_quantile() -> None:
    """It says 0, and counts nothing."""
    assert quantile({}, 0.99) == 0.0
    assert up_to({}, (-1, 0)) == [(0.5, 0), (1.0, 0)]


@given(st.lists(seconds, max_size=40))
def test_classic_buckets_count_exactly(each: list[float]) -> None:
    """How many are not longer than each power of two."""
    histogram = Histogram()
    for one in each:
        histogram.record(one)
    for limit, count in up_to(histogram.counts, range(-12, 8)):
        assert count == sum(one <= limit for one in each)


def test_a_duration_below_zero_is_zero() -> None:
    """The clocks of two machines differ."""
    histogram = Histogram()
    histogram.record(-5.0)
    assert (histogram.sum_s, histogram.greatest_s, histogram.counts) == (0.0, 0.0, {FIRST: 1})


def test_the_greatest_of_the_last_minutes_is_forgotten_in_time_and_not_by_being_read() -> None:
    """Two that ask see the same; after two windows a spike is gone, and stays the greatest of all."""
    histogram = Histogram()
    assert histogram.recent_s(1000.0) == 0.0
    histogram.record(3.0)
    assert [histogram.recent_s(1001.0), histogram.recent_s(1001.5)] == [3.0, 3.0]
    histogram.record(1.0)
    assert histogram.recent_s(1000.0 + WINDOW_S) == 3.0
    histogram.record(2.0)
    assert histogram.recent_s(1000.0 + 2 * WINDOW_S - 1) == 3.0
    assert histogram.recent_s(1000.0 + 2 * WINDOW_S) == 2.0
    assert histogram.recent_s(1000.0 + 3 * WINDOW_S) == 0.0
    assert histogram.greatest_s == 3.0


times = st.lists(st.floats(LEAST_S / 2, GREATEST_S), max_size=40)


@given(times)
def test_as_text_a_histogram_of_ours_is_a_classic_one(seconds: list[float]) -> None:
    """With limits at powers of two, as only those are exact."""
    histogram = Histogram()
    for each in seconds:
        histogram.record(each)
    TIMED.put(histogram)
    read, _ = text_string_to_metric_families(generate_latest(ALONE).decode())
    assert read.type == "histogram"
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in read.samples}
    assert values[f"{TIMED.name}_count", None] == values[f"{TIMED.name}_bucket", "+Inf"] == len(seconds)
    assert values[f"{TIMED.name}_bucket", "0.25"] == sum(each <= 0.25 for each in seconds)
    assert values[f"{TIMED.name}_sum", None] == histogram.sum_s
