"""The budget of a call and the circuit breaker of an address: what an outcome means, and which calls may begin then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, NamespaceNotServed, PayloadTooLarge
from headgate.redis.budget import MACHINE, OPEN_S, Admission, Breaker, Budget, State, Step
from headgate.redis.faults import reply_error

REFUSED = b'HEADGATE payload_too_large {"size":9,"limit":8,"where":"bus"}'


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (reply_error(REFUSED), State.CLOSED),
        (NamespaceNotServed("a", ()), State.CLOSED),
        (PayloadTooLarge(9, 8, "publisher"), State.OPEN),
    ],
)
def test_a_refusal_by_redis_is_an_answer_to_the_probe(error: HeadgateError, state: State) -> None:
    """One of our own function too, unlike an error before Redis was asked."""
    breaker = Budget("a refusing server", 1.0)._breaker
    breaker.reset()
    breaker.ended(Admission.CALL, -10.0, answered=False, timed_out=True)
    with pytest.raises(type(error)), Budget("a refusing server", 1.0):
        raise error
    assert breaker.state is state


def timed_out(breaker: Breaker, now_s: float, admission: Admission = Admission.CALL) -> bool:
    return breaker.ended(admission, now_s, answered=False, timed_out=True)


def test_every_step_has_an_end_in_every_state_but_a_probe_that_begins() -> None:
    """A probe begins only where the breaker is open."""
    missing = {(state, step) for state in State for step in Step} - set(MACHINE)
    assert missing == {(State.CLOSED, Step.PROBE_BEGAN), (State.PROBING, Step.PROBE_BEGAN)}


def test_after_a_timeout_all_fail_and_then_one_probes() -> None:
    """For OPEN_S no call begins; then one, and until it has ended no other."""
    breaker = Breaker()
    assert breaker.admit(0.0) is Admission.CALL
    assert timed_out(breaker, 1.0)
    assert breaker.admit(1.0 + OPEN_S - 0.001) is Admission.REFUSED
    assert breaker.admit(1.0 + OPEN_S) is Admission.PROBE
    assert breaker.admit(1000.0) is Admission.REFUSED


def test_a_probe_that_is_interrupted_gives_way_to_the_next() -> None:
    """As an exception that says nothing about Redis does."""
    breaker = Breaker()
    timed_out(breaker, 0.0)
    assert breaker.admit(OPEN_S) is Admission.PROBE
    breaker.ended(Admission.PROBE, OPEN_S, answered=False, timed_out=False)
    assert breaker.admit(OPEN_S) is Admission.PROBE


STEPS = st.sampled_from(["begin", "answered", "timed out", "stopped"])


@given(st.lists(st.tuples(st.floats(0, 3), STEPS, st.integers(0, 20)), max_size=60))
def test_in_any_history_one_probes_and_none_begins_soon_after_a_timeout(history: list[tuple[float, str, int]]) -> None:
    """Against a list of the calls under way, as the naive reading of the rule has it."""
    breaker, now_s = Breaker(), 0.0
    under_way: list[Admission] = []
    opened_s: float | None = None
    for wait_s, step, which in history:
        now_s += wait_s
        if step == "begin":
            admission = breaker.admit(now_s)
            if opened_s is not None and now_s < opened_s + OPEN_S:
                assert admission is Admission.REFUSED
            if admission is Admission.PROBE:
                assert Admission.PROBE not in under_way or breaker.state is State.PROBING
            if opened_s is None:
                assert admission is Admission.CALL
            if admission is not Admission.REFUSED:
                under_way.append(admission)
        elif under_way:
            admission = under_way.pop(which % len(under_way))
            opened = breaker.ended(admission, now_s, answered=step == "answered", timed_out=step == "timed out")
            if opened:
                opened_s = now_s
            if step == "answered":
                opened_s = None
        assert (breaker.state is State.CLOSED) == (opened_s is None)
