"""The index of topics finds exactly what a pattern matches, whatever was added and removed before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.topic_index import TopicIndex
from headgate.topic import matches

words = st.sampled_from(["a", "b", "constructor"])
topics = st.lists(words, min_size=1, max_size=4).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), min_size=1, max_size=4).map(".".join)


@given(present=st.sets(topics), removed=st.sets(topics), pattern=patterns)
def test_finds_exactly_what_a_pattern_matches(present: set[str], removed: set[str], pattern: str) -> None:
    """Beside the plain definition of matching, over what is left."""
    index = TopicIndex()
    for topic in present:
        index.add(topic)
    for topic in removed:
        index.discard(topic)
    found = index.matching(pattern)
    assert found is not None
    assert len(found) == len(set(found)), "a topic was found twice"
    assert set(found) == {topic for topic in present - removed if matches(pattern, topic)}


@given(present=st.lists(topics))
def test_keeps_nothing_of_what_was_removed(present: list[str]) -> None:
    """A publisher that invents topics must not leave branches behind."""
    index = TopicIndex()
    for topic in present:
        index.add(topic)
    for topic in present:
        index.discard(topic)
    assert index._root == {}


def test_cleared_it_is_empty() -> None:
    """Clearing forgets everything at once."""
    index = TopicIndex()
    index.add("a.b")
    index.clear()
    assert index.matching("#") == []


@given(present=st.sets(topics), pattern=patterns, max_steps=st.integers(1, 50))
def test_finds_all_or_says_that_it_gave_up(present: set[str], pattern: str, max_steps: int) -> None:
    """Never a part: what is not found would stay remembered."""
    index = TopicIndex()
    for topic in present:
        index.add(topic)
    found = index.matching(pattern, max_steps)
    assert found is None or set(found) == {topic for topic in present if matches(pattern, topic)}
