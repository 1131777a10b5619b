"""The command line of the bench: choose scenarios and servers, run interleaved rounds, write the results."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import redis

from . import generator, machine, page, remote, report
from .bus import Bus
from .child import Failed
from .scenario import Row, Scenario
from .scenarios import SCENARIOS
from .variants import VARIANTS, Variant

RESULTS = Path(__file__).parent / "results"


def main(words: Sequence[str] | None = None) -> int:
    """Run the bench; return 0, or 1 when nothing could be measured at all. `--host` is for a server that runs elsewhere."""
    words = sys.argv[1:] if words is None else words
    if any(word.partition("=")[0] == "--host" for word in words):
        return remote.main(words)
    wanted = _arguments(words)
    if wanted.centrifugo:
        os.environ["HEADGATE_BENCH_CENTRIFUGO"] = str(wanted.centrifugo.resolve())
    if wanted.list:
        print("\n".join(f"{name:32} {scenario.title}" for name, scenario in SCENARIOS.items()))
        return 0
    generator.build()
    if wanted.install:
        subprocess.run(["make", "-C", str(Path(__file__).parent), "peers"], check=True)
    scenarios = [SCENARIOS[name] for name in wanted.scenario or _default_scenarios(wanted)]
    described = machine.describe() | {"bus": _bus_version(), "date": time.strftime("%Y-%m-%d"), "quick": wanted.quick}
    rows: dict[str, dict[str, list[Row]]] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # what has been measured by then is written
        for scenario, variant, number in _rounds(scenarios, wanted.variant, wanted.rounds or (1 if wanted.quick else 3)):
            row = _one(scenario, variant, wanted.quick)
            rows.setdefault(scenario.name, {}).setdefault(variant.name, []).append(row)
            shown = ", ".join(f"{heading} {row[column]}" for column, heading in scenario.columns.items() if column in row)
            trouble = "; ".join(report.faults([row]))
            print(f"{scenario.name} · round {number} · {variant.name}: {shown}{' — ' + trouble if trouble else ''}", flush=True)
    if not rows:
        return 1
    written = report.write(wanted.out, wanted.name, described, rows, add=wanted.add)
    print(written.read_text())
    return 0


def _one(scenario: Scenario, variant: Variant, quick: bool) -> Row:
    try:
        return scenario.run(variant, quick)
    except (Failed, OSError, subprocess.SubprocessError, redis.RedisError) as error:
        return {"outcome": "failed", "error": f"{error}"[-400:].replace("\n", " ").replace("|", "/")}


def _rounds(scenarios: Sequence[Scenario], only: Sequence[str] | None, rounds: int) -> Iterator[tuple[Scenario, Variant, int]]:
    """Interleave: every server once, then every server again, so that a slow minute of the machine hits all of them."""
    told = set()
    for scenario in scenarios:
        for number in range(1, rounds + 1):
            for name in only or scenario.variants:
                missing = VARIANTS[name].missing()
                if not missing:
                    yield scenario, VARIANTS[name], number
                elif name not in told:
                    told.add(name)
                    print(f"{name} is left out: {missing}", file=sys.stderr)


def _default_scenarios(wanted: argparse.Namespace) -> list[str]:
    if wanted.page:
        return page.scenarios(page.PAGE.read_text())
    return [name for name, scenario in SCENARIOS.items() if scenario.quick or not wanted.quick]


def _bus_version() -> str:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, Bus(Path(folder), machine.cores()[1]) as bus:
        return bus.version()


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description="Measure Headgate beside its peers.")
    parser.add_argument("--quick", action="store_true", help="a few scenarios, one short round: a sign of life, not a figure")
    parser.add_argument("--page", action="store_true", help="every scenario of docs/benchmarks.md, with every server")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one (repeat for more)")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="only this server (repeat for more)")
    parser.add_argument("--rounds", type=int, choices=range(1, 21), metavar="1..20", help="rounds per scenario (3; quick: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (bench/results)")
    parser.add_argument("--name", default="latest", help="name of the two result files (latest)")
    parser.add_argument("--install", action="store_true", help="install the pinned peer on Node first (bench/peers, from npm)")
    parser.add_argument("--centrifugo", type=Path, metavar="PATH", help="the binary (HEADGATE_BENCH_CENTRIFUGO, else PATH)")
    parser.add_argument("--host", help="measure a server that runs elsewhere: `--host HOST --help`")
    parser.add_argument("--add", action="store_true", help="add this run to those of the files of that name")
    parser.add_argument("--list", action="store_true", help="list the scenarios and stop")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
