"""The subscription trie against the plain definition of matching, whatever the order of adds, removes and matches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.delivery.trie import MAX_FORGET_STEPS, Audience, SubscriptionTrie
from headgate.protocol.packets import Overflow
from headgate.topic import MAX_TOPIC_WORDS, matches

# Few words, so that patterns meet, overlap and share branches; `b` is never subscribed to by name alone.
words = st.sampled_from(["a", "b", "constructor"])
topics = st.lists(words, min_size=1, max_size=4).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), min_size=1, max_size=4).map(".".join)
subscribers = st.integers(0, 4)
policies = st.sampled_from(list(Overflow))


def reached(audience: Audience[int]) -> list[int]:
    return list(audience.clients)


class TrieBesideAList(RuleBasedStateMachine):
    """The trie, with a cache so small that it always overflows, beside a plain mapping of subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        self.trie: SubscriptionTrie[int] = SubscriptionTrie(max_cached_topics=3)
        self.model: dict[str, dict[int, Overflow]] = {}

    @rule(pattern=patterns, subscriber=subscribers, policy=policies)
    def add(self, pattern: str, subscriber: int, policy: Overflow) -> None:
        assert self.trie.add(pattern, subscriber, policy) is (pattern not in self.model)
        self.model.setdefault(pattern, {})[subscriber] = policy

    @rule(pattern=patterns, subscriber=subscribers)
    def remove(self, pattern: str, subscriber: int) -> None:
        was = self.model.get(pattern, {})
        last = list(was) == [subscriber]
        assert self.trie.remove(pattern, subscriber) is last
        was.pop(subscriber, None)
        if last:
            del self.model[pattern]

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        audience = self.trie.match(topic)
        expected: dict[int, dict[str, Overflow]] = {}
        for pattern, subscribed in self.model.items():
            if matches(pattern, topic):
                for subscriber, policy in subscribed.items():
                    expected.setdefault(subscriber, {})[pattern] = policy
        assert sorted(reached(audience)) == sorted(expected), "everyone who wants it, each once, and nobody else"
        for subscriber, through in expected.items():
            assert dict(audience.patterns_of(subscriber)) == through

    @invariant()
    def counts_and_lists_what_is_there(self) -> None:
        assert sorted(self.trie) == sorted(self.model)
        assert self.trie.patterns == len(self.model)
        assert self.trie.subscriptions == sum(map(len, self.model.values()))

    @invariant()
    def keeps_no_branch_without_a_pattern(self) -> None:
        assert _leaves(self.trie) <= set(self.model)

    @invariant()
    def remembers_no_more_than_it_may(self) -> None:
        assert len(self.trie._topics) <= 3
        assert len(self.trie._audiences) <= 3
        assert set(self.trie._index.matching("#") or []) == set(self.trie._topics), "the index is not what is cached"
        for audience in self.trie._audiences.values():
            assert all(entry.text in self.model for entry in audience._patterns), "an audience outlived one of its patterns"


def _leaves(trie: SubscriptionTrie[int]) -> set[str]:
    """Return the paths that end at a node without children."""
    found: set[str] = set()
    stack: list[tuple[Any, tuple[str, ...]]] = [(trie._root, ())]
    while stack:
        node, path = stack.pop()
        children = dict(node.children or {})
        children |= {word: child for word, child in (("*", node.any_word), ("#", node.hash)) if child is not None}
        if path and not children:
            found.add(".".join(path))
        stack.extend((child, (*path, word)) for word, child in children.items())
    return found


TestTrieBesideAList = TrieBesideAList.TestCase
TestTrieBesideAList.settings = settings(max_examples=100, stateful_step_count=40)


@given(pattern=patterns, topic=topics)
@example("#", "a")
@example("a.#", "a")
@example("#.a", "a")
@example("#.#", "a")
@example("a.#.b", "a.b")
@example("#.a.#", "b.a.b")
@example("*.#.*", "a.b")
@example("a.*", "a")
def test_one_pattern_matches_exactly_as_defined(pattern: str, topic: str) -> None:
    """`*` is one word, `#` is zero or more, anywhere."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add(pattern, 1)

    assert reached(trie.match(topic)) == ([1] if matches(pattern, topic) else [])


def test_names_that_other_languages_trip_over_are_words_like_any_other() -> None:
    """A topic is data, also where it looks like a part of an object."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for number, name in enumerate(("constructor", "__proto__", "all", "hasOwnProperty", "__class__")):
        trie.add(name, number)
        assert reached(trie.match(name)) == [number]


def test_a_client_with_overlapping_patterns_is_reached_once() -> None:
    """Three subscriptions, one event."""
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    for pattern in ("orders.#", "orders.*.shipped", "#.shipped"):
        trie.add(pattern, "client")

    assert trie.match("orders.42.shipped").clients == ("client",)


# What is remembered -----------------------------------------------------------------------------------------------------


def test_a_topic_that_was_matched_before_is_found_again_without_a_walk() -> None:
    """The very same audience, as long as nothing changed."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add("orders.*", 1)

    assert trie.match("orders.a") is trie.match("orders.a")


def test_topics_that_reach_the_same_patterns_share_one_audience() -> None:
    """Its list of ten thousand clients exists once, however many orders there are."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add("orders.*", 1)
    trie.add("#", 2)

    assert trie.match("orders.a") is trie.match("orders.b")


