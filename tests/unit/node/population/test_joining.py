"""Joining: a CONNECT is answered with a welcome, or refused in words; a client that leaves gives its places back.

On a gateway in the test's own process, on a model of Redis (tests/support/gateway_here.py).
"""

import json
from typing import Any

import gevent
import gevent.local
import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Handshake, Identity
from headgate.errors import BusUnavailable, Unauthorized
from headgate.events.wire.requests import Position
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import OneTooMany
from tests.support.gateway_here import ENVIRON, ClientHere, GatewayOnModel, StartGatewayOnModel
from tests.support.model_links import ModelServer
from tests.support.model_redis import NAMESPACE

# Half a surrogate pair, as a browser's JSON spells it.
LONE = "\ud800"
DEEP: Any = "bottom"
for _ in range(400):
    DEEP = [DEEP]


def authenticator(handshake: Handshake) -> Identity | None:
    """The token is the user's name; two words provoke the two ways to fail."""
    if handshake.token == "expired":
        raise Unauthorized("the token has expired")
    if handshake.token == "broken":
        raise RuntimeError("password=hunter2")
    return Identity(handshake.token, subscribe=("#",)) if handshake.token == "clerk" else None


def refusal(client: ClientHere) -> Any:
    """Return the error with which a CONNECT was refused."""
    data = client.wait_for(lambda: client.refusal, "the refusal")["data"]
    assert not client.connected
    assert client.received == []
    return data


def away(server: ModelServer) -> None:
    """Nothing listens at the address of Redis."""
    server.away = True


# Let in ------------------------------------------------------------------------------------------------------------------


def test_welcome_says_for_how_long_the_log_keeps_an_event_where_that_is_too_short(gateway: GatewayOnModel) -> None:
    """A client that takes up to 5 s to come back may have missed some by then; usually there is nothing to say."""
    for retention_s, said in ((600.0, None), (5.0, None), (2.34, 2.3)):
        gateway.namespace.retention_s = retention_s
        assert gateway.join().welcome["limits"].get("log_retention_s") == said


def test_welcome_names_the_user_the_place_in_the_log_and_every_limit(gateway_on_model: StartGatewayOnModel) -> None:
    """Sent once, when the handshake's subscriptions are active; a refused one is reported, and does not affect the others."""
    gateway = gateway_on_model(inbound_per_s=1000.0)
    (offset,) = gateway.publish()
    client = gateway.join({"subscriptions": [{"pattern": "orders.*"}, {"pattern": "a..b"}]})

    welcome = client.welcome
    assert client.received == [["welcome", welcome]]
    assert welcome["user"] == "anonymous"
    assert welcome["session"] in gateway.namespace.clients
    assert (welcome["epoch"], welcome["offset"]) == (gateway.redis.epoch, offset)
    assert welcome["limits"] == {**Settings().limits(), "inbound_per_s": 1000.0, "inbound_burst": 2000}
    assert welcome["resumed"] is None
    assert welcome["heartbeat_s"] > 0
    good, bad = welcome["subscriptions"]
    assert good == {"pattern": "orders.*", "ok": True}
    assert (bad["pattern"], bad["ok"], bad["error"]["code"]) == ("a..b", False, "invalid_pattern")


def test_a_subscription_of_the_handshake_is_active_at_the_welcome(gateway: GatewayOnModel) -> None:
    """Every later matching event comes, with its id, its time and its offset."""
    client = gateway.join({"subscriptions": [{"pattern": "handshake.*"}]})
    assert client.welcome
    (offset,) = gateway.publish(1, "handshake.7", '{"carrier":"UPS","ß":"\u2028"}'.encode())

    ((topic, data, meta),) = client.wait_for_events(1)

    assert (topic, data) == ("handshake.7", {"carrier": "UPS", "ß": "\u2028"})
    assert (meta["id"], meta["offset"]) == (f"id{offset}", offset)
    assert isinstance(meta["time"], int)


