"""The index of topics finds exactly what a pattern matches, in bounded work."""

from __future__ import annotations

import random
from struct import Struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.delivery import topic_index as module
from headgate.delivery.topic_index import TopicIndex
from headgate.events.topic import MAX_TOPIC_WORDS, matches
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
    found = of(present).matching(pattern, len(present))
    assert found is not None
    assert sorted(found) == sorted(topic for topic in present if matches(pattern, topic))


@pytest.mark.parametrize("every", [1, 3, 50])
def test_many_topics_are_found_as_few_are(every: int) -> None:
    """Every one, and none beside them."""
    present = {f"orders.{number}.{'shipped' if number % every == 0 else 'paid'}" for number in range(300)}
    found = of(present).matching("orders.#.shipped", 300)
    assert found is not None
    assert sorted(found) == sorted(topic for topic in present if topic.endswith("shipped"))


@given(steps=st.lists(st.one_of(topics, st.none()), max_size=40), pattern=patterns, chunk=st.sampled_from([64, 128]))
def test_topics_leave_in_the_order_in_which_they_came(steps: list[str | None], pattern: str, chunk: int) -> None:
    """Those that are left are found, also after others have taken the numbers of those that left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        patch.setattr(module, "_SHIFT", chunk.bit_length() - 1)
        patch.setattr(module, "_MASK", chunk - 1)
        patch.setattr(module, "_PIECES", Struct(f"<{chunk // 64}Q"))
        index = of({f"a.{number}.b" for number in range(100)})
        present = sorted(f"a.{number}.b" for number in range(100))
        for topic in steps:
            if topic is None:
                assert index.pop() == present.pop(0)
            elif topic not in present:
                # As the matcher does: one that is full lets one leave for each that comes.
                assert index.pop() == present.pop(0)
                index.add(topic)
                present.append(topic)
        for each in (pattern, "#", "*", "*.*", "*.*.*", "#.b"):
            found = index.matching(each, 100)
            assert found is not None
            assert sorted(found) == sorted(topic for topic in present if matches(each, topic))
    assert len(index) == len(present)


def test_words_of_topics_that_have_left_are_let_go() -> None:
    """Topics that are never seen again, each with an id of its own, leave nothing behind."""
    index = of({f"orders.{number}.paid" for number in range(100)})
    for number in range(1000):
        index.add(f"bills.{number}.paid")
        index.pop()
    while len(index):
        index.pop()
    assert not any(index._words)
    assert len(index._topics) <= 101


def test_more_than_are_asked_for_are_only_counted() -> None:
    """To take each out of the bitmaps would take long."""
    index = of({f"orders.{number}" for number in range(100)})
    assert index.matching("orders.*", 99) is None
    assert len(index.matching("orders.*", 100) or ()) == 100


def test_an_empty_index_matches_nothing() -> None:
    """Not even `#`."""
    assert TopicIndex().matching("#", 9) == []


def test_no_pattern_takes_longer_to_find_the_more_topics_there_are() -> None:
    """A client that subscribes and unsubscribes must not stop the others; topics that are found cost a few steps each."""
    pick = random.Random(7)
    index = of({".".join(pick.choices("abcd", k=MAX_TOPIC_WORDS)) for _ in range(2000)} | {f"orders.{n}" for n in range(2000)})
    for pattern in ("#.*.#.*.#.*.#.x", "#.a.#.a.#.a.#.x", "#.#.#.#.#.#.#.x", "*.*.*.*.*.*.*.x", "#.x.*.*.*.*.*.*"):
        assert index.matching(pattern, 9) == []
        assert steps_during(lambda pattern=pattern: index.matching(pattern, 9)) <= 1000  # type: ignore[misc]
