"""Identities on live connections: tokens, expiry, refresh, revocation, limits, users' own topics. Real gateways and Redis.

Each decision is proven where it is made (tests/unit/auth, tests/unit/node, test_revocation.py); here it is wired.
"""

import ipaddress
import itertools
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import jwt
import pytest

from headgate.node.population.population import STOOD_STILL_S
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.services.clients import Clients
from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

SECRET = "canary-secret-0123456789abcdefghijklmnop"
# The promises are 2 s for an expiry and 1 s for a revocation; the delays of a busy machine are not tested here.
SLACK_S = 30.0
FIRST_ADDRESS = ipaddress.IPv4Address("10.0.0.0")

Join = Callable[..., RawClient]


def token(user: str = "ana", lifetime_s: float = 600, **claims: Any) -> str:
    body = {"sub": user, "aud": "headgate", "exp": time.time() + lifetime_s, **claims}
    return jwt.encode(body, SECRET, "HS256")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with start_private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


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
    return start_module_gateway(settings), start_module_gateway(settings)


@pytest.fixture
def gateway(gateways: tuple[GatewayProcess, GatewayProcess]) -> GatewayProcess:
    return gateways[0]


@pytest.fixture
def eve() -> str:
    """A user without revocations, because a gateway may still be about to hear that another test's was lifted."""
    return f"eve-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def join() -> Iterator[Join]:
    """Connect clients that leave with the test, each from a different address: `join(gateway, token)`."""
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
    assert client.refusal, client.received
    error: dict[str, Any] = client.refusal["data"]
    return error


def disconnected(client: RawClient) -> str:
    """Wait until a client is out; return the reason in the notice before."""
    client.wait_for(lambda: client.disconnected or client.closed, "the end", SLACK_S)
    assert client.disconnected
    (notice,) = [body["unauthorized"] for (body,) in client.named("status") if "unauthorized" in body]
    assert (notice["code"], notice["retry"]) == ("unauthorized", False)
    return str(notice["reason"])


def is_let_in(client: RawClient) -> bool:
    """Whether a client was; it is closed, so that asking again and again leaves nothing open."""
    client.close()
    return client.refusal is None


def running(client: RawClient) -> bool:
    return bool(client.request("unsubscribe", {"pattern": "nothing"})["ok"]) and not client.disconnected


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


def test_a_gateway_that_stood_still_sends_no_event_of_that_time_to_a_client_without_the_right(
    gateway: GatewayProcess, join: Join, lift: Callable[..., None], publisher: Publisher, redis: EmbeddedRedis, eve: str
) -> None:
    """The user was revoked, the token has expired, or the user was given other grants."""
    subscriptions = [{"pattern": "news.#"}]
    revoked, expired, regranted, other = (
        join(gateway, token(user, lifetime_s, subscribe=["news.#"]), subscriptions=subscriptions)
        for user, lifetime_s in ((eve, 600), (f"{eve}-expired", 3), (f"{eve}-regranted", 600), ("ben", 600))
    )
    gateway.pause()
    try:
        lift(user=eve)
        with closing(Clients(redis.url, within_s=0.1)) as clients:
            clients.regrant(f"{eve}-regranted", subscribe=["other.#"], for_s=60)
        time.sleep(max(3.0, STOOD_STILL_S) + 0.5)  # the length of the fault, longer than the expired token
        offset = publisher.publish("news.today", 1).offset
        wanted = json.dumps(["replay", {"pattern": "news.#", "from": offset, "to": offset}])
        replays = [(client, client.send_request(wanted)) for client in (revoked, regranted)]
    finally:
        gateway.go_on()
    other.wait_for_events(1)
    assert (disconnected(revoked), disconnected(expired)) == ("revoked", "expired")
    assert regranted.request("unsubscribe", {"pattern": "nothing"})["ok"]
    assert [client.events for client in (revoked, expired, regranted)] == [[], [], []]
    assert not any(client.acknowledged.get(number, [{}])[0].get("ok") for client, number in replays)


# secrets -------------------------------------------------------------------------------------------------------------------


def test_neither_secret_nor_token_is_in_any_log_error_or_metric(
    start_gateway: StartGateway, settings: Mapping[str, str], join: Join
) -> None:
    """Good and bad tokens, at the most talkative log level, without a trace of them outside the process."""
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
