"""Identities on live connections: tokens, expiry, refresh, revocation, limits, users' own topics. Real gateways and Redis."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import jwt
import pytest
from websockets.exceptions import InvalidStatus

from headgate.auth.revocation import MAX_REVOCATIONS
from headgate.errors import InvalidRequest, InvalidTopic, LimitReached
from headgate.publisher import Publisher
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.keys import REVOKED, seen_key
from headgate.redis.seen import MAX_SEEN, SEEN_S, was_seen
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
    """A gateway that soon ends who has joined nothing."""
    return start_module_gateway({**settings, "HEADGATE_HANDSHAKE_DEADLINE_S": "3"})


@pytest.fixture
def patient(start_gateway: StartGateway, settings: Mapping[str, str]) -> GatewayProcess:
    """A gateway of its own, where nobody is ended for having joined nothing."""
    return start_gateway({**settings, "HEADGATE_HANDSHAKE_DEADLINE_S": "600"})


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
    """What is granted arrives, and what is not is forbidden: by containment, and also by way of a replay."""
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


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ("", "no_token"),
        ("x" * 9000, "too_large"),
        ("x.y.z", "malformed"),
        (token(lifetime_s=-1), "expired"),
        (jwt.encode({"sub": "ana", "aud": "shop", "exp": 2e9}, SECRET, "HS256"), "wrong_audience"),
        (jwt.encode({"sub": "ana", "aud": "headgate", "exp": 2e9}, "w" * 40, "HS256"), "bad_signature"),
        (jwt.encode({"sub": "ana", "aud": "headgate", "exp": 2e9}, "", "none"), "algorithm_mismatch"),
    ],
    ids=lambda value: value if len(value) < 20 else "a token",
)
def test_a_bad_token_is_refused_with_its_word(gateway: GatewayProcess, join: Join, shown: str, reason: str) -> None:
    """As CONNECT_ERROR, without any part of the token. Every bad token is in tests/unit/auth/test_tokens.py."""
    client = join(gateway, shown)
    error = refusal(client)
    assert (error["code"], error["reason"], error["retry"]) == ("unauthorized", reason, False)
    assert not shown or shown not in json.dumps(client.refusal)


def test_without_a_token_one_is_anonymous_where_configured(gateway: GatewayProcess, join: Join) -> None:
    """With the configured patterns, and nothing else."""
    client = join(gateway, None, subscriptions=[{"pattern": "news.*"}, {"pattern": "users.anonymous.x"}])
    assert client.welcome["user"] == "anonymous"
    assert [entry["ok"] for entry in client.welcome["subscriptions"]] == [True, False]
    assert client.request("publish", {"topic": "news.a", "data": 1})["error"]["code"] == "forbidden"


@pytest.fixture(scope="module")
def roomy(start_module_gateway: StartGateway, redis: EmbeddedRedis) -> GatewayProcess:
    """A gateway whose clients may ask for much."""
    return start_module_gateway(
        {
            "HEADGATE_REDIS_URL": redis.url,
            "HEADGATE_TOKEN_SECRET": SECRET,
            "HEADGATE_MAX_WILDCARDS": "128",
            "HEADGATE_MAX_SUBSCRIPTIONS": "128",
        }
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_event_outside_a_clients_grants_ever_arrives(
    roomy: GatewayProcess, join: Join, publisher: Publisher, seed: int
) -> None:
    """Every pattern over a small alphabet is asked for by clients with grants at random; what comes is held against brute force.

    What is accepted must lie inside the grants; what lies inside a single grant must be accepted.
    """
    chance = random.Random(seed)
    words = [".".join(words) for length in (1, 2, 3) for words in itertools.product("ab*#", repeat=length)]
    topics = [".".join(words) for length in (1, 2, 3, 4) for words in itertools.product("ab", repeat=length)]
    reach = {pattern: {topic for topic in topics if naive_match(pattern.split("."), topic.split("."))} for pattern in words}
    clients = []
    for number in range(6):
        grants = chance.sample(words, chance.randint(1, 3))
        asked = [{"pattern": pattern} for pattern in (*words, f"users.u{number}.end")]
        client = join(roomy, token(f"u{number}", subscribe=grants), subscriptions=asked)
        accepted = {entry["pattern"] for entry in client.welcome["subscriptions"] if entry["ok"]} & reach.keys()
        granted = set().union(*(reach[grant] for grant in grants))
        assert all(reach[pattern] <= granted for pattern in accepted), (grants, accepted)
        # Topics of four words tell patterns of up to three apart, wildcards included.
        assert accepted == {pattern for pattern in words if any(reach[pattern] <= reach[grant] for grant in grants)}
        clients.append((client, set().union(*(reach[pattern] for pattern in accepted))))
    for topic in topics:
        publisher.publish(topic, topic)
    for number, (client, expected) in enumerate(clients):
        publisher.publish("end", None, user=f"u{number}")
        # Events come in log order: before its end everything has come that was going to.
        client.wait_for(partial(has_come, client, f"users.u{number}.end"), "the end")
        came = [event[0] for event in client.events if not event[0].startswith("users.")]
        assert came == [topic for topic in topics if topic in expected]


def has_come(client: RawClient, topic: str) -> bool:
    return any(event[0] == topic for event in client.events)


def naive_match(pattern: list[str], topic: list[str]) -> bool:
    """The definition: `*` is one word, `#` is any number."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return any(naive_match(pattern[1:], topic[skip:]) for skip in range(len(topic) + 1))
    return bool(topic) and pattern[0] in ("*", topic[0]) and naive_match(pattern[1:], topic[1:])


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


