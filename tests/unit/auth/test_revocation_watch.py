"""The watch on revocations: what it makes of the replies of its link. No Redis: its port is one where nobody listens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Identity
from headgate.auth.revocation_watch import RevocationWatch
from headgate.errors import BusUnavailable, Unauthorized
from headgate.redis.keys import REVOKED

CONFIRMED: Any = [b"subscribe", REVOKED.encode(), 1]


def message(text: bytes) -> list[bytes]:
    return [b"message", REVOKED.encode(), text]


class Watched:
    """A watch, the set that it reads, and those who were hit by each read of its link."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []
        self.hit: list[list[str]] = []
        self.watch = RevocationWatch("redis://127.0.0.1:1", self.hit.append, lambda _: self.stored)

    def take(self, *replies: list[bytes]) -> None:
        self.watch._take(list(replies))


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.watch.close()


def test_nobody_is_let_in_before_it_is_known_what_is_revoked(watched: Watched) -> None:
    """A gateway that starts while Redis is away must not let a revoked user in."""
    with pytest.raises(BusUnavailable):
        watched.watch.check(Identity("ana"))
    watched.take(CONFIRMED)
    watched.watch.check(Identity("ana"))


def test_the_whole_set_is_read_when_the_subscription_is_confirmed(watched: Watched) -> None:
    """Nothing can fall between; those who are connected and hit are told, after each reconnect again."""
    watched.stored = [("user:ana", 60)]
    watched.take(CONFIRMED)
    assert watched.hit == [["user:ana"]]
    with pytest.raises(Unauthorized):
        watched.watch.check(Identity("ana"))
    watched.stored = []
    watched.take(CONFIRMED)
    watched.watch.check(Identity("ana"))


def test_messages_of_one_read_are_one_call(watched: Watched) -> None:
    """A thousand revocations at once disconnect their clients in one pass; what lifts one, or is none, hits nobody."""
    watched.take(CONFIRMED)
    with capture_logs():
        watched.take(message(b"60 user:ana"), message(b"60 token:t"), message(b"0 user:ben"), message(b"rubbish"))
        watched.take(message(b"0 user:ana"), [b"pong", b""])
    assert watched.hit == [["user:ana", "token:t"]]
    watched.watch.check(Identity("ana"))


def test_each_revocation_that_is_heard_is_in_the_audit_log(watched: Watched) -> None:
    """Of the gateway that acts on it; what is no revocation is not."""
    with capture_logs() as lines:
        watched.take(message(b"60 user:ana"), message(b"0 token:t"), message(b"rubbish"))
    assert [(line["event"], line["kind"], line["name"], line["by"]) for line in lines] == [
        ("revoked", "user", "ana", "heard from Redis"),
        ("revocation lifted", "token", "t", "heard from Redis"),
    ]
