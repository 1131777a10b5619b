"""Lines of a log that may be due at any rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.log_throttle import EVERY_S, LogThrottle


def test_a_name_is_due_once_in_a_while_with_the_count_between() -> None:
    """Names do not share a turn."""
    now_s = 0.0
    throttle = LogThrottle(lambda: now_s)
    assert [throttle.due("a"), throttle.due("a"), throttle.due("b"), throttle.due("a")] == [0, None, 0, None]
    now_s = EVERY_S
    assert [throttle.due("a"), throttle.due("b")] == [2, 0]


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 3 * EVERY_S))))
def test_names_that_are_made_up_cause_a_bounded_number_of_lines(steps: list[tuple[int, float]]) -> None:
    """However many names there are, at most one line for each remembered one, and one for all others, is due in `every_s`."""
    now_s, lines = 0.0, []
    throttle = LogThrottle(lambda: now_s, max_names=3)
    for name, later_s in steps:
        now_s += later_s
        if throttle.due(str(name)) is not None:
            lines.append(now_s)
            assert len([line_s for line_s in lines if now_s - line_s < EVERY_S]) <= 4
