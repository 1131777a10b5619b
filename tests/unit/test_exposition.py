"""The exposition: which format a scrape gets, classic histograms as text, and the messages of the protobuf format.

The messages are read by a small decoder of the wire format; tests/monitoring has Prometheus itself read them.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headgate.exposition import BUCKET, HDR, PROTOBUF_TYPE, Family, classic, protobuf, wants_protobuf
from headgate.histogram import GREATEST_S, LEAST_S, SCHEMA, Histogram
from headgate.metrics import exposition_of

PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
NAME = "headgate_x_seconds"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (PROTOBUF, True),
        # Prometheus 2.42 with native histograms, Prometheus 3, and either without them.
        (f"{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        (f"{PROTOBUF};q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1", True),
        (f"application/openmetrics-text;version=1.0.0;q=0.8,{PROTOBUF};q=0.5,text/plain;q=0.3", False),
        ("application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        (PROTOBUF.replace("delimited", "text"), False),
        (PROTOBUF + ";q=0", False),
        (PROTOBUF + ";q=nothing", False),
        (PROTOBUF.upper(), True),
        ("," * 5000 + PROTOBUF, False),
    ],
)
def test_a_scrape_gets_protobuf_if_it_prefers_that_to_every_other_format(accept: str, wanted: bool) -> None:
    """Text is for everybody else, a browser for one."""
    assert wants_protobuf(accept) is wanted


def family(*histograms: Histogram) -> Family:
    """A family of ours, each histogram with a namespace of its own."""
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


# A decoder ----------------------------------------------------------------------------------------------------------------


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: integers, doubles, and bytes."""
    found: dict[int, list[Any]] = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            found[tag >> 3].append(value)
        elif tag & 7 == 1:
            found[tag >> 3].append(struct.unpack_from("<d", data, at)[0])
            at += 8
        else:
            assert tag & 7 == 2
            size, at = varint(data, at)
            assert at + size <= len(data)
            found[tag >> 3].append(data[at : at + size])
            at += size
    return found


def messages(data: bytes) -> Iterator[dict[int, list[Any]]]:
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        yield fields(data[at : at + size])
        at += size
    assert at == len(data)


def signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def labels(metric: dict[int, list[Any]]) -> dict[str, str]:
    return {fields(pair)[1][0].decode(): fields(pair)[2][0].decode() for pair in metric[1]}


def native(histogram: dict[int, list[Any]]) -> dict[int, int]:
    """The native buckets: spans are how many to pass over and how many there are, deltas the differences of their counts."""
    counts: dict[int, int] = {}
    deltas = [signed(each) for each in histogram[13]]
    bucket = count = 0
    for span in map(fields, histogram[12]):
        bucket += signed(span[1][0])
        for _ in range(span[2][0]):
            count += deltas.pop(0)
            counts[bucket] = count
            bucket += 1
    assert not deltas
    return counts


# ---------------------------------------------------------------------------------------------------------------------------

times = st.lists(st.floats(LEAST_S / 2, GREATEST_S), max_size=40)


@given(times, times)
def test_a_histogram_of_ours_is_a_native_and_a_classic_one(one: list[float], two: list[float]) -> None:
    """Every count is in the bucket in which it was met; what is shorter than all buckets is in the zero bucket."""
    [message] = messages(protobuf([family(of(*one), of(*two))]))
    assert (message[1], message[2], message[3]) == ([NAME.encode()], [b"Help."], [4])
    told = {labels(metric)["namespace"]: fields(metric[7][0]) for metric in map(fields, message[4])}
    for name, seconds in (("n0", one), ("n1", two)):
        histogram, counts = told[name], of(*seconds).counts
        zero = counts.pop(-20 * 16, 0)
        assert (signed(histogram[5][0]), histogram[6], histogram[7]) == (SCHEMA, [LEAST_S], [zero])
        assert native(histogram) == counts
        assert (histogram[1], histogram[2]) == ([len(seconds)], [pytest.approx(sum(seconds))])
        buckets = [(fields(each)[2][0], fields(each)[1][0]) for each in histogram[3]]
        assert buckets == [(limit, sum(one <= limit for one in seconds)) for limit, _ in buckets]
        assert buckets[-1] == (float("inf"), len(seconds))


@given(times)
def test_as_text_a_histogram_of_ours_is_a_classic_one(seconds: list[float]) -> None:
    """With limits that are powers of two, as only those are exact."""
    kind, text = exposition_of([family(of(*seconds))])
    assert kind.startswith("text/plain")
    [read] = text_string_to_metric_families(text.decode())
    assert read.type == "histogram"
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in read.samples}
    assert values[f"{NAME}_count", None] == values[f"{NAME}_bucket", "+Inf"] == len(seconds)
    assert values[f"{NAME}_bucket", "0.25"] == sum(each <= 0.25 for each in seconds)


def test_every_other_kind_has_its_message() -> None:
    """Counters with their names, gauges, summaries, classic histograms of the application, and what nobody knows."""
    given: list[Family] = [
        ("a", "counter", "A.", [("a_total", {"code": "x"}, 3.0), ("a_created", {"code": "x"}, 1e9)]),
        ("b", "gauge", "B.", [("b", {}, -1.5)]),
        ("c", "unknown", "C.", [("c", {}, 7.0)]),
        ("d", "summary", "D.", [("d", {"quantile": "0.5"}, 2.0), ("d_sum", {}, 9.0), ("d_count", {}, 4.0)]),
        ("e", "histogram", "E.", [("e_bucket", {"le": "1"}, 2), ("e_bucket", {"le": "+Inf"}, 3), ("e_sum", {}, 5.0)]),
        ("f", "info", "F.", [("f_info", {"version": "1"}, 1.0)]),
    ]
    read = {message[1][0].decode(): message for message in messages(protobuf(given))}
    assert [(name, message[3][0]) for name, message in read.items()] == [
        ("a_total", 0),
        ("b", 1),
        ("c", 3),
        ("d", 2),
        ("e", 4),
        ("f_info", 1),
    ]
    first = {name: fields(message[4][0]) for name, message in read.items()}
    assert (labels(first["a_total"]), fields(first["a_total"][3][0])[1]) == ({"code": "x"}, [3.0])
    assert fields(first["b"][2][0])[1] == [-1.5]
    assert fields(first["c"][5][0])[1] == [7.0]
    summary = fields(first["d"][4][0])
    assert (summary[1], summary[2], dict(fields(summary[3][0]))) == ([4], [9.0], {1: [0.5], 2: [2.0]})
    histogram = fields(first["e"][7][0])
    assert (histogram[1], histogram[2], len(histogram[3])) == ([3], [5.0], 2)


def test_the_accept_header_decides_between_the_two() -> None:
    """The content type says which it is."""
    given = [family(of(0.1))]
    assert exposition_of(given, PROTOBUF) == (PROTOBUF_TYPE, protobuf(given))
    assert exposition_of(given, "text/plain")[1].startswith(
        b"# HELP headgate_x_seconds Help.\n# TYPE headgate_x_seconds histogram"
    )


def test_classic_leaves_everything_else_as_it_is() -> None:
    """Only histograms of ours are made anew."""
    other: Family = ("a", "counter", "A.", [("a_total", {}, 3.0)])
    assert list(classic([other])) == [other]
