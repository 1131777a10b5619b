"""One kind of measurement, and what every row of figures has in common.

The figures' names carry their units. Each scenario names those that the table shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .generator import Answer
from .variants import Variant

Row = dict[str, float | str]
# The work of a scenario with a server: `run(variant, quick)` makes one row.
Run = Callable[[Variant, bool], Row]
KIB = 1024


@dataclass(frozen=True)
class Scenario:
    """One kind of measurement.

    `run(variant, quick)` makes one row. `columns` of it go into the table (name → heading); `ratio` is the column that is
    compared with Headgate's. `targets` are checked on Headgate's medians.
    """

    name: str
    title: str
    run: Run
    columns: Mapping[str, str]
    variants: tuple[str, ...]
    ratio: str
    quick: bool = False
    targets: Mapping[str, float] = field(default_factory=dict)


def more_is_better(column: str) -> bool:
    """Return whether the greater figure of a column is the better one: rates are greater, times and sizes smaller."""
    return column.endswith(("_per_s", "_per_cpu_s")) or column == "ratio"


def checked(answer: Answer) -> Row:
    """Return what every run has in common: did it go well, was the generator the bottleneck, did others disturb it."""
    return {
        "outcome": answer["outcome"],
        "deliveries": answer["deliveries"],
        "undelivered": answer["undelivered"],
        "missing": answer["missing"],
        "late": answer["late"],
        "closed": answer["closed"],
        "redis_errors": answer["redis_errors"],
        "redis_us_per_event": round(max(answer.get("redis_cpu_s", 0), 0) / max(answer["published"], 1) * 1e6, 2),
        "lateness_of_generator_ms": round(answer["worst_lateness_us"] / 1000, 3),
        **shares(answer),
    }


def shares(answer: Answer) -> Row:
    """Return the duration of a run, and the shares of the cores."""
    server_cpu_s = max(answer["server_cpu_s"], 1e-3)
    return {
        "seconds": round(answer["seconds"], 3),
        "server_core_share": round(server_cpu_s / answer["seconds"], 3),
        "load_core_share": round(answer["load_cpu_s"] / answer["seconds"], 3),
        "redis_core_share": round(max(answer.get("redis_cpu_s", -1), 0) / answer["seconds"], 3),
        "others_on_server_core_share": round(max(0.0, answer["server_core_busy_s"] - server_cpu_s) / answer["seconds"], 3),
    }


def latency(answer: Answer, prefix: str = "") -> Row:
    """Return the latencies of a run: a few percentiles, and the whole distribution."""
    found = answer["microseconds"]
    row: Row = {f"{prefix}{name}_ms": round(found[name] / 1000, 3) for name in ("p50", "p90", "p99", "p99_9", "max")}
    row[f"{prefix}distribution_us"] = found["distribution"]
    return row
