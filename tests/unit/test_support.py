"""The table of docs/support.md with the tests of the browser client: each row as the tests and the lock files have it."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| `((?:tests|web)/[^`]+)` \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs/support.md").read_text())
RUNNERS = "web/test/package.test.js"
# The system's, because no lock file of ours has their versions.
UNPINNED = {"Firefox ESR", "Node", "WebKitGTK"}


def pinned() -> dict[str, str]:
    """Return the versions that this repository and the examples pin, by the names of packages."""
    lock = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    versions = {path.removeprefix("node_modules/"): each["version"] for path, each in lock.items() if "version" in each}
    for file in sorted(ROOT.glob("examples/*/package.json")):
        described = json.loads(file.read_text())
        versions |= described["dependencies"] | described.get("devDependencies", {})
    return versions


def test_the_table_has_a_row_for_each_runner_of_tests() -> None:
    """None is promised that the tests do not start, and none is started that the table does not have."""
    runners = re.search(r"const RUNNERS = \{\n(.*?)^\};", (ROOT / RUNNERS).read_text(), re.MULTILINE | re.DOTALL)
    assert runners is not None
    started = re.findall(r'^  "([^"]+)": \(folder\)', runners[1], re.MULTILINE)
    assert [what.strip("`") for what, *_, test in ROWS if test == RUNNERS] == started


@pytest.mark.parametrize(("what", "versions", "when", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_has_the_versions_and_the_time_of_its_test(what: str, versions: str, when: str, test: str) -> None:
    """The versions are the pinned ones; tests of examples are for `make examples`."""
    assert what.strip("`").split()[0].lower().rstrip(",") in (ROOT / test).read_text().lower()
    assert when == ("`make examples`" if test.startswith("tests/examples/") else "every change")
    for name, version in re.findall(r"([A-Za-z][\w .-]*) (\d[\d.]*)", versions):
        assert name in UNPINNED or f"{pinned()[name.lower()]}.".startswith(f"{version}.")
