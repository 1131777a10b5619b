"""The subscriptions of one client: their policies, the topics that reach them, and the policy that decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.policies import Policies
from headgate.events.topic import is_wildcard, matches
from headgate.events.wire.packets import Overflow

PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)
TOPICS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map(".".join)


@pytest.fixture
def policies() -> Policies:
    """Three subscriptions: `b`, `a.*` and `#`."""
    made = Policies()
    made.put("b", Overflow.DROP)
    made.put("a.*", Overflow.LATEST)
    made.put("#", Overflow.CATCH_UP)
    return made


def test_the_key_is_the_same_for_the_same_patterns_in_any_order(policies: Policies) -> None:
    """Clients with one key share their part of a log page, whatever their policies."""
    other = Policies()
    for pattern in ("#", "a.*", "b"):
        other.put(pattern, Overflow.DROP)
    assert policies.key == other.key
    other.remove("b")
    assert policies.key != other.key
    other.put("b", Overflow.DROP)
    assert policies.key == other.key


def test_a_client_that_leaves_has_no_subscription(policies: Policies) -> None:
    """No topic reaches it."""
    assert policies.reached("b")
    policies.clear()
    assert (len(policies), policies.wildcards, policies.key, policies.reached("b")) == (0, 0, (), [])


@given(steps=st.lists(st.tuples(PATTERNS, st.none() | st.sampled_from(list(Overflow)), TOPICS), max_size=12))
def test_a_topic_reaches_the_subscriptions_that_match_it(steps: list[tuple[str, Overflow | None, str]]) -> None:
    """Beside the plain definition of matching, while subscriptions come, change and go (None)."""
    policies, plain = Policies(), dict[str, Overflow]()
    for pattern, policy, topic in steps:
        if policy is None:
            assert policies.remove(pattern) is (plain.pop(pattern, None) is not None)
        else:
            policies.put(pattern, policy)
            plain[pattern] = policy
        assert sorted(policies.reached(topic)) == sorted(item for item in plain.items() if matches(item[0], topic))
        assert policies.wildcards == sum(map(is_wildcard, plain))
        assert policies == plain
        assert (list(policies), len(policies), None in policies) == (list(plain), len(plain), False)
