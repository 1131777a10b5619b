"""The comparison of an outside suite's outcomes with the list of expected differences."""

import pytest

from tools.socketio_suites import surprises


@pytest.mark.parametrize(
    ("outcome", "listed", "found"),
    [
        ("passed", False, []),
        ("failed", True, []),
        ("skipped", False, []),
        ("failed", False, ["fails, and is not in the list: test"]),
        ("passed", True, ["in the list (reason), but passed: test"]),
        (None, True, ["in the list (reason), but not run: test"]),
    ],
)
def test_an_outcome_that_is_not_the_expected_one_is_named(outcome: str | None, listed: bool, found: list[str]) -> None:
    outcomes = {} if outcome is None else {"test": outcome}

    assert surprises(outcomes, {"test": "reason"} if listed else {}) == found
