"""The counts of several workers as those of one gateway. No I/O.

- Counters and histograms are sums. An ended worker still counts, with its last known values, so that a sum never goes back and
  `rate()` sees no reset. A killed worker's counts since the last scrape are lost.
- A gauge is joined by its meaning (`GAUGES`). Gauges of the application stay apart, with the label `worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headgate.runtime.exposition import HDR

WORKER_LABEL = "worker"
# Ages with their counts in `ended`, so that a late answer does not count twice. Far more than end between two scrapes.
MAX_FOLDED = 4096


class Sample(NamedTuple):
    """One number, with its labels."""

    name: str
    labels: dict[str, str]
    value: float


class Family(NamedTuple):
    """One metric of a process."""

    name: str
    kind: str
    documentation: str
    samples: list[Sample]


class Totals(msgspec.Struct):
    """The counts that outlive a worker: of all ended ones, and the last seen of each living one, by age."""

    ended: list[Family] = []
    seen: dict[int, list[Family]] = {}
    folded: list[int] = []


Join = Callable[[Sequence[float]], float]

# Of the gateway's own gauges, and of those about the process.
GAUGES: Mapping[str, Join] = {
    "headgate_bus_up": min,
    "headgate_bus_subscriptions": sum,
    "headgate_clients": sum,
    "headgate_clients_catching_up": sum,
    "headgate_presence_rooms": sum,
    "headgate_presence_members": sum,
    "headgate_waiting": sum,
    "headgate_queued_frames": sum,
    "headgate_queued_bytes": sum,
    "headgate_queue_fullest_ratio": max,
    "headgate_queue_oldest_seconds": max,
    "headgate_publish_to_socket_greatest_seconds": max,
    "headgate_fence_greatest_seconds": max,
    "headgate_fan_out_greatest_seconds": max,
    "headgate_fence_age_seconds": max,
    "headgate_loop_lag_greatest_seconds": max,
    "headgate_redis_round_trip_greatest_seconds": max,
    "headgate_log_events": max,
    "headgate_log_bytes": max,
    "headgate_log_oldest_seconds": max,
    "headgate_consumers_elsewhere": max,
    "headgate_id_hold_seconds": min,
    "headgate_log_retention_seconds": min,
    "headgate_subscriptions": sum,
    "headgate_http_connections": sum,
    "headgate_shedding": max,
    "headgate_gc_pause_greatest_seconds": max,
    "headgate_worker_up": max,
    "headgate_monitored_value": max,
    "headgate_consumer_waiting": max,
    "headgate_consumer_full": max,
    "headgate_consumer_lag_events": max,
    "headgate_consumer_age_seconds": max,
    "process_virtual_memory_bytes": sum,
    "process_resident_memory_bytes": sum,
    "process_open_fds": sum,
    "process_max_fds": min,
    "process_start_time_seconds": min,
    "python_info": max,
}
_COUNTED = {"counter", "histogram", "summary", HDR}


def counts_of(families: Iterable[Family]) -> list[Family]:
    """Return what outlives a worker: counters, histograms and summaries."""
    return [family for family in families if family.kind in _COUNTED]


def remember(totals: Totals, seen: Mapping[int, Sequence[Family]], living: Iterable[int]) -> Totals:
    """Return the totals with new values of workers, by age. Workers that no longer live count as ended."""
    latest = dict(totals.seen)
    folded = set(totals.folded)
    for age, families in seen.items():
        if age not in folded:
            known = latest.get(age)
            latest[age] = counts_of(families) if known is None else _joined([known, counts_of(families)], max)
    gone = sorted(latest.keys() - set(living))
    ended = _joined([totals.ended, *(latest.pop(age) for age in gone)], sum)
    return Totals(ended, latest, sorted(folded | set(gone))[-MAX_FOLDED:])


def exposed(answers: Mapping[int, Sequence[Family]], numbers: Mapping[int, int], totals: Totals) -> list[Family]:
    """Return the families of all workers.

    Args:
        answers: of each worker that has answered, by age.
        numbers: their numbers in texts, by age.
        totals: of ended workers, and of living ones without an answer.
    """
    counted = [counts_of(families) for families in answers.values()]
    silent = [families for age, families in totals.seen.items() if age not in answers]
    families = _joined([*counted, *silent, totals.ended], sum)
    gauges: dict[str, Family] = {}
    by_sample: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for age, answer in answers.items():
        for family in answer:
            if family.kind in _COUNTED:
                continue
            found = gauges.setdefault(family.name, Family(family.name, family.kind, family.documentation, []))
            if family.name in GAUGES:
                values = by_sample.setdefault(family.name, {})
                for sample in family.samples:
                    values.setdefault((sample.name, tuple(sorted(sample.labels.items()))), []).append(sample.value)
            else:
                label = {WORKER_LABEL: str(numbers[age])}
                found.samples.extend(Sample(name, labels | label, value) for name, labels, value in family.samples)
    for name, values in by_sample.items():
        gauges[name].samples.extend(Sample(at, dict(labels), GAUGES[name](each)) for (at, labels), each in values.items())
    return families + list(gauges.values())


def _joined(parts: Sequence[Sequence[Family]], join: Join) -> list[Family]:
    families: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for part in parts:
        for family in part:
            families.setdefault(family.name, family)
            samples = values.setdefault(family.name, {})
            for name, labels, value in family.samples:
                samples.setdefault((name, tuple(sorted(labels.items()))), []).append(value)
    return [
        Family(
            name,
            family.kind,
            family.documentation,
            # A count began when its oldest part did.
            [
                Sample(at, dict(labels), (min if at.endswith("_created") else join)(each))
                for (at, labels), each in values[name].items()
            ],
        )
        for name, family in families.items()
    ]
