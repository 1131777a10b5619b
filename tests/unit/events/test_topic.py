"""Topics: the grammar, matching and overlap, by shared vectors, by brute force and by properties."""

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import InvalidPattern, InvalidRequest, InvalidTopic
from headgate.events.topic import (
    MAX_TOPIC_WORDS,
    check_pattern,
    check_topic,
    is_probe,
    is_wildcard,
    matches,
    normal_form,
    overlaps,
    own_topics,
    probe_topic,
    user_name,
    user_of,
    user_topic,
    user_word,
)
from tests.support.topic_sets import covered

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "topics.json").read_text(encoding="utf-8"))

USERS = json.loads((Path(__file__).parents[2] / "golden" / "users.json").read_text(encoding="utf-8"))

WORDS = ("a", "b", "c")
words = st.sampled_from(WORDS)
topics = st.lists(words, min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)
patterns = st.lists(st.sampled_from((*WORDS, "*", "#")), min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)


def naive_matches(pattern: list[str], topic: list[str]) -> bool:
    """The definition, word for word: an oracle that shares nothing with the implementation."""
    if not pattern:
        return not topic
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(naive_matches(rest, topic[used:]) for used in range(len(topic) + 1))
    return bool(topic) and first in ("*", topic[0]) and naive_matches(rest, topic[1:])


@pytest.mark.parametrize("topic", GOLDEN["valid_topics"])
def test_a_valid_topic_is_a_topic_and_a_pattern(topic: str) -> None:
    """A topic that the grammar allows is returned unchanged, also as a pattern."""
    assert check_topic(topic) == topic
    assert check_pattern(topic) == topic
    assert not is_wildcard(topic)


@pytest.mark.parametrize("topic", GOLDEN["invalid_topics"])
def test_an_invalid_topic_is_refused(topic: str) -> None:
    """A topic that the grammar does not allow raises, with the topic and a reason."""
    with pytest.raises(InvalidTopic) as refusal:
        check_topic(topic)
    assert refusal.value.parts["reason"]


@pytest.mark.parametrize("pattern", GOLDEN["valid_patterns"])
def test_a_valid_pattern_is_a_pattern(pattern: str) -> None:
    assert check_pattern(pattern) == pattern
    assert is_wildcard(pattern) == bool(set(pattern) & {"*", "#"})