def test_the_subscriptions_of_a_handshake_are_one_command(gateway_on_model: StartGatewayOnModel) -> None:
    """And not a wait for each."""
    gateway = gateway_on_model(fence_interval_s=60)
    gateway.server.ran.clear()
    client = gateway.join({"subscriptions": [{"pattern": f"handshake.{number}"} for number in range(30)]})
    assert client.welcome
    assert [(command[0], len(command) - 1) for command in gateway.server.ran if command[0] != b"PING"] == [(b"SUBSCRIBE", 30)]


@pytest.mark.parametrize("wanted", [None, [], {"pattern": "orders.*"}, "orders.*", [7], [None], {"a": 1}, [[]], 3, True])
def test_every_value_of_subscriptions_is_answered_with_a_welcome(gateway_on_model: StartGatewayOnModel, wanted: object) -> None:
    """A client with a fault is notified, not cut off."""
    welcome = gateway_on_model().join({"subscriptions": wanted}).welcome

    assert all(result["ok"] or result["error"]["code"] for result in welcome["subscriptions"])


@pytest.mark.parametrize(
    ("auth", "code"),
    [
        ({"subscriptions": [{"pattern": DEEP}]}, "invalid_pattern"),
        ({"subscriptions": DEEP}, "invalid_request"),
        ({"subscriptions": [{"pattern": "x" * 10_000}]}, "invalid_pattern"),
        ({"subscriptions": [{"pattern": "a", "since": {"last": 10**400}}]}, "invalid_request"),
    ],
    ids=["pattern", "subscriptions", "long", "number"],
)
def test_an_odd_subscription_is_refused_in_the_welcome(gateway_on_model: StartGatewayOnModel, auth: Any, code: str) -> None:
    """However deep, long or large it is."""
    (result,) = gateway_on_model().join(auth).welcome["subscriptions"]
    assert result["error"]["code"] == code


def test_a_client_that_comes_while_the_bus_is_down_is_told_so_behind_its_welcome(gateway: GatewayOnModel) -> None:
    """All other clients were notified when it went down."""
    gateway.server.leave()
    gevent.idle(-2)
    client = gateway.join()
    assert client.welcome
    assert [name for name, *_ in client.received] == ["welcome", "status"]
    assert client.named("status") == [[{"bus": "down"}]]


def test_a_second_connect_is_refused_and_the_first_stands(gateway: GatewayOnModel) -> None:
    """Anyone may send one."""
    client = gateway.join()
    assert client.welcome
    client.send_packet(f"40/{NAMESPACE},")
    client.wait_for(lambda: client.refusal, "the refusal")
    client.subscribe("orders.*")
    assert len(client.named("welcome")) == 1


# Refused -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["token", ["a"], True], ids=repr)
def test_auth_that_is_no_object_is_refused_by_its_name(gateway_on_model: StartGatewayOnModel, auth: object) -> None:
    """The connection lives, and may join with another one."""
    client = gateway_on_model().join(auth)
    client.wait_for(lambda: client.refusal, "the refusal")
    assert client.refusal["message"] == "invalid request: auth: expected an object"

    client.join(None)

    assert client.welcome


def test_a_namespace_that_is_not_served_is_refused_and_another_may_be_joined(gateway_on_model: StartGatewayOnModel) -> None:
    """In the words of the protocol, and in development with the served names; the connection lives."""
    client = gateway_on_model().join(None, "nobody")
    client.wait_for(lambda: client.refusal, "the refusal")
    assert client.refusal["message"] == "Invalid namespace"
    assert client.refusal["data"]["known"] == [NAMESPACE]

    client.namespace = NAMESPACE
    client.join(None)

    assert client.welcome


