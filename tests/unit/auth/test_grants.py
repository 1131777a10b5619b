"""Grants compiled: the same decisions as pattern by pattern, and a bounded amount of work for each."""

import gc
import itertools
import json
import random
import sys
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.grants import MAX_COMPILED, Grants, compiled
from headgate.auth.identity import Identity
from headgate.events.topic import MAX_TOPIC_WORDS
from tests.support.topic_sets import contains

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "topics.json").read_text(encoding="utf-8"))
# As many as a token may hold, and as a CONNECT may ask for.
GRANTS, PATTERNS = 64, 128

patterns = st.lists(st.sampled_from(("a", "b", "*", "#")), min_size=1, max_size=MAX_TOPIC_WORDS).map(".".join)
# Between few words, so that grants contain something: two in three random pairs do not.
many_hashes = st.lists(st.sampled_from(("a", "#", "#", "*")), min_size=4, max_size=MAX_TOPIC_WORDS).map(".".join)


def words(letters: str, length: int = 8) -> list[str]:
    """Return every pattern of this length over these words and wildcards."""
    return [".".join(tokens) for tokens in itertools.product(letters, repeat=length)]


ATTACKS: dict[str, tuple[list[str], list[str]]] = {
    "wildcards around literals": (
        [f"{one}.#.{two}.*.#.{one}{two}" for one in "abcdefgh" for two in "stuvwxyz"],
        [f"#.x{number}.#.y.#.z.#" for number in range(PATTERNS)],
    ),
    "no pattern is contained until its last expansion": (
        ["#.a.#.b.#.c.#.d", *(f"#.a.#.b.#.{number}" for number in range(GRANTS - 1))],
        [f"#.a.#.b.#.c.#.{'d' if number % 2 else 'e'}" for number in range(PATTERNS)],
    ),
    "every pattern is contained": (
        ["#.a.#", "#.a.#.a.#", "#.a.#.a.#.a.#", *(f"#.a.#.{number}.#" for number in range(GRANTS - 3))],
        ["#.a.#.a.#.a.#", "#.a.#.a.#.a", "a.#.a.#.a.#.a"] * (PATTERNS // 3),
    ),
    "grants that a page could have": (
        [f"orders.*.{number}.#" for number in range(GRANTS)],
        [f"orders.*.x{number}.#" for number in range(PATTERNS)],
    ),
    "random": (
        [".".join(random.Random(number).choices("##*ab", k=8)) for number in range(GRANTS)],
        [".".join(random.Random(-number).choices("##*ab", k=8)) for number in range(PATTERNS)],
    ),
}


@pytest.mark.parametrize(("grant", "pattern", "expected"), GOLDEN["contains"])
def test_a_grant_decides_what_the_vectors_say(grant: str, pattern: str, expected: bool) -> None:
    """One grant, or the same among others that have nothing to do with it."""
    assert Grants([grant]).contain(pattern) is expected
    assert Grants(["zz.*", grant, "zz.#.zz"]).contain(pattern) is expected


@given(st.one_of(*(st.tuples(st.lists(each, max_size=5), each) for each in (patterns, many_hashes))))
def test_grants_contain_what_one_of_them_contains(asked: tuple[list[str], str]) -> None:
    """Grants of any shape contain together exactly what each of them contains alone, and no more."""
    grants, pattern = asked
    assert Grants(grants).contain(pattern) == any(contains(grant, pattern) for grant in grants)


def test_every_pair_of_short_patterns_is_decided_as_by_definition() -> None:
    """Every pair of patterns of up to three words over {a, b, *, #}."""
    short = [pattern for length in range(1, 4) for pattern in words("ab*#", length)]
    for grant in short:
        grants = Grants([grant])
        for pattern in short:
            assert grants.contain(pattern) == contains(grant, pattern), (grant, pattern)


def test_two_grants_do_not_cover_a_pattern_together() -> None:
    """Not even when each expansion is contained in one of them."""
    assert not Grants(["a.#.b", "a"]).contain("a.#")
    assert not Grants(["#.a.#.b", "#.b.#.a", "*.*.*.#.c"]).contain("#.a.#")


def calls_during(identity: Identity, asked: list[str]) -> int:
    """Return how many calls of Python functions it takes to decide all of these: a measure of work that is always the same."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # Hypothesis has functions called at each collection
    sys.setprofile(count)
    try:
        for pattern in asked:
            identity.may_subscribe(pattern)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parametrize("attack", ATTACKS)
def test_all_that_one_connect_may_ask_of_one_token_is_decided_in_bounded_work(attack: str) -> None:
    """At most 400 steps for each pattern, however many grants there are. It took millions in all."""
    grants, asked = ATTACKS[attack]
    assert len(grants) <= GRANTS
    assert calls_during(Identity("mallory", subscribe=tuple(grants)), asked) <= 400 * len(asked) + 20 * len(grants)


def test_the_usual_shapes_take_no_walk() -> None:
    """A granted topic, a branch, everything: some look-ups, and no call of a function for each word."""
    identity = Identity("ana", subscribe=("orders.#", "users.ana.#", "news", *(f"teams.{number}.#" for number in range(60))))
    identity.may_subscribe("news.1")  # compiled now
    for pattern in ("orders.1.shipped", "orders.*.shipped", "users.ana.#", "news", "teams.7.*", "elsewhere.1", "elsewhere.#"):
        assert calls_during(identity, [pattern]) <= 4


def test_only_so_many_sets_of_grants_are_remembered() -> None:
    """Each user has another."""
    for number in range(2 * MAX_COMPILED):
        assert Identity("x", subscribe=(f"users.u{number}.#",)).may_subscribe(f"users.u{number}.mail")
    assert compiled.cache_info().currsize == MAX_COMPILED
