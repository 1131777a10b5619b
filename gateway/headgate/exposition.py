"""What Prometheus reads: the choice between its text and its protobuf format, and the writing of the latter. No I/O.

In: families of samples (metrics.families), of one process or of all workers together, and the Accept header of a scrape. Out: the
same families with classic histograms in place of ours, for the text format; or the bytes of the protobuf format, which alone can
carry native histograms. There, each of ours is both a native and a classic histogram, and the reader takes the one that it can.

A histogram of ours is a family of the kind HDR. Its samples are counts that can be added: `<name>_in` with the number of a bucket
in the label `bucket`, and `<name>_sum`.

The messages are those of io.prometheus.client (metrics.proto), each with its length in front of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .histogram import FIRST, LEAST_S, SCHEMA, up_to

# (name, kind, help, [(name, labels, value)…])
Family = tuple[str, str, str, Sequence[tuple[str, dict[str, str], float]]]

HDR = "hdr"
BUCKET = "bucket"
# The limits of a classic histogram of ours, as powers of two: from a quarter of a millisecond to a minute.
CLASSIC_EXPONENTS = range(-12, 7)

PROTOBUF_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
_PROTOBUF = "application/vnd.google.protobuf"
_NEEDED = {"proto": "io.prometheus.client.metricfamily", "encoding": "delimited"}
# More than a scraper sends; the rest of a header is not looked at.
_MAX_RANGES = 32

_COUNTER, _GAUGE, _SUMMARY, _UNTYPED, _HISTOGRAM = range(5)
_KINDS = {"counter": _COUNTER, "gauge": _GAUGE, "summary": _SUMMARY, "histogram": _HISTOGRAM, HDR: _HISTOGRAM, "info": _GAUGE}
_VALUE_FIELDS = {_GAUGE: 2, _COUNTER: 3, _UNTYPED: 5}


def wants_protobuf(accept: str) -> bool:
    """Return whether a scrape prefers protobuf to every other format that it names; without a word, it is text."""
    protobuf = others = 0.0
    for each in accept.split(",")[:_MAX_RANGES]:
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        said = dict(part.partition("=")[::2] for part in parameters)
        try:
            quality = float(said.get("q", "1"))
        except ValueError:
            quality = 0.0
        if kind == _PROTOBUF and all(said.get(name, value) == value for name, value in _NEEDED.items()):
            protobuf = max(protobuf, quality)
        elif kind != _PROTOBUF and kind != "*/*":
            others = max(others, quality)
    return protobuf > 0 and protobuf >= others


def classic(families: Iterable[Family]) -> Iterator[Family]:
    """Return families with a classic histogram in place of each of ours."""
    for name, kind, documentation, samples in families:
        if kind != HDR:
            yield name, kind, documentation, samples
            continue
        told: list[tuple[str, dict[str, str], float]] = []
        for labels, counts, sum_s in _apart(name, samples):
            total = sum(counts.values())
            buckets = [(str(limit_s), count) for limit_s, count in up_to(counts, CLASSIC_EXPONENTS)]
            told += [(f"{name}_bucket", {**labels, "le": limit}, count) for limit, count in [*buckets, ("+Inf", total)]]
            told += [(f"{name}_count", labels, total), (f"{name}_sum", labels, sum_s)]
        yield name, "histogram", documentation, told


def protobuf(families: Iterable[Family]) -> bytes:
    """Return families in the protobuf format."""
    return b"".join(_delimited(message) for family in families for message in _families(family))


def _apart(
    name: str, samples: Iterable[tuple[str, dict[str, str], float]]
) -> Iterator[tuple[dict[str, str], dict[int, float], float]]:
    """Return (labels, counts by bucket, sum) of each histogram in a family of ours."""
    counts: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample, labels, value in samples:
        rest = tuple(sorted((label, each) for label, each in labels.items() if label != BUCKET))
        found = counts.setdefault(rest, {})
        if sample == f"{name}_sum":
            sums[rest] = value
        else:
            found[int(labels[BUCKET])] = value
    for rest, found in counts.items():
        yield dict(rest), found, sums.get(rest, 0.0)


# -- messages ---------------------------------------------------------------------------------------------------------------


def _families(family: Family) -> Iterator[bytes]:
    """Return the messages of a family: one, or several where its samples have names of their own (a counter's are `…_total`)."""
    name, kind, documentation, samples = family
    number = _KINDS.get(kind, _UNTYPED)
    if kind == HDR:
        old = [each for _, each in _grouped(next(classic([family]))[3])]
        both = zip(_apart(name, samples), old, strict=True)
        yield _family(
            name, documentation, number, [_metric(at, 7, _native(counts, sum_s, each)) for (at, counts, sum_s), each in both]
        )
    elif kind == "histogram":
        yield _family(name, documentation, number, [_metric(dict(at), 7, _classic(each)) for at, each in _grouped(samples)])
    elif kind == "summary":
        yield _family(name, documentation, number, [_metric(dict(at), 4, _summary(each)) for at, each in _grouped(samples)])
    else:
        by_name: dict[str, list[bytes]] = {}
        for sample, labels, value in samples:
            if not sample.endswith("_created"):
                by_name.setdefault(sample, []).append(_metric(labels, _VALUE_FIELDS[number], _double(1, value)))
        for sample, metrics in by_name.items():
            yield _family(sample, documentation, number, metrics)


def _grouped(
    samples: Iterable[tuple[str, dict[str, str], float]],
) -> list[tuple[tuple[tuple[str, str], ...], list[tuple[str, str, float]]]]:
    """Return the samples of each histogram or summary in a family, by its labels: (name, `le` or `quantile`, value)."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[str, str, float]]] = {}
    for name, labels, value in samples:
        rest = tuple(sorted((label, each) for label, each in labels.items() if label not in ("le", "quantile")))
        groups.setdefault(rest, []).append((name, labels.get("le", labels.get("quantile", "")), value))
    return list(groups.items())


def _family(name: str, documentation: str, kind: int, metrics: Iterable[bytes]) -> bytes:
    head = _bytes(1, name.encode()) + _bytes(2, documentation.encode()) + _integer(3, kind)
    return head + b"".join(_bytes(4, metric) for metric in metrics)


def _metric(labels: Mapping[str, str], field: int, value: bytes) -> bytes:
    pairs = (_bytes(1, _bytes(1, name.encode()) + _bytes(2, each.encode())) for name, each in sorted(labels.items()))
    return b"".join(pairs) + _bytes(field, value)


def _classic(samples: Iterable[tuple[str, str, float]]) -> bytes:
    buckets, count, sum_ = [], 0, 0.0
    for name, limit, value in samples:
        if name.endswith("_bucket"):
            buckets.append(_bytes(3, _integer(1, int(value)) + _double(2, float(limit))))
            count = max(count, int(value))
        elif name.endswith("_sum"):
            sum_ = value
    return _integer(1, count) + _double(2, sum_) + b"".join(buckets)


def _native(counts: Mapping[int, float], sum_s: float, old: Iterable[tuple[str, str, float]]) -> bytes:
    """Return a histogram with its native buckets and its classic ones. The first bucket of ours is the native zero bucket."""
    message = _classic((name, limit, sum_s if name.endswith("_sum") else value) for name, limit, value in old)
    message += _integer(5, _zigzag(SCHEMA)) + _double(6, LEAST_S) + _integer(7, int(counts.get(FIRST, 0)))
    spans: list[tuple[int, int]] = []
    deltas = b""
    last, before = 0, 0
    for bucket in sorted(bucket for bucket, count in counts.items() if bucket != FIRST and count):
        count = int(counts[bucket])
        if spans and bucket == last + 1:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((bucket - last - 1 if spans else bucket, 1))
        deltas += _integer(13, _zigzag(count - before))
        last, before = bucket, count
    return message + b"".join(_bytes(12, _integer(1, _zigzag(gap)) + _integer(2, length)) for gap, length in spans) + deltas


def _summary(samples: Iterable[tuple[str, str, float]]) -> bytes:
    message = b""
    for name, share, value in samples:
        if name.endswith("_count"):
            message += _integer(1, int(value))
        elif name.endswith("_sum"):
            message += _double(2, value)
        elif share:
            message += _bytes(3, _double(1, float(share)) + _double(2, value))
    return message


# -- protobuf ---------------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _delimited(message: bytes) -> bytes:
    return _varint(len(message)) + message
