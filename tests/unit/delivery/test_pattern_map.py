"""The map of patterns against the plain definition of matching, and the work that patterns made to be costly cause."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.delivery.pattern_map import PatternMap
from headgate.events.topic import MAX_TOPIC_WORDS, matches
from tests.support.steps import steps_during

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "topics.json").read_text(encoding="utf-8"))

# Few words, so that patterns meet, overlap and have several ways to match; `c` is in no pattern.
topics = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)
patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)


def of(*texts: str) -> PatternMap[str]:
    """Return a map of these patterns, each its own value."""
    made: PatternMap[str] = PatternMap()
    for text in texts:
        made.add(text, text)
    return made


@pytest.mark.parametrize(("pattern", "topic", "expected"), GOLDEN["matches"])
def test_a_pattern_is_reached_as_the_vectors_say(pattern: str, topic: str, expected: bool) -> None:
    """The vectors are shared with the browser client."""
    assert of(pattern).reached(topic) == ([pattern] if expected else [])


@given(present=st.sets(patterns, max_size=30), topic=topics)
@example({"#"}, "a")
@example({"#.#"}, "a")
@example({"a.#", "#.a", "*"}, "a")
@example({"#.a.#.a.#", "#.a.#.b", "a.#.b.#"}, "a.a.b")
@example({"*.#.*", "#.*.#.*"}, "a.b")
def test_a_topic_reaches_exactly_the_patterns_that_match_it(present: set[str], topic: str) -> None:
    """Each once, whatever else is in the map."""
    assert sorted(of(*present).reached(topic)) == sorted(pattern for pattern in present if matches(pattern, topic))


class MapBesideADict(RuleBasedStateMachine):
    """Patterns that come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.map: PatternMap[int] = PatternMap()
        self.model: dict[str, int] = {}

    @rule(pattern=patterns, value=st.integers(0, 9))
    def add(self, pattern: str, value: int) -> None:
        if pattern not in self.model:
            self.map.add(pattern, value)
            self.model[pattern] = value

    @rule(pattern=patterns)
    def discard(self, pattern: str) -> None:
        self.map.discard(pattern)
        self.model.pop(pattern, None)

    @rule(data=st.data())
    def discard_one_that_is_there(self, data: st.DataObject) -> None:
        if self.model:
            self.discard(data.draw(st.sampled_from(sorted(self.model))))

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        expected = [value for pattern, value in self.model.items() if matches(pattern, topic)]
        assert sorted(self.map.reached(topic)) == sorted(expected)

    @invariant()
    def holds_what_was_added(self) -> None:
        assert len(self.map) == len(self.model)
        assert all(self.map.get(pattern) == value for pattern, value in self.model.items())


TestMapBesideADict = MapBesideADict.TestCase
TestMapBesideADict.settings = settings(stateful_step_count=40)


@given(present=st.sets(patterns, max_size=80))
def test_it_keeps_nothing_of_what_was_removed(present: set[str]) -> None:
    """Clients that invent patterns must not leave shapes or automata in memory."""
    made = of(*present)
    for pattern in present:
        made.discard(pattern)

    assert (made._values, made._shapes, made._recipes, made._automata) == ({}, {}, {}, [])


def test_more_patterns_than_one_automaton_holds_are_all_found() -> None:
    """Also after some in the middle have gone and others have taken their places."""
    present = [f"#.a.#.{number}" for number in range(200)]
    made = of(*present)
    for pattern in present[50:150]:
        made.discard(pattern)
    for number in range(200, 260):
        made.add(f"#.a.#.{number}", f"#.a.#.{number}")

    for number in (*range(50), *range(150, 260)):
        assert made.reached(f"x.a.{number}") == [f"#.a.#.{number}"]
    assert made.reached("x.a.100") == []
    assert len(made._automata) <= 4


# Patterns made to be costly ----------------------------------------------------------------------------------------------


def test_every_shape_there_is_costs_a_new_topic_some_thousand_steps() -> None:
    """2,048 shapes with at most one `#` fit a topic of eight words; each is one candidate."""
    made: PatternMap[int] = PatternMap()
    for number in range(4**MAX_TOPIC_WORDS):
        tokens = ["w*#."[number >> 2 * place & 3] for place in range(MAX_TOPIC_WORDS)]
        pattern = ".".join(token for token in tokens if token != ".")
        if pattern and pattern.count("#") <= 1 and made.get(pattern) is None:
            made.add(pattern, number)

    topic = ".".join("v" * MAX_TOPIC_WORDS)
    assert max(len(recipes) for recipes in made._recipes.values()) <= 2048
    assert steps_during(lambda: made.reached(topic)) <= 8 * 2048


def test_thousands_of_patterns_with_several_hashes_cost_a_new_topic_a_few_steps_each() -> None:
    """As many as a hundred clients may have of the kind that a topic can match in the most ways."""
    pick = random.Random(7)
    made: PatternMap[str] = PatternMap()
    while len(made) < 3200:
        pattern = ".".join(pick.choice(["#", "#", "*", pick.choice("abcdefgh")]) for _ in range(MAX_TOPIC_WORDS))
        if made.get(pattern) is None:
            made.add(pattern, pattern)
    topic = "a.b.c.d.e.f.g.new"
    expected = [pattern for pattern in made._values if matches(pattern, topic)]

    assert sorted(made.reached(topic)) == sorted(expected)
    # Per automaton of 64 patterns: eight words, each a few lines; and five lines for each pattern found.
    assert steps_during(lambda: made.reached(topic)) <= 3200 // 64 * 60 + 10 * len(expected) + 2 * 2048 * 8
