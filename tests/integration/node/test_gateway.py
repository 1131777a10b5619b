"""Gateways on a real Redis, met by clients made by hand: the wire of docs/protocol.md.

Most run in the test's own process (tests/support/gateway_here.py); a few are processes, for the way through HTTP and signals.
tests/unit/node has everything that needs no Redis.
"""

import json
import os
import signal
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity
from headgate.redis.data_folder import find_private_redis
from headgate.redis.embedded import EmbeddedRedis
from headgate.services.publisher import Publisher
from tests.support.gateway_here import StartGatewayHere
from tests.support.gateway_process import StartGateway
from tests.support.processes import has_ended
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until


def clerk(handshake: Handshake) -> Identity | None:
    """Every user with a token is the clerk."""
    return Identity("clerk", subscribe=("orders.#",), publish=("orders.*.seen",))


# Publishing --------------------------------------------------------------------------------------------------------------


def test_a_granted_publish_is_acknowledged_with_a_receipt(gateway_here: StartGatewayHere) -> None:
    """Epoch, offset and id; the same id again is the same event, and reaches no client twice."""
    client = gateway_here(clerk).join({"token": "clerk", "subscriptions": [{"pattern": "orders.*.seen"}]})
    assert client.welcome
    first = client.request("publish", {"topic": "orders.1.seen", "data": {"by": "clerk"}, "id": "seen-1"})
    again = client.request("publish", {"topic": "orders.1.seen", "data": {"by": "clerk"}, "id": "seen-1"})
    client.request("publish", {"topic": "orders.2.seen", "data": None})

    events = client.wait_for_events(2)

    assert first == {"ok": True, "id": "seen-1", "epoch": first["epoch"], "offset": events[0][2]["offset"], "duplicate": False}
    assert again == {**first, "duplicate": True}
    assert [topic for topic, _, _ in events] == ["orders.1.seen", "orders.2.seen"]


def test_an_event_names_its_sender_where_the_namespace_allows_it(gateway_here: StartGatewayHere, redis_url: str) -> None:
    """Live, read again and after `since` it is the user of the token, whatever the payload and the request say."""
    gateway = gateway_here(clerk, event_by=("orders.1.seen",))
    client = gateway.join({"token": "clerk", "subscriptions": [{"pattern": "orders.#"}]})
    assert client.welcome
    client.request("publish", {"topic": "orders.1.seen", "data": {"by": "boss", "meta": {"by": "boss"}}})
    client.request("publish", {"topic": "orders.9.seen", "data": 1})
    forged = client.request("publish", {"topic": "orders.1.seen", "data": 1, "by": "boss"})
    with Publisher(redis_url, show_by="orders.#") as publisher:
        publisher.publish("orders.1.seen", 2)
        publisher.publish("orders.2.seen", 3, by="Ana Müller")
    events = client.wait_for_events(4)
    client.request("subscribe", {"pattern": "orders.*.seen", "since": {"last": 4}})
    again = [event for event in client.wait_for_events(8) if event[2].get("replayed")]
    page = client.request("replay", {"pattern": "orders.#", "from": events[0][2]["offset"], "to": events[-1][2]["offset"]})

    assert [meta.get("by") for _, _, meta in events] == ["clerk", None, None, "Ana Müller"]
    assert forged["error"]["code"] == "invalid_request"
    assert [meta.get("by") for _, _, meta in again] == ["clerk", None, None, "Ana Müller"]
    assert [meta.get("by") for _, _, meta in page["events"]] == ["clerk", None, None, "Ana Müller"]


@pytest.mark.parametrize(("limit", "events"), [(100, 250), (7, 120), (1, 30), (100, 0), (50, 100), (99, 101)])
def test_the_past_comes_in_parts(gateway_here: StartGatewayHere, publisher: Publisher, limit: int, events: int) -> None:
    """Newest first, each event once, down to the first of the log; and only granted ones."""
    client = gateway_here(clerk).join({"token": "clerk", "subscriptions": [{"pattern": "orders.last"}]})
    assert client.welcome
    publisher.publish_many([(f"orders.{n}.note" if n % 3 else "other", n) for n in range(1, events + 1)])
    publisher.publish("orders.last", 0)
    client.wait_for_events(1)
    found: list[int] = []
    before = None
    while True:
        part = client.request("history", {"pattern": "orders.*.note", "limit": limit, "before": before})
        assert len(part["events"]) <= limit
        found += [data for _, data, _ in part["events"]]
        before = part["before"]
        if before is None:
            break

    assert found == [n for n in range(events, 0, -1) if n % 3]
    assert client.request("history", {"pattern": "#"})["error"]["code"] == "forbidden"
    assert client.request("history", {"pattern": "orders.#", "limit": 101})["error"]["code"] == "invalid_request"
    unknown = {"epoch": "0123456789abcdef", "offset": 9}
    assert client.request("history", {"pattern": "orders.#", "before": unknown})["error"]["reason"].startswith("before: ")


