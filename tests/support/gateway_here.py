"""A gateway in the test's own process, and browsers by hand: everything behind HTTP is real, down to the frames of a WebSocket.

Its sessions begin on socket pairs, as they do behind an upgrade. Its buses listen on the Redis of the test run (`gateway_here`),
or on the model of one (`gateway_on_model`). `ClientHere` has the methods of tests/support/raw_client.py, and lets the loop run
while it waits (on the model, its clock). Revocations are known to be none; nothing renews the registration.
"""

from __future__ import annotations

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
from headgate.bus import feed, interest, listener
from headgate.node import gateway as gateway_module
from headgate.node.gateway import Gateway
from headgate.settings import Settings
from headgate.transport import server as server_module
from headgate.transport.session import Session
from tests.support.bus_here import CooperativeLink, join, on_the_model
from tests.support.loop_clock import LoopClock
from tests.support.model_links import ModelServer
from tests.support.model_redis import NAMESPACE
from tests.support.websocket_codec import CLOSE, TEXT, close_told, frame_at, masked

DEADLINE_S = 30.0
POLL_S = 0.001
ENVIRON = {"REMOTE_ADDR": "127.0.0.1", "wsgi.url_scheme": "http", "HTTP_HOST": "127.0.0.1"}


class ClientHere:
    """A browser's connection, which has sent its CONNECT.

    Attributes:
        received: every event packet's array, in order: `["welcome", {…}]`, `["event", topic, data, meta]`, …
        packets: every packet as it came.
        refusal: the data of a CONNECT_ERROR, or None.
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
        self.namespace = namespace
        self._wait = wait
        self.received: list[list[Any]] = []
        self.packets: list[str] = []
        self.refusal: Any = None
        self.connected = self.disconnected = False
        self.closed: tuple[int, str] | None = None
        self.reading = True
        self.acknowledged: dict[int, list[Any]] = {}
        self._last_id = 0
        self._unparsed = b""
        engine = gateway._sockets._engine
        sid = f"session-{len(engine.sockets)}-{time.monotonic_ns()}"
        self.session = engine.sockets[sid] = Session(engine, sid)
        assert engine._trigger_event("connect", sid, {**ENVIRON, **(environ or {})}, run_async=False) is None
        ours, self._socket = socket.socketpair()
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.setblocking(False)
        self.session.start_websocket(ours.detach())
        self.send_packet(f"40/{namespace}," + ("" if auth is None else json.dumps(auth)))

    @property
    def welcome(self) -> Any:
        """The body of the welcome, waited for."""
        return self.wait_for(lambda: self.named("welcome"), "the welcome")[0][0]

    @property
    def events(self) -> list[list[Any]]:
        """Every event: [topic, data, meta]."""
        return self.named("event")

    @property
    def offsets(self) -> list[int]:
        """The offset of each event."""
        return [meta["offset"] for _, _, meta in self.events]

    def named(self, name: str) -> list[list[Any]]:
        """Return the arguments of every message of this name."""
        return [rest for kind, *rest in self.received if kind == name]

    def request(self, name: str, *arguments: Any) -> Any:
        """Send a request and return the one argument of its acknowledgement."""
        return self.request_text(json.dumps([name, *arguments]))

    def request_text(self, text: str) -> Any:
        """Send a request whose JSON the test has written itself; return the acknowledgement."""
        number = self.send_request(text)
        (answer,) = self.wait_for(lambda: self.acknowledged.get(number), f"the acknowledgement of {text[:80]}")
        return answer

    def send_request(self, text: str) -> int:
        """Send a request, and wait for nothing; return its number."""
        self._last_id += 1
        self.send_packet(f"42/{self.namespace},{self._last_id}{text}")
        return self._last_id

    def subscribe(self, pattern: str, **options: Any) -> Any:
        """Subscribe, and return the acknowledgement, which must be positive."""
        answer = self.request("subscribe", {"pattern": pattern, **options})
        assert answer["ok"] is True, answer
        return answer

    def send_packet(self, packet: str) -> None:
        """Send an Engine.IO packet as it is, however long it takes."""
        data = masked(TEXT, packet)
        with suppress(BrokenPipeError, ConnectionResetError):
            while data:
                with suppress(BlockingIOError):
                    data = data[self._socket.send(data) :]
                if data:
                    self._wait(POLL_S)

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Let the loop run until `condition()` is true; return what it returned."""
        give_up_s = time.monotonic() + DEADLINE_S
        self.read()
        while not (found := condition()):
            if time.monotonic() > give_up_s:
                pytest.fail(f"not within {DEADLINE_S:g} s: {what}; closed: {self.closed}; received: {self.received[-5:]}")
            self._wait(POLL_S)
            self.read()
        return found

    def wait_for_events(self, count: int) -> list[list[Any]]:
        """Wait until so many events came, and return all."""
        self.wait_for(lambda: len(self.events) >= count, f"{count} events")
        return self.events

    def read(self) -> None:
        """Let everything happen that needs no time, and take what has come."""
        gevent.idle()
        while self.reading and self._receive():
            gevent.idle()

    def leave(self) -> None:
        """Close the connection. Idempotent."""
        self._socket.close()
        gevent.idle()

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
                self._take(payload.decode())
        if not data and self.closed is None:
            self.closed = (1006, "")
        return bool(data)

    def _take(self, packet: str) -> None:
        if packet == "2":
            self.send_packet("3")
            return
        if not packet.startswith("4"):
            return
        self.packets.append(packet)
        kind, rest = packet[1], packet[2:]
        _, _, body = rest.partition(",")
        if kind == "0":
            self.connected = True
        elif kind == "1":
            self.disconnected = True
        elif kind == "2":
            self.received.append(json.loads(body))
        elif kind == "3":
            at = body.index("[")
            self.acknowledged[int(body[:at])] = json.loads(body[at:])
        elif kind == "4":
            self.refusal = json.loads(body)


