"""Asking a real Redis for the past: `subscribe` with `since`, and `replay` of a range, on a gateway in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from headgate.redis.client import Client, call
from headgate.services.publisher import Publisher
from tests.support.gateway_here import GatewayHere, StartGatewayHere
from tests.support.redis_server import wait_until


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    with closing(Publisher(redis_url)) as publisher:
        yield publisher


@pytest.fixture
def gateway(gateway_here: StartGatewayHere, publisher: Publisher) -> GatewayHere:
    """A gateway, and ten events: odd offsets are orders, even ones bills."""
    gateway = gateway_here(read_per_s=16)
    publisher.publish_many([("orders.1" if number % 2 else "bills.1", number) for number in range(1, 11)])
    return gateway


@pytest.mark.parametrize(
    ("since", "pattern", "expected"),
    [
        ({"offset": 6}, "#", [7, 8, 9, 10, 11, 12]),
        ({"time": 0}, "bills.*", [2, 4, 6, 8, 10, 12]),
        ({"last": 2}, "orders.*", [7, 9, 11]),
    ],
)
def test_a_subscription_begins_in_the_past_and_goes_on_live(
    gateway: GatewayHere, publisher: Publisher, since: Any, pattern: str, expected: list[int]
) -> None:
    """In order, each once, with no seam between."""
    client = gateway.join()
    assert client.request("subscribe", {"pattern": pattern, "since": since})["ok"]
    publisher.publish("orders.1", 11)
    publisher.publish("bills.1", 12)
    client.wait_for_events(len(expected))
    client.request("unsubscribe", {"pattern": "nothing"})  # whatever was under way has come before this answer
    assert client.offsets == expected


def test_a_time_is_looked_up_in_the_log(gateway: GatewayHere, publisher: Publisher, redis_client: Client) -> None:
    """The events since then by Redis' clock: a moment that lies between two events finds the second."""

    def now_ms() -> int:
        seconds, micros = call(redis_client, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    middle_ms = now_ms() + 2
    wait_until(lambda: now_ms() > middle_ms, "the clock to go on")
    publisher.publish_many([("orders.1", 11), ("bills.1", 12)])
    client = gateway.join()
    assert client.request("subscribe", {"pattern": "#", "since": {"time": middle_ms}})["ok"]
    client.wait_for_events(2)
    assert client.offsets == [11, 12]


def test_a_long_range_is_replayed_page_by_page(gateway: GatewayHere, publisher: Publisher, redis_client: Client) -> None:
    """`next` says where to go on; together the pages are the range, each event once, with its data and its meta."""
    publisher.publish_many([("orders.1", "x" * 1000) for _ in range(250)])
    client = gateway.join()
    found: list[int] = []
    first, pages = 1, 0
    while first is not None:
        answer = client.request("replay", {"pattern": "orders.*", "from": first, "to": 260})
        assert all((topic, meta["replayed"], bool(meta["id"])) == ("orders.1", True, True) for topic, _, meta in answer["events"])
        found += [meta["offset"] for _, _, meta in answer["events"]]
        first, pages = answer["next"], pages + 1
    assert found == [1, 3, 5, 7, 9, *range(11, 261)]
    assert pages > 3
    assert client.offsets == []
    call(redis_client, "XTRIM", "hg:{notifications}:log", "MINID", 5)
    answer = client.request("replay", {"pattern": "#", "from": 1, "to": 6})
    assert ([(meta["offset"], data) for _, data, meta in answer["events"]], answer["next"]) == ([(5, 5), (6, 6)], None)
