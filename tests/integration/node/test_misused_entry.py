"""A publisher that sends a payload unchecked, by the trusted entry of the function library, to a gateway that stands it."""

from __future__ import annotations

import pytest

from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from headgate.services.publisher import Publisher
from tests.support.gateway_here import StartGatewayHere


@pytest.mark.parametrize(("pattern", "payload"), [("#", b"{rubbish"), ("hole.1", b'"\xff"'), ("users.ada.#", b"")])
def test_a_malformed_payload_is_told_as_a_gap_and_what_follows_arrives(
    gateway_here: StartGatewayHere, redis_client: Client, publisher: Publisher, pattern: str, payload: bytes
) -> None:
    """To live clients, and to one that reads the log later; the gateway goes on."""
    topic = "users.ada.1" if pattern.startswith("users") else "hole.1"
    gateway = gateway_here()
    live = gateway.join({"subscriptions": [{"pattern": pattern}]})
    assert live.welcome["offset"] == 0
    first = publisher.publish(topic, "before")
    said = call(redis_client, "FCALL", "headgate_append", 1, log_key("notifications"), topic, payload, "unchecked")
    hole = int(said.split()[1])
    publisher.publish(topic, "after")
    live.wait_for_events(2)
    late = gateway.join({"subscriptions": [{"pattern": pattern}], "resume": {"epoch": first.epoch, "offset": first.offset}})
    late.wait_for_events(1)

    for client in (live, late):
        (kind, gap), after = [entry for entry in client.received if entry[0] in ("event", "gap")][-2:]
        assert (kind, after[2]) == ("gap", "after")
        assert (gap["from"], gap["to"], gap["count"], gap["reason"], gap["recoverable"]) == (hole, hole, 1, "quarantined", False)
