"""From rows to results: medians over the rounds, ratios within the run, targets, as JSON and as a Markdown page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .scenario import Row, Scenario
from .variants import VARIANTS

# scenario → variant → one row per round
Rows = Mapping[str, Mapping[str, Sequence[Row]]]


def median(rows: Sequence[Row], column: str) -> float | None:
    """Return the median of a column over the rounds that have a number in it; None without any."""
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


def ratio(scenario: Scenario, of: float | None, to: float | None) -> str:
    """Return how many times better `of` is than `to`, as text."""
    if not of or not to:
        return ""
    return f"{of / to if scenario.more_is_better else to / of:.2f} ×"


def verdicts(scenario: Scenario, rows: Sequence[Row]) -> list[str]:
    """Return one line for each target: met or missed, with the figures."""
    lines = []
    for column, (bound, figure) in scenario.targets.items():
        found = median(rows, column)
        if found is not None:
            met = found >= figure if bound == "at least" else found <= figure
            heading = scenario.columns.get(column, column)
            lines.append(f"{'met' if met else '**missed**'}: {heading} {bound} {figure:,g}, found {found:,g}")
    return lines


def markdown(machine: Mapping[str, Any], scenarios: Sequence[Scenario], rows: Rows) -> str:
    """Return the whole page."""
    lines = ["# Bench results", "", "Medians over the rounds of one run; how to read them: ../README.md.", ""]
    lines += [f"- {name.replace('_', ' ')}: {_shown(value)}" for name, value in machine.items()]
    for scenario in scenarios:
        lines += ["", *_section(scenario, rows.get(scenario.name, {}))]
    return "\n".join(lines) + "\n"


def _section(scenario: Scenario, rows: Mapping[str, Sequence[Row]]) -> list[str]:
    headings = ["server", *scenario.columns.values(), "Headgate is better by", "rounds", "notes"]
    lines = [f"## {scenario.title}", "", f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    own = median(rows.get("headgate", ()), scenario.ratio)
    for name, found in rows.items():
        compared = "" if name.startswith("headgate") else ratio(scenario, own, median(found, scenario.ratio))
        cells = [VARIANTS[name].title, *(_cell(found, column) for column in scenario.columns)]
        cells += [compared, str(len(found)), "; ".join(faults(found))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- {line}" for line in verdicts(scenario, rows.get("headgate", ())))]
    return lines


def write(folder: Path, name: str, machine: Mapping[str, Any], scenarios: Sequence[Scenario], rows: Rows) -> Path:
    """Write `<name>.json` (every row, with whole distributions) and `<name>.md`; return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}.md"
    (folder / f"{name}.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    page.write_text(markdown(machine, scenarios, rows))
    return page


def _cell(rows: Sequence[Row], column: str) -> str:
    """Return the median as text; of a column of texts, each that occurs."""
    texts = {value for row in rows if isinstance(value := row.get(column), str)}
    return "; ".join(sorted(texts)) if texts else _number(median(rows, column))


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.2f}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)
