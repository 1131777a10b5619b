"""The quick bench: a few ratios to a neighbour of the same run, compared with the last committed ones, in about two minutes.

    python -m bench.quick            compare; ends with 1 and a sentence for each ratio below its tolerance
    python -m bench.quick --write    measure, and write the ratios to results/quick.json

A ratio of CPU seconds to CPU seconds of a neighbour is much the same on a busy machine and on an idle one. It is not the same on
another kind of machine: there, write first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import appending, generator, machine
from .child import Failed
from .joining import connecting
from .loads import closed_loop
from .report import faults
from .scenario import Row, Run
from .stage import own
from .variants import VARIANTS

COMMITTED = Path(__file__).parent / "results" / "quick.json"
# Two rounds fit into two minutes; on a busy machine they take three.
ROUNDS = 2


# How much worse, as a share, the median of a run may be than the committed one. Rounds differ by up to 20 % on a busy machine.
TOLERANCE = 0.3


class Ratio(NamedTuple):
    """One figure of Headgate through one of a neighbour: `measure()` makes both once; more is better, or less."""

    name: str
    title: str
    measure: Callable[[], tuple[float, float]]
    more_is_better: bool = True


def _beside(run: Run, column: str, neighbour: str = "sink") -> Callable[[], tuple[float, float]]:
    """The same run with Headgate, and then with a C server."""

    def measure() -> tuple[float, float]:
        first, second = run(VARIANTS["headgate"], True), run(VARIANTS[neighbour], True)
        return _figure(first, column), _figure(second, column)

    return measure


def _within(run: Run, column: str, neighbours_column: str) -> Callable[[], tuple[float, float]]:
    """Two figures of one run that contains its own reference."""

    def measure() -> tuple[float, float]:
        row = run(VARIANTS["headgate"], True)
        return _figure(row, column), _figure(row, neighbours_column)

    return measure


def _figure(row: Row, column: str) -> float:
    if row.get("outcome") != "ok":
        raise Failed("; ".join(faults([row])))
    return float(row[column])


RATIOS = (
    Ratio(
        "broadcast", "deliveries to 1,000 clients per CPU second, to those of the C sink",
        _beside(closed_loop(1000, 256, 8), "deliveries_per_cpu_s"),
    ),
    Ratio(
        "directed", "events for 1 of 2,000 users per CPU second, to those of the C sink",
        _beside(closed_loop(own(2000), 256, 64), "events_per_cpu_s", "sink-addressed"),
    ),
    Ratio(
        "joins", "clients that join per CPU second, to those of the C sink",
        _beside(connecting(4000), "connects_per_cpu_s"),
    ),
    Ratio(
        "append", "CPU time of Redis for an event of 256 B in the log, to that for an XADD",
        _within(appending.cost(256), "headgate_append_us", "xadd_us"), False,
    ),
    Ratio(
        "receipts", "receipts per second of one thread, to calls of redis-py alone",
        _within(appending.receipts_sync(256), "receipts_per_s", "redis_py_per_s"),
    ),
)  # fmt: skip


def measured(ratios: Sequence[Ratio], rounds: int) -> dict[str, float]:
    """Return the median of each ratio; its rounds are interleaved with those of the others."""
    found: dict[str, list[float]] = {ratio.name: [] for ratio in ratios}
    for _ in range(rounds):
        for ratio in ratios:
            own, neighbours = ratio.measure()
            found[ratio.name].append(own / max(neighbours, 1e-9))
            print(f"{ratio.name}: {found[ratio.name][-1]:.4g}", flush=True)
    return {name: statistics.median(values) for name, values in found.items()}


def complaints(ratios: Sequence[Ratio], now: Mapping[str, float], committed: Mapping[str, float]) -> list[str]:
    """Return a sentence for each ratio that is missing, or worse than the committed one by more than the tolerance."""
    sentences = []
    for ratio in ratios:
        if ratio.name not in committed:
            sentences.append(f"No {ratio.name} has been committed yet: run `python -m bench.quick --write`.")
            continue
        before, after = committed[ratio.name], now[ratio.name]
        worse = before / max(after, 1e-9) - 1 if ratio.more_is_better else after / before - 1
        if worse > TOLERANCE:
            sentences.append(
                f"The ratio `{ratio.name}` ({ratio.title}) is {after:.4g}, and {before:.4g} was committed: {worse:.0%} worse,"
                f" and {TOLERANCE:.0%} is tolerated."
            )
    return sentences


def main(words: Sequence[str] | None = None) -> int:
    """Measure and compare, or write; return 1 if something has become worse."""
    parser = argparse.ArgumentParser("python -m bench.quick", description="Compare a few ratios with the last committed ones.")
    parser.add_argument("--write", action="store_true", help="write the ratios to bench/results/quick.json")
    wanted = parser.parse_args(words)
    began_s = time.monotonic()
    generator.build()
    now = measured(RATIOS, ROUNDS)
    print(f"took {time.monotonic() - began_s:.0f} s")
    if wanted.write:
        ratios = {name: float(f"{value:.4g}") for name, value in now.items()}
        found = {"date": time.strftime("%Y-%m-%d"), "machine": machine.describe(), "ratios": ratios}
        COMMITTED.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    sentences = complaints(RATIOS, now, json.loads(COMMITTED.read_text())["ratios"])
    print("\n".join(sentences or ["No ratio is worse than the committed one by more than is tolerated."]))
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
