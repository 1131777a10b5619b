"""Explicit grants: stored for a time, bounded, read again, and put in the place of a user's own. On a small Redis."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.auth import regrants as module
from headgate.auth.identity import Identity
from headgate.auth.regrants import Explicit, Regrants, check_regrant, lift, read_regrants, store
from headgate.errors import InvalidPattern, InvalidRequest, LimitReached
from headgate.redis.keys import REGRANTED
from tests.support.small_redis import SmallRedis

ANA = Identity("ana", subscribe=("a.#",), publish=("a.#",), expires_at=9e9, token_id="t", namespaces=("shop",))


@pytest.fixture
def redis() -> SmallRedis:
    return SmallRedis()


class Copy:
    """A gateway's copy, on the test's clock."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.regrants = Regrants(lambda: self.now_s)

    def grants(self, identity: Identity = ANA) -> tuple[tuple[str, ...], tuple[str, ...]]:
        applied = self.regrants.apply(identity)
        return applied.subscribe, applied.publish


def test_explicit_grants_are_read_with_the_seconds_that_are_left(redis: SmallRedis) -> None:
    """By Redis' clock; a later call wins, an ended one is gone, and one can be lifted."""
    client = redis.client()
    store(client, "ana", ("a.#",), (), 60)
    store(client, "ana", ("b.#",), ("c",), 100)
    store(client, "ben", (), (), 10)
    redis.now_s += 10
    assert read_regrants(client) == {"ana": (Explicit(("b.#",), ("c",), 1100), 90)}
    lift(client, "ana")
    assert read_regrants(client) == {}


def test_so_many_users_may_have_them_and_no_more(redis: SmallRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended grants make room; existing ones may change."""
    monkeypatch.setattr(module, "MAX_REGRANTS", 2)
    client = redis.client()
    store(client, "ana", (), (), 60)
    store(client, "ben", (), (), 10)
    with pytest.raises(LimitReached):
        store(client, "eve", (), (), 60)
    store(client, "ana", ("a",), (), 60)
    redis.now_s += 10
    store(client, "eve", (), (), 60)
    assert set(read_regrants(client)) == {"ana", "eve"}


def test_what_others_wrote_there_is_passed_over(redis: SmallRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway must come up nevertheless; it makes room first."""
    monkeypatch.setattr(module, "MAX_REGRANTS", 1)
    redis.execute_command("HSET", REGRANTED, "eve", "rubbish")
    assert read_regrants(redis.client()) == {}
    store(redis.client(), "ana", (), (), 60)
    assert set(read_regrants(redis.client())) == {"ana"}


def test_they_take_the_place_of_a_users_own_and_nothing_else() -> None:
    """Its own topics stay, and so do the end of the token, its id and its namespaces."""
    copy = Copy()
    copy.regrants.put("ana", Explicit(("b.#",), (), 0), 60)
    applied = copy.regrants.apply(ANA)
    assert applied == Identity("ana", ("b.#", "users.ana.#"), (), 9e9, "t", ("shop",))
    assert copy.regrants.apply(Identity("ben", ("a",))) == Identity("ben", ("a",))


def test_they_end_with_their_time_and_when_they_are_lifted() -> None:
    """The user's own hold again."""
    copy = Copy()
    copy.regrants.put("ana", Explicit(("b",), (), 0), 60)
    copy.now_s += 59.9
    assert copy.grants()[0] == ("b", "users.ana.#")
    assert copy.regrants.take_ended() == []
    copy.now_s += 0.1
    assert copy.grants() == (("a.#",), ("a.#",))
    assert copy.regrants.take_ended() == ["ana"]
    assert copy.regrants.take_ended() == []
    copy.regrants.put("ana", Explicit(("b",), (), 0), 60)
    copy.regrants.put("ana", None, 0)
    assert copy.grants() == (("a.#",), ("a.#",))


def test_a_copy_that_is_replaced_names_those_for_whom_something_is_different() -> None:
    """Changes during an outage of Redis: new ones, changed ones, ended ones. An end by its time was not missed."""
    copy = Copy()
    one, two = Explicit(("a",), (), 0), Explicit(("b",), (), 0)
    for user, left_s in (("same", 60), ("changed", 60), ("lifted", 60), ("over", 5)):
        copy.regrants.put(user, one, left_s)
    copy.now_s += 10
    changed = copy.regrants.replace({"same": (one, 50), "changed": (two, 50), "new": (one, 50)})
    assert sorted(changed) == ["changed", "lifted", "new"]
    assert copy.regrants.of("lifted") is None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"subscribe": "a.#"}, InvalidRequest),
        ({"publish": ["a"] * 65}, InvalidRequest),
        ({"subscribe": ["a..b"]}, InvalidPattern),
        ({"publish": [7]}, InvalidPattern),
        ({"for_s": 0}, InvalidRequest),
        ({"for_s": True}, InvalidRequest),
        ({"for_s": 1.5}, InvalidRequest),
        ({"for_s": 500 * 86400}, InvalidRequest),
    ],
)
def test_grants_that_cannot_be_are_refused(wrong: dict[str, Any], error: type[Exception]) -> None:
    """Before anything is stored."""
    with pytest.raises(error):
        check_regrant(**{"subscribe": [], "publish": [], "for_s": 60, **wrong})


def test_grants_are_taken_from_any_iterable() -> None:
    """One that can be read once gave the user no grants at all."""
    assert check_regrant((each for each in ["a.#"]), iter(["b"]), 60) == (("a.#",), ("b",))
