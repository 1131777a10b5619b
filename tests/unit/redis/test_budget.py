"""The budget of a call and the circuit breaker of an address: what an outcome means, and which calls may begin then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, NamespaceNotServed, PayloadTooLarge
from headgate.redis.budget import OPEN_S, Breaker, Budget, left_s
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


class Call:
    """A call under way."""


def test_after_a_timeout_all_fail_and_then_one_probes() -> None:
    """For OPEN_S no call begins; then one, and until it has ended no other, unless its end says nothing about Redis."""
    breaker, first, second, third = Breaker(), Call(), Call(), Call()
    assert breaker.admit(first, 0.0)
    assert breaker.ended(first, 1.0, answered=False, timed_out=True)
    assert not breaker.admit(second, 1.0 + OPEN_S - 0.001)
    assert breaker.admit(second, 1.0 + OPEN_S)
    assert not breaker.admit(third, 1000.0)
    breaker.ended(second, 1000.0, answered=False, timed_out=False)
    assert breaker.admit(third, 1000.0)
    del third  # interrupted before its end could be noted
    assert breaker.admit(second, 1000.0)


def test_a_call_that_was_interrupted_at_its_begin_is_no_budget_of_the_next() -> None:
    """A signal may come after the budget has begun, and before Python has entered the `with`."""
    Budget("an interrupted server", 0.001).__enter__()
    assert left_s() is None


STEPS = st.sampled_from(["begin", "answered", "timed out", "stopped"])


@given(st.lists(st.tuples(st.floats(0, 3), STEPS, st.integers(0, 20)), max_size=60))
def test_in_any_history_one_probes_and_none_begins_soon_after_a_timeout(history: list[tuple[float, str, int]]) -> None:
    """Against a list of the calls under way, as the naive reading of the rule has it."""
    breaker, now_s = Breaker(), 0.0
    under_way: list[Call] = []
    probe: Call | None = None
    opened_s = None
    for wait_s, step, which in history:
        now_s += wait_s
        if step == "begin":
            call = Call()
            is_admitted = breaker.admit(call, now_s)
            assert is_admitted == (opened_s is None or (now_s >= opened_s + OPEN_S and not probe))
            if is_admitted:
                under_way.append(call)
                probe = call if opened_s is not None else None
        elif under_way:
            call = under_way.pop(which % len(under_way))
            counts = opened_s is None or call is probe
            opened = breaker.ended(call, now_s, answered=step == "answered", timed_out=step == "timed out")
            assert opened == (step == "timed out" and counts)
            opened_s = now_s if opened else None if step == "answered" else opened_s
            probe = None if step == "answered" or call is probe else probe
        assert breaker.is_open == (opened_s is not None)
