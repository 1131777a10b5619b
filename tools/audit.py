"""Known vulnerabilities in what the lock files pin: `make audit`.

It asks pip-audit (pinned in requirements-audit.txt) and npm, each of which asks a service on the network. Where one does not
answer, the packages are *not checked*, and reported as such, never as "nothing found".

Exit codes: 0 nothing found, 1 something found, 2 something could not be checked and nothing was found in the rest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PYTHON_LOCKS = ("requirements.txt", "requirements-dev.txt")
TIMEOUT_S = 300


class Outcome(NamedTuple):
    """One answer about one lock: lines about vulnerabilities (None without an answer), and the packages not asked about."""

    lock: str
    found: list[str] | None
    why: str = ""


Run = Callable[[Sequence[str]], tuple[str, str]]


def run(command: Sequence[str]) -> tuple[str, str]:
    """Run a program; return what it wrote to standard output and error, whatever its exit code."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return done.stdout, done.stderr


def audit_python(lock: str, run: Run = run) -> Outcome:
    """Ask pip-audit about a requirements file."""
    out, err = run([sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "-f", "json", "-r", lock])
    report = _json(out)
    if not isinstance(report, dict) or not isinstance(report.get("dependencies"), list):
        return Outcome(lock, None, _last_line(err))
    found = [
        f"{package['name']} {package['version']}: {fault['id']}, fixed in {', '.join(fault['fix_versions']) or 'no version'}"
        for package in report["dependencies"]
        for fault in package.get("vulns", [])
    ]
    skipped = [package["skip_reason"] for package in report["dependencies"] if "skip_reason" in package]
    why = f"{len(skipped)} of {len(report['dependencies'])} packages: {skipped[0]}" if skipped else ""
    return Outcome(lock, None if skipped and not found else found, why)


def audit_javascript(lock: str = "package-lock.json", run: Run = run) -> Outcome:
    """Ask npm about the lock file."""
    out, err = run(["npm", "audit", "--json", "--package-lock-only"])
    report = _json(out)
    if not isinstance(report, dict) or not isinstance(report.get("vulnerabilities"), dict):
        told = report.get("message") if isinstance(report, dict) else None
        return Outcome(lock, None, str(told) if told else _last_line(err or out))
    return Outcome(lock, [f"{name}: {fault['severity']}" for name, fault in sorted(report["vulnerabilities"].items())])


def summary(outcomes: Sequence[Outcome]) -> tuple[list[str], int]:
    """Return the lines to print and the exit code."""
    lines, code = [], 0
    for outcome in outcomes:
        if outcome.found:
            lines += [f"{outcome.lock}: {line}" for line in outcome.found]
            code = 1
        if outcome.found is None or outcome.why:
            lines.append(f"{outcome.lock}: NOT CHECKED, the advisories could not be reached: {outcome.why}")
            code = code or 2
        elif not outcome.found:
            lines.append(f"{outcome.lock}: nothing known")
    return lines, code


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def main() -> int:
    """Ask about every lock and print the answers."""
    lines, code = summary([*(audit_python(lock) for lock in PYTHON_LOCKS), audit_javascript()])
    print("\n".join(f"headgate: {line}" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
