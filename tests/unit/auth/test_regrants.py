"""Explicit grants: stored for a time, bounded, read again, and put in the place of a user's own. On a small Redis."""

from typing import Any

import pytest

from headgate.auth import regrants as module
from headgate.auth.identity import Identity
from headgate.auth.regrants import Explicit, Regrants, check_regrant, encode, lift, store
from headgate.auth.repair import WRITTEN_BACK, read_regrants
from headgate.errors import InvalidPattern, InvalidRequest, LimitReached
from headgate.redis.keys import REGRANTED, revoked_channel
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
    assert read_regrants(client) == {"ana": (Explicit(("b.#",), ("c",), 1100, 1000), 90)}
    lift(client, "ana")
    assert read_regrants(client) == {}
    redis.now_s -= 500
    assert set(read_regrants(client)) == {"ben"}, "a lift stays one when the clock of Redis is set back"


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


def test_grants_that_redis_has_lost_are_written_back_unless_there_is_a_newer_decision(redis: SmallRedis) -> None:
    """Ana's are gone, ben has older ones, eve's were changed and joe's lifted since. Ron's are from a process without times."""
    client, channel = redis.client(), revoked_channel(0)
    published: list[object] = []
    redis.hearers[channel] = [published.append]
    lost, older, newer = Explicit(("a",), (), 1100, 1010), Explicit(("b",), (), 1300, 1005), Explicit(("c",), (), 1400, 1020)
    redis.now_s = 1020
    redis.execute_command(
        "HSET", REGRANTED, "ben", encode(older), "eve", encode(newer), "ron", encode(Explicit(("r",), (), 1200))
    )
    lift(client, "joe")
    known = dict.fromkeys(("ana", "ben", "eve", "joe", "ron"), lost) | {"over": Explicit((), (), 1019, 1011)}
    there = {"ana": (lost, 80), "ben": (lost, 80), "eve": (newer, 380), "ron": (Explicit(("r",), (), 1200), 180)}
    assert read_regrants(client, known) == there == read_regrants(client)
    assert read_regrants(client, known) == there
    assert published == [WRITTEN_BACK]


def test_a_lift_that_redis_has_lost_is_written_back(redis: SmallRedis) -> None:
    """Unless the user has got newer grants. Otherwise rights would come back that were taken away."""
    client = redis.client()
    copy = Copy()
    for user in ("ana", "ben"):
        copy.regrants.put(user, store(client, user, ("a",), (), 60), 60)
        copy.regrants.put(user, None, 0)
    redis.now_s += 2
    newer = store(client, "ben", ("b",), (), 60)
    assert read_regrants(client, copy.regrants.known()) == {"ben": (newer, 60)} == read_regrants(client)
    copy.now_s += 60
    assert copy.regrants.known() == {}


def test_lifted_grants_leave_no_trace_where_there_is_no_room(redis: SmallRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash stays within its bound."""
    monkeypatch.setattr(module, "MAX_REGRANTS", 1)
    client = redis.client()
    store(client, "ana", (), (), 60)
    lift(client, "ben")
    assert redis.execute_command("HLEN", REGRANTED) == 1
    lift(client, "ana")
    assert redis.execute_command("HLEN", REGRANTED) == 0


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
