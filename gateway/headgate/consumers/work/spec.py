"""What a consumer runs with: its name, its class, its options, and how its events are handed out. No I/O.

config.py reads it from TOML; runner.py runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.consumers.base import Consumer
from headgate.options import integer, number, one_of, option


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """What every consumer may set beside the options of its type."""

    start: str = option(
        "new", one_of("new", "oldest"), "Where a consumer that is new begins: with new events, or with the log's oldest."
    )
    workers: int = option(1, integer(1, 64), "Threads per process; a killed process may double one task for each.")
    max_per_s: int = option(
        10000,
        integer(0, 1000000),
        "Events that a process reads per second at most, so that a backlog leaves Redis to live delivery; 0: as many as it can.",
    )
    retry_first_s: float = option(1.0, number(0.01, 3600, "seconds"), "Longest wait before the first new try; each doubles it.")
    retry_last_s: float = option(300.0, number(0.01, 86400, "seconds"), "Longest wait between two tries.")
    retry_for_s: float = option(
        86400.0,
        number(0, 30 * 86400, "seconds"),
        "How long after its first failure a task is tried again.",
    )
    max_waiting: int = option(
        10000, integer(1, 1000000), "Tasks that may wait (deferred, or to be tried again); above it no new events are taken."
    )
    max_dead: int = option(
        10000, integer(1, 1000000), "Dead letters that are kept; a new one pushes out the oldest, and it is counted."
    )
    lease_s: float = option(
        30.0,
        number(0.1, 3600, "seconds"),
        "How long after the last heartbeat of a process another one takes over its tasks.",
    )


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """One consumer: `consumer` is the class, `options` an instance of its `Options`; `name` is its group on the log."""

    name: str
    consumer: type[Consumer]
    options: Any
    patterns: tuple[str, ...]
    namespace: str
    runner: RunnerOptions = RunnerOptions()
