"""notification.py: one state from the known facts, in any order."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headgate.consumers.notification import OUTCOMES, WITHDRAWN, NotificationState, state_of

facts = st.lists(st.sampled_from(NotificationState), max_size=12)


def naive(known: list[NotificationState]) -> str:
    """Return the state as people would say it: first the acts of the human, then the deliveries to the human."""
    names = {fact.value for fact in known}
    for name in ("read", "shown", "mailed", "pushed", "withdrawn", "handled", "delivered"):
        if name in names:
            return name
    return "sent"


@given(known=facts, order=st.randoms(use_true_random=False))
def test_the_state_is_that_of_the_oracle_in_any_order_of_the_facts(known: list[NotificationState], order: Random) -> None:
    """Facts come from several places, and twice."""
    shuffled = list(known)
    order.shuffle(shuffled)
    assert state_of(known).value == state_of(shuffled).value == naive(known)


def test_each_outcome_of_a_consumer_is_a_state() -> None:
    """A withdrawn one is withdrawn, whatever the reason."""
    assert {outcome for outcome, state in OUTCOMES.items() if state is NotificationState.WITHDRAWN} == set(WITHDRAWN)
