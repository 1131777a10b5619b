"""The tables and pictures of docs/benchmarks.md, from committed results.

    python -m bench.page             draw and write them
    python -m bench.page --check     write nothing; end with 1 if the page is not what the results say

The page is written by hand, but for what stands between `<!-- bench RUN SCENARIO -->` and `<!-- end -->` (a table: the rows of
the scenario in results/RUN.json), and between `<!-- losses -->` and `<!-- end -->` (each peer that is better than Headgate in a
table of this page). A new run is shown by its name in the comments.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .plots import pictures
from .report import median, merged, number, read, table
from .scenario import Row, Scenario
from .scenarios import BOUNDS, SCENARIOS
from .variants import VARIANTS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
RESULTS = Path(__file__).parent / "results"
BLOCK = re.compile(r"(<!-- bench (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
LOSSES = re.compile(r"(<!-- losses -->\n).*?(<!-- end -->)", re.DOTALL)
# Above this, a peer's figure counts as better: differences below are noise on a virtual machine.
NOISE = 1.1

Rows = Mapping[str, Sequence[Row]]


def filled(page: str, results: Path = RESULTS) -> str:
    """Return the page with its tables as they must be.

    Raises:
        ValueError: a run or a scenario of it is not there.
    """
    page = BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], found[3], results)}\n{found[4]}", page)
    shown = [(found[2], found[3]) for found in BLOCK.finditer(page)]
    return LOSSES.sub(lambda found: f"{found[1]}\n{_losses(shown, results)}\n{found[2]}", page)


def draw(page: str, results: Path = RESULTS) -> None:
    """Draw what the page shows of each run, beside its results; pictures over the number of clients need two numbers of them."""
    shown: dict[str, dict[str, Rows]] = {}
    for found in BLOCK.finditer(page):
        shown.setdefault(found[2], {})[found[3]] = _read(found[2], found[3], results)[1]
    titles = {scenario.name: scenario.title for scenario in SCENARIOS.values()}
    for run, rows in shown.items():
        pictures.draw(results / f"{run}.json", rows, titles, {name: variant.title for name, variant in VARIANTS.items()})


def _read(run: str, scenario: str, results: Path) -> tuple[Mapping[str, Any], Rows]:
    """Return the machine and the rows of a scenario; a file may hold several runs, of the same machine."""
    path = results / f"{run}.json"
    if not path.exists():
        raise ValueError(f"docs/benchmarks.md asks for {run}, and bench/results has no {run}.json")
    runs = read(path)
    # A run may hold variants that are gone.
    rows = {variant: measured for variant, measured in merged(runs).get(scenario, {}).items() if variant in VARIANTS}
    if not rows or scenario not in SCENARIOS:
        raise ValueError(f"docs/benchmarks.md asks for {scenario} of {run}, and that run has none")
    return runs[0]["machine"], rows


def _block(run: str, name: str, results: Path) -> str:
    machine, rows = _read(run, name, results)
    lines = [f"**{SCENARIOS[name].title}**", "", *table(SCENARIOS[name], rows), "", _origin(machine, rows)]
    lines += [f"\n![{kind}](../bench/results/{path.name})" for kind, path in _pictures(run, name, results)]
    return "\n".join(lines) + "\n"


def _origin(machine: Mapping[str, Any], rows: Rows) -> str:
    rounds = max(len(measured) for measured in rows.values())
    hardware = f"{machine['cpu_model']}, {machine['cores']} cores"
    software = [f"Linux {str(machine['kernel']).split('-')[0]}", f"Python {machine['python']}", str(machine.get("bus", ""))]
    short = "short rounds" if machine.get("quick") else ""
    parts = [str(machine.get("date", "")), hardware, *software, f"{rounds} round{'s' if rounds > 1 else ''}", short]
    return f"*{' · '.join(part for part in parts if part)}*"


def _pictures(run: str, name: str, results: Path) -> list[tuple[str, Path]]:
    found = (("percentiles on the HDR scale", "percentiles"), ("latency over load", "load"))
    paths = [(kind, results / f"{run}-{name}-{suffix}.svg") for kind, suffix in found]
    return [(kind, path) for kind, path in paths if path.exists()]


def _losses(shown: Sequence[tuple[str, str]], results: Path) -> str:
    lines = []
    for run, name in shown:
        machine, rows = _read(run, name, results)
        for peer, measured in rows.items():
            if peer.startswith("headgate") or peer in BOUNDS:
                continue
            found = [
                better for column in _judged(SCENARIOS[name]) if (better := _better(name, column, measured, rows["headgate"]))
            ]
            if found:
                lines.append(f"- {SCENARIOS[name].title} ({machine.get('date')}): {VARIANTS[peer].title}: {'; '.join(found)}.")
    return "\n".join(lines or ["- In no table of this page."]) + "\n"


def _judged(scenario: Scenario) -> list[str]:
    """Return the columns in which a server may be better: the one that is compared, and every latency."""
    return [column for column in scenario.columns if column == scenario.ratio or column.endswith("_ms")]


def _better(name: str, column: str, measured: Sequence[Row], own: Sequence[Row]) -> str | None:
    """Return by how much a peer is better in a column, as text; None if it is not."""
    scenario = SCENARIOS[name]
    theirs, ours = median(measured, column), median(own, column)
    more_is_better = scenario.more_is_better and column == scenario.ratio
    if not theirs or not ours or (times := theirs / ours if more_is_better else ours / theirs) < NOISE:
        return None
    return f"{scenario.columns[column]} {number(theirs)} against {number(ours)} ({times:.2f} ×)"


def main(words: Sequence[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    if list(words) not in ([], ["--check"]):
        print("usage: python -m bench.page [--check]", file=sys.stderr)
        return 2
    now = PAGE.read_text()
    if not words:
        draw(now)
        PAGE.write_text(filled(now))
        return 0
    wanted = filled(now)
    if now == wanted:
        print("docs/benchmarks.md is up to date.")
        return 0
    print("docs/benchmarks.md is not what bench/results says: run `python -m bench.page`.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
