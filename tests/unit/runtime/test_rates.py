"""Rates: a token bucket for each caller, a burst at once and then a steady rate, and only so many are remembered."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime import rates
from headgate.runtime.rates import Rates, TokenBucket


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


def test_a_caller_that_is_gone_is_forgotten() -> None:
    """The next of that name starts from zero; forgetting twice is no fault."""
    found = Rates(0.1, 1)
    assert found.spend("ana", 0) == 0
    assert found.spend("ana", 0)
    found.forget("ana")
    found.forget("ana")
    assert found.spend("ana", 0) == 0


def test_it_says_when_there_is_a_token_again() -> None:
    """Not at all while there is one; and asking takes none."""
    bucket = TokenBucket(2, 1, now_s=0)
    assert bucket.wait_s(0) == 0
    bucket.spend(0)

    assert [bucket.wait_s(now_s) for now_s in (0, 0.25, 0.5, 9)] == [0.5, 0.25, 0, 0]


@given(st.integers(1, 20), st.integers(1, 50), st.lists(st.integers(0, 40), max_size=200))
def test_no_window_allows_more_than_burst_and_rate(per_s: int, burst: int, steps: list[int]) -> None:
    """In any window of time, at most burst + rate × length are allowed; counted in whole eighths, so that floats are exact."""
    bucket = TokenBucket(per_s, burst, now_s=0)
    allowed: list[float] = []
    now_s = 0.0
    for step in steps:
        now_s += step / 8
        if bucket.spend(now_s):
            allowed.append(now_s)

    for first, start_s in enumerate(allowed):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= burst + per_s * (allowed[last] - start_s)
