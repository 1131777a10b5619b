"""Identities on live connections: tokens, expiry, refresh, revocation, limits, users' own topics. Real gateways and Redis.

Each decision is proven where it is made (tests/unit/auth, tests/unit/node, test_revocation.py); here it is wired.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import jwt
import pytest
from websockets.exceptions import InvalidStatus

from headgate.redis.client import Client, open_client
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.user_facts import read_user_facts
from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

SECRET = "canary-secret-0123456789abcdefghijklmnop"
# The promises are 2 s for an expiry and 1 s for a revocation; what a busy machine adds is not what is tested here.
SLACK_S = 30.0
FIRST_ADDRESS = ipaddress.IPv4Address("10.0.0.0")

Join = Callable[..., RawClient]


def token(user: str = "ana", lifetime_s: float = 600, **claims: Any) -> str:
    """A token as another service would make it."""
    body = {"sub": user, "aud": "headgate", "exp": time.time() + lifetime_s, **claims}
    return jwt.encode(body, SECRET, "HS256")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with start_private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def commands(redis: EmbeddedRedis) -> Iterator[Client]:
    with closing(open_client(redis.url, timeout_s=SLACK_S)) as client:
        yield client


@pytest.fixture
def publisher(redis: EmbeddedRedis) -> Iterator[Publisher]:
    with closing(Publisher(redis.url)) as publisher:
        yield publisher


@pytest.fixture(scope="module")
def settings(redis: EmbeddedRedis) -> dict[str, str]:
    """Tokens, no leeway, small limits, and one proxy, so that a test may say where a client comes from."""
    return {
        "HEADGATE_REDIS_URL": redis.url,
        "HEADGATE_TOKEN_SECRET": SECRET,
        "HEADGATE_TOKEN_LEEWAY_S": "0",
        "HEADGATE_ANONYMOUS_SUBSCRIBE": "news.#",
        "HEADGATE_MAX_CLIENTS_PER_USER": "3",
        "HEADGATE_MAX_CLIENTS_PER_ADDRESS": "5",
        "HEADGATE_PROXIES": "1",
        "HEADGATE_LOG_LEVEL": "debug",
    }


@pytest.fixture(scope="module")
def gateways(start_module_gateway: StartGateway, settings: dict[str, str]) -> tuple[GatewayProcess, GatewayProcess]:
    """Two gateways on one Redis."""
    return start_module_gateway(settings), start_module_gateway(settings)


@pytest.fixture
def gateway(gateways: tuple[GatewayProcess, GatewayProcess]) -> GatewayProcess:
    return gateways[0]


@pytest.fixture(scope="module")
def hasty(start_module_gateway: StartGateway, settings: dict[str, str]) -> GatewayProcess:
    """A gateway that soon ends a connection that has joined nothing."""
    return start_module_gateway({**settings, "HEADGATE_HANDSHAKE_DEADLINE_S": "3"})


@pytest.fixture(scope="module")
def patient(start_module_gateway: StartGateway, settings: Mapping[str, str]) -> GatewayProcess:
    """A gateway that ends nobody for having joined nothing. Each test has an address of its own."""
    return start_module_gateway({**settings, "HEADGATE_HANDSHAKE_DEADLINE_S": "600"})


@pytest.fixture
def eve() -> str:
    """A user who was never revoked: a gateway may still be about to hear that another test's was lifted."""
    return f"eve-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def join() -> Iterator[Join]:
    """Connect clients that leave with the test, each from an address of its own: `join(gateway, token)`."""
    with ExitStack() as joined:
        numbers = itertools.count(1)

        def join(gateway: GatewayProcess, shown: str | None, address: str | None = None, **auth: Any) -> RawClient:
            headers = {"X-Forwarded-For": address or str(FIRST_ADDRESS + next(numbers))}
            body = {**auth, **({"token": shown} if shown is not None else {})}
            client = joined.enter_context(RawClient(gateway.url, body, headers=headers))
            client.wait_for(lambda: client.named("welcome") or client.refusal or client.closed, "an answer to CONNECT")
            return client

        yield join


@pytest.fixture
def lift(publisher: Publisher) -> Iterator[Callable[..., None]]:
    """Revoke with `lift(user=…)`; lifted with the test."""
    revoked: list[dict[str, Any]] = []

    def revoke(**whom: Any) -> None:
        publisher.revoke(**whom)
        revoked.append(whom)

    yield revoke
    for whom in revoked:
        publisher.revoke(**{**whom, "for_s": 0})


