"""Combines the metrics of several workers as one gateway's, and stores the counts of ended workers in a file.

- Counters and histograms are sums. An ended worker still counts, with its last known values, so that a sum never decreases and
  `rate()` sees no reset. A killed worker's counts since the last scrape are lost.
- `GAUGES` has a function for each of our gauges. Gauges of the application stay separate, with the label `worker`.
- The workers of one process manager share the file. Each reads and writes it whole under a lock, for milliseconds, and replaces
  it in one step, so that a killed worker leaves the old file or the new one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from headgate.runtime.loop import sleep
from headgate.runtime.metrics import Family

WORKER_LABEL = "worker"
# Ages already counted in `ended`, so that a late answer does not count twice. Far more than end between two scrapes.
MAX_FOLDED = 4096
# If the lock is held for half a second, its worker is stopped.
LOCK_ATTEMPTS, LOCK_PAUSE_S = 50, 0.01
LOCK_NAME, FILE_NAME = "totals.lock", "totals.json"


class Totals(msgspec.Struct):
    """The sums of ended workers, and the last known counts of each living one, by age."""

    ended: list[Family] = []
    seen: dict[int, list[Family]] = {}
    folded: list[int] = []


Join = Callable[[Sequence[float]], float]

# For the gateway's gauges, and those about the process.
GAUGES: Mapping[str, Join] = {
    **dict.fromkeys((
        "headgate_bus_subscriptions", "headgate_clients", "headgate_clients_catching_up", "headgate_page_requests_running",
        "headgate_presence_rooms", "headgate_presence_members", "headgate_waiting", "headgate_queued_frames",
        "headgate_queued_bytes", "headgate_subscriptions", "headgate_http_connections", "process_virtual_memory_bytes",
        "process_resident_memory_bytes", "process_open_fds",
    ), sum),
    **dict.fromkeys((
        "headgate_page_request_greatest_seconds", "headgate_queue_fullest_ratio", "headgate_queue_oldest_seconds",
        "headgate_publish_to_socket_greatest_seconds", "headgate_fence_greatest_seconds", "headgate_fan_out_greatest_seconds",
        "headgate_fence_age_seconds", "headgate_loop_lag_greatest_seconds", "headgate_redis_round_trip_greatest_seconds",
        "headgate_log_events", "headgate_log_bytes", "headgate_log_oldest_seconds", "headgate_consumers_elsewhere",
        "headgate_shedding", "headgate_gc_pause_greatest_seconds", "headgate_worker_up", "headgate_monitored_value",
        "headgate_consumer_waiting", "headgate_consumer_full", "headgate_consumer_lag_events",
        "headgate_consumer_age_seconds", "python_info",
    ), max),
    **dict.fromkeys((
        "headgate_bus_up", "headgate_id_hold_seconds", "headgate_log_retention_seconds", "process_max_fds",
        "process_start_time_seconds",
    ), min),
}  # fmt: skip
_COUNTED = {"counter", "histogram", "summary"}


def counts_of(families: Iterable[Family]) -> list[Family]:
    """Return the counters, histograms and summaries, which outlive a worker."""
    return [(name, kind, text, samples) for name, kind, text, samples in families if kind in _COUNTED]


def remember(totals: Totals, seen: Mapping[int, Sequence[Family]], living: Iterable[int]) -> Totals:
    """Return the totals with new values of workers, by age. Workers not in `living` count as ended."""
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
        answers: the families of each worker with an answer, by age.
        numbers: their numbers in texts, by age.
        totals: for ended workers and living ones without an answer.
    """
    counted = [counts_of(families) for families in answers.values()]
    silent = [families for age, families in totals.seen.items() if age not in answers]
    gauges = [
        [_numbered(family, numbers[age]) for family in answer if family[1] not in _COUNTED] for age, answer in answers.items()
    ]
    return _joined([*counted, *silent, totals.ended], sum) + _joined(gauges)


def keep(folder: Path, seen: Mapping[int, Sequence[Family]], living: Iterable[int]) -> Totals:
    """Add values of workers, by age, to the totals in the file; return the totals.

    Raises OSError if the folder is gone, the disk is full, or another worker holds the lock for too long.
    """
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(lock)
        totals = remember(_read(folder / FILE_NAME), seen, living)
        written = folder / f"{FILE_NAME}.new"
        written.write_bytes(msgspec.json.encode(totals))
        written.replace(folder / FILE_NAME)
        return totals
    finally:
        os.close(lock)


def _acquire(lock: int) -> None:
    """Wait for the lock without blocking the loop. A stopped worker (SIGSTOP) may hold it for ever."""
    for _ in range(LOCK_ATTEMPTS - 1):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(LOCK_PAUSE_S)
        else:
            return
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(path: Path) -> Totals:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Totals)
    except (FileNotFoundError, msgspec.DecodeError):
        return Totals()


def _numbered(gauge: Family, number: int) -> Family:
    """Return a gauge of a worker, with the worker's number as a label if it is not in GAUGES."""
    name, kind, text, samples = gauge
    if name in GAUGES:
        return gauge
    label = {WORKER_LABEL: str(number)}
    return name, kind, text, [(each, labels | label, value) for each, labels, value in samples]


def _joined(parts: Sequence[Sequence[Family]], join: Join | None = None) -> list[Family]:
    """Return the combined families of several processes. Without `join`, each gauge is combined as GAUGES defines."""
    families: dict[str, tuple[str, str]] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for part in parts:
        for name, kind, text, samples in part:
            families.setdefault(name, (kind, text))
            known = values.setdefault(name, {})
            for sample, labels, value in samples:
                known.setdefault((sample, tuple(sorted(labels.items()))), []).append(value)
    joined: list[Family] = []
    for name, (kind, text) in families.items():
        by = join or GAUGES.get(name, max)
        # A sum starts with its oldest part.
        whole = [
            (at, dict(labels), (min if at.endswith("_created") else by)(each)) for (at, labels), each in values[name].items()
        ]
        joined.append((name, kind, text, whole))
    return joined
