"""Shares of running searches and of bodies on their way: a bound for each caller, and one for all of them."""

from contextlib import ExitStack

import pytest

from headgate.errors import LimitReached
from headgate_server.api.shares import IN_ALL, MAX_SEARCHES, PER_CALLER, RETRY_S, Shares
from headgate_server.api.v1.services import MAX_CONNECTIONS

LARGEST = 1000


def refusal(shares: Shares, caller: str, amount: int = 1) -> tuple[object, ...] | None:
    """Return the name and the value of the limit that refuses a caller, and when to try again; None if nothing does."""
    try:
        with shares.lend(caller, amount):
            return None
    except LimitReached as error:
        return (*(error.to_wire()[part] for part in ("name", "limit")), error.retry_after_s)


@pytest.mark.parametrize(
    ("name", "amount", "per_caller", "in_all"), [("searches", 1, 1, MAX_SEARCHES), ("bytes", LARGEST, PER_CALLER, IN_ALL)]
)
def test_a_caller_has_a_part_and_all_together_have_a_bound(name: str, amount: int, per_caller: int, in_all: int) -> None:
    """Until a part of it is over. A caller refused by either has taken nothing, and another is not concerned by the first."""
    shares = Shares(name, per_caller * amount, in_all * amount)
    with ExitStack() as under_way:
        for _ in range(per_caller):
            under_way.enter_context(shares.lend("ana", amount))
        assert refusal(shares, "ana") == (name, per_caller * amount, RETRY_S)
        assert refusal(shares, "ben", amount) is None
    with ExitStack() as under_way:
        for number in range(in_all):
            under_way.enter_context(shares.lend(f"user {number}", amount))
        assert refusal(shares, "ana") == (name, in_all * amount, RETRY_S)
    assert refusal(shares, "ana", amount) is None


def test_what_breaks_off_is_counted_no_more() -> None:
    """A connection broke, or it was too slow. Nothing is remembered of the caller."""
    bodies = Shares("bytes", PER_CALLER * LARGEST, IN_ALL * LARGEST)
    for _ in range(3 * PER_CALLER):
        with pytest.raises(TimeoutError), bodies.lend("ana", LARGEST):
            raise TimeoutError
    assert bodies._taken_by == {}
    assert refusal(bodies, "ana", PER_CALLER * LARGEST) is None


def test_searches_never_have_all_connections() -> None:
    """One is left for other requests."""
    assert MAX_SEARCHES < MAX_CONNECTIONS
