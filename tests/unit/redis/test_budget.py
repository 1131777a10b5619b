"""The budget of a call: the meaning of its outcome for the breaker of the address."""

from __future__ import annotations

import pytest

from headgate.errors import HeadgateError, NamespaceNotServed, PayloadTooLarge
from headgate.redis.budget import Admission, Budget, State
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