@pytest.mark.parametrize("user", ["", "a.b", "*", "#", "a b", "x" * 250, 42])
def test_a_user_that_is_not_one_word_is_refused(publisher: Publisher, user: Any) -> None:
    """Nothing is published to a topic that was not meant."""
    with pytest.raises(InvalidTopic):
        publisher.publish("mail", 1, user=user)


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


def test_a_client_whose_token_expires_is_told_and_disconnected(hasty: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """And not before; a client with a longer token stays, and the connection ends when it does not come back."""
    client, expires_at = join_for(join, hasty, subscriptions=[{"pattern": "a"}])
    other, _ = join_for(join, hasty, "ben", 600)
    assert disconnected(client) == "expired"
    assert time.time() >= expires_at - 0.1
    publisher.publish("a", 1)
    assert running(other)
    client.wait_for(lambda: client.closed, "the close")
    assert client.closed == (1008, "unauthorized: expired")
    assert not client.events


def test_after_an_expiry_the_same_connection_may_come_back_with_another_token(patient: GatewayProcess, join: Join) -> None:
    """CONNECT anew, within the handshake deadline."""
    client, _ = join_for(join, patient)
    disconnected(client)
    client.send_packet("40/notifications," + json.dumps({"token": token()}))
    client.wait_for(lambda: len(client.named("welcome")) == 2, "the second welcome")
    assert client.request("subscribe", {"pattern": "users.ana.x"})["ok"]


def test_who_leaves_the_namespace_may_not_stay_uncounted(hasty: GatewayProcess, join: Join) -> None:
    """The limits per user and address count clients; a connection without one ends at the handshake deadline."""
    client = join(hasty, token())
    client.send_packet("41/notifications,")
    client.wait_for(lambda: client.closed, "the close", SLACK_S)
    assert client.closed == (1008, "no CONNECT within 3 s")


def refreshed_in_time(join: Join, gateway: GatewayProcess) -> tuple[RawClient, float, Any]:
    """Join with a token that expires soon, and refresh it before that: client, first expiry, answer."""
    lifetime_s = 2.0
    while True:
        client, expires_at = join_for(join, gateway, lifetime_s=lifetime_s)
        # Not `request`, which waits for an answer only: a client that was disconnected gets none.
        client.send_packet(f"42/notifications,99{json.dumps(['refresh', {'token': token(lifetime_s=600)}])}")
        client.wait_for(lambda client=client: client._acks.get(99) or client.disconnected, "an answer, or the end")  # type: ignore[misc]
        if 99 in client._acks:
            return client, expires_at, client._acks[99][0]
        client.close()
        lifetime_s *= 2


def test_a_refresh_extends(gateway: GatewayProcess, join: Join) -> None:
    """The old expiry passes, and the client is served on."""
    client, expires_at, answer = refreshed_in_time(join, gateway)
    assert answer == {"ok": True, "user": "ana", "expires_in_s": pytest.approx(570, abs=30)}
    witness, _ = join_for(join, gateway, "ben", max(2.0, expires_at - time.time() + 1))
    assert disconnected(witness) == "expired"
    assert running(client)


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


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ({"token": token("ben", lifetime_s=1e9)}, "unauthorized", "another_user"),
        ({"token": token(lifetime_s=-1)}, "unauthorized", "expired"),
        ({"token": "x"}, "unauthorized", "malformed"),
        ({"token": None}, "invalid_request", None),
        ({}, "invalid_request", None),
        ({"token": "x", "user": "ana"}, "invalid_request", None),
    ],
    ids=["another user", "expired", "malformed", "null", "nothing", "a field too many"],
)
def test_a_refresh_that_is_refused_changes_nothing(
    gateway: GatewayProcess, join: Join, body: object, code: str, reason: str | None
) -> None:
    """Above all not who one is."""
    client = join(gateway, token(subscribe=["orders.#"]), subscriptions=[{"pattern": "orders.*"}])
    error = client.request("refresh", body)["error"]
    assert (error["code"], error["reason"] if reason else None) == (code, reason)
    assert client.request("subscribe", {"pattern": "orders.1"})["ok"]