def refusal(client: RawClient) -> dict[str, Any]:
    """The error of a refused CONNECT."""
    assert client.refusal, client.received
    error: dict[str, Any] = client.refusal["data"]
    return error


def disconnected(client: RawClient) -> str:
    """Wait until a client is out; return the reason that it was told before."""
    client.wait_for(lambda: client.disconnected or client.closed, "the end", SLACK_S)
    assert client.disconnected
    (notice,) = [body["unauthorized"] for (body,) in client.named("status") if "unauthorized" in body]
    assert (notice["code"], notice["retry"]) == ("unauthorized", False)
    return str(notice["reason"])


def is_let_in(client: RawClient) -> bool:
    """Whether a client was; it is closed, so that asking again and again leaves nothing open."""
    client.close()
    return client.refusal is None


def join_for(
    join: Join, gateway: GatewayProcess, user: str = "ana", lifetime_s: float = 2.0, **options: Any
) -> tuple[RawClient, float]:
    """Join with a token that expires soon; return the client, and when. Later, where joining took most of a token's life."""
    while True:
        expires_at = time.time() + lifetime_s
        client = join(gateway, token(user, lifetime_s, subscribe=["a"]), **options)
        if client.named("welcome") and expires_at - time.time() > lifetime_s / 2:
            return client, expires_at
        client.close()
        lifetime_s *= 2


def running(client: RawClient) -> bool:
    """Whether a client is still served."""
    return bool(client.request("unsubscribe", {"pattern": "nothing"})["ok"]) and not client.disconnected


# tokens --------------------------------------------------------------------------------------------------------------------


