"""What one client asks for too much of, and that the others do not notice: subscription floods and wildcard bombs (F15)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from headgate.embedded import start_private_redis
from headgate.publisher import Publisher
from tests.gateway_process import GatewayProcess, StartGateway
from tests.integration.transport.clients import WebSocket
from tests.raw_client import RawClient

EVENTS = 200
BOMBERS = 10
WILDCARDS = 32
# Every way for `#` to stand for words has to be looked at.
BOMBS = [
    ".".join(words) for words in itertools.islice(itertools.product(["#", "*", "a"], repeat=8), 10_000) if words.count("#") == 4
]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway, redis_url: str) -> GatewayProcess:
    """A gateway with the default limits."""
    return start_module_gateway({"HEADGATE_REDIS_URL": redis_url}, "--dev")


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    with closing(Publisher(redis_url)) as publisher:
        yield publisher


@pytest.fixture
def witness(gateway: GatewayProcess) -> Iterator[RawClient]:
    """Another client, with one subscription."""
    with RawClient(gateway.url, {"subscriptions": [{"pattern": "a.#"}]}) as client:
        assert client.welcome
        yield client


def served(witness: RawClient, publisher: Publisher) -> None:
    """Every event reaches the witness, in order, and nothing else does: no gap, no warning."""
    before = len(witness.events)
    for number in range(EVENTS):
        publisher.publish("a.a.a.a.a.a.a.a", number)
    assert [event[1] for event in witness.wait_for_events(before + EVENTS)[before:]] == list(range(EVENTS))
    assert not witness.named("gap") + witness.named("backpressure")


def flood(client: WebSocket) -> None:
    """Subscribe as fast as the connection takes it, until it takes nothing more."""
    with suppress(OSError):
        for number in itertools.count():
            client.send("42/notifications," + json.dumps(["subscribe", {"pattern": f"a.{number}"}]))


def test_a_flood_of_subscribes_ends_the_one_who_sends_it(
    gateway: GatewayProcess, witness: RawClient, publisher: Publisher
) -> None:
    """With the limit's name as the reason; its subscriptions end with it."""
    # By hand: a library that cannot send any more does not read what it was told before.
    with closing(WebSocket(int(gateway.url.rpartition(":")[2]))) as flooder:
        flooder.send("40/notifications,")
        while not flooder.text().startswith('42/notifications,["welcome"'):
            pass
        flood(flooder)
        end = flooder.end()
    assert (end.code, end.reason) == (1008, "limit_reached: rate (at most 50/s, burst 100)")
    served(witness, publisher)


def test_subscriptions_above_the_limits_are_refused_and_the_others_stand(gateway: GatewayProcess) -> None:
    """By name, with the value; the connection lives."""
    patterns = [f"a.{number}.*" for number in range(WILDCARDS + 1)] + [f"b.{number}" for number in range(128 - WILDCARDS - 1)]
    with RawClient(gateway.url, {"subscriptions": [{"pattern": pattern} for pattern in patterns]}) as client:
        outcomes = client.welcome["subscriptions"]
        refused = [(entry["pattern"], entry["error"]["name"], entry["error"]["limit"]) for entry in outcomes if not entry["ok"]]
        assert refused == [(f"a.{WILDCARDS}.*", "wildcards", WILDCARDS)]
        assert client.request("subscribe", {"pattern": "c.1"})["ok"]
        error = client.request("subscribe", {"pattern": "c.2"})["error"]
        assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "subscriptions", 128)
        assert not error["retry"], "only the client itself can make room"
        assert "retry_after_s" not in error


def test_a_wildcard_bomb_leaves_others_their_service(gateway: GatewayProcess, witness: RawClient, publisher: Publisher) -> None:
    """As many clients as wish, each with the most and the worst patterns that it may have, against the deepest topic."""
    with ExitStack() as open_clients:
        bombers = []
        for number in range(BOMBERS):
            patterns = [{"pattern": pattern} for pattern in BOMBS[number * WILDCARDS : (number + 1) * WILDCARDS]]
            bomber = open_clients.enter_context(RawClient(gateway.url, {"subscriptions": patterns}))
            assert all(entry["ok"] for entry in bomber.welcome["subscriptions"])
            bombers.append(bomber)
        served(witness, publisher)
        for bomber in bombers:
            assert [event[1] for event in bomber.wait_for_events(EVENTS)] == list(range(EVENTS))
