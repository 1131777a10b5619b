"""A gateway in the test's own process, and browsers by hand: everything after HTTP is real, down to the frames of a WebSocket.

Its sessions begin on socket pairs, as they do after an upgrade. Its buses listen on the Redis of the test run (`gateway_here`),
or on the model of one (`gateway_on_model`). A `ClientHere` lets the loop run while it waits (on the model, its clock).
Revocations are known to be none; the shared table does not run.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from headgate.auth.identity import Authenticator
from headgate.delivery import catch_up
from headgate.delivery.bus import feed, interest, listener
from headgate.node import gateway as gateway_module
from headgate.node import namespace as namespace_module
from headgate.node.gateway import Gateway
from headgate.node.population import joining
from headgate.node.requests import streams as streams_module
from headgate.settings.settings import Settings
from headgate.transport import socketio_face as face_module
from headgate.transport import stream as stream_module
from headgate.transport.session import Session
from tests.support.bus_here import CooperativeLink, join, on_the_model
from tests.support.loop_clock import LoopClock
from tests.support.model_links import ModelServer
from tests.support.model_redis import NAMESPACE
from tests.support.session_clock import native_pair
from tests.support.socketio_client import SocketIOClient
from tests.support.websocket_codec import CLOSE, TEXT, close_told, frame_at, masked

DEADLINE_S = 30.0
POLL_S = 0.001
ENVIRON = {"REMOTE_ADDR": "127.0.0.1", "wsgi.url_scheme": "http", "HTTP_HOST": "127.0.0.1"}


class ClientHere(SocketIOClient):
    """A browser's connection, which has sent its CONNECT.

    Attributes:
        packets: every message as it came.
        closed: close code and reason of the WebSocket, or None while it is open.
    """

    def __init__(
        self,
        gateway: Gateway,
        auth: object = None,
        namespace: str = "notifications",
        *,
        environ: Mapping[str, str] | None = None,
        receive_buffer_bytes: int | None = None,
        wait: Callable[[float], object] = gevent.sleep,
    ) -> None:
        super().__init__(namespace)
        self._wait = wait
        self.packets: list[str] = []
        self.closed: tuple[int, str] | None = None
        self.reading = True
        self._unparsed = b""
        engine = gateway._sockets.engine
        sid = f"session-{len(engine.sessions)}-{time.monotonic_ns()}"
        self.session = engine.sessions[sid] = Session(engine, sid)
        assert gateway._sockets.opening(sid, {**ENVIRON, **(environ or {})}) is None
        ours, self._socket = native_pair()
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.setblocking(False)
        self.session.start_websocket(ours)
        self.join(auth)

    def send_packet(self, packet: str) -> None:
        data = masked(TEXT, packet)
        with suppress(BrokenPipeError, ConnectionResetError):
            while data:
                with suppress(BlockingIOError):
                    data = data[self._socket.send(data) :]
                if data:
                    self._wait(POLL_S)

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        give_up_s = time.monotonic() + DEADLINE_S
        self.read()
        while not (found := condition()):
            if time.monotonic() > give_up_s:
                pytest.fail(f"not within {DEADLINE_S:g} s: {what}; closed: {self.closed}; received: {self.received[-5:]}")
            self._wait(POLL_S)
            self.read()
        return found

    def take(self, packet: str) -> None:
        """Take an Engine.IO packet of the gateway, and keep a message as it came."""
        if packet.startswith("4"):
            self.packets.append(packet)
        super().take(packet)

    def read(self) -> None:
        """Let everything happen that needs no time, and take the messages."""
        gevent.idle(-2)
        while self.reading and self._receive():
            gevent.idle(-2)

    def leave(self) -> None:
        """Close the connection. Idempotent."""
        self._socket.close()
        gevent.idle(-2)

    def _receive(self) -> bool:
        try:
            data = self._socket.recv(1 << 20)
        except (BlockingIOError, OSError):
            return False
        self._unparsed += data
        while (frame := frame_at(self._unparsed)) is not None:
            payload = self._unparsed[frame.start : frame.end]
            self._unparsed = self._unparsed[frame.end :]
            if frame.opcode == CLOSE:
                self.closed = close_told(payload)
            elif frame.opcode == TEXT:
                self.take(payload.decode())
        if not data and self.closed is None:
            self.closed = (1006, "")
        return bool(data)


class GatewayHere:
    """A gateway with its buses up. `join` connects a client, which leaves with the test; `wait` runs the loop for a time."""

    wait: Callable[[float], object] = staticmethod(gevent.sleep)

    def __init__(self, settings: Settings, authenticator: Authenticator | None) -> None:
        self.gateway = Gateway(settings, authenticator)
        self.gateway.access.revocations.known = True
        self._clients: list[ClientHere] = []
        for namespace in self.gateway.namespaces.values():
            namespace.bus.start()

    @property
    def namespace(self) -> Any:
        return next(iter(self.gateway.namespaces.values()))

    def join(self, auth: object = None, namespace: str | None = None, **options: Any) -> ClientHere:
        name = self.namespace.name if namespace is None else namespace
        client = ClientHere(self.gateway, auth, name, wait=self.wait, **options)
        self._clients.append(client)
        return client

    def wait_until(self, condition: Callable[[], Any], what: str) -> None:
        give_up_s = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > give_up_s:
                pytest.fail(f"not within {DEADLINE_S:g} s: {what}")
            self.wait(POLL_S)

    def close(self) -> None:
        for client in self._clients:
            client.leave()
        self.gateway.close()
        gevent.idle(-2)


StartGatewayHere = Callable[..., GatewayHere]


@pytest.fixture
def gateway_here(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[StartGatewayHere]:
    """Start a gateway on the Redis of this test run: `gateway_here(max_subscriptions=4)`, in development by default."""
    monkeypatch.setattr(face_module, "is_patched", lambda: True)
    monkeypatch.setattr(listener, "SubscriberLink", CooperativeLink)
    monkeypatch.setattr(interest, "LINGER_S", 0.0)
    monkeypatch.setattr(feed, "LATE_FENCES", 1_000_000)  # a slow machine is no dead Redis
    started: list[GatewayHere] = []

    def start(authenticator: Authenticator | None = None, **settings: Any) -> GatewayHere:
        options = {"redis_url": redis_url, "dev": authenticator is None, "fence_interval_s": 0.1, **settings}
        gateway = GatewayHere(Settings(**options), authenticator)
        started.append(gateway)
        gateway.wait_until(lambda: all(one.bus.up for one in gateway.gateway.namespaces.values()), "the buses to be up")
        return gateway

    yield start
    for gateway in started:
        gateway.close()
    for gateway in started:
        for namespace in gateway.gateway.namespaces.values():
            join(namespace.bus)


class ModelPublisher:
    """A publisher that appends to the model, and knows nothing twice."""

    def __init__(self, server: ModelServer) -> None:
        self._redis = server.redis

    def publish(self, topic: str, data: Any, *, id: str | None, namespace: str, by: str) -> Any:
        offset = self._redis.publish(topic, json.dumps(data).encode())
        return SimpleNamespace(id=id or f"id{offset}", epoch=self._redis.epoch, offset=offset, duplicate=False)

    def prepare_schemas(self, schemas: str | None, schema_check: str | None) -> Callable[[], None]:
        """It checks nothing."""
        return lambda: None

    def close(self) -> None:
        """There is nothing to close."""


class GatewayOnModel(GatewayHere):
    """A gateway of the namespace `n` on a model of Redis, on the test's own clock."""

    def __init__(
        self, server: ModelServer, clock: LoopClock, settings: Settings, authenticator: Authenticator | None = None
    ) -> None:
        self.server, self.redis, self.clock = server, server.redis, clock
        self.wait = clock.advance
        super().__init__(settings, authenticator)
        gevent.idle(-2)

    def publish(self, count: int = 1, topic: str = "orders.1", data: bytes = b"1") -> list[int]:
        """Publish so many events at once, and let them reach the clients; return their offsets."""
        offsets = [self.redis.publish(topic, data) for _ in range(count)]
        gevent.idle(-2)
        return offsets


