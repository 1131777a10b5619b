"""python-socketio's and Flask-SocketIO's own test suites on `headgate.socketio.Server` (`make socketio-suites`).

The suites come from the projects' source distributions, of pinned versions, by pip, into build/suites; nothing of them is kept in
the repository. tests/suites/on_headgate.py puts our server in the place of theirs. tests/suites/differences.toml lists the
expected failures, each with the reason: a failure that is not in the list, and one in the list that passes, fails
the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITES = ROOT / "tests" / "suites"
BUILD = ROOT / "build" / "suites"
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")


@dataclass(frozen=True, slots=True)
class Suite:
    """One project's suite.

    Attributes:
        project, version: as the package index knows them.
        tests: what pytest is asked to run, in the unpacked source distribution.
    """

    project: str
    version: str
    tests: tuple[str, ...]

    def unpacked(self, python: Path) -> Path:
        """Return the folder of the source distribution, which is fetched if it is not there."""
        folder = BUILD / f"{self.project.lower().replace('-', '_')}-{self.version}"
        if not folder.is_dir():
            options = ("download", "--no-deps", "--no-binary", ":all:", "--dest", str(BUILD), f"{self.project}=={self.version}")
            subprocess.run([python, *PIP, *options], check=True)
            with tarfile.open(folder.with_name(folder.name + ".tar.gz")) as archive:
                archive.extractall(BUILD, filter="data")
        return folder


def surprises(outcomes: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """Return a line for each test that failed and should not have, or passed or is gone and should have failed."""
    lines = [
        f"fails, and is not in the list: {name}"
        for name, outcome in outcomes.items()
        if outcome == "failed" and name not in expected
    ]
    for name, reason in expected.items():
        outcome = outcomes.get(name, "not run")
        if outcome != "failed":
            lines.append(f"in the list ({reason}), but {outcome}: {name}")
    return lines


def environment() -> Path:
    """Make an environment that has the product's packages and the suites' own; return its interpreter."""
    python = BUILD / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", BUILD / "venv"], check=True)
    paths = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True
    )
    (Path(paths.stdout.strip()) / "product.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([python, *PIP, "install", "--requirement", SUITES / "requirements.txt"], check=True)
    return python


def run(suite: Suite, python: Path, expected: Mapping[str, str]) -> bool:
    """Run a suite and print its result; return whether it was as expected."""
    outcomes_file = BUILD / f"{suite.project}.json"
    outcomes_file.unlink(missing_ok=True)
    subprocess.run(
        [python, "-m", "pytest", "-p", "on_headgate", "-c", os.devnull, "--rootdir", ".", "-q", "--tb=short", *suite.tests],
        cwd=suite.unpacked(python),
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'gateway'}{os.pathsep}{SUITES}", "HEADGATE_SUITE_OUTCOMES": str(outcomes_file)},
        check=False,
    )
    if not outcomes_file.exists():
        print(f"{suite.project} {suite.version}: did not run")
        return False
    outcomes: dict[str, str] = json.loads(outcomes_file.read_text())
    found = surprises(outcomes, expected)
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{suite.project} {suite.version}: {passed} of {len(outcomes)} pass; {len(expected)} are expected to fail")
    for line in found:
        print(f"  {line}")
    return not found


def main() -> int:
    """Run every suite."""
    BUILD.mkdir(parents=True, exist_ok=True)
    differences = tomllib.loads((SUITES / "differences.toml").read_text())
    pins = dict(line.split("==") for line in (SUITES / "requirements.txt").read_text().split() if "==" in line)
    python = environment()
    suites = [
        Suite("python-socketio", version("python-socketio"), ("tests/common",)),
        Suite("Flask-SocketIO", pins["flask-socketio"], ("test_socketio.py",)),
    ]
    as_expected = True
    for suite in suites:
        as_expected &= run(suite, python, differences[suite.project])
    return 0 if as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
