"""Process statistics: the numbers of one gateway process for a console, and the totals of all processes. No I/O.

In: `ProcessStats` of each process, once a second while a console watches. They count from the start of the process, so a lost one
costs nothing. Out: a frame for the page: rates, percentiles of everything since the frame before (sums of exact histograms,
histogram.py), current values, a row for each namespace and each process.

The rate of a process is the difference between two of its reports, by its clock. A silent process keeps its row until
FORGOTTEN_S, and `silent_s` says how long it has been silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headgate.runtime.histogram import limit_of, quantile

# After this silence a process no longer has rates.
STALE_S = 3.0
# After this one it no longer has a row.
FORGOTTEN_S = 15.0
MAX_PROCESSES = 256

Counts = dict[int, int]
K = TypeVar("K")


class NamespaceStats(msgspec.Struct, array_like=True):
    """One namespace at one process: counts since its start, and current values. Named as in delivery/ledger.py."""

    bus_up: bool
    epoch: str | None
    head: int
    received: int
    repaired: int
    routed: int
    from_log: int
    sent: int
    discarded: int
    conflated: int
    gone: int
    joins: int
    refused: int
    clients: int
    subscriptions: int
    catching_up: int
    waiting: int
    queued_bytes: int
    fullest: float
    oldest_s: float
    log_events: int
    log_bytes: int
    log_oldest_s: float
    fence_age_s: float
    error: str
    latency: Counts
    log_retention_s: float = 0.0  # 0: not known


class ProcessStats(msgspec.Struct, array_like=True):
    """One process. `at_s` is its monotonic clock, `cpu_s` the processor time that it has used."""

    name: str
    version: str
    began_ms: int
    at_s: float
    cpu_s: float
    memory_bytes: int
    sessions: int
    stalls: int
    draining: bool
    admission: str
    paused: list[str]
    revocations_known: bool
    lag: Counts
    redis: Counts
    namespaces: dict[str, NamespaceStats]


@dataclass(slots=True)
class _Known:
    """A process as of its last report: the report, the time of its arrival, and the changes since the one before."""

    report: ProcessStats
    received_s: float
    rates: dict[str, Counter[str]] = field(default_factory=dict)
    latency: dict[str, Counts] = field(default_factory=dict)
    lag: Counts = field(default_factory=dict)
    redis: Counts = field(default_factory=dict)
    cpu: float = 0.0


# The fields of `health.State` that the statistics carry.
STATED = ("sessions", "draining", "admission", "paused", "revocations_known")
_SHOWN = ("name", "version", "began_ms", "memory_bytes", "stalls", *STATED)
_COUNTED = ("received", "repaired", "routed", "from_log", "sent", "discarded", "conflated", "gone", "joins", "refused")
_NOW = ("clients", "subscriptions", "catching_up", "waiting", "queued_bytes")


class CombinedStats:
    """The statistics of all processes, one turn after the other. See the module."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._heads: dict[str, tuple[str | None, int, float]] = {}

    def frame(self, reports: Mapping[str, ProcessStats], now_s: float) -> dict[str, Any]:
        """Return the frame of a console after this turn. `reports`: the last report of each process; `now_s`: monotonic."""
        for process, report in list(reports.items())[:MAX_PROCESSES]:
            self._receive(process, report, now_s)
        for process in [each for each, known in self._known.items() if now_s - known.received_s > FORGOTTEN_S]:
            del self._known[process]
        known = self._known.values()
        fresh = [each for each in known if now_s - each.received_s < STALE_S]
        names = dict.fromkeys(name for each in known for name in each.report.namespaces)
        published = {name: self._published(name, fresh, now_s) for name in names}
        return {
            "measured": any(each.rates for each in fresh),
            "rates": {"published": sum(published.values()), **_summed(rate for each in fresh for rate in each.rates.values())},
            "latency": _spread(_added(counts for each in fresh for counts in each.latency.values())),
            "lag": _spread(_added(each.lag for each in fresh)),
            "redis": _spread(_added(each.redis for each in fresh)),
            "now": _now(space for each in known for space in each.report.namespaces.values()),
            "namespaces": [_namespace(name, known, fresh, published[name]) for name in names],
            "processes": [
                _process(process, each, now_s)
                for process, each in sorted(self._known.items(), key=lambda pair: (pair[1].report.name, pair[0]))
            ],
        }

    def _receive(self, process: str, report: ProcessStats, now_s: float) -> None:
        known = self._known.get(process)
        if known is None:
            self._known[process] = _Known(report, now_s)
            return
        took_s = report.at_s - known.report.at_s
        if took_s <= 0:
            if not took_s and now_s - known.received_s >= STALE_S:  # the same report again
                known.rates, known.latency, known.lag, known.redis, known.cpu = {}, {}, {}, {}, 0.0
            elif not took_s:
                known.latency, known.lag, known.redis = {}, {}, {}  # shown in the frame before
            return
        before, known.report, known.received_s = known.report, report, now_s
        known.rates, known.latency = {}, {}
        for name, space in report.namespaces.items():
            old = before.namespaces.get(name)
            if old is not None:
                known.rates[name] = Counter(
                    {each: max(0, getattr(space, each) - getattr(old, each)) / took_s for each in _COUNTED}
                )
                known.latency[name] = Counter(space.latency) - Counter(old.latency)
        known.lag, known.redis = Counter(report.lag) - Counter(before.lag), Counter(report.redis) - Counter(before.redis)
        known.cpu = max(0.0, report.cpu_s - before.cpu_s) / took_s

    def _published(self, name: str, fresh: Iterable[_Known], now_s: float) -> float:
        """Return the events per second that enter a log. Its head moves with every publisher's events."""
        newest = _newest(name, fresh)
        if newest is None or newest.epoch is None:
            return 0.0
        epoch, head, at_s = self._heads.get(name, (None, 0, 0.0))
        self._heads[name] = (newest.epoch, newest.head, now_s)
        return max(0, newest.head - head) / (now_s - at_s) if epoch == newest.epoch and now_s > at_s else 0.0


