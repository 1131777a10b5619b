"""What one client asks for too much of, and that the others do not notice: subscription floods, wildcard bombs (F15), and the
costliest CONNECTs (F30)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from headgate.auth.tokens import Tokens
from headgate.publisher import Publisher
from headgate.redis.embedded import start_private_redis
from headgate.settings import Settings
from tests.integration.transport.clients import WebSocket
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

EVENTS = 200
SECRET = "a secret of the tests, thirty-two bytes long"
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
    return start_module_gateway({"HEADGATE_REDIS_URL": redis_url, "HEADGATE_TOKEN_SECRET": SECRET}, "--dev")


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


def test_a_client_that_is_refused_too_often_is_ended(gateway: GatewayProcess, witness: RawClient, publisher: Publisher) -> None:
    """Also when it leaves and joins in between: what counts is the connection."""
    wrong = [{"pattern": f"a..{number}"} for number in range(128)]
    connect = "40/notifications," + json.dumps({"subscriptions": wrong})
    with RawClient(gateway.url, {"subscriptions": wrong}) as client:
        assert client.welcome["limits"]["max_refusals"] == 256
        for _ in range(2):
            client.send_packet("41/notifications,")
            client.send_packet(connect)
        client.wait_for(lambda: client.closed, "the end")
        assert client.closed == (1008, "limit_reached: refusals (at most 256)")
    served(witness, publisher)


@pytest.fixture(scope="module")
def touchy(start_module_gateway: StartGateway, redis_url: str) -> GatewayProcess:
    """A gateway that ends a connection after few refusals."""
    limits = {"HEADGATE_MAX_SUBSCRIPTIONS": "4", "HEADGATE_MAX_REFUSALS": "5"}
    return start_module_gateway({"HEADGATE_REDIS_URL": redis_url, **limits}, "--dev")


@pytest.mark.parametrize(
    "request_", [["subscribe", {"pattern": 7}], ["publish", {"topic": "a.*", "data": 1}], ["replay", {}], ["no such request", {}]]
)
def test_every_kind_of_refusal_counts(touchy: GatewayProcess, request_: list[Any]) -> None:
    """The last one is answered like the others, and then it is over."""
    with RawClient(touchy.url, {}) as client:
        assert client.welcome
        for _ in range(5):
            assert not client.request_text(json.dumps(request_))["ok"]
        # One more is enough, but for those that have been forgiven meanwhile.
        for number in itertools.count(6):
            with suppress(ConnectionClosed):
                client.send_packet(f"42/notifications,{number}{json.dumps(request_)}")
            client.wait_for(lambda number=number: number in client._acks or client.closed, "an answer, or the end")  # type: ignore[misc]
            if client.closed:
                break
        assert client.closed == (1008, "limit_reached: refusals (at most 5)")


# As many grants as a token may hold; one of them contains a pattern that every one of its expansions has to show.
GRANTS = [
    "x.#",
    *(f"#.a.#.b.#.{number}" for number in range(31)),
    *(f"#.{number}.*.#.c" for number in range(31)),
    "#.a.#.b.#.c.#",
]
COSTLY: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "contained after every expansion": lambda number: [
        {"pattern": f"#.a.#.b.#.c.#.{number}-{each}"} for each in range(WILDCARDS)
    ],
    "contained in none": lambda number: [{"pattern": f"#.a.#.b.#.{number}.#.{each}"} for each in range(128)],
    "a past for each": lambda number: [{"pattern": f"x.{number}.{each}", "since": {"last": 1000}} for each in range(128)],
    "a time for each": lambda number: [{"pattern": f"x.{number}.{each}", "since": {"time": each}} for each in range(128)],
}


@pytest.mark.parametrize("attack", COSTLY)
def test_the_costliest_connects_leave_others_their_service(
    gateway: GatewayProcess, witness: RawClient, publisher: Publisher, attack: str
) -> None:
    """As many clients as wish, each with all that its limits allow; each is told what became of each of its subscriptions."""
    tokens = Tokens.configured(Settings.read({"HEADGATE_TOKEN_SECRET": SECRET}))
    assert tokens is not None
    with ExitStack() as open_clients:
        attackers: list[tuple[dict[str, Any], RawClient]] = []
        for number in range(BOMBERS):
            auth: dict[str, Any] = {
                "token": tokens.mint(f"mallory-{number}", GRANTS, [], 600),
                "subscriptions": COSTLY[attack](number),
            }
            attackers.append((auth, open_clients.enter_context(RawClient(gateway.url, auth))))
        served(witness, publisher)
        for auth, attacker in attackers:
            results = attacker.welcome["subscriptions"]
            assert [result["pattern"] for result in results] == [wanted["pattern"] for wanted in auth["subscriptions"]]
            refused = {result["error"]["code"] for result in results if not result["ok"]}
            assert refused == ({"forbidden", "limit_reached"} if attack == "contained in none" else set())
