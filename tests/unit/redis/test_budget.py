"""The budget of a call and the circuit breaker of an address: what an outcome means, and which calls may begin then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, NamespaceNotServed, PayloadTooLarge
from headgate.redis.budget import OPEN_S, Breaker, Budget
from headgate.redis.faults import reply_error

REFUSED = b'HEADGATE payload_too_large {"size":9,"limit":8,"where":"bus"}'


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (reply_error(REFUSED), False),
        (NamespaceNotServed("a", ()), False),
        (PayloadTooLarge(9, 8, "publisher"), True),
    ],
)
def test_a_refusal_by_redis_is_an_answer_to_the_probe(error: HeadgateError, is_open: bool) -> None:
    """One of our own function too, unlike an error before Redis was asked."""
    breaker = Budget("a refusing server", 1.0)._breaker
    breaker.ended("an earlier call", -10.0, answered=False, timed_out=True)
    with pytest.raises(type(error)), Budget("a refusing server", 1.0):
        raise error
    assert breaker.is_open is is_open


def test_after_a_timeout_all_fail_and_then_one_probes() -> None:
    """For OPEN_S no call begins; then one, and until it has ended no other, unless its end says nothing about Redis."""
    breaker = Breaker()
    assert breaker.admit("first", 0.0)
    assert breaker.ended("first", 1.0, answered=False, timed_out=True)
    assert not breaker.admit("second", 1.0 + OPEN_S - 0.001)
    assert breaker.admit("second", 1.0 + OPEN_S)
    assert not breaker.admit("third", 1000.0)
    breaker.ended("second", 1000.0, answered=False, timed_out=False)
    assert breaker.admit("third", 1000.0)


STEPS = st.sampled_from(["begin", "answered", "timed out", "stopped"])


@given(st.lists(st.tuples(st.floats(0, 3), STEPS, st.integers(0, 20)), max_size=60))
def test_in_any_history_one_probes_and_none_begins_soon_after_a_timeout(history: list[tuple[float, str, int]]) -> None:
    """Against a list of the calls under way, as the naive reading of the rule has it."""
    breaker, now_s, calls = Breaker(), 0.0, 0
    under_way: list[int] = []
    probe, opened_s = 0, None
    for wait_s, step, which in history:
        now_s += wait_s
        if step == "begin":
            calls += 1
            is_admitted = breaker.admit(calls, now_s)
            assert is_admitted == (opened_s is None or (now_s >= opened_s + OPEN_S and not probe))
            if is_admitted:
                under_way.append(calls)
                probe = calls if opened_s is not None else 0
        elif under_way:
            call = under_way.pop(which % len(under_way))
            counts = opened_s is None or call == probe
            opened = breaker.ended(call, now_s, answered=step == "answered", timed_out=step == "timed out")
            assert opened == (step == "timed out" and counts)
            opened_s = now_s if opened else None if step == "answered" else opened_s
            probe = 0 if step == "answered" or call == probe else probe
        assert breaker.is_open == (opened_s is not None)
