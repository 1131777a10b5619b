"""A gateway's copy of what is revoked: messages in, refusals out. On a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.identity import Identity
from headgate.auth.revocation import MAX_REVOCATIONS, MAX_REVOKED_S, Revocations, kind_of, revoke
from headgate.errors import InvalidRequest, Unauthorized
from headgate.redis.client import open_client
from tests.support.steps import steps_during

ANA = Identity("ana", token_id="t-1")


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def is_revoked(revocations: Revocations, identity: Identity) -> bool:
    try:
        revocations.check(identity)
    except Unauthorized:
        return True
    return False


@pytest.mark.parametrize("message", [b"60 user:ana", b"60 token:t-1"])
def test_a_message_refuses_a_user_or_a_token_until_it_ends(message: bytes) -> None:
    """By the gateway's own monotonic clock; others are let in."""
    clock = Clock()
    revocations = Revocations(clock)
    assert revocations.apply(message) == message.partition(b" ")[2].decode()
    assert is_revoked(revocations, ANA)
    assert not is_revoked(revocations, Identity("ben", token_id="t-2"))
    clock.now_s += 60
    assert not is_revoked(revocations, ANA)


def test_zero_seconds_lift_a_revocation() -> None:
    """And name nobody who is to be disconnected."""
    revocations = Revocations(Clock())
    revocations.apply(b"60 user:ana")
    assert revocations.apply(b"0 user:ana") is None
    assert not is_revoked(revocations, ANA)


def test_the_whole_set_takes_the_place_of_what_was_known() -> None:
    """After a reconnect: what was lifted meanwhile is lifted, what was revoked is revoked."""
    revocations = Revocations(Clock())
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
    revocations = Revocations(Clock())
    assert revocations.apply(message) is None
    assert len(revocations) == 0


@given(st.binary(max_size=60))
def test_no_message_is_a_fault(message: bytes) -> None:
    """Whatever the bytes are."""
    Revocations(Clock()).apply(message)


def test_more_than_can_be_active_is_acted_on_and_not_remembered() -> None:
    """Memory is bounded, and those that were known stay refused; those that have ended make room first."""
    clock = Clock()
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
    revocations = Revocations(Clock())
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
        {"user": "ana", "for_s": -1},
        {"user": "ana", "for_s": MAX_REVOKED_S + 1},
        {"user": "ana", "for_s": True},
    ],
)
def test_what_cannot_be_revoked_is_refused_before_redis_is_asked(asked: dict[str, object]) -> None:
    """The client leads to a port where nobody listens."""
    client = open_client("redis://127.0.0.1:1")
    with pytest.raises(InvalidRequest):
        revoke(client, **asked)  # type: ignore[arg-type]
    client.close()
