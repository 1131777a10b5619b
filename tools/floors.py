"""The Python tests with the lowest and with the newest versions that pyproject.toml allows, on every installed Python.

`python -m tools.floors [pytest's words …]` takes the wheel in dist/ (`make floors` makes it), python3.11 to python3.14 as PATH
has them, and one environment in build/floors/ for each pair. It prints a line for each, names a Python that is not here, and
exits 1 if any was red. Without words it runs the unit, contract and integration tests, which takes an hour or more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TESTS = ("tests/unit", "tests/contract", "tests/integration", "-n", "3", "--dist", "loadfile", "-q")
# Of the tools, what these tests need.
NOT_NEEDED = {"mypy", "pip-tools", "ruff", "types-pyyaml"}
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)(?:,<[\w.]+)?")


def main(words: list[str]) -> int:
    """Run everything; return 1 when something was red or no Python was there."""
    (wheel,) = (ROOT / "dist").glob("headgate-*.whl")
    outcomes: list[tuple[str, bool]] = []
    for version in PYTHONS:
        python = shutil.which(f"python{version}")
        if python is None or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
            print(f"headgate: Python {version} is not here: not tried", flush=True)
            continue
        for versions in ("lowest", "newest"):
            name = f"Python {version}, {versions} versions"
            print(f"headgate: {name}", flush=True)
            outcomes.append((name, _try(python, ROOT / "build" / "floors" / f"{version}-{versions}", wheel, versions, words)))
    for name, is_green in outcomes:
        print(f"headgate: {name}: {'green' if is_green else 'red'}")
    return 0 if outcomes and all(is_green for _, is_green in outcomes) else 1


def floors() -> Iterator[str]:
    """Yield the lowest version of each package that pyproject.toml names, as pip's constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for names in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from (f"{found[1]}=={found[2]}" for name in names if (found := REQUIREMENT.fullmatch(name)))


def _try(python: str, folder: Path, wheel: Path, versions: str, words: list[str]) -> bool:
    """Make an environment, and run the tests in it."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    (folder / "constraints.txt").write_text("\n".join(sorted(set(floors())) if versions == "lowest" else []))
    tools = [line for line in (ROOT / "requirements-dev.in").read_text().splitlines() if line and line[0] not in "#-"]
    inside = str(folder / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--disable-pip-version-check"]
    install += ["--constraint", str(folder / "constraints.txt"), f"{wheel}[all]", "pip", "setuptools"]
    if subprocess.run([*install, *(tool for tool in tools if tool not in NOT_NEEDED)], check=False).returncode:
        return False
    return (
        subprocess.run([inside, "-m", "pytest", "-p", "no:cacheprovider", *(words or TESTS)], cwd=ROOT, check=False).returncode
        == 0
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