def test_a_gateway_that_nobody_configured_lets_nobody_in(gateway_on_model: StartGatewayOnModel) -> None:
    """Deny by default, with neither development nor an authenticator. The refusal names the remedy."""
    client = gateway_on_model(dev=False).join({"token": "anything"})
    error = refusal(client)

    assert (error["code"], error["retry"]) == ("unauthorized", False)
    assert "--dev" in error["message"]
    assert client.refusal["message"] == error["message"]


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        (None, "missing or not accepted"),
        ({"token": "nobody"}, "missing or not accepted"),
        ({"token": 7}, "missing or not accepted"),
        ({"token": "expired"}, "the token has expired"),
        ({"token": "broken"}, "the authenticator failed"),
    ],
    ids=str,
)
def test_a_client_not_accepted_is_told_so_alone(gateway_on_model: StartGatewayOnModel, auth: object, says: str) -> None:
    """The text of an authenticator's own fault stays on the server."""
    error = refusal(gateway_on_model(authenticator).join(auth))

    assert error["code"] == "unauthorized"
    assert says in error["message"]
    assert "hunter2" not in json.dumps(error)


@pytest.mark.parametrize(
    "auth",
    [
        {"token": LONE},
        {LONE: 1},
        {"subscriptions": [{"pattern": LONE}]},
        {"subscriptions": [{"pattern": "a.b", "overflow": LONE}]},
        {"subscriptions": [{"pattern": "a.b"}, {"pattern": "a." + LONE}]},
        {"subscriptions": LONE},
        {"resume": {"epoch": LONE, "offset": 1}},
        {"anything": [{"deep": {"down": LONE}}], "huge": 10**30},
        {"resume": {"epoch": "x", "offset": 1}},
        {"resume": DEEP},
    ],
    ids=["token", "name", "pattern", "overflow", "second pattern", "subscriptions", "epoch", "deep down", "no epoch", "deep"],
)
def test_a_connect_that_cannot_be_read_is_refused(gateway: GatewayOnModel, auth: Any) -> None:
    """Invalid Unicode, or an invalid point of resume; not taken for "nothing to resume", which would hide a loss.

    However often it comes, the log has no line of it.
    """
    with capture_logs() as lines:
        for _ in range(40):
            client = gateway.join(auth)
            assert refusal(client)["code"] == "invalid_request"
            client.leave()
    assert lines == []


def test_a_connect_with_too_many_patterns_is_refused_before_anybody_is_asked(gateway_on_model: StartGatewayOnModel) -> None:
    """The authenticator costs more than to count, and each pattern has a separate answer, which costs memory."""
    asked: list[Handshake] = []
    gateway = gateway_on_model(asked.append, max_subscriptions=2)
    error = refusal(gateway.join({"subscriptions": [{"pattern": f"a.{number}"} for number in range(1025)]}))
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "connect_subscriptions", 1024)
    assert asked == []


def test_a_connect_over_its_limits_gets_what_they_allow(gateway_on_model: StartGatewayOnModel) -> None:
    """Each pattern is decided by itself, in order of the request, up to each limit, and the surplus is named with that limit."""
    gateway = gateway_on_model(max_subscriptions=4)
    patterns = ["a.*", "b.*", "a.1", "a.2", "a.3", "a.4"]
    results = gateway.join({"subscriptions": [{"pattern": each} for each in patterns]}).welcome["subscriptions"]
    assert [each["ok"] for each in results] == [True, False, True, True, True, False]
    assert [each["error"]["name"] for each in results if not each["ok"]] == ["wildcards", "subscriptions"]


def test_a_surplus_of_patterns_does_not_end_the_connection(gateway_on_model: StartGatewayOnModel) -> None:
    """All patterns over the limits count as one refusal, since a client learns of its limits by the answer."""
    gateway = gateway_on_model(max_subscriptions=2)
    client = gateway.join({"subscriptions": [{"pattern": f"a.{number}"} for number in range(1000)]})
    assert [each["ok"] for each in client.welcome["subscriptions"]].count(True) == 2
    assert client.request("subscribe", {"pattern": "a.1000"})["error"]["code"] == "limit_reached"
    assert not client.closed