# what was seen -------------------------------------------------------------------------------------------------------------


def test_what_a_users_browser_has_shown_is_known_to_consumers(gateway: GatewayProcess, join: Join, commands: Client) -> None:
    """Of that user and in that namespace only."""
    answer = join(gateway, token("ana")).request("seen", {"ids": ["order:1", "order:2", "order:1"]})

    assert answer == {"ok": True, "seen": 3}
    assert [was_seen(commands, "notifications", "ana", event_id) for event_id in ("order:1", "order:2", "order:3")] == [
        True,
        True,
        False,
    ]
    assert not was_seen(commands, "notifications", "ben", "order:1")
    assert not was_seen(commands, "other", "ana", "order:1")


def test_no_more_is_kept_of_what_was_shown_than_is_of_use(gateway: GatewayProcess, join: Join, commands: Client) -> None:
    """The newest of a user, for a day: a browser that says it without end fills nothing."""
    client = join(gateway, token("zoe"))
    for page in range(MAX_SEEN // 100 + 1):
        assert client.request("seen", {"ids": [f"{page}-{number:02}" for number in range(100)]})["ok"]
        if page == 0:
            # A second passes between two pages, as far as the scores tell.
            call(commands, "ZUNIONSTORE", seen_key("notifications", "zoe"), 1, seen_key("notifications", "zoe"), "WEIGHTS", "0.5")

    assert call(commands, "ZCARD", seen_key("notifications", "zoe")) == MAX_SEEN
    assert not was_seen(commands, "notifications", "zoe", "0-50")
    assert was_seen(commands, "notifications", "zoe", f"{MAX_SEEN // 100}-99")
    assert 0 < call(commands, "TTL", seen_key("notifications", "zoe")) <= SEEN_S


def test_nobody_in_particular_has_seen_nothing(gateway: GatewayProcess, join: Join, commands: Client) -> None:
    """An anonymous client is refused; so is a request that is none, and nothing of it is kept."""
    error = join(gateway, None).request("seen", {"ids": ["order:1"]})["error"]
    assert (error["code"], error["retry"]) == ("forbidden", False)
    assert not was_seen(commands, "notifications", "anonymous", "order:1")

    client = join(gateway, token("yan"))
    assert client.request("seen", {"ids": []})["error"]["code"] == "invalid_request"
    assert client.request("seen", {"ids": ["good", "not good"]})["error"]["code"] == "invalid_event"
    assert not was_seen(commands, "notifications", "yan", "good")


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


def test_a_revocation_outlives_the_gateway(
    start_gateway: StartGateway, settings: dict[str, str], join: Join, lift: Callable[..., None]
) -> None:
    """A gateway that starts later reads it before it lets anyone in."""
    lift(user="mallory")
    assert refusal(join(start_gateway(settings), token("mallory")))["reason"] == "revoked"


def test_a_revocation_ends_by_itself(gateway: GatewayProcess, join: Join, publisher: Publisher, commands: Client) -> None:
    """And leaves nothing in Redis when the next one is made."""
    publisher.revoke(user="brief", for_s=1)
    wait_until(lambda: is_let_in(join(gateway, token("brief"))), "brief to be let in again")

    def is_gone() -> bool:
        publisher.revoke(user="next", for_s=0)
        return call(commands, "ZSCORE", REVOKED, "user:brief") is None

    wait_until(is_gone, "the next one to find it ended")  # by Redis' clock, and not by the gateway's


@pytest.mark.parametrize(
    "whom",
    [
        {},
        {"user": "a", "token_id": "b"},
        {"user": ""},
        {"token_id": "x" * 256},
        {"user": "a\nb"},
        {"user": "a", "for_s": -1},
        {"user": "a", "for_s": 10**9},
        {"user": "a", "for_s": 1.5},
    ],
    ids=str,
)
def test_a_revocation_that_names_nobody_is_refused(publisher: Publisher, whom: dict[str, Any]) -> None:
    """Exactly one of user and token id, and a time that is one."""
    with pytest.raises(InvalidRequest):
        publisher.revoke(**whom)


def test_revocations_are_bounded(redis: EmbeddedRedis, publisher: Publisher, commands: Client) -> None:
    """One more than MAX_REVOCATIONS is refused by name; who is revoked already can be prolonged."""
    far = int(time.time()) + 1000
    for start in range(0, MAX_REVOCATIONS, 1000):
        pairs = [part for n in range(start, start + 1000) for part in (far, f"token:{n}")]
        call(commands, "ZADD", REVOKED, *pairs)
    try:
        with pytest.raises(LimitReached) as caught:
            publisher.revoke(user="one-more")
        assert caught.value.parts == {"name": "revocations", "limit": MAX_REVOCATIONS}
        publisher.revoke(token_id="7", for_s=5)
    finally:
        call(commands, "DEL", REVOKED)


@pytest.mark.parametrize("message", [b"", b"\xff\xfe", b"60", b"60 ", b"60 user:", b"-1 user:ana", b"60 cat:ana", b"x" * 100_000])
def test_a_poisoned_message_on_the_channel_changes_nothing(
    gateway: GatewayProcess, join: Join, commands: Client, lift: Callable[..., None], message: bytes, eve: str
) -> None:
    """And the next good one still counts."""
    client, witness = join(gateway, token("ana")), join(gateway, token(eve))
    call(commands, "PUBLISH", REVOKED, message)
    lift(user=eve)
    assert disconnected(witness) == "revoked"
    assert running(client)


def test_a_watch_whose_connection_is_killed_misses_nothing(
    gateway: GatewayProcess, join: Join, commands: Client, lift: Callable[..., None], eve: str
) -> None:
    """It connects anew and reads everything."""
    client = join(gateway, token(eve))
    call(commands, "CLIENT", "KILL", "TYPE", "pubsub")
    lift(user=eve)
    assert disconnected(client) == "revoked"


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
    """Whoever they are; the address is the one that the proxy saw, not one that the client wrote in front of it."""
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


def test_an_address_has_so_many_sessions_that_have_not_joined_and_no_more(patient: GatewayProcess, join: Join) -> None:
    """Refused before they open, also over WebSocket; other addresses are not, and who has joined is not counted."""
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
    with urllib.request.urlopen(f"{patient.url}/metrics", timeout=SLACK_S) as answer:
        assert b"headgate_sessions_refused_total 2.0" in answer.read()


def test_sessions_that_have_not_joined_make_room_when_their_time_is_up(hasty: GatewayProcess) -> None:
    """The handshake deadline ends them."""
    wait_until(lambda: opened(hasty, "203.0.113.12")[0] == 429, "the last one that there is room for")
    wait_until(lambda: opened(hasty, "203.0.113.12")[0] == 200, "room for one more")


def test_who_left_or_was_disconnected_has_not_joined(patient: GatewayProcess, join: Join, lift: Callable[..., None]) -> None:
    """To join and leave is no way around the limit; who comes back on the same connection is in again."""
    clients = [join(patient, token(f"guest-{number}"), "203.0.113.9") for number in range(5)]
    clients[0].send_packet("41/notifications,")
    clients[0].send_packet(f"40/notifications,{json.dumps({'token': token('guest-0')})}")
    clients[0].wait_for(lambda: len(clients[0].named("welcome")) == 2, "the second welcome")
    clients[1].send_packet("41/notifications,")
    for number in (2, 3):
        lift(user=f"guest-{number}")
        disconnected(clients[number])
    wait_until(lambda: clients_of(patient) == 2, "the leave to be noticed")
    assert [opened(patient, "203.0.113.9")[0] for _ in range(3)] == [200, 200, 429]


def test_every_limit_is_told(gateway: GatewayProcess, join: Join) -> None:
    """A client need not find out by trial."""
    limits = join(gateway, token("lea")).welcome["limits"]
    told = {
        "max_subscriptions": 128,
        "max_wildcards": 32,
        "max_topic_bytes": 255,
        "max_topic_words": 8,
        "handshake_deadline_s": 10,
    }
    assert told.items() <= limits.items()
    assert {"inbound_per_s", "inbound_burst", "max_payload_bytes"} <= set(limits)


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


# the command line ------------------------------------------------------------------------------------------------------------


def headgate(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    command = [sys.executable, "-m", "headgate.cli.main", *words]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=60, check=False)


def test_a_minted_token_lets_in(gateway: GatewayProcess, join: Join, publisher: Publisher) -> None:
    """`headgate token`, with the secret that the gateway has."""
    made = headgate("token", "--user", "dora", "--subscribe", "orders.#", "--publish", "chat.{sub}", HEADGATE_TOKEN_SECRET=SECRET)
    assert (made.returncode, made.stderr) == (0, "")
    client = join(gateway, made.stdout.strip(), subscriptions=[{"pattern": "orders.#"}, {"pattern": "users.dora.#"}])
    assert client.welcome["user"] == "dora"
    assert client.request("publish", {"topic": "chat.dora", "data": 1})["ok"]
    sent = headgate("publish", "mail", "1", "--user", "dora", HEADGATE_REDIS_URL=publisher_url(gateway))
    assert sent.returncode == 0, sent.stderr
    assert client.wait_for_events(1)[0][0] == "users.dora.mail"


def test_a_user_is_revoked_from_the_command_line(gateway: GatewayProcess, join: Join) -> None:
    """And let in again."""
    url = {"HEADGATE_REDIS_URL": publisher_url(gateway)}
    client = join(gateway, token("fred"))
    done = headgate("revoke", "--user", "fred", "--for", "15m", **url)
    assert (done.returncode, done.stdout) == (0, "revoked user 'fred' for 900 s\n"), done.stderr
    assert disconnected(client) == "revoked"
    assert headgate("revoke", "--user", "fred", "--for", "0", **url).stdout == "lifted the revocation of user 'fred'\n"


@pytest.mark.parametrize(
    ("words", "environment", "told"),
    [
        (("token", "--user", "a"), {}, "no secret to sign with: set HEADGATE_TOKEN_SECRET"),
        (("token", "--user", "a"), {"HEADGATE_TOKEN_SECRET": "short"}, "at least 32 bytes"),
        (("token", "--user", "a.b", "--subscribe", "{sub}"), {"HEADGATE_TOKEN_SECRET": SECRET}, "{sub} stands for one word"),
        (
            ("token", "--user", "a", "--subscribe", "a..b"),
            {"HEADGATE_TOKEN_SECRET": SECRET},
            "a granted pattern is not a pattern",
        ),
        (("token", "--user", "a", "--kid", "x"), {"HEADGATE_TOKEN_SECRET": SECRET}, "no key 'x'"),
        (("revoke",), {"HEADGATE_REDIS_URL": "redis://127.0.0.1:1"}, "either a user or a token id"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_told_in_a_clear_line(words: tuple[str, ...], environment: dict[str, str], told: str) -> None:
    """Exit code 1, no trace, no secret."""
    done = headgate(*words, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith("headgate: ")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr


def publisher_url(gateway: GatewayProcess) -> str:
    """The Redis that a gateway was given."""
    return gateway._settings["HEADGATE_REDIS_URL"]
