"""Grafana's own types check the dashboard: the npm package `@grafana/schema`, made from Grafana's schemas, and TypeScript.

`make monitoring` installs the package into build/grafana.
"""

import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "grafana"
DASHBOARD = (ROOT / "examples" / "monitoring" / "dashboard.json").read_text()
CHECK = """
import type { Dashboard } from "@grafana/schema";
// In JSON an enum is its text.
type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
export const dashboard: Plain<Dashboard> = %s;
"""
TYPESCRIPT = (
    "--noEmit",
    "--strict",
    "--skipLibCheck",
    "--module",
    "nodenext",
    "--moduleResolution",
    "nodenext",
    "--target",
    "es2022",
)


def complaints(dashboard: str, name: str) -> str:
    """Return the errors of TypeScript in a dashboard."""
    file = FOLDER / f"{name}.ts"
    file.write_text(CHECK % dashboard)
    checked = subprocess.run(
        [str(ROOT / "node_modules" / ".bin" / "tsc"), *TYPESCRIPT, str(file)], capture_output=True, text=True
    )
    return checked.stdout


def test_the_dashboard_is_one_of_grafanas() -> None:
    """No name that Grafana does not know, and no value of another kind."""
    assert complaints(DASHBOARD, "dashboard") == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [('"graphTooltip": 1', '"graphTooltip": 7'), ('"mode": "absolute"', '"mode": "of its own"'), ('"gridPos"', '"gridPosition"')],
)
def test_the_check_finds_a_fault(before: str, after: str) -> None:
    """It is not satisfied with everything."""
    assert before in DASHBOARD
    assert "error TS" in complaints(DASHBOARD.replace(before, after), "fault")
