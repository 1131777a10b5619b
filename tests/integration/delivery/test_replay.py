"""A past by the clock of a real Redis. tests/unit/node/test_gateway.py has every other past, on a model."""

from __future__ import annotations

import pytest

from headgate.redis.client import Client, call
from headgate.services.publisher import Publisher
from tests.support.gateway_here import GatewayHere, StartGatewayHere
from tests.support.redis_server import wait_until


@pytest.fixture
def gateway(gateway_here: StartGatewayHere, publisher: Publisher) -> GatewayHere:
    """A gateway, and ten events."""
    gateway = gateway_here()
    publisher.publish_many([("orders.1" if number % 2 else "bills.1", number) for number in range(1, 11)])
    return gateway


def test_a_time_is_looked_up_in_the_log(gateway: GatewayHere, publisher: Publisher, redis_client: Client) -> None:
    """The events since then by Redis' clock, where a moment between two events finds the second."""

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