StartGatewayOnModel = Callable[..., GatewayOnModel]


@pytest.fixture
def gateway_on_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartGatewayOnModel]:
    """Start a gateway on a model: `gateway_on_model(authenticator, max_subscriptions=4, before=…)`, in development by default."""
    monkeypatch.setattr(face_module, "is_patched", lambda: True)
    started: list[GatewayOnModel] = []
    with on_the_model(monkeypatch) as (server, clock):
        monkeypatch.setattr(gateway_module, "publisher_of", lambda *_: ModelPublisher(server))
        monkeypatch.setattr(catch_up, "sleep", clock.sleep)
        # On a busy machine, the loop would have more turns while a client reads the log, and idle clients would get cursors.
        monkeypatch.setattr(catch_up, "monotonic", clock.time)
        monkeypatch.setattr(namespace_module, "monotonic", lambda: 0.0)
        monkeypatch.setattr(stream_module, "Signal", clock.signal)
        monkeypatch.setattr(joining, "sleep", clock.sleep)
        monkeypatch.setattr(streams_module, "monotonic", clock.time)

        def start(
            authenticator: Authenticator | None = None,
            *,
            before: Callable[[ModelServer], object] = lambda server: None,
            **settings: Any,
        ) -> GatewayOnModel:
            before(server)
            options = {"redis_url": "redis://127.0.0.1:1/0", "namespaces": (NAMESPACE,), "dev": authenticator is None, **settings}
            gateway = GatewayOnModel(server, clock, Settings(**options), authenticator)
            started.append(gateway)
            return gateway

        yield start
        for gateway in started:
            gateway.close()
        clock.advance(60)