def test_a_client_that_comes_to_a_known_pattern_leaves_the_remembered_topics_alone() -> None:
    """Only the audience's own list of clients is made anew."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add("orders.*", 1)
    audience = trie.match("orders.a")
    trie.add("orders.*", 2)

    assert trie.match("orders.a") is audience
    assert reached(audience) == [1, 2]
    trie.remove("orders.*", 1)
    assert reached(audience) == [2]


def test_a_changed_policy_is_seen_at_once() -> None:
    """Subscribing again is how a policy is changed."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add("orders.*", 1, Overflow.DROP)
    audience = trie.match("orders.a")
    trie.add("orders.*", 1, Overflow.LATEST)

    assert audience.patterns_of(1) == [("orders.*", Overflow.LATEST)]
    assert trie.subscriptions == 1


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_what_is_remembered_is_bounded_for_topics_and_for_audiences(limit: int) -> None:
    """A publisher that invents topics, and clients that invent patterns, cannot make the cache grow."""
    trie: SubscriptionTrie[int] = SubscriptionTrie(max_cached_topics=limit)
    for number in range(4 * limit):
        trie.add(f"topic.{number}", number)
    for number in range(4 * limit):
        assert reached(trie.match(f"topic.{number}")) == [number]
        trie.match(f"other.{number}")
        assert len(trie._topics) <= limit
        assert len(trie._audiences) <= limit


def test_the_topic_unused_for_longest_is_forgotten_first() -> None:
    """A burst of one-off topics does not push out the busy ones."""
    trie: SubscriptionTrie[int] = SubscriptionTrie(max_cached_topics=2)
    trie.match("busy")
    trie.match("once")
    trie.match("busy")
    trie.match("twice")

    assert list(trie._topics) == ["busy", "twice"]


# Hostile patterns ------------------------------------------------------------------------------------------------------


def calls_during(work: Callable[[], Any]) -> int:
    """Return how many calls, of Python and C functions, `work` makes: a cost that no busy machine can change.

    Without the garbage of other tests, whose ends would count.
    """
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize(
    "pattern",
    ["#.#.#.#.#.#.#.#", "#.a.#.a.#.a.#.a", "#.*.#.*.#.*.#.*", "#.#.#.#.#.#.#.b"],
)
def test_a_pattern_made_of_wildcards_costs_no_more_than_its_words_times_the_topics(pattern: str) -> None:
    """One hostile subscription must not make every new topic slow for everyone."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add(pattern, 1)
    topic = ".".join("a" * MAX_TOPIC_WORDS)

    # Each of at most nine nodes meets each of eight words, with at most four calls.
    assert calls_during(lambda: trie.match(topic)) <= 4 * 9 * 8


def test_a_client_that_brings_its_own_wildcard_costs_nothing_per_remembered_topic() -> None:
    """Connects must stay cheap when the cache is full: three thousand a second is the aim."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for number in range(4000):
        trie.match(f"orders.{number}")

    assert calls_during(lambda: trie.add("users.42.#", 1)) < 50
    assert calls_during(lambda: trie.remove("users.42.#", 1)) < 50


@pytest.mark.parametrize("pattern", ["#.*.#.*.#.*.#.*", "#.#.#.#.#.#.#.q", "*.*.*.*.*.*.*.*", "#"])
def test_a_pattern_that_could_be_anywhere_costs_little_when_much_is_remembered(pattern: str) -> None:
    """Coming and going, it makes the trie forget without a search that stops everybody; no answer changes."""
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    topics = [".".join(["orders", str(number), *"abcdef"]) for number in range(4000)]
    trie.add("orders.#", 1)
    for topic in topics:
        trie.match(topic)

    # Each step is a handful of calls; a search to its end would be 240,000 steps.
    assert calls_during(lambda: trie.add(pattern, 2)) <= 10 * MAX_FORGET_STEPS
    expected = [1, 2] if matches(pattern, topics[0]) else [1]
    assert all(sorted(trie.match(topic).clients) == expected for topic in topics)
    assert calls_during(lambda: trie.remove(pattern, 2)) <= 10 * MAX_FORGET_STEPS
    assert all(trie.match(topic).clients == (1,) for topic in topics)


def test_what_is_remembered_is_bounded_in_clients_too() -> None:
    """Few topics with many clients each weigh more than many with few; forgetting changes no answer."""
    trie: SubscriptionTrie[int] = SubscriptionTrie(max_listed_clients=100)
    for client in range(20):
        trie.add("news.#", client)
        trie.add(f"news.{client}", client)
    for topic in [f"news.{number}" for number in range(20)] * 2:
        assert sorted(trie.match(topic).clients) == list(range(20))
        assert sum(len(audience.clients) for audience in trie._audiences.values()) <= 100
    for client in range(20):
        trie.remove("news.#", client)
        trie.remove(f"news.{client}", client)
    assert trie._listed_clients == 0
