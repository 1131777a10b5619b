"""Copies of a publish that a real Redis sends through several subscriptions of a listener.

The listener runs in the test's own process (tests/support/bus_here.py). tests/unit/bus has it on a model of Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headgate.redis.client import Client, call
from headgate.redis.keys import channel
from headgate.services.publisher import Publisher
from tests.support.bus_here import StartRedisBus
from tests.support.model_redis import NAMESPACE

N = NAMESPACE


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher on the Redis of this test run."""
    with closing(Publisher(redis_url, namespace=N)) as publisher:
        yield publisher


def test_a_plain_publish_through_overlapping_subscriptions_comes_once_and_the_next_alike_too(
    redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher
) -> None:
    """Three globs and a channel, so four copies from Redis, back to back. The same text published again is another event."""
    bus = redis_bus("orders.*", "*.paid", "#.1.#")
    for _ in range(3):
        call(redis_client, "PUBLISH", channel(N, "orders.1.paid"), '"plain"')
    call(redis_client, "PUBLISH", channel(N, "orders.9"), '"one copy"')
    publisher.publish("orders.1.paid", "logged")

    bus.wait_for(lambda: bus.offsets == [None, None, None, None, 1], "each once")
    bus.wait_for_fences(2)

    assert bus.offsets == [None, None, None, None, 1]
    assert call(redis_client, "PUBSUB", "NUMPAT") == 4  # and that of users, as `#.1.#` may match their topics


def test_a_user_costs_no_glob_and_gets_all_below(redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher) -> None:
    """Over one channel, with the topic of each event, beside a subscription to one of the topics."""
    bus = redis_bus("users.7.#", "users.7.mail")
    publisher.publish("mail", "mine", user="7")
    publisher.publish("mail", "another's", user="8")
    publisher.publish("users.7", "myself")
    publisher.publish("a.b.c", "deep", user="7")
    publisher.publish("users.77.mail", "a longer name")
    call(redis_client, "PUBLISH", channel(N, "users.7.mail"), '"plain"')

    bus.wait_for(lambda: len(bus.events) == 4, "four events")
    bus.wait_for_fences(2)

    assert bus.events == [
        ["users.7.mail", 1, '"mine"'],
        ["users.7", 3, '"myself"'],
        ["users.7.a.b.c", 4, '"deep"'],
        ["users.7.mail", None, '"plain"'],
    ]
    assert call(redis_client, "PUBSUB", "NUMPAT") == 0
