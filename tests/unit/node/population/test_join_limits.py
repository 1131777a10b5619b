"""Joining: a session is counted until it joins, and again when its client has left. Recorded sockets, real counters, no Redis."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.auth.identity import Handshake, Identity
from headgate.delivery.client import Client
from headgate.errors import LimitReached
from headgate.node.access.access import Access
from headgate.node.cluster.cluster import Cluster
from headgate.node.health import State
from headgate.node.population.drain import Drain
from headgate.node.population.evictions import Evictions
from headgate.node.population.joining import Joining
from headgate.node.population.shedding import Shedding
from headgate.settings.settings import Settings
from headgate.transport.session import Session
from headgate.transport.session_state import CLIENT_DISCONNECT
from headgate.transport.socketio_face import ConnectRefused, OneTooMany, SocketIOFace
from tests.unit.node.connections import RecordedClient, RecordedConnection, RecordedNamespace, RecordedSockets

HERE = {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "198.51.100.1, 203.0.113.9", "wsgi.input": object()}
ELSEWHERE = {**HERE, "HTTP_X_FORWARDED_FOR": "203.0.113.10"}


class Sockets(RecordedSockets):
    """A face that gives each session a recorded connection."""

    def __init__(self, done: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self.done = done
        self.connections: dict[str, Any] = {}

    def session_of(self, namespace: str, client_id: str) -> Any:
        sid = client_id.partition("/")[0]
        connection = self.connections.get(sid)
        if connection is None:
            connection = self.connections[sid] = RecordedConnection(sid, self.done)
            connection.cork = connection.uncork = lambda: None  # type: ignore[attr-defined]
        return connection

    @property
    def count(self) -> int:
        return len(self.connections) + 1

    def trim_environ(self, session_id: str, names: tuple[str, ...]) -> None:
        kept = self.environ.get(session_id, {})
        self.environ[session_id] = {name: kept[name] for name in names if name in kept}


class Joined(RecordedNamespace):
    """A namespace that takes every client and every subscription."""

    def join(self, session: str, identity: Identity, connection: Any, address: str | None = None) -> Client:
        client = RecordedClient(session, connection, identity).real()
        self.clients[session] = client
        return client

    def add_all(self, client: Client, wanted: list[Any]) -> list[str]:
        return [request["pattern"] for request in wanted]

    def resume(self, client: Client, point: Any) -> tuple[None, None]:
        return None, None

    def position(self, client: Client, start: None) -> int:
        return 5


class Door:
    """Joining among real counters. A token is the name of its user."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(proxies=1, handshake_deadline_s=7, **settings)
        self.done: list[tuple[Any, ...]] = []
        self.sockets = Sockets(self.done)
        self.namespace = Joined(bus=SimpleNamespace(epoch="e", reached=5, up=True, last_error=None))
        face = cast(SocketIOFace, self.sockets)
        namespaces = {"notifications": self.namespace.real()}
        evictions = Evictions(face, namespaces, self.settings)
        self.settings = replace(self.settings, redis_url="redis://127.0.0.1:1/0")
        cluster = Cluster(self.settings, {}, State)
        access = Access(self.settings, identify, face, namespaces, evictions, cluster)
        access.revocations.known = True
        self.admission, self.pending = access.admission, evictions.pending
        drain, shedding = Drain(namespaces), Shedding(0, lambda: 0)
        self.joining = Joining(self.settings, face, access, evictions, drain, shedding, cluster.pauses)

    def open(self, sid: str, environ: dict[str, Any] = HERE) -> OneTooMany | None:
        refused = self.joining.opening(sid, environ)
        if refused is None:
            self.sockets.environ[sid] = dict(environ)
        return refused

    def connect(self, sid: str, user: str = "ana") -> dict[str, Any] | None:
        """Send a CONNECT; return the error, or None when the client has joined."""
        try:
            environ, connection = self.sockets.environ[sid], cast(Session, self.sockets.session_of("notifications", f"{sid}/c"))
            joined = self.joining.connect(self.namespace.real(), connection, f"{sid}/c", environ, {"token": user})
        except ConnectRefused as refused:
            return dict(refused.data)
        joined()
        return None

    def leave(self, sid: str, reason: str = CLIENT_DISCONNECT) -> None:
        self.joining.leave(self.namespace.real(), f"{sid}/c", reason)


def identify(handshake: Handshake) -> Identity | None:
    return Identity(handshake.token) if handshake.token else None


def test_an_address_has_so_many_sessions_that_have_not_joined_and_no_more() -> None:
    """A client is not counted after its join, nor is another address; the refusal names the time to come back."""
    door = Door(max_clients_per_address=2)
    for number in range(2):
        assert door.open(f"joined-{number}") is None
        assert door.connect(f"joined-{number}") is None
    assert [door.open("a"), door.open("b")] == [None, None]
    refused = door.open("c")
    assert refused is not None
    assert "unjoined_per_address (at most 2)" in refused.error.message
    assert refused.error.retry_after_s == 1
    assert door.open("d", ELSEWHERE) is None


def test_a_session_that_ends_before_it_has_joined_makes_room() -> None:
    """The handshake deadline ends it, or the browser does."""
    door = Door(max_clients_per_address=1)
    door.open("a")
    assert door.open("b") is not None
    door.joining.over("a")
    assert door.open("b") is None


def test_a_client_that_leaves_counts_as_pending_and_its_connection_ends_at_the_deadline() -> None:
    """To join and leave is no way around the limits, which count clients."""
    door = Door(max_clients_per_address=1)
    door.open("a")
    door.connect("a")
    door.leave("a")
    with pytest.raises(LimitReached):
        door.pending.open("b", "203.0.113.9")
    assert [delay_s for delay_s, *_ in door.sockets.later] == [7]
    door.sockets.pass_deadline()
    assert door.done[-1] == ("end", "a", "outside every namespace")
    assert door.sockets.connections["a"].closed


def test_a_client_that_comes_back_on_its_connection_stays() -> None:
    """In time; it is counted as a client again, and as nothing else."""
    door = Door(max_clients_per_address=1)
    door.open("a")
    door.connect("a")
    door.leave("a")
    assert door.connect("a", "ben") is None
    door.sockets.pass_deadline()
    assert not door.sockets.connections["a"].closed
    assert door.open("b") is None


def test_one_client_more_than_a_user_or_an_address_may_have_is_refused_by_name() -> None:
    """The refusal says when to ask again; a client that leaves makes room."""
    door = Door(max_clients_per_user=2, max_clients_per_address=3)
    for number, user in enumerate(["ana", "ana", "ben"]):
        door.open(f"s{number}")
        assert door.connect(f"s{number}", user) is None
    door.open("s3", ELSEWHERE)
    error = door.connect("s3", "ana")
    assert error is not None
    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "clients_per_user", 2)
    assert (error["retry"], error["retry_after_s"]) == (True, 10)
    door.open("s4")
    error = door.connect("s4", "cleo")
    assert error is not None
    assert (error["name"], error["limit"]) == ("clients_per_address", 3)
    door.leave("s0", "transport close")
    assert door.connect("s4", "cleo") is None


def test_of_the_environment_a_joined_session_keeps_the_headers_that_an_authenticator_may_ask_for() -> None:
    """The rest is 3 KB for each client."""
    door = Door()
    door.open("a")
    door.connect("a")
    assert set(door.sockets.environ["a"]) == {"REMOTE_ADDR", "HTTP_X_FORWARDED_FOR"}