def test_an_ephemeral_event_reaches_those_who_are_there_and_no_log(gateway_here: StartGatewayHere, redis_url: str) -> None:
    """Through every subscription, of the user's own topics too, once each; with its sender where allowed."""
    gateway = gateway_here(clerk, event_by=("orders.#",))
    patterns = ["orders.#", "users.clerk.#", "users.clerk.typing"]
    client = gateway.join({"token": "clerk", "subscriptions": [{"pattern": pattern} for pattern in patterns]})
    assert client.welcome
    answer = client.request("publish", {"topic": "orders.1.seen", "data": [1], "id": "e:1", "ephemeral": True})
    with Publisher(redis_url, show_by="#") as publisher:
        made = publisher.publish_ephemeral("orders.1.seen", 2)
        own = publisher.publish_ephemeral("typing", {"on": True}, user="clerk", by="Ana Müller")
    events = client.wait_for_events(3)
    receipt = client.request("publish", {"topic": "orders.1.seen", "data": "logged"})

    assert answer == {"ok": True, "id": "e:1"}
    assert [(topic, data, meta["id"], meta.get("by")) for topic, data, meta in events] == [
        ("orders.1.seen", [1], "e:1", "clerk"),
        ("orders.1.seen", 2, made, None),
        ("users.clerk.typing", {"on": True}, own, "Ana Müller"),
    ]  # fmt: skip
    assert not any("offset" in meta for _, _, meta in events)
    assert (receipt["offset"], len(client.wait_for_events(4))) == (1, 4)


@pytest.mark.parametrize(
    "data",
    ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', '{"text": "\\ud800"}', '{"\\ud800": 1}', "[" * 65 + "]" * 65],
    ids=lambda data: data[:16],
)
def test_data_that_is_not_strict_json_is_refused_and_the_connection_lives(gateway_here: StartGatewayHere, data: str) -> None:
    """A lenient parser on the way must not let through anything that a browser could not read."""
    client = gateway_here().join()
    answer = client.request_text('["publish",{"topic":"a","data":' + data + "}]")

    assert answer["error"]["code"] == "not_serializable"
    client.subscribe("still.alive")


def test_a_message_nested_beyond_every_parser_harms_nobody_else(gateway_here: StartGatewayHere) -> None:
    """Its sender may be cut off; the gateway and the others go on."""
    gateway = gateway_here()
    other, hostile = gateway.join(), gateway.join()
    assert hostile.welcome
    number = hostile.send_request('["publish",{"topic":"a","data":' + "[" * 50_000 + "]" * 50_000 + "}]")

    hostile.wait_for(lambda: hostile.closed or number in hostile.acknowledged, "an end or an answer")
    other.subscribe("still.alive")


# Leaving -----------------------------------------------------------------------------------------------------------------


def test_a_gateway_whose_redis_has_gone_does_not_know_whether_it_is_alone(
    gateway_here: StartGatewayHere, start_redis: Callable[..., EmbeddedRedis]
) -> None:
    """Not known is not none. Its clients are asked to move, and one line gives the reason."""
    redis = start_redis()
    gateway = gateway_here(redis_url=redis.url)
    client = gateway.join()
    assert client.welcome
    table = gateway.gateway.cluster.table
    table.start()
    gateway.wait_until(table.tried.is_set, "the registration")
    redis.close()
    client.wait_for(lambda: client.named("status") == [[{"bus": "down"}]], "word that the bus is down")
    with capture_logs() as lines:
        assert gateway.gateway.retire() is False
        gateway.gateway.drain(0)
    assert [line["event"] for line in lines if line["event"] != "bus down"] == ["shared table out of reach"]
    client.wait_for(lambda: client.closed, "the end")
    assert client.named("status")[-1] == [{"moving": {"reason": "restart", "within_s": 0}}]


# Processes ---------------------------------------------------------------------------------------------------------------


def test_a_private_redis_that_is_killed_is_started_again(start_gateway: StartGateway) -> None:
    """By its gateway. Clients stay, and acknowledged and later events arrive, in order."""
    gateway = start_gateway(None, "--dev")
    record = gateway.folder / "data" / "redis.lock"
    with RawClient(gateway.url) as client, Publisher(find_private_redis(gateway.folder / "data")) as publisher:
        client.subscribe("orders.*")
        publisher.publish("orders.1", "before")
        os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
        gateway.wait_for_line("private Redis runs again")
        receipt = publisher.publish("orders.1", "after")
        client.wait_for(lambda: client.events and client.events[-1][1] == "after", "the event behind the new start")
        wait_until(lambda: gateway.get("/healthz")[0] == 200, "readiness")
        assert [data for _, data, _ in client.events] == ["before", "after"]
        assert [meta["offset"] for _, _, meta in client.events] == [1, receipt.offset]
        assert client.closed is None
        second = json.loads(record.read_text())["pid"]
    assert gateway.stop() == 0
    assert has_ended(second)
