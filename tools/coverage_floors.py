"""The floors of branch coverage: `python -m tools.coverage_floors build/coverage.json`, after the unit tests have written it.

`[tool.headgate.coverage]` in pyproject.toml gives each package of `headgate` its floor, in percent of lines and branches that
the unit and contract tests run. A package below its floor fails. A floor only rises: where a package is well above it, the output
prints the number to write.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from math import floor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "gateway/headgate/"
# Runs differ in a few branches (a platform, a version of Python, examples chosen at random): a floor stays this far below.
SLACK_PERCENT = 1.0


def measured(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the percentage of lines and branches that ran, for each package; modules at the top are `headgate`."""
    covered: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for path, file in report["files"].items():
        if SOURCE not in path:
            continue
        package = path.partition(SOURCE)[2].rpartition("/")[0].partition("/")[0] or "headgate"
        summary = file["summary"]
        covered[package] += summary["covered_lines"] + summary["covered_branches"]
        total[package] += summary["num_statements"] + summary["num_branches"]
    return {package: 100 * covered[package] / total[package] for package in total if total[package]}


def faults(percentages: Mapping[str, float], floors: Mapping[str, float]) -> list[str]:
    """Return a line for each package below its floor, each floor without a package, and each package without a floor."""
    found = []
    for package, least in floors.items():
        percent = percentages.get(package)
        if percent is None:
            found.append(f"{package}: no such package; remove its floor")
        elif percent < least:
            found.append(f"{package}: {percent:.1f} % is below its floor of {least:g} %: add tests, or delete dead code")
    found += [
        f"{package}: has no floor; write {possible_floor(percent)} into pyproject.toml"
        for package, percent in percentages.items()
        if package not in floors
    ]
    return found


def possible_floor(percent: float) -> int:
    """Return the highest floor that a package with this percentage may have."""
    return floor(percent - SLACK_PERCENT)


def main() -> int:
    """Print the percentages and what is wrong with them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="the JSON report of coverage.py")
    arguments = parser.parse_args()
    percentages = measured(json.loads(arguments.report.read_text(encoding="utf-8")))
    floors = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["headgate"]["coverage"]
    for package, percent in sorted(percentages.items()):
        least = floors.get(package, 0)
        advice = f"; raise it to {possible_floor(percent)}" if possible_floor(percent) > least else ""
        print(f"{package:12} {percent:5.1f} %, floor {least:g} %{advice}")
    wrong = faults(percentages, floors)
    for line in wrong:
        print(f"coverage: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
