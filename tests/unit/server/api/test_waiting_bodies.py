"""Bodies on their way: a bound for each caller, and one for all of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headgate.errors import LimitReached
from headgate_server.api.shares import IN_ALL, PER_CALLER, Shares, waiting_bodies

LARGEST = 1000


def refusal(bodies: Shares, caller: str, size_bytes: int) -> LimitReached | None:
    """Return why a body may not come, or None."""
    try:
        with bodies.lend(caller, size_bytes):
            return None
    except LimitReached as error:
        return error


def test_a_caller_who_has_used_up_a_part_is_refused_and_the_others_are_not() -> None:
    """The refusal has the limit's name, its size, and when to try again."""
    bodies = waiting_bodies(LARGEST)
    with ExitStack() as coming:
        for _ in range(PER_CALLER):
            coming.enter_context(bodies.lend("ana", LARGEST))
        refused = refusal(bodies, "ana", 1)
        assert refused is not None
        assert refused.to_wire()["name"] == "publish_body_bytes"
        assert (refused.to_wire()["limit"], refused.retry_after_s) == (PER_CALLER * LARGEST, 1)
        assert refusal(bodies, "ben", LARGEST) is None
    assert refusal(bodies, "ana", LARGEST) is None


def test_all_callers_together_have_a_bound() -> None:
    """A caller refused by it has taken nothing."""
    bodies = waiting_bodies(LARGEST)
    with ExitStack() as coming:
        for number in range(IN_ALL):
            coming.enter_context(bodies.lend(f"user {number}", LARGEST))
        refused = refusal(bodies, "ana", 1)
        assert refused is not None
        assert refused.to_wire()["limit"] == IN_ALL * LARGEST
    assert refusal(bodies, "ana", LARGEST) is None


def test_a_body_that_does_not_come_is_counted_no_more() -> None:
    """Its connection broke, or it was too slow. Nothing is remembered of the caller."""
    bodies = waiting_bodies(LARGEST)
    for _ in range(3 * PER_CALLER):
        with pytest.raises(TimeoutError), bodies.lend("ana", LARGEST):
            raise TimeoutError
    assert bodies._taken_by == {}
    assert refusal(bodies, "ana", PER_CALLER * LARGEST) is None