def test_a_token_lets_its_user_in_with_its_grants(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """Granted events arrive, and others are forbidden: by containment, and also by way of a replay."""
    wanted = [{"pattern": pattern} for pattern in ("orders.*.shipped", "stock.#", "orders.#", "#")]
    client = join(gateway, token(subscribe=["orders.*.shipped"]), subscriptions=wanted)
    assert client.welcome["user"] == "ana"
    outcomes = [(entry["ok"], entry.get("error", {}).get("code")) for entry in client.welcome["subscriptions"]]
    assert outcomes == [(True, None), (False, "forbidden"), (False, "forbidden"), (False, "forbidden")]
    assert client.request("replay", {"pattern": "#", "from": 1, "to": 9})["error"]["code"] == "forbidden"
    for topic in ("stock.1", "orders.1.opened", "orders.1.shipped.twice", "orders.1.shipped"):
        publisher.publish(topic, topic)
    assert client.wait_for_events(1)[0][0] == "orders.1.shipped"
    assert len(client.events) == 1


def test_a_bad_token_is_refused_with_its_word(gateway: GatewayProcess, join: Join) -> None:
    """As CONNECT_ERROR, without any part of the token. Every bad token is in tests/unit/auth/test_tokens.py."""
    for shown, reason in (("", "no_token"), ("x" * 9000, "too_large"), (token(lifetime_s=-1), "expired")):
        client = join(gateway, shown)
        error = refusal(client)
        assert (error["code"], error["reason"], error["retry"]) == ("unauthorized", reason, False)
        assert not shown or shown not in json.dumps(client.refusal), reason


# a user's own topics ---------------------------------------------------------------------------------------------------------


def test_an_event_for_a_user_reaches_every_client_of_that_user_and_no_other(
    gateways: tuple[GatewayProcess, GatewayProcess], join: Join, publisher: Publisher
) -> None:
    """`publish(topic, data, user=…)`, on two gateways, with no grant in the token."""
    mine = {"subscriptions": [{"pattern": "users.ana.#"}]}
    first, second = join(gateways[0], token("ana"), **mine), join(gateways[1], token("ana"), **mine)
    other = join(gateways[0], token("ben"), subscriptions=[{"pattern": "users.ana.#"}, {"pattern": "users.ben.#"}])
    assert [entry["ok"] for entry in other.welcome["subscriptions"]] == [False, True]
    publisher.publish("mail.new", 1, user="ana")
    publisher.publish("mail.new", 2, user="ben")
    assert first.wait_for_events(1)[0][:2] == second.wait_for_events(1)[0][:2] == ["users.ana.mail.new", 1]
    assert other.wait_for_events(1)[0][:2] == ["users.ben.mail.new", 2]
    assert [len(client.events) for client in (first, second, other)] == [1, 1, 1]


# publishing ----------------------------------------------------------------------------------------------------------------


def test_a_granted_page_publishes_and_gets_a_receipt(gateway: GatewayProcess, join: Join) -> None:
    """`{sub}` in the grant; the same id twice is one event; outside the grant is forbidden."""
    client = join(gateway, token(subscribe=["chat.#"], publish=["chat.{sub}"]), subscriptions=[{"pattern": "chat.#"}])
    first = client.request("publish", {"topic": "chat.ana", "data": {"n": 1}, "id": "once"})
    again = client.request("publish", {"topic": "chat.ana", "data": {"n": 1}, "id": "once"})
    assert (first["ok"], first["id"], first["duplicate"], again["duplicate"]) == (True, "once", False, True)
    assert (again["epoch"], again["offset"]) == (first["epoch"], first["offset"])
    assert client.request("publish", {"topic": "chat.ben", "data": 1})["error"]["code"] == "forbidden"
    assert client.request("publish", {"topic": "chat.#", "data": 1})["error"]["code"] == "invalid_topic"
    assert client.request("publish", {"topic": "chat.ana", "data": "x" * 65535})["error"]["code"] == "payload_too_large"
    assert client.wait_for_events(1)[0][0] == "chat.ana"
    assert running(client)
    assert len(client.events) == 1


# expiry and refresh ----------------------------------------------------------------------------------------------------------


def refreshed_in_time(join: Join, gateway: GatewayProcess) -> tuple[RawClient, float, Any]:
    """Join with a token that expires soon, and refresh it before that: client, first expiry, answer."""
    lifetime_s = 2.0
    while True:
        client, expires_at = join_for(join, gateway, lifetime_s=lifetime_s)
        # Not `request`, which waits for an answer only: a client that was disconnected gets none.
        number = client.send_request(json.dumps(["refresh", {"token": token(lifetime_s=600)}]))
        client.wait_for(lambda client=client: client.acknowledged or client.disconnected, "an answer, or the end")  # type: ignore[misc]
        if client.acknowledged:
            return client, expires_at, client.acknowledged[number][0]
        client.close()
        lifetime_s *= 2


def test_a_client_whose_token_expires_is_told_and_disconnected_unless_a_refresh_came_in_time(
    hasty: GatewayProcess, join: Join, publisher: Publisher
) -> None:
    """Not before; the one that was refreshed is served on, and the other's connection ends when it does not come back."""
    stays, expires_at, answer = refreshed_in_time(join, hasty)
    assert answer == {"ok": True, "user": "ana", "expires_in_s": pytest.approx(570, abs=30)}
    lifetime_s = max(2.0, expires_at - time.time() + 1)
    ends, ends_at = join_for(join, hasty, "ben", lifetime_s, subscriptions=[{"pattern": "a"}])
    assert disconnected(ends) == "expired"
    assert time.time() >= ends_at - 0.1
    publisher.publish("a", 1)
    assert running(stays)
    ends.wait_for(lambda: ends.closed, "the close")
    assert ends.closed == (1008, "unauthorized: expired")
    assert not ends.events


def test_a_refresh_changes_grants_and_ends_what_is_no_longer_covered(
    gateway: GatewayProcess, join: Join, publisher: Publisher
) -> None:
    """Each ended subscription is named in a notice ahead of the answer; the others go on, and new ones are allowed."""
    first = token(subscribe=["orders.#", "stock.#"])
    client = join(gateway, first, subscriptions=[{"pattern": p} for p in ("orders.*", "stock.1", "users.ana.x")])
    assert client.request("refresh", {"token": token(subscribe=["stock.*", "news"])})["ok"]
    (notice,) = [body["ended"] for (body,) in client.named("status") if "ended" in body]
    assert [(entry["pattern"], entry["error"]["code"]) for entry in notice] == [("orders.*", "forbidden")]
    assert client.request("subscribe", {"pattern": "news"})["ok"]
    assert client.request("subscribe", {"pattern": "orders.1"})["error"]["code"] == "forbidden"
    for topic in ("orders.1", "stock.1", "news"):
        publisher.publish(topic, topic)
    publisher.publish("x", "end", user="ana")
    assert [event[0] for event in client.wait_for_events(3)] == ["stock.1", "news", "users.ana.x"]


# seen ----------------------------------------------------------------------------------------------------------------------


def test_a_browser_tells_consumers_which_events_its_user_has_seen(gateway: GatewayProcess, join: Join, commands: Client) -> None:
    """In its own name; an anonymous client has none. The rest: tests/integration/redis/test_seen.py."""
    answer = join(gateway, token("ana")).request("seen", {"ids": ["order:1", "order:2", "order:1"]})
    assert answer == {"ok": True, "seen": 3}
    shown = [read_user_facts(commands, "notifications", user, "news", "order:1").is_shown for user in ("ana", "ben")]
    assert shown == [True, False]
    error = join(gateway, None).request("seen", {"ids": ["order:1"]})["error"]
    assert (error["code"], error["retry"]) == ("forbidden", False)
    assert not read_user_facts(commands, "notifications", "anonymous", "news", "order:1").is_shown


# revocation ----------------------------------------------------------------------------------------------------------------


def test_a_revoked_user_is_disconnected_from_every_gateway_and_kept_out(
    gateways: tuple[GatewayProcess, GatewayProcess], join: Join, lift: Callable[..., None], publisher: Publisher, eve: str
) -> None:
    """With whatever token, until it is lifted; other users are not concerned."""
    clients = [join(gateway, token(eve)) for gateway in gateways]
    other = join(gateways[0], token("ana"))
    lift(user=eve)
    assert [disconnected(client) for client in clients] == ["revoked", "revoked"]
    assert [refusal(join(gateway, token(eve)))["reason"] for gateway in gateways] == ["revoked", "revoked"]
    assert running(other)
    publisher.revoke(user=eve, for_s=0)
    wait_until(lambda: is_let_in(join(gateways[1], token(eve))), "eve to be let in again")


def test_a_revoked_token_is_disconnected_and_the_users_other_tokens_are_not(
    gateways: tuple[GatewayProcess, GatewayProcess], join: Join, lift: Callable[..., None]
) -> None:
    """By its `jti`; a client that was refreshed is no longer the old token's."""
    hit, other = join(gateways[0], token(jti="t-1")), join(gateways[0], token(jti="t-2"))
    moved = join(gateways[1], token(jti="t-1"))
    assert moved.request("refresh", {"token": token(jti="t-3")})["ok"]
    lift(token_id="t-1")
    assert disconnected(hit) == "revoked"
    wait_until(lambda: not is_let_in(join(gateways[1], token(jti="t-1"))), "the other gateway to hear of it")
    assert refusal(join(gateways[1], token(jti="t-1")))["reason"] == "revoked"
    assert other.request("refresh", {"token": token(jti="t-1")})["error"]["reason"] == "revoked"
    assert running(other)
    assert running(moved)


# limits --------------------------------------------------------------------------------------------------------------------


def test_a_user_has_so_many_clients_and_no_more(gateway: GatewayProcess, join: Join) -> None:
    """Told in `welcome`, refused by name, and free again when one leaves."""
    clients = [join(gateway, token("ida")) for _ in range(3)]
    assert clients[0].welcome["limits"]["max_clients_per_user"] == 3
    error = refusal(join(gateway, token("ida")))
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "clients_per_user", 3)
    assert (error["retry"], error["retry_after_s"]) == (True, 10)
    clients[0].close()
    wait_until(lambda: is_let_in(join(gateway, token("ida"))), "room for one more")


