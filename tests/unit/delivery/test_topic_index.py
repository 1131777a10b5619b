"""The index of topics finds exactly what a pattern matches, in bounded work."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.delivery.topic_index import TopicIndex
from headgate.topic import MAX_TOPIC_WORDS, matches
from tests.support.steps import steps_during

words = st.sampled_from(["a", "b", "constructor"])
topics = st.lists(words, min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)


def of(present: set[str]) -> TopicIndex:
    """Return an index of these topics."""
    index = TopicIndex()
    for topic in sorted(present):
        index.add(topic)
    return index


@given(present=st.sets(topics), pattern=patterns)
@example({"a.b.c"}, "a.b")
@example({"a", "a.a"}, "#.a.#.a.#")
@example({".".join("a" * 8)}, "*.*.*.*.*.*.*.*")
@example({".".join("a" * 8)}, "#.*.#.*.#.*.#.*")
@example({"a"}, "*.#.*")
def test_finds_exactly_what_a_pattern_matches(present: set[str], pattern: str) -> None:
    """Beside the plain definition of matching; each topic once."""
    found = of(present).matching(pattern)
    assert sorted(found) == sorted(topic for topic in present if matches(pattern, topic))


@pytest.mark.parametrize("every", [1, 3, 50])
def test_many_topics_are_found_as_few_are(every: int) -> None:
    """Every one, and none beside them."""
    present = {f"orders.{number}.{'shipped' if number % every == 0 else 'paid'}" for number in range(300)}
    assert sorted(of(present).matching("orders.#.shipped")) == sorted(topic for topic in present if topic.endswith("shipped"))


def test_an_empty_index_matches_nothing() -> None:
    """Not even `#`."""
    assert TopicIndex().matching("#") == []


def test_no_pattern_takes_longer_to_find_the_more_topics_there_are() -> None:
    """A client that subscribes and unsubscribes must not stop the others; topics that are found cost a few steps each."""
    pick = random.Random(7)
    index = of({".".join(pick.choices("abcd", k=MAX_TOPIC_WORDS)) for _ in range(2000)} | {f"orders.{n}" for n in range(2000)})
    for pattern in ("#.*.#.*.#.*.#.x", "#.a.#.a.#.a.#.x", "#.#.#.#.#.#.#.x", "*.*.*.*.*.*.*.x", "#.x.*.*.*.*.*.*"):
        assert index.matching(pattern) == []
        assert steps_during(lambda pattern=pattern: index.matching(pattern)) <= 1000  # type: ignore[misc]
