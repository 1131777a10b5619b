"""Rates: each caller has a bucket, and only so many are remembered."""

from headgate.runtime import rates
from headgate.runtime.rates import Rates


def test_one_caller_does_not_use_up_what_another_may() -> None:
    """Two at once for each, and one more per second."""
    found = Rates(1, 2)
    assert [found.spend("ana", 0) for _ in range(3)] == [0, 0, 1]
    assert found.spend("bob", 0) == 0
    assert found.spend("ana", 1) == 0
    assert found.spend("ana", 1.25) == 0.75


def test_a_batch_counts_as_many_as_it_has() -> None:
    """All of them or none; one larger than the burst never comes in."""
    found = Rates(1, 3)
    assert found.spend("ana", 0, 2) == 0
    assert found.spend("ana", 0, 2) == 1
    assert found.spend("ana", 0) == 0
    assert found.spend("ana", 2, 3) == 1
    assert found.spend("ana", 3, 3) == 0
    assert found.spend("bob", 0, 4) == 1
    assert found.spend("bob", 100, 4) == 1


def test_the_longest_silent_is_forgotten_first() -> None:
    """And has a full bucket then; a caller that keeps asking stays known."""
    assert rates.MAX_CALLERS == 10_000
    found = Rates(0.1, 1)
    for number in range(rates.MAX_CALLERS):
        assert found.spend(f"user{number}", 0) == 0
    assert found.spend("user0", 0) == 10
    assert found.spend("one more", 0) == 0
    assert found.spend("user0", 0) == 10
    assert found.spend("user1", 0) == 0


def test_a_caller_may_wait_for_its_turn() -> None:
    """Longer with each that it borrows, and only so long."""
    found = Rates(1, 1)
    assert [found.borrow("ana", 0, 1.5) for _ in range(3)] == [0, 1, None]
    assert found.borrow("bob", 0, 0) == 0


def test_a_caller_that_is_gone_is_forgotten() -> None:
    """The next of that name starts from zero; forgetting twice is no fault."""
    found = Rates(0.1, 1)
    assert found.spend("ana", 0) == 0
    assert found.spend("ana", 0)
    found.forget("ana")
    found.forget("ana")
    assert found.spend("ana", 0) == 0
