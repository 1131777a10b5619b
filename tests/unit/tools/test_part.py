"""tools/part.sh, tools/node_report.mjs and tests/conftest.py: the last lines of the test command name the failures."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import pytest_terminal_summary

TOOLS = Path(__file__).resolve().parents[3] / "tools"


def part(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOOLS / "part.sh"), *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_summary_names_what_failed_last_and_fails_itself(tmp_path: Path) -> None:
    """Passed parts, then the others, with the failed tests, and the untried ones."""
    for each in ("style", "unit", "types"):
        assert part(tmp_path, "begin", each, f"the {each}").stdout == f"\n== the {each} ==\n"
    part(tmp_path, "passed", "types")
    Path(part(tmp_path, "failed-tests", "unit").stdout.strip()).write_text("".join(f"test_{n}\n" for n in range(23)))
    summary = part(tmp_path, "summary", "style", "unit", "types", "web-test")
    lines = [line.strip() for line in summary.stdout.splitlines()]
    assert lines[:2] == ["", "== summary =="]
    assert lines[2].startswith("passed  types (")
    assert lines[3:6] == ["FAILED  style", "FAILED  unit", "test_0"]
    assert lines[-3:] == ["test_19", "and 3 more", "NOT RUN web-test"]
    assert summary.returncode == 1


def test_the_summary_of_parts_that_passed_succeeds(tmp_path: Path) -> None:
    """Even if one of them had failed before, because its last run counts."""
    for _ in range(2):
        part(tmp_path, "begin", "unit", "unit tests")
    assert part(tmp_path, "passed", "unit").returncode == 0
    assert part(tmp_path, "summary", "unit").returncode == 0
    part(tmp_path, "begin", "unit", "unit tests")
    assert part(tmp_path, "summary", "unit").returncode == 1


def failed_once(folder: Path, names: list[str], command: list[str]) -> subprocess.CompletedProcess[str]:
    part(folder, "begin", "e2e", "end to end")
    Path(part(folder, "failed-tests", "e2e").stdout.strip()).write_text("".join(f"{name}\n" for name in names))
    return part(folder, "again", "e2e", *command)


def test_a_few_failed_tests_are_tried_again_and_named_although_they_pass(tmp_path: Path) -> None:
    """By their names, each once, after the command; the part passes, and the summary does not hide them."""
    again = failed_once(tmp_path, ["test_x.py::test_a[two words]", "test_x.py::test_b", "test_x.py::test_b"], ["printf", "<%s>"])
    assert again.returncode == 0
    assert again.stdout.endswith("<test_x.py::test_a[two words]><test_x.py::test_b>")
    part(tmp_path, "passed", "e2e")
    summary = part(tmp_path, "summary", "e2e")
    lines = [line.strip() for line in summary.stdout.splitlines()]
    assert summary.returncode == 0
    assert lines[3].startswith("UNSTEADY e2e: ")
    assert lines[4:] == ["test_x.py::test_a[two words]", "test_x.py::test_b"]
    part(tmp_path, "begin", "e2e", "end to end")
    part(tmp_path, "passed", "e2e")
    assert "UNSTEADY" not in part(tmp_path, "summary", "e2e").stdout


@pytest.mark.parametrize(
    ("names", "command"),
    [
        (["test_a"], ["false"]),  # it fails again
        (["test_a", "test_b", "test_c", "test_d"], ["true"]),  # too many to be an accident
        ([], ["true"]),  # something else went wrong than a test
    ],
)
def test_what_fails_again_or_in_numbers_or_without_a_name_fails(tmp_path: Path, names: list[str], command: list[str]) -> None:
    assert failed_once(tmp_path, names, command).returncode == 1
    summary = part(tmp_path, "summary", "e2e")
    assert summary.returncode == 1
    assert [line.strip() for line in summary.stdout.splitlines()][2:] == ["FAILED  e2e", *names]


def test_node_tells_failures_in_full_at_the_end_and_their_names(tmp_path: Path) -> None:
    """With the suites that a test is in, and not once more for each suite."""
    node = shutil.which("node")
    assert node is not None
    (tmp_path / "some.test.mjs").write_text(
        'import { describe, it } from "node:test";\n'
        'describe("a queue", () => { it("is bounded", () => { throw new Error("it grew"); }); it("is fair", () => {}); });\n'
    )
    notes = tmp_path / "failed"
    outcome = subprocess.run(
        [node, "--test", f"--test-reporter={TOOLS / 'node_report.mjs'}", "some.test.mjs"],
        cwd=tmp_path,
        env={**os.environ, "FAILED_TESTS": str(notes)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 1
    assert "FAILED some.test.mjs > a queue > is bounded\n    Error: it grew\n" in outcome.stdout
    assert outcome.stdout.endswith("\n1 passed, 1 failed\n")
    assert notes.read_text() == "some.test.mjs > a queue > is bounded\n"


def test_pytest_tells_the_names_of_failed_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that had an error before or after them, too; after earlier names."""
    stats = {word: [SimpleNamespace(nodeid=f"test_x.py::{word}")] for word in ("failed", "error", "passed")}
    terminal = cast(pytest.TerminalReporter, SimpleNamespace(stats=stats))
    monkeypatch.delenv("FAILED_TESTS", raising=False)
    pytest_terminal_summary(terminal)
    notes = tmp_path / "failed"
    monkeypatch.setenv("FAILED_TESTS", str(notes))
    pytest_terminal_summary(terminal)
    assert notes.read_text() == "test_x.py::failed\ntest_x.py::error\n"