def _newest(name: str, known: Iterable[_Known]) -> NamespaceStats | None:
    """Return the last report of a namespace. A dead process may have been ahead in a log lost since."""
    newest = [(each.received_s, space.head, space) for each in known if (space := each.report.namespaces.get(name)) is not None]
    return max(newest, key=lambda each: each[:2])[2] if newest else None


def _added(parts: Iterable[Mapping[K, Any]]) -> Counter[K]:
    return sum(map(Counter, parts), Counter[K]())


def _summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return {**dict.fromkeys(_COUNTED, 0.0), **_added(parts)}


def _spread(counts: Mapping[int, int]) -> dict[str, float] | None:
    """Return percentiles in milliseconds, the limits of buckets 4.4 % wide; None without values."""
    if not counts:
        return None
    spread = {name: quantile(counts, share) * 1000 for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {"count": sum(counts.values()), **spread, "max": limit_of(max(counts)) * 1000}


def _now(spaces: Iterable[NamespaceStats]) -> dict[str, float]:
    listed = list(spaces)
    return {
        **{name: sum(getattr(space, name) for space in listed) for name in _NOW},
        "fullest": max((space.fullest for space in listed), default=0.0),
        "oldest_s": max((space.oldest_s for space in listed), default=0.0),
    }


def _namespace(name: str, known: Iterable[_Known], fresh: Iterable[_Known], published: float) -> dict[str, Any]:
    spaces = [space for each in known if (space := each.report.namespaces.get(name)) is not None]
    newest = _newest(name, known) or spaces[0]
    return {
        "name": name,
        "epoch": newest.epoch,
        "head": newest.head,
        "bus_up": sum(space.bus_up for space in spaces),
        "processes": len(spaces),
        "error": next((space.error for space in spaces if space.error), ""),
        "rates": {"published": published, **_summed(each.rates[name] for each in fresh if name in each.rates)},
        "latency": _spread(_added(each.latency[name] for each in fresh if name in each.latency)),
        **_now(spaces),
        "log_events": newest.log_events,
        "log_bytes": max(space.log_bytes for space in spaces),
        "log_oldest_s": max(space.log_oldest_s for space in spaces),
        "log_retention_s": min((space.log_retention_s for space in spaces if space.log_retention_s), default=0),
        "fence_age_s": max(space.fence_age_s for space in spaces),
    }


def _process(process: str, known: _Known, now_s: float) -> dict[str, Any]:
    report, spaces = known.report, known.report.namespaces.values()
    silent_s = now_s - known.received_s
    return {
        "id": process,
        **{name: getattr(report, name) for name in _SHOWN},
        "silent_s": round(silent_s, 1) if silent_s >= STALE_S else 0,
        "cpu": known.cpu,
        "bus_up": all(space.bus_up for space in spaces),
        "lag": _spread(known.lag),
        "redis": _spread(known.redis),
        "sent": sum(rate["sent"] for rate in known.rates.values()),
        **_now(spaces),
    }
