"""`make audit`: the services' findings are reported, and an unanswered query is never taken for nothing found."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tools.audit import Outcome, audit_javascript, audit_python, run, summary


def answering(out: Any, err: str = "") -> Any:
    """The two programs ask services out of a test's reach. This stands for them, with their real output."""
    text = out if isinstance(out, str) else json.dumps(out)

    def run(command: Sequence[str]) -> tuple[str, str]:
        return text, err

    return run


PIP = {"name": "flask", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
CLEAN = {"name": "click", "version": "8.0", "vulns": []}
SKIPPED = {"name": "ours", "skip_reason": "not on PyPI"}
REACHED: list[tuple[Any, Any, Any]] = [
    (audit_python, {"dependencies": [CLEAN]}, []),
    (audit_python, {"dependencies": [PIP, CLEAN]}, ["flask 1.0: PYSEC-1, fixed in 1.1"]),
    (audit_javascript, {"vulnerabilities": {}}, []),
    (audit_javascript, {"vulnerabilities": {"ws": {"severity": "high"}}}, ["ws: high"]),
]
NOT_REACHED: list[tuple[Any, Any, str, str]] = [
    (audit_python, "", "ConnectionError: no route\n", "ConnectionError: no route"),
    (audit_python, {"dependencies": [CLEAN, SKIPPED]}, "", "1 of 2 packages: not on PyPI"),
    (audit_python, [], "", "it said nothing"),
    (audit_javascript, {"message": "405 Method Not Allowed"}, "npm error", "405 Method Not Allowed"),
    (audit_javascript, "", "", "it said nothing"),
]


@pytest.mark.parametrize(("audit", "answer", "found"), REACHED)
def test_every_finding_is_told(audit: Any, answer: Any, found: list[str]) -> None:
    assert audit("a lock", run=answering(answer)) == Outcome("a lock", found)


@pytest.mark.parametrize(("audit", "answer", "err", "why"), NOT_REACHED)
def test_a_question_without_an_answer_is_not_taken_for_nothing_found(audit: Any, answer: Any, err: str, why: str) -> None:
    """A separate exit code, and a line that says so."""
    outcome = audit("a lock", run=answering(answer, err))
    assert (outcome.found, outcome.why) == (None, why)
    assert summary([Outcome("another", []), outcome]) == (
        ["another: nothing known", f"a lock: NOT CHECKED, the advisories could not be reached: {why}"],
        2,
    )


def test_something_found_weighs_more_than_something_not_asked() -> None:
    """A scheduled job reads the exit code."""
    assert summary([Outcome("a", None, "away"), Outcome("b", ["ws: high"])])[1] == 1
    assert summary([Outcome("a", ["ws: high"], "1 of 2 packages: away")])[0][1].startswith("a: NOT CHECKED")
    assert summary([Outcome("a", [])])[1] == 0


def test_a_program_that_is_not_there_is_no_answer() -> None:
    """As on a machine without npm."""
    out, err = run(["/no/such/program"])
    assert out == ""
    assert "No such file" in err