def test_a_gateway_that_has_not_reached_redis_yet_lets_nobody_in(gateway_on_model: StartGatewayOnModel) -> None:
    """It could not say where the log stands. A client tries again."""
    gateway = gateway_on_model(before=away)
    error = refusal(gateway.join())
    assert (error["code"], error["retry"]) == ("bus_unavailable", True)
    gateway.namespace.bus.last_error = None
    assert "has not reached Redis yet" in refusal(gateway.join())["message"]


@pytest.mark.parametrize("when", ["before it connects", "while it is looked at"])
def test_a_newcomer_is_refused_once_the_drain_has_begun(gateway_on_model: StartGatewayOnModel, when: str) -> None:
    """An authenticator may take its time, and a client let in after the others were notified would not be."""

    def accept(handshake: Handshake) -> Identity:
        gateway.gateway.population.drain.begun = True
        return Identity("clerk")

    gateway = gateway_on_model(accept)
    if when == "before it connects":
        gateway.gateway.population.drain.begun = True
    error = refusal(gateway.join({"token": "clerk"}))
    assert (error["code"], error["retry"]) == ("bus_unavailable", True)
    assert not gateway.namespace.clients


@pytest.mark.parametrize("what", ["connects", f"namespace:{NAMESPACE}"])
def test_a_newcomer_that_is_looked_at_as_an_operator_pauses_is_refused(gateway_on_model: StartGatewayOnModel, what: str) -> None:
    """Every gateway obeys within two seconds, and an authenticator may take ten."""

    def accept(handshake: Handshake) -> Identity:
        gateway.gateway.cluster.pauses.replace({what: 60.0})
        return Identity("clerk")

    gateway = gateway_on_model(accept)
    error = refusal(gateway.join({"token": "clerk"}))
    assert (error["code"], error["retry"]) == ("paused", True)
    assert not gateway.namespace.clients


@pytest.mark.parametrize(
    ("fault", "reason"), [(BusUnavailable("Redis does not say"), "bus unavailable"), (ZeroDivisionError(), "not welcomed")]
)
def test_a_client_whose_place_cannot_be_looked_up_loses_its_connection_and_comes_back(
    gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch, fault: Exception, reason: str
) -> None:
    """With the same point of resume, because a welcome would lose that; without one it would wait for a welcome for ever."""

    def fail(client: Any, point: Position) -> None:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(gateway.namespace, "resume", fail)
        client = gateway.join({"resume": {"epoch": gateway.redis.epoch, "offset": 10**6}})
        client.wait_for(lambda: client.closed, "the end of the connection")
    assert client.session.reason == reason
    assert client.named("welcome") == []
    assert not gateway.namespace.clients
    assert gateway.join().welcome


