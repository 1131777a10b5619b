"""The subscriptions of one client: their policies, the topics that reach them, and the policy that decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.policies import Policies, strongest
from headgate.events.topic import is_wildcard, matches
from headgate.protocol.packets import Overflow

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


def test_it_reads_as_a_mapping_in_the_order_of_the_subscriptions(policies: Policies) -> None:
    """A pattern that is put again keeps its place, and has its new policy."""
    policies.put("b", Overflow.LATEST)
    assert list(policies) == ["b", "a.*", "#"]
    assert dict(policies) == {"b": Overflow.LATEST, "a.*": Overflow.LATEST, "#": Overflow.CATCH_UP}
    assert ("b" in policies, "c" in policies, len(policies)) == (True, False, 3)


def test_a_pattern_is_removed_once(policies: Policies) -> None:
    """The second time there is none."""
    assert [policies.remove("a.*"), policies.remove("a.*")] == [True, False]
    assert list(policies) == ["b", "#"]


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


def test_the_map_may_be_forgotten_at_any_time(policies: Policies) -> None:
    """It is made again on the next question."""
    before = policies.reached("a.b")
    policies.forget_map()
    assert sorted(policies.reached("a.b")) == sorted(before) == [("#", Overflow.CATCH_UP), ("a.*", Overflow.LATEST)]


@given(
    steps=st.lists(st.tuples(PATTERNS, st.none() | st.sampled_from(list(Overflow)), TOPICS), max_size=12),
)
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


@pytest.mark.parametrize(
    ("reached", "decides"),
    [
        ((), Overflow.DROP),
        ((Overflow.LATEST,), Overflow.LATEST),
        ((Overflow.DROP, Overflow.LATEST), Overflow.LATEST),
        ((Overflow.LATEST, Overflow.CATCH_UP, Overflow.DROP), Overflow.CATCH_UP),
    ],
)
def test_the_strongest_policy_decides(reached: tuple[Overflow, ...], decides: Overflow) -> None:
    """catch_up before latest before drop; an event that reaches no subscription any more is dropped."""
    assert strongest([(f"a.{number}", policy) for number, policy in enumerate(reached)]) is decides
