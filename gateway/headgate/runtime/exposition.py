"""Our histograms as classic Prometheus histograms. No I/O.

In: families of samples (metrics.families), of one process or of all workers together. Out: the same families, in which each of
our histograms is a classic one with powers of two as limits.

One of our histograms is a family of the kind HDR. Its samples are counts that can be added: `<name>_in` with the number of a
bucket in the label `bucket`, and `<name>_sum`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .histogram import up_to

# (name, kind, help, [(name, labels, value)…])
Family = tuple[str, str, str, Sequence[tuple[str, dict[str, str], float]]]

HDR = "hdr"
BUCKET = "bucket"
# The limits of our classic histograms, as powers of two, from a quarter of a millisecond to a minute.
CLASSIC_EXPONENTS = range(-12, 7)


def classic(families: Iterable[Family]) -> Iterator[Family]:
    """Return families in which each of our histograms is a classic one."""
    for name, kind, documentation, samples in families:
        if kind != HDR:
            yield name, kind, documentation, samples
            continue
        converted: list[tuple[str, dict[str, str], float]] = []
        for labels, counts, sum_s in _apart(name, samples):
            total = sum(counts.values())
            buckets = [(str(limit_s), count) for limit_s, count in up_to(counts, CLASSIC_EXPONENTS)]
            converted += [(f"{name}_bucket", {**labels, "le": limit}, count) for limit, count in [*buckets, ("+Inf", total)]]
            converted += [(f"{name}_count", labels, total), (f"{name}_sum", labels, sum_s)]
        yield name, "histogram", documentation, converted


def _apart(
    name: str, samples: Iterable[tuple[str, dict[str, str], float]]
) -> Iterator[tuple[dict[str, str], dict[int, float], float]]:
    """Return (labels, counts by bucket, sum) of each histogram in an HDR family."""
    counts: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample, labels, value in samples:
        rest = tuple(sorted((label, each) for label, each in labels.items() if label != BUCKET))
        count = counts.setdefault(rest, {})
        if sample == f"{name}_sum":
            sums[rest] = value
        else:
            count[int(labels[BUCKET])] = value
    for rest, count in counts.items():
        yield dict(rest), count, sums.get(rest, 0.0)
