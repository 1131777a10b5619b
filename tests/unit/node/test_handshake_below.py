"""A WebSocket handshake below WSGI has the answers that it has through the application, byte for byte.

Real HTTP over loopback, in the test's own process, to a gateway on a model of Redis, served in three ways.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent import socket as cooperative

from headgate.settings.settings import Settings
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import BeginsInHub, RoutedRequest
from headgate.transport.http_server import HTTPServer
from tests.support.gateway_here import DEADLINE_S, GatewayOnModel, StartGatewayOnModel
from tests.support.model_redis import NAMESPACE

GOOD = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
QUERY = "EIO=4&transport=websocket"
REQUESTS: dict[str, tuple[str, dict[str, str | None]]] = {
    "a handshake": (QUERY, {}),
    "another order of the query, and more in it": ("a=b&transport=websocket&EIO=4&t=x", {}),
    "a page of ours": (QUERY, {"Origin": "http://127.0.0.1"}),
    "a page of another site": (QUERY, {"Origin": "https://elsewhere.example"}),
    "another host": (QUERY, {"Host": "elsewhere.example"}),
    "no key": (QUERY, {"Sec-WebSocket-Key": None}),
    "a key that is none": (QUERY, {"Sec-WebSocket-Key": "short"}),
    "another version of WebSocket": (QUERY, {"Sec-WebSocket-Version": "8"}),
    "no upgrade": (QUERY, {"Upgrade": None}),
    "an upgrade that its connection does not name": (QUERY, {"Connection": "close"}),
    "another version of Engine.IO": ("EIO=3&transport=websocket", {}),
    "no version of Engine.IO": ("transport=websocket", {}),
    "an unknown session": (f"{QUERY}&sid=nobody", {}),
    "an unknown transport": ("EIO=4&transport=websockets", {}),
    "long-polling": ("EIO=4&transport=polling", {}),
    "too many fields": (QUERY + "&x=y" * 40, {}),
    "a request with a body": (QUERY, {"Content-Length": "0"}),
}


class Ways:
    """A gateway served three times: `through` the application, `below` it, and `at_once`, before there is a greenlet."""

    def __init__(self, gateway: GatewayOnModel) -> None:
        self.gateway = gateway
        self.routed = 0
        self.through, self.below = self._served({}), self._served({("GET", "/socket.io/"): self._route})
        self.at_once = self._served({("GET", "/socket.io/"): BeginsInHub(self._route)})

    def _served(self, routes: dict[tuple[str, str], Any]) -> HTTPServer:
        application = self.gateway.gateway.wsgi_app(_nothing)
        server = HTTPServer(("127.0.0.1", 0), application, limits=HttpLimits.of(Settings()), routes=routes)
        server.start()
        return server

    def _route(self, request: RoutedRequest) -> Any:
        self.routed += 1
        return self.gateway.gateway.handshake(request)

    def answer(self, server: HTTPServer, query: str, changes: dict[str, str | None]) -> bytes:
        """Return the answer to a request, but for the parts that differ each time."""
        with opened(server) as sock:
            sock.sendall(request(query, changes))
            received = b""
            while b"\r\n\r\n" not in received or b"sid" not in received.partition(b"\r\n\r\n")[2]:
                data = sock.recv(65536)
                if not data:
                    break
                received += data
                if re.search(rb"Content-Length: (\d+)", received) and not received.startswith(b"HTTP/1.1 101"):
                    break
        received = re.sub(rb'"sid":"[A-Za-z0-9_-]{20}"', b'"sid":""', received)
        return re.sub(rb"Date: [^\r]+", b"Date:", received)

    def close(self) -> None:
        """Stop the servers."""
        for server in (self.through, self.below, self.at_once):
            server.stop(timeout=0)


@pytest.fixture
def ways(gateway_on_model: StartGatewayOnModel) -> Iterator[Ways]:
    """One gateway, served in three ways."""
    anyone: dict[str, Any] = {"anonymous_subscribe": ("#",), "anonymous_namespaces": (NAMESPACE,)}
    ways = Ways(gateway_on_model(dev=False, max_clients_per_address=3, **anyone))
    yield ways
    ways.close()


@pytest.mark.parametrize("case", REQUESTS)
def test_an_answer_is_the_same_below_the_application(ways: Ways, case: str) -> None:
    """An opened session, and every refusal."""
    query, changes = REQUESTS[case]
    through = ways.answer(ways.through, query, changes)
    assert ways.routed == 0
    assert ways.answer(ways.below, query, changes) == through
    assert ways.answer(ways.at_once, query, changes) == through
    assert through.startswith(b"HTTP/1.1 ")
    assert ways.routed == 2


def test_one_session_too_many_of_an_address_is_refused_in_the_same_words(ways: Ways) -> None:
    """429, whichever way it came."""
    socks = [opened(server) for server in (ways.below, ways.at_once, ways.at_once)]
    for sock in socks:
        sock.sendall(request(QUERY, {}))
        assert sock.recv(65536).startswith(b"HTTP/1.1 101 ")
    answers = [ways.answer(server, QUERY, {}) for server in (ways.through, ways.below, ways.at_once)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].startswith(b"HTTP/1.1 429 ")
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("query", [QUERY, "EIO=4&transport=polling"])
@pytest.mark.parametrize("way", ["through", "below", "at_once"])
def test_a_gateway_whose_loop_lags_refuses_a_handshake_with_503_and_a_time(ways: Ways, way: str, query: str) -> None:
    """A load balancer may try another gateway; a client of ours waits for so long. No session stays."""
    gateway = ways.gateway.gateway
    for _ in range(3):
        gateway.population.shedding.beat(1.0)
    with opened(getattr(ways, way)) as sock:
        sock.sendall(request(query, {}))
        received = sock.recv(65536).decode()
    assert received.startswith("HTTP/1.1 503 Service Unavailable\r\n")
    assert (found := re.search(r"^Retry-After: (\d+)\r$", received, re.MULTILINE))
    assert 3 <= int(found[1]) <= 10
    assert f'"retry_after_s":{found[1]}' in received.replace(" ", "")
    assert "overloaded" in received
    assert not gateway._sockets.engine.sessions


@pytest.mark.parametrize("way", ["below", "at_once"])
def test_a_client_that_is_gone_leaves_no_session(ways: Ways, way: str) -> None:
    """It has sent its request, and has closed the connection before the answer."""
    server = getattr(ways, way)
    sock = opened(server)
    sock.sendall(request(QUERY, {}))
    sock.close()
    sessions = ways.gateway.gateway._sockets.engine.sessions
    with gevent.Timeout(DEADLINE_S):
        while not ways.routed or sessions or len(server.connections):
            gevent.sleep(0.001)


def opened(server: HTTPServer) -> cooperative.socket:
    """Return a connection to a server."""
    return cooperative.create_connection(("127.0.0.1", server.server_port), timeout=DEADLINE_S)


def request(query: str, changes: dict[str, str | None]) -> bytes:
    """Return a handshake, with some headers changed or left out."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in {**GOOD, **changes}.items() if value is not None)
    return f"GET /socket.io/?{query} HTTP/1.1\r\n{headers}\r\n".encode()


def _nothing(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("404 Not Found", [("Content-Length", "0")])
    return []
