"""Sessions in no namespace, and clients, are counted by user and by address. On a gateway on a model of Redis.

A session is pending until it joins, and again when its client has left or was disconnected.
"""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from headgate.auth.identity import Handshake, Identity
from headgate.errors import Unauthorized, UnauthorizedReason
from headgate.node.population.evictions import Evictions
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import OneTooMany
from tests.support.gateway_here import ENVIRON, ClientHere, GatewayOnModel, StartGatewayOnModel
from tests.support.model_redis import NAMESPACE
from tests.unit.node.connections import RecordedClient, RecordedConnection, RecordedNamespace

HERE = {"HTTP_X_FORWARDED_FOR": "198.51.100.1, 203.0.113.9"}
ELSEWHERE = {"HTTP_X_FORWARDED_FOR": "203.0.113.10"}
DEADLINE_S = 7
Start = Callable[..., GatewayOnModel]


def by_name(handshake: Handshake) -> Identity:
    """The token is the user's name."""
    return Identity(handshake.token or "")


@pytest.fixture
def start(gateway_on_model: StartGatewayOnModel) -> Start:
    """Start a gateway after one proxy."""
    return lambda **settings: gateway_on_model(by_name, proxies=1, handshake_deadline_s=DEADLINE_S, **settings)


def opened(gateway: GatewayOnModel, sid: str, environ: dict[str, str] = HERE) -> OneTooMany | None:
    """Open a session that does not join; return its refusal."""
    return gateway.gateway._sockets.opening(sid, {**ENVIRON, **environ})


def joined(gateway: GatewayOnModel, user: str = "ana") -> ClientHere:
    """Connect a client."""
    client = gateway.join({"token": user}, environ=HERE)
    assert client.welcome
    return client


def leave(client: ClientHere) -> None:
    """Leave the namespace, and keep the connection."""
    client.send_packet(f"41/{NAMESPACE},")
    client.read()


def expire(client: ClientHere, gateway: GatewayOnModel) -> None:
    """Be disconnected from the namespace, as a client with an expired identity is."""
    clients = list(gateway.namespace.clients.values())
    gateway.gateway.population.evictions.refused(clients, Unauthorized(UnauthorizedReason.EXPIRED))
    client.read()


def refused(gateway: GatewayOnModel, user: str, environ: dict[str, str] = HERE) -> dict[str, Any]:
    """Return the error with which a client is refused, whose connection ends then."""
    client = gateway.join({"token": user}, environ=environ)
    error: dict[str, Any] = client.wait_for(lambda: client.refusal, "the refusal")["data"]
    client.leave()
    return error


def test_an_address_has_so_many_sessions_that_have_not_joined_and_no_more(start: Start) -> None:
    """A client is not counted after its join, nor is another address; the refusal names the time to come back."""
    gateway = start(max_clients_per_address=2)
    for _ in range(2):
        joined(gateway)
    assert [opened(gateway, "a"), opened(gateway, "b")] == [None, None]
    one_too_many = opened(gateway, "c")
    assert one_too_many is not None
    assert "unjoined_per_address (at most 2)" in one_too_many.error.message
    assert one_too_many.error.retry_after_s == 1
    assert opened(gateway, "d", ELSEWHERE) is None
    gateway.gateway._sockets.hooks.over("a")  # by its deadline, or by the browser
    assert opened(gateway, "e") is None


@pytest.mark.parametrize("how", ["it leaves", "it is disconnected"])
def test_a_connection_that_is_in_no_namespace_again_counts_as_pending_and_ends_at_the_deadline(
    start: Start, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To join and leave is no way around the limits, which count clients. A client that comes back in time stays."""
    gateway = start(max_clients_per_address=1)
    later: list[tuple[float, Any, tuple[Any, ...]]] = []
    monkeypatch.setattr(
        gateway.gateway._sockets.engine.deadlines, "after", lambda delay_s, act, *rest: later.append((delay_s, act, rest))
    )
    client = joined(gateway)
    later.clear()
    for comes_back in (True, False):
        if how == "it leaves":
            leave(client)
        else:
            expire(client, gateway)
        assert opened(gateway, "another") is not None
        [(delay_s, end, rest)] = later
        later.clear()
        assert delay_s == DEADLINE_S
        if comes_back:
            client.join({"token": "ben"})
            client.wait_for(lambda: len(client.named("welcome")) == 2, "another welcome")
            assert opened(gateway, "another") is None
            gateway.gateway._sockets.hooks.over("another")
        end(*rest)
        client.read()
        assert (client.closed is None) is comes_back
    assert client.session.reason == "outside every namespace"


def test_a_client_is_told_before_it_is_disconnected(start: Start) -> None:
    """It knows why, and asks for another token instead of coming back with the same."""
    gateway = start()
    client = joined(gateway)
    expire(client, gateway)
    notice, end = client.packets[-2:]
    assert json.loads(notice.partition(",")[2])[1]["unauthorized"]["reason"] == "expired"
    assert end == f"41/{NAMESPACE},"


def test_a_client_that_has_left_meanwhile_is_passed_over(start: Start) -> None:
    """Its connection may be in another namespace."""
    gateway = start()
    client, gone = joined(gateway), joined(gateway, "ben")
    clients = list(gateway.namespace.clients.values())
    leave(gone)
    assert gateway.gateway.population.evictions.disconnected(clients, "stuck") == 1
    for each in (client, gone):
        each.read()
    assert [each.closed is None for each in (client, gone)] == [False, True]


def test_a_connection_that_is_ended_has_a_notice_for_each_of_its_namespaces() -> None:
    """Each page is asked to come back at once, and gets the reason."""
    done: list[tuple[Any, ...]] = []
    connection = RecordedConnection("c", done)
    here, there = (RecordedClient("s", connection, Identity("ana"), name).real() for name in ("here", "there"))
    connection.owners = (here, there)
    namespaces = {name: RecordedNamespace({"s": client}, name=name) for name, client in (("here", here), ("there", there))}
    evictions = Evictions(cast(Any, None), cast(Any, namespaces), Settings())
    assert evictions.disconnected([here], "stuck") == 1
    assert done == [("notice", "c"), ("notice", "c"), ("end", "c", "disconnected")]


def test_one_client_more_than_a_user_or_an_address_may_have_is_refused_by_name(start: Start) -> None:
    """The refusal says when to ask again; a client that leaves makes room."""
    gateway = start(max_clients_per_user=2, max_clients_per_address=3)
    first, *_ = [joined(gateway, user) for user in ("ana", "ana", "ben")]
    error = refused(gateway, "ana", ELSEWHERE)
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "clients_per_user", 2)
    assert (error["retry"], error["retry_after_s"]) == (True, 10)
    error = refused(gateway, "cleo")
    assert (error["name"], error["limit"]) == ("clients_per_address", 3)
    first.leave()
    joined(gateway, "cleo")


def test_of_the_environment_a_joined_session_keeps_the_headers_that_an_authenticator_may_ask_for(start: Start) -> None:
    """The rest is 3 KB for each client."""
    gateway = start()
    client = gateway.join({"token": "ana"}, environ={**HERE, "HTTP_ACCEPT_LANGUAGE": "en"})
    assert client.welcome
    kept = gateway.gateway._sockets.environ_of(client.session.sid)
    assert set(kept) == {"REMOTE_ADDR", "HTTP_HOST", "HTTP_X_FORWARDED_FOR", "wsgi.url_scheme"}
