"""The exposition: a histogram of ours is a classic one, as text; every other family stays as it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headgate.runtime.histogram import BUCKET, GREATEST_S, HDR, LEAST_S, Family, Histogram, classic
from headgate.runtime.metrics import exposition_of

NAME = "headgate_x_seconds"


def family(*histograms: Histogram) -> Family:
    """A family of ours, each histogram with a separate namespace."""
    samples: list[tuple[str, dict[str, str], float]] = []
    for number, histogram in enumerate(histograms):
        labels = {"namespace": f"n{number}"}
        samples += [(f"{NAME}_in", {**labels, BUCKET: str(bucket)}, count) for bucket, count in histogram.counts.items()]
        samples.append((f"{NAME}_sum", labels, histogram.sum_s))
    return NAME, HDR, "Help.", samples


def of(*seconds: float) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.record(each)
    return histogram


times = st.lists(st.floats(LEAST_S / 2, GREATEST_S), max_size=40)


@given(times)
def test_as_text_a_histogram_of_ours_is_a_classic_one(seconds: list[float]) -> None:
    """With limits at powers of two, as only those are exact."""
    kind, text = exposition_of([family(of(*seconds))])
    assert kind.startswith("text/plain")
    [read] = text_string_to_metric_families(text.decode())
    assert read.type == "histogram"
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in read.samples}
    assert values[f"{NAME}_count", None] == values[f"{NAME}_bucket", "+Inf"] == len(seconds)
    assert values[f"{NAME}_bucket", "0.25"] == sum(each <= 0.25 for each in seconds)


def test_classic_leaves_everything_else_as_it_is() -> None:
    """Only histograms of ours are rebuilt."""
    other: Family = ("a", "counter", "A.", [("a_total", {}, 3.0)])
    assert list(classic([other])) == [other]
