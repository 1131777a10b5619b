"""A gateway's copy of the revocations: messages in, refusals out. On a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.identity import Identity
from headgate.auth.revocation import MAX_REVOCATIONS, MAX_REVOKED_S, Revocations, kind_of, read_revoked, revoke
from headgate.errors import BusRefused, InvalidRequest, LimitReached, Unauthorized
from headgate.redis.client import open_client
from headgate.redis.keys import REVOKED, revoked_channel
from tests.support.held_clock import HeldClock
from tests.support.small_redis import SmallRedis
from tests.support.steps import steps_during

ANA = Identity("ana", token_id="t-1")


def is_revoked(revocations: Revocations, identity: Identity) -> bool:
    try:
        revocations.check(identity)
    except Unauthorized:
        return True
    return False


@pytest.mark.parametrize("message", [b"60 user:ana", b"60 token:t-1"])
def test_a_message_refuses_a_user_or_a_token_until_it_ends(message: bytes) -> None:
    """By the gateway's own monotonic clock; others are let in."""
    clock = HeldClock(1000.0)
    revocations = Revocations(clock)
    assert revocations.apply(message) == message.partition(b" ")[2].decode()
    assert is_revoked(revocations, ANA)
    assert not is_revoked(revocations, Identity("ben", token_id="t-2"))
    clock.now_s += 60
    assert not is_revoked(revocations, ANA)


def test_zero_seconds_lift_a_revocation() -> None:
    """And it names no user to disconnect."""
    revocations = Revocations(HeldClock(1000.0))
    revocations.apply(b"60 user:ana")
    assert revocations.apply(b"0 user:ana") is None
    assert not is_revoked(revocations, ANA)


def test_the_whole_set_takes_the_place_of_what_was_known() -> None:
    """After a reconnect, revocations lifted in between are lifted, and new ones count."""
    revocations = Revocations(HeldClock(1000.0))
    revocations.apply(b"60 user:ben")
    revocations.replace([("user:ana", 30)])
    assert is_revoked(revocations, ANA)
    assert not is_revoked(revocations, Identity("ben"))
    assert revocations.members() == ["user:ana"]


@pytest.mark.parametrize(
    "message",
    [b"", b"60", b"60 ", b"60 ana", b"60 group:ana", b"60 user:", b"-1 user:ana", b"1e3 user:ana", b"9999999999 user:ana"],
)
def test_a_message_of_another_form_changes_nothing(message: bytes) -> None:
    """Anyone who reaches Redis can publish on the channel."""
    revocations = Revocations(HeldClock(1000.0))
    assert revocations.apply(message) is None
    assert len(revocations) == 0


@given(st.binary(max_size=60))
def test_no_message_is_a_fault(message: bytes) -> None:
    """Any bytes are taken or passed over."""
    Revocations(HeldClock(1000.0)).apply(message)


def test_more_than_can_be_active_is_acted_on_and_not_remembered() -> None:
    """Memory is bounded, and those that were known stay refused; those that have ended make room first."""
    clock = HeldClock(1000.0)
    revocations = Revocations(clock)
    for number in range(2 * MAX_REVOCATIONS):
        revocations.apply(b"60 user:%d" % number)
    assert revocations.apply(b"60 user:one-more") == "user:one-more"
    assert len(revocations) == 2 * MAX_REVOCATIONS
    assert is_revoked(revocations, Identity("0"))
    clock.now_s += 61
    revocations.apply(b"60 user:after")
    assert revocations.members() == ["user:after"]


def test_a_flood_beyond_the_bound_does_not_look_at_all_of_them_for_each_message() -> None:
    """One look a second is enough: 10,000 revocations take half a millisecond of the loop."""
    revocations = Revocations(HeldClock(1000.0))
    revocations.replace((f"user:{number}", 60) for number in range(MAX_REVOCATIONS))
    revocations.apply(b"60 user:looks-at-all")
    assert steps_during(lambda: revocations.apply(b"60 user:another")) < 200


@pytest.mark.parametrize(
    ("member", "found"),
    [("user:ana", ("user", "ana")), ("token:a:b", ("token", "a:b")), ("user:", None), ("ana", None), ("", None)],
)
def test_a_member_names_a_kind(member: str, found: tuple[str, str] | None) -> None:
    """A name may hold a colon."""
    assert kind_of(member) == found


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"user": "ana", "token_id": "t"},
        {"user": ""},
        {"user": "a" * 256},
        {"user": "a\nb"},
        {"token_id": "x" * 256},
        {"user": "ana", "for_s": 1.5},
        {"user": "ana", "for_s": -1},
        {"user": "ana", "for_s": MAX_REVOKED_S + 1},
        {"user": "ana", "for_s": True},
    ],
)
def test_a_revocation_of_nobody_or_for_no_time_is_refused_before_redis_is_asked(asked: dict[str, object]) -> None:
    """The client leads to a port without a listener."""
    client = open_client("redis://127.0.0.1:1")
    with pytest.raises(InvalidRequest):
        revoke(client, **asked)  # type: ignore[arg-type]
    client.close()


# Redis ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


@pytest.fixture
def published(server: SmallRedis) -> list[Any]:
    """The message to the gateways."""
    told: list[Any] = []
    server.hearers[revoked_channel(0)] = [told.append]
    return told


def test_a_revocation_is_stored_with_its_end_and_every_gateway_is_told(server: SmallRedis, published: list[Any]) -> None:
    """By Redis' clock; a later call wins, and 0 lifts it."""
    revoke(server.client(), user="ana", for_s=60)
    revoke(server.client(), token_id="t-1", for_s=30)
    revoke(server.client(), user="ana", for_s=10)
    assert read_revoked(server.client()) == [("token:t-1", 30), ("user:ana", 10)]
    revoke(server.client(), user="ana", for_s=0)
    assert read_revoked(server.client()) == [("token:t-1", 30)]
    assert published == ["60 user:ana", "30 token:t-1", "10 user:ana", "0 user:ana"]


def test_replies_that_come_flat_are_read_as_pairs(server: SmallRedis) -> None:
    """Older versions of redis-py do not pair members and scores."""
    revoke(server.client(), user="ana", for_s=60)
    ask = server.execute_command
    server.execute_command = lambda *command: (  # type: ignore[method-assign]
        [part for pair in ask(*command) for part in pair] if command[0] == "ZRANGE" else ask(*command)
    )
    assert read_revoked(server.client()) == [("user:ana", 60)]


def test_one_revocation_more_than_may_be_active_is_refused_by_name(server: SmallRedis, published: list[Any]) -> None:
    """An active one may be prolonged or lifted, and those that have ended make room."""
    for number in range(MAX_REVOCATIONS):
        server.execute_command("ZADD", REVOKED, 1060, f"token:{number}")
    with pytest.raises(LimitReached) as caught:
        revoke(server.client(), user="one-more")
    assert caught.value.parts == {"name": "revocations", "limit": MAX_REVOCATIONS}
    assert published == []
    revoke(server.client(), token_id="7", for_s=90)
    assert server.execute_command("ZSCORE", REVOKED, "token:7") == 1090
    server.now_s = 1070
    revoke(server.client(), user="one-more")
    assert {member for member, _ in read_revoked(server.client())} == {"token:7", "user:one-more"}


@pytest.mark.parametrize("command", ["ZCARD", "ZADD", "PUBLISH"])
def test_a_revocation_that_redis_refuses_is_an_error(server: SmallRedis, command: str) -> None:
    """`revoke` never pretends, whichever of its commands is refused."""
    server.refuses = command
    with pytest.raises(BusRefused, match="no permission"):
        revoke(server.client(), user="ana")
