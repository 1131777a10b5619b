"""The token bucket: a burst at once, then a steady rate."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.rates import TokenBucket


def test_a_full_bucket_allows_one_burst() -> None:
    """And nothing more in the same instant."""
    bucket = TokenBucket(50, 100, now_s=7.0)

    assert [bucket.spend(7.0) for _ in range(101)] == [True] * 100 + [False]


def test_it_refills_at_its_rate() -> None:
    """Two per second, so one after half a second, not before; a refused request costs nothing."""
    bucket = TokenBucket(2, 1, now_s=0)
    assert bucket.spend(0)

    assert [bucket.spend(now_s) for now_s in (0.25, 0.375, 0.5, 0.75, 1.0)] == [False, False, True, False, True]


def test_it_says_when_there_is_a_token_again() -> None:
    """Not at all while there is one; and asking takes none."""
    bucket = TokenBucket(2, 1, now_s=0)
    assert bucket.wait_s(0) == 0
    bucket.spend(0)

    assert [bucket.wait_s(now_s) for now_s in (0, 0.25, 0.5, 9)] == [0.5, 0.25, 0, 0]


def test_a_borrower_waits_behind_those_who_borrowed_before_it() -> None:
    """Two per second; one that would have to wait for too long takes nothing."""
    bucket = TokenBucket(2, 1, now_s=0)
    assert [bucket.borrow(0, 1.0) for _ in range(4)] == [0.0, 0.5, 1.0, None]
    assert bucket.borrow(0.5, 1.0) == 1.0
    assert not bucket.spend(1.5)
    assert bucket.spend(2.0)


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