@pytest.mark.parametrize("pattern", GOLDEN["invalid_patterns"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    """A wildcard inside a word, a stray dot or a foreign wildcard raises."""
    with pytest.raises(InvalidPattern):
        check_pattern(pattern)


@pytest.mark.parametrize("name", [None, 7, b"orders", ["a"], True])
def test_only_strings_are_names(name: object) -> None:
    with pytest.raises(InvalidTopic):
        check_topic(name)
    with pytest.raises(InvalidPattern):
        check_pattern(name)


@pytest.mark.parametrize(("pattern", "topic", "expected"), GOLDEN["matches"])
def test_matching_is_what_the_vectors_say(pattern: str, topic: str, expected: bool) -> None:
    """The vectors that the browser client is held to as well; they are valid names, and the oracle agrees."""
    assert check_pattern(pattern)
    assert check_topic(topic)
    assert matches(pattern, topic) is expected
    assert naive_matches(pattern.split("."), topic.split(".")) is expected


@given(patterns, topics)
def test_matching_agrees_with_the_definition(pattern: str, topic: str) -> None:
    """Any pattern and any topic give the same answer as the definition."""
    assert matches(pattern, topic) == naive_matches(pattern.split("."), topic.split("."))


@pytest.mark.no_cover
@given(st.text(max_size=12))
def test_any_text_is_a_name_or_is_refused(text: str) -> None:
    """No text makes the checks fail in another way; an accepted topic obeys the grammar of the design."""
    obeys = bool(re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}", text)) and not text.endswith("\n")
    try:
        check_topic(text)
    except InvalidTopic:
        assert not obeys
    else:
        assert obeys


def test_overlap_is_exhaustively_right_for_short_patterns() -> None:
    """Every pair of patterns of up to three words over {a, b, *, #}, by comparing the sets of all topics that match."""
    short = [".".join(tokens) for length in range(1, 4) for tokens in itertools.product("ab*#", repeat=length)]
    for one, other in itertools.product(short, repeat=2):
        assert overlaps(one, other) == (covered(one) & covered(other) != 0), (one, other)


two_word_patterns = st.lists(st.sampled_from(("a", "b", "*", "#")), min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)


@given(two_word_patterns, two_word_patterns)
@example("*.*.*.*.*.*.*.*", "a.b.a.b.a.b.a.b")
def test_overlap_agrees_with_the_sets_of_topics(one: str, other: str) -> None:
    """Patterns of any allowed length overlap if a topic matches both."""
    assert overlaps(one, other) == (covered(one) & covered(other) != 0)


@given(two_word_patterns)
def test_the_normal_form_matches_the_same_topics(pattern: str) -> None:
    """And has neither a `#` in front of a `*` nor two `#` in a row; applied twice it changes nothing."""
    tokens = normal_form(pattern)
    assert covered(".".join(tokens)) == covered(pattern)
    assert not {("#", "*"), ("#", "#")} & set(itertools.pairwise(tokens))
    assert normal_form(".".join(tokens)) == tokens


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("headgate-probe", True),
        ("users.ana.headgate-probe", True),
        ("users.ana.headgate-probe.more", False),
        ("users.ana.more.headgate-probe", False),
        ("orders.headgate-probe", False),
        ("orders.ana.headgate-probe", False),
    ],
)
def test_a_probe_is_known_by_its_topic(name: str, is_one: bool) -> None:
    assert is_probe(name) is is_one


def test_the_probe_of_a_user_is_the_users_own() -> None:
    assert probe_topic("ana") == "users.ana.headgate-probe"
    assert is_probe(probe_topic("ana"))
    assert is_probe(probe_topic(None))


# Users' names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "word"), USERS["words"])
def test_a_users_name_is_one_word_and_back(name: str, word: str) -> None:
    """The vectors that JavaScript reads too; the word makes a topic and the pattern of the user's own topics."""
    assert (user_word(name), user_name(word)) == (word, name)
    assert own_topics(name) == check_pattern(f"users.{word}.#")
    if len(word) < 240:
        assert user_of(user_topic(name, "mail.new")) == name


@pytest.mark.parametrize("name", [*USERS["refused"], None, 7, b"ana"])
def test_what_is_no_name_is_refused_in_one_sentence(name: object) -> None:
    """Nothing else is refused. Any name that can be written down may be a user's."""
    with pytest.raises(InvalidRequest, match="user: "):
        user_word(name)


@pytest.mark.parametrize("word", USERS["nobodys"])
def test_a_word_that_is_written_for_no_name_is_no_users(word: str) -> None:
    """Two words of one user would be two topics, of which only one is granted."""
    assert user_name(word) is None
    assert user_of(f"users.{word}.mail") is None


@given(
    name=st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20)
    | st.text(st.sampled_from("_05fdem.é#A"), min_size=1, max_size=12)
)
def test_names_and_words_are_one_to_one(name: str) -> None:
    """A word comes back as the name, so no two names share one; and every user's word is the one of that name."""
    try:
        word = user_word(name)
    except InvalidRequest:
        assert len(name.encode()) * 4 > 247
        return
    assert user_name(word) == name
    assert re.fullmatch("[A-Za-z0-9_-]{1,247}", word, re.ASCII)


@given(word=st.text(st.sampled_from("_05fdemA"), min_size=1, max_size=12))
def test_a_word_is_that_of_its_user_or_of_nobody(word: str) -> None:
    """A word that reads as a name is the only one of that name."""
    name = user_name(word)
    assert name is None or user_word(name) == word
