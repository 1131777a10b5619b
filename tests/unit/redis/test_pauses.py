"""Pauses in Redis: kept with their end by Redis' clock, bounded in number. On a small Redis in this process."""

import math
from typing import Any

import pytest

from headgate.errors import BusRefused, InvalidRequest, LimitReached, UnknownNamespace
from headgate.redis.keys import questions_channel
from headgate.redis.pauses import (
    CONNECTS,
    KIND,
    MAX_PAUSED_S,
    MAX_PAUSES,
    PUBLISHES,
    namespace_member,
    namespace_of,
    pause,
    read_paused,
    resume,
)
from headgate.redis.questions import Question, read_question
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


def test_a_pause_lasts_for_its_time_or_until_it_is_resumed(server: SmallRedis) -> None:
    """A later call wins; those that have ended are not read."""
    client = server.client()
    assert read_paused(client) == {}
    pause(client, CONNECTS)
    pause(client, PUBLISHES, 60)
    pause(client, namespace_member("shop"), 10)
    assert read_paused(client) == {"connects": math.inf, "publishes": 60, "namespace:shop": 10}
    pause(client, PUBLISHES, 30)
    server.now_s += 20
    assert read_paused(client) == {"connects": math.inf, "publishes": 10}
    assert resume(client, CONNECTS)
    assert not resume(client, CONNECTS)
    assert read_paused(client) == {"publishes": 10}


def test_replies_that_come_flat_are_read_as_pairs(server: SmallRedis) -> None:
    """Older versions of redis-py do not pair members and scores."""
    pause(server.client(), PUBLISHES, 60)
    ask = server.execute_command
    server.execute_command = lambda *command: (  # type: ignore[method-assign]
        [part for pair in ask(*command) for part in pair] if command[0] == "ZRANGE" else ask(*command)
    )
    assert read_paused(server.client()) == {"publishes": 60}


def test_a_member_stands_for_its_namespace() -> None:
    assert namespace_of(namespace_member("shop")) == "shop"
    assert namespace_of(CONNECTS) is None
    with pytest.raises(UnknownNamespace):
        namespace_member("no name")


@pytest.mark.parametrize("for_s", [0, -1, MAX_PAUSED_S + 1, 1.5, "60", True])
def test_a_time_that_cannot_be_is_refused(server: SmallRedis, for_s: Any) -> None:
    with pytest.raises(InvalidRequest, match="400 days"):
        pause(server.client(), CONNECTS, for_s)
    assert server.asked == []


def test_one_pause_more_than_may_be_active_is_refused(server: SmallRedis) -> None:
    """An active one may be prolonged; those that have ended take no room."""
    client = server.client()
    for number in range(MAX_PAUSES):
        pause(client, namespace_member(f"n{number}"), 60)
    with pytest.raises(LimitReached):
        pause(client, CONNECTS)
    pause(client, namespace_member("n7"), 90)
    assert read_paused(client)["namespace:n7"] == 90
    server.now_s += 91
    pause(client, CONNECTS)
    assert list(read_paused(client)) == [CONNECTS]


def test_a_refusal_is_told(server: SmallRedis) -> None:
    server.refuses = "ZADD"
    with pytest.raises(BusRefused):
        pause(server.client(), CONNECTS)


def test_all_gateways_are_notified_of_a_change(server: SmallRedis) -> None:
    """They read the set then. A user without the right to notify them pauses all the same."""
    heard: list[Question | None] = []
    server.hearers[questions_channel(0)] = [lambda message: heard.append(read_question(message))]
    client = server.client()
    pause(client, CONNECTS)
    resume(client, CONNECTS)
    resume(client, CONNECTS)
    assert [each and each.kind for each in heard] == [KIND, KIND]
    server.refuses = "PUBLISH"
    pause(client, CONNECTS)
    assert read_paused(client) == {"connects": math.inf}
