"""From rows to results: medians over the rounds, ratios within the run, targets, as JSON and as a Markdown page."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .scenario import Row, Scenario, more_is_better
from .scenarios import SCENARIOS
from .variants import VARIANTS

# A list of numbers, or of pairs of them.
_LIST = re.compile(r"\[[\s\d.,eE+-]*(?:\[[\s\d.,eE+-]*\][\s,]*)*\]")
# scenario → variant → one row per round
Rows = Mapping[str, Mapping[str, Sequence[Row]]]


def median(rows: Sequence[Row], column: str) -> float | None:
    """Return the median of a column over its numbers; None without any."""
    numbers = [value for row in rows if isinstance(value := row.get(column), int | float)]
    return statistics.median(numbers) if numbers else None


def faults(rows: Sequence[Row]) -> list[str]:
    """Return what went wrong in these rounds, each kind once."""
    found = []
    for row in rows:
        if row.get("outcome") != "ok":
            found.append(str(row.get("error") or row.get("outcome")))
        found += [
            f"{name}: {row[name]}" for name in ("undelivered", "missing", "late", "closed", "redis_errors") if row.get(name)
        ]
        if float(row.get("load_core_share", 0)) > 0.95:
            found.append("the generator's core was full")
        if float(row.get("others_on_server_core_share", 0)) > 0.1:
            found.append(f"others used {float(row['others_on_server_core_share']):.0%} of the server's core")
    return sorted(set(found))


def times_better(scenario: Scenario, of: float | None, to: float | None) -> float | None:
    """Return how many times better `of` is than `to`; None where one of them is not known."""
    if not of or not to:
        return None
    return of / to if more_is_better(scenario.ratio) else to / of


def ratio(scenario: Scenario, of: float | None, to: float | None) -> str:
    """Return how many times better `of` is than `to`, as text."""
    better = times_better(scenario, of, to)
    return "" if better is None else f"{better:.2f} ×"


def verdicts(scenario: Scenario, rows: Sequence[Row]) -> list[str]:
    """Return one line for each target: met or missed, with the figures."""
    lines = []
    for column, figure in scenario.targets.items():
        bound = "at least" if more_is_better(column) else "at most"
        found = median(rows, column)
        heading = scenario.columns.get(column, column)
        if texts := {value for row in rows if isinstance(value := row.get(column), str)}:
            lines.append(f"**missed**: {heading} {bound} {figure:,g}, found {'; '.join(sorted(texts))}")
        elif found is not None:
            met = found >= figure if more_is_better(column) else found <= figure
            lines.append(f"{'met' if met else '**missed**'}: {heading} {bound} {figure:,g}, found {found:,g}")
    return lines


def merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of several runs (`machine` and `rows` each) as those of one."""
    rows: dict[str, dict[str, list[Row]]] = {}
    for run in runs:
        for scenario, variants in run["rows"].items():
            for name, measured in variants.items():
                rows.setdefault(scenario, {}).setdefault(name, []).extend(measured)
    return rows


def read(results: Path) -> list[dict[str, Any]]:
    """Return the runs of a results file: one, or a list of them."""
    found = json.loads(results.read_text())
    return found if isinstance(found, list) else [found]


def markdown(machine: Mapping[str, Any], rows: Rows) -> str:
    """Return the whole page."""
    lines = ["# Bench results", "", "Medians over the rounds; how to read them: ../README.md.", ""]
    lines += [f"- {name.replace('_', ' ')}: {_shown(value)}" for name, value in machine.items()]
    for name, scenario in SCENARIOS.items():
        if name in rows:
            lines += ["", *_section(scenario, rows[name])]
    return "\n".join(lines) + "\n"


def _section(scenario: Scenario, rows: Mapping[str, Sequence[Row]]) -> list[str]:
    met = [f"- {line}" for name in rows if name.startswith("headgate") for line in _named(name, verdicts(scenario, rows[name]))]
    return [f"## {scenario.title}", "", *table(scenario, rows), "", *met]


def _named(name: str, lines: Sequence[str]) -> list[str]:
    return [line if name == "headgate" else f"{VARIANTS[name].title}: {line}" for line in lines]


def table(scenario: Scenario, rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the lines of the scenario's table: medians, the ratio to Headgate, rounds, and what went wrong.

    A column that no row has, as in results from before it, is left out.
    """
    columns = {
        name: heading for name, heading in scenario.columns.items() if any(name in row for each in rows.values() for row in each)
    }
    headings = ["server", *columns.values(), "Headgate is better by", "rounds", "notes"]
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    own = median(rows.get("headgate", ()), scenario.ratio)
    for name, found in rows.items():
        compared = "" if name.startswith("headgate") else ratio(scenario, own, median(found, scenario.ratio))
        cells = [VARIANTS[name].title, *(_cell(found, column) for column in columns)]
        cells += [compared, str(len(found)), "; ".join(faults(found))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def write(folder: Path, name: str, machine: Mapping[str, Any], rows: Rows, *, add: bool = False) -> Path:
    """Write `<name>.json` (every row, with whole distributions) and `<name>.md`; return the latter.

    `add`: keep the runs that the file already has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results, page = folder / f"{name}.json", folder / f"{name}.md"
    runs = [*(read(results) if add and results.exists() else []), {"machine": machine, "rows": rows}]
    results.write_text(as_text(runs if len(runs) > 1 else runs[0]))
    page.write_text(markdown(runs[0]["machine"], merged(runs)))
    return page


def as_text(value: object) -> str:
    """Return JSON with a line for each member; a list, such as a distribution, has one line."""
    return _LIST.sub(lambda found: re.sub(r"\s+", "", found[0]), json.dumps(value, indent=1)) + "\n"


def _cell(rows: Sequence[Row], column: str) -> str:
    """Return the median as text; of a column of texts, each that occurs."""
    texts = {value for row in rows if isinstance(value := row.get(column), str)}
    return "; ".join(sorted(texts)) if texts else number(median(rows, column))


def number(value: float | None) -> str:
    """Return a figure as the tables write it."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.2f}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)