def test_a_client_without_welcome_gets_no_event(gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event during the look-up of its place would move its position, past all missed events."""
    other = gateway.join({"subscriptions": [{"pattern": "#"}]})
    assert other.welcome

    def fail(client: Any, point: Position) -> None:
        gateway.publish(3)
        other.wait_for_events(3)
        raise BusUnavailable("Redis does not say")

    monkeypatch.setattr(gateway.namespace, "resume", fail)
    resume = {"epoch": gateway.redis.epoch, "offset": 0}
    client = gateway.join({"subscriptions": [{"pattern": "#"}], "resume": resume})
    client.wait_for(lambda: client.closed, "the end of the connection")
    assert client.received == []


def test_a_client_that_leaves_while_redis_is_asked_is_not_welcomed(
    gateway: GatewayOnModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection may be in another namespace, and stays."""

    def leave(client: Any, requests: Any) -> None:
        gateway.gateway._sockets.disconnect(NAMESPACE, client.session)
        raise Unauthorized("left", "this session has left")

    monkeypatch.setattr(gateway.namespace.subscriptions, "add_all", leave)
    client = gateway.join({"subscriptions": [{"pattern": "a"}]})
    client.wait_for(lambda: client.disconnected, "its end")
    assert (client.named("welcome"), client.closed) == ([], None)


# Sessions and places -----------------------------------------------------------------------------------------------------


def test_a_gateway_takes_so_many_clients_and_prefers_those_that_come_back(gateway_on_model: StartGatewayOnModel) -> None:
    """With one place in twenty for clients that have been here; the others learn when to come back, and health says so."""
    gateway = gateway_on_model(max_clients=20)
    for _ in range(19):
        assert gateway.join().welcome
    newcomer = gateway.join()
    error = refusal(newcomer)
    newcomer.leave()
    assert (error["code"], error["name"], error["limit"], error["retry"]) == ("limit_reached", "clients", 20, True)
    assert 5 <= error["retry_after_s"] <= 20
    last = gateway.join({"resume": {"epoch": gateway.redis.epoch, "offset": 0}})
    assert last.welcome
    refused = gateway.gateway._sockets.hooks.opening("one more", ENVIRON)
    assert isinstance(refused, OneTooMany)
    assert (refused.status, "clients (at most 20)" in refused.error.message) == ("503 Service Unavailable", True)
    told = gateway.gateway.ready()
    assert (told["ready"], told["admission"]) == (True, "full")
    last.leave()
    gevent.idle(-2)
    assert gateway.gateway.ready()["admission"] == "admitting"


def test_a_client_that_leaves_the_namespace_gets_nothing_more_and_may_come_back(gateway: GatewayOnModel) -> None:
    """Over the same connection, with other subscriptions."""
    client = gateway.join({"subscriptions": [{"pattern": "left.*"}]})
    assert client.welcome
    client.send_packet(f"41/{NAMESPACE},")
    client.wait_for(lambda: not gateway.namespace.clients, "the client to be forgotten")
    gateway.publish(1, "left.1")
    client.send_packet(f"40/{NAMESPACE}," + json.dumps({"subscriptions": [{"pattern": "back.*"}]}))
    client.wait_for(lambda: len(client.named("welcome")) == 2, "another welcome")
    gateway.publish(1, "back.1")

    assert [topic for topic, _, _ in client.wait_for_events(1)] == ["back.1"]


# Resuming ----------------------------------------------------------------------------------------------------------------


def test_a_client_resumes_at_a_gateway_that_listened_to_nothing_of_it(gateway_on_model: StartGatewayOnModel) -> None:
    """Its position is below the log, and ahead of this gateway's feed, which has seen none of its events."""
    gateway = gateway_on_model(before=lambda server: server.redis.publish("bills.1"))
    epoch, _ = gateway.redis.epoch, gateway.publish(10, "crates.1")
    assert gateway.namespace.bus.reached == 1
    client = gateway.join({"subscriptions": [{"pattern": "crates.*"}], "resume": {"epoch": epoch, "offset": 6}})
    assert client.welcome["resumed"] is True
    gateway.publish(5, "crates.1")
    client.wait_for_events(10)
    assert client.offsets == list(range(7, 17))
    assert client.named("gap") == []


@pytest.mark.parametrize("later", [False, True])
def test_an_authenticator_meets_no_locals_of_another_login(gateway_on_model: StartGatewayOnModel, later: bool) -> None:
    """Each is called in a separate greenlet, also when the application brings it after the gateway was made."""
    kept = gevent.local.local()
    met: list[bool] = []

    def keeping(handshake: Handshake) -> Identity:
        met.append(hasattr(kept, "session"))
        kept.session = handshake.token
        return Identity("clerk", subscribe=("#",))

    gateway = gateway_on_model(None if later else keeping)
    gateway.gateway.set_authenticator(keeping)
    for _ in range(3):
        gateway.join({"token": "clerk"}).wait_for(lambda: met, "the login")
    assert met == [False] * 3