def test_an_address_has_so_many_clients_and_no_more(gateway: GatewayProcess, join: Join) -> None:
    """Users do not count. The address is the one that the proxy saw, not one that the client wrote in front of it."""
    for number in range(5):
        client = join(gateway, token(f"user-{number}"), "203.0.113.7")
        assert client.welcome["limits"]["max_clients_per_address"] == 5
    error = refusal(join(gateway, token("user-9"), "198.51.100.1, 203.0.113.7"))
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "clients_per_address", 5)
    assert (error["retry"], error["retry_after_s"]) == (True, 10)
    assert refusal(join(gateway, None, "203.0.113.7"))["name"] == "clients_per_address"
    assert join(gateway, token("user-9"), "203.0.113.8").welcome


def opened(gateway: GatewayProcess, address: str) -> tuple[int, Any]:
    """Open a long-polling session from an address, and join nothing: status and body (of a refusal with its Retry-After)."""
    request = urllib.request.Request(
        f"{gateway.url}/socket.io/?EIO=4&transport=polling", headers={"X-Forwarded-For": f"198.51.100.1, {address}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SLACK_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {**json.loads(error.read()), "Retry-After": error.headers["Retry-After"]}


def clients_of(gateway: GatewayProcess) -> int:
    """How many clients it has."""
    with urllib.request.urlopen(f"{gateway.url}/healthz", timeout=SLACK_S) as answer:
        return int(json.loads(answer.read())["namespaces"]["notifications"]["clients"])


def sessions_refused(gateway: GatewayProcess) -> float:
    """How many sessions it has refused, by its metrics."""
    with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=SLACK_S) as answer:
        found = re.search(r"^headgate_sessions_refused_total (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found
    return float(found[1])


def test_an_address_has_so_many_sessions_that_have_not_joined_and_no_more(patient: GatewayProcess, join: Join) -> None:
    """Refused before they open, also over WebSocket; other addresses are not, and a client that has joined is not counted."""
    refused_before = sessions_refused(patient)
    for number in range(5):
        assert join(patient, token(f"user-{number}"), "203.0.113.9").welcome
    assert [opened(patient, "203.0.113.9")[0] for _ in range(5)] == [200] * 5
    status, body = opened(patient, "203.0.113.9")
    assert status == 429
    assert "unjoined_per_address (at most 5)" in body["message"]
    assert (body["retry"], body["retry_after_s"], body["Retry-After"]) == (True, 1, "1")
    with pytest.raises(InvalidStatus, match="429"):
        join(patient, token("ian"), "203.0.113.9")
    assert join(patient, token("ian"), "203.0.113.10").welcome
    assert sessions_refused(patient) == refused_before + 2


def test_a_client_that_left_or_was_disconnected_has_not_joined(
    patient: GatewayProcess, join: Join, lift: Callable[..., None]
) -> None:
    """To join and leave is no way around the limit; a connection that comes back with a good token is in again."""
    clients = [join(patient, token(f"guest-{number}"), "203.0.113.11") for number in range(5)]
    for number in (2, 3, 4):
        lift(user=f"guest-{number}")
        disconnected(clients[number])
    clients[0].send_packet("41/notifications,")
    clients[1].send_packet("41/notifications,")
    for number in (0, 4):
        clients[number].send_packet(f"40/notifications,{json.dumps({'token': token('guest-0')})}")
        clients[number].wait_for(lambda client=clients[number]: len(client.named("welcome")) == 2, "the second welcome")  # type: ignore[misc]
        assert clients[number].request("subscribe", {"pattern": "users.guest-0.x"})["ok"]
    wait_until(lambda: clients_of(patient) == 2, "the leave to be noticed")
    assert [opened(patient, "203.0.113.11")[0] for _ in range(3)] == [200, 200, 429]


# secrets -------------------------------------------------------------------------------------------------------------------


def test_neither_secret_nor_token_is_in_any_log_error_or_metric(
    start_gateway: StartGateway, settings: Mapping[str, str], join: Join
) -> None:
    """Good and bad tokens, at the most talkative log level: nothing of them leaves the process."""
    gateway = start_gateway(settings)
    good, bad = token("canary-user", jti="canary-jti"), jwt.encode({"sub": "x"}, "w" * 40, "HS256")
    client = join(gateway, good)
    client.request("refresh", {"token": bad})
    client.request("refresh", {"token": good})
    refused = [join(gateway, shown).refusal for shown in (bad, good + "x", bad.replace(".", "!"), "canary-" + good)]
    with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=SLACK_S) as answer:
        metrics = answer.read().decode()
    gateway.stop()
    told = json.dumps([client.received, refused]) + metrics + gateway.output
    assert "headgate_refused_total" in metrics
    for secret in (SECRET, "canary-jti", *good.split("."), *bad.split(".")[1:]):
        assert secret not in told, secret[:12]
    assert "canary-user" not in metrics + gateway.output