class GatewayHere:
    """A gateway whose buses are up. `join` connects a client, which leaves with the test; `wait` lets the loop run for a time."""

    wait: Callable[[float], object] = staticmethod(gevent.sleep)

    def __init__(self, settings: Settings, authenticator: Authenticator | None) -> None:
        self.gateway = Gateway(settings, authenticator)
        self.gateway._revocation_watch.known = True
        self._clients: list[ClientHere] = []
        for namespace in self.gateway.namespaces.values():
            namespace.bus.start()

    @property
    def namespace(self) -> Any:
        """Its first namespace."""
        return next(iter(self.gateway.namespaces.values()))

    def join(self, auth: object = None, namespace: str | None = None, **options: Any) -> ClientHere:
        """Connect a client."""
        name = self.namespace.name if namespace is None else namespace
        client = ClientHere(self.gateway, auth, name, wait=self.wait, **options)
        self._clients.append(client)
        return client

    def wait_until(self, condition: Callable[[], Any], what: str) -> None:
        """Let the loop run until `condition()` is true."""
        give_up_s = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > give_up_s:
                pytest.fail(f"not within {DEADLINE_S:g} s: {what}")
            self.wait(POLL_S)

    def close(self) -> None:
        """End every client and the gateway."""
        for client in self._clients:
            client.leave()
        self.gateway.close()
        gevent.idle()


StartGatewayHere = Callable[..., GatewayHere]


@pytest.fixture
def gateway_here(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[StartGatewayHere]:
    """Start a gateway on the Redis of this test run: `gateway_here(max_subscriptions=4)`, in development by default."""
    monkeypatch.setattr(server_module, "is_patched", lambda: True)
    monkeypatch.setattr(listener, "SubscriberLink", CooperativeLink)
    monkeypatch.setattr(interest, "LINGER_S", 0.0)
    monkeypatch.setattr(feed, "LATE_FENCES", 1_000_000)  # a machine that is held up is no dead Redis
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
        gevent.idle()

    def publish(self, count: int = 1, topic: str = "orders.1", data: bytes = b"1") -> list[int]:
        """Publish so many events at once, and let them reach the clients; return their offsets."""
        offsets = [self.redis.publish(topic, data) for _ in range(count)]
        gevent.idle()
        return offsets


StartGatewayOnModel = Callable[..., GatewayOnModel]


@pytest.fixture
def gateway_on_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartGatewayOnModel]:
    """Start a gateway on a model: `gateway_on_model(authenticator, max_subscriptions=4, before=…)`, in development by default."""
    monkeypatch.setattr(server_module, "is_patched", lambda: True)
    started: list[GatewayOnModel] = []
    with on_the_model(monkeypatch) as (server, clock):
        monkeypatch.setattr(gateway_module, "Publisher", lambda *_, **__: ModelPublisher(server))

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
