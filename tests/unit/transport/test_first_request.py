"""The first request of a connection: a route that never waits is asked at once, and any other request goes to a handler."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from headgate.metrics import HTTP_CONNECTIONS
from headgate.transport.detach import detach
from headgate.transport.http_answers import Answer
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import NeverWaits, RoutedRequest
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import NativeSocket
from tests.support.http_peer import Peer
from tests.support.session_clock import turn

ASK = b"GET /socket?a=b HTTP/1.1\r\nHost: test\r\n"


class Door:
    """A server with a route that never waits, and connections to it without a listener."""

    def __init__(self, limits: HttpLimits | None = None) -> None:
        self.asked: list[RoutedRequest] = []
        self.hubs: list[bool] = []
        self.taken: list[tuple[NativeSocket, bytes]] = []
        self.answer: Answer | Exception | None = None
        self.takes = True
        self.server = HTTPServer(
            ("127.0.0.1", 0), self._application, limits=limits, routes={("GET", "/socket"): NeverWaits(self._route)}
        )
        self.server.start()
        self.address = self.server.address
        self.through: list[dict[str, Any]] = []
        self.peers: list[socket.socket] = []

    def _route(self, request: RoutedRequest) -> Answer | None:
        self.asked.append(request)
        self.hubs.append(gevent.getcurrent() is gevent.get_hub())
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.takes:
            self.taken.append(detach(dict(request.environ), b"the answer")[:2])
        return self.answer

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.through.append(environ)
        start_response("200 OK", [("Content-Length", "7")])
        return [b"through"]

    def connect(self, sends: bytes = b"") -> socket.socket:
        """Have a connection accepted, on which something has come already."""
        theirs = socket.create_connection(self.address)
        theirs.settimeout(30)
        self.peers.append(theirs)
        if sends:
            theirs.sendall(sends)
        gevent.get_hub().loop.run_callback(self.server.accept)
        turn()
        turn()
        return theirs

    @property
    def waiting(self) -> int:
        """How many connections wait for their request without a greenlet."""
        return len(self.server._silent)

    def close(self) -> None:
        """Drop every connection."""
        self.server.close()
        for sock in [*self.peers, *(sock for sock, _ in self.taken)]:
            sock.close()
        turn()


@pytest.fixture
def door() -> Iterator[Door]:
    """A server."""
    door = Door()
    yield door
    door.close()


def test_a_request_that_is_there_is_answered_in_the_hub(door: Door) -> None:
    """The route has the socket, with the bytes behind the request; it is no connection of HTTP's any more."""
    peer = door.connect(ASK + b"\r\nbehind")
    ((sock, behind),) = door.taken
    assert (door.hubs, behind, door.waiting, len(door.server.connections)) == ([True], b"behind", 0, 0)
    assert door.asked[0].body() == b""
    sock.send(b" and more")
    assert peer.recv(100) == b"the answer and more"


def test_a_request_that_comes_later_is_answered_in_the_hub(door: Door) -> None:
    """Until then the connection is counted, and waits without a greenlet."""
    peer = door.connect()
    assert (door.waiting, len(door.server.connections)) == (1, 1)
    peer.sendall(ASK + b"\r\n")
    with gevent.Timeout(30):
        while not door.taken:
            turn()
    assert (door.hubs, door.waiting, len(door.server.connections)) == ([True], 0, 0)


def test_the_environment_has_the_request_and_the_address(door: Door) -> None:
    """As the application would have it."""
    door.connect(ASK + b"X-One: 1\r\n\r\n")
    environ = door.asked[0].environ
    assert [environ[name] for name in ("PATH_INFO", "QUERY_STRING", "HTTP_X_ONE", "REMOTE_ADDR", "REMOTE_PORT")] == [
        "/socket",
        "a=b",
        "1",
        "127.0.0.1",
        str(door.peers[0].getsockname()[1]),
    ]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /elsewhere HTTP/1.1\r\nHost: test\r\n\r\n",
        b"GET /socket HTTP/1.0\r\nHost: test\r\n\r\n",
        ASK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_any_other_request_is_the_applications(door: Door, sent: bytes) -> None:
    """Its handler begins with the bytes that have been read."""
    peer = door.connect(sent)
    answer = peer.recv(1000)
    assert answer.endswith(b"through")
    assert not door.asked


def test_a_request_with_a_body_is_read_by_a_handler(door: Door) -> None:
    """It may wait for the body, so the route is asked there."""
    door.connect(ASK + b"Content-Length: 1\r\n\r\nx")
    assert door.hubs == [False]


def test_a_head_in_two_pieces_is_read_by_a_handler(door: Door) -> None:
    """It goes on behind the first piece."""
    door.takes, door.answer = False, None
    peer = door.connect(ASK)
    assert (door.waiting, door.through) == (0, [])
    peer.sendall(b"\r\n")
    turn()
    assert peer.recv(1000).endswith(b"through")


def test_an_answer_is_written_and_the_connection_goes_on(door: Door) -> None:
    """The route is asked once; the next request, which had come behind the first, is a handler's."""
    door.takes, door.answer = False, Answer("200 OK", [("Content-Length", "2")], b"no")
    peer = door.connect(ASK + b"\r\n" + b"GET /elsewhere HTTP/1.1\r\nHost: test\r\n\r\n")
    received = b""
    while not received.endswith(b"through"):
        received += peer.recv(1000)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\nnoHTTP/1.1 200 OK\r\n" in received
    assert (len(door.asked), len(door.through)) == (1, 1)


def test_a_request_that_is_left_is_the_applications(door: Door) -> None:
    """The route is not asked twice."""
    door.takes = False
    assert door.connect(ASK + b"\r\n").recv(1000).endswith(b"through")
    assert len(door.asked) == 1
    assert door.through[0]["REMOTE_ADDR"] == "127.0.0.1"


def test_a_route_that_fails_ends_its_connection_only(door: Door) -> None:
    """500, and nothing is left."""
    door.answer = ValueError("no")
    peer = door.connect(ASK + b"\r\n")
    assert peer.recv(1000).startswith(b"HTTP/1.1 500 ")
    assert peer.recv(1000) == b""
    assert len(door.server.connections) == 0


def test_a_connection_that_ends_without_a_request_is_forgotten(door: Door) -> None:
    """It is no HTTP connection any more."""
    peer = door.connect()
    (before,) = HTTP_CONNECTIONS.collect()
    peer.close()
    with gevent.Timeout(30):
        while door.waiting:
            turn()
    assert before.samples[0].value == 1
    assert len(door.server.connections) == 0


def test_a_connection_that_stays_silent_is_closed_in_silence() -> None:
    """At the deadline for the head, which has begun when it was accepted; a younger one waits on."""
    door = Door(HttpLimits(header_deadline_s=3600))
    try:
        silent, younger = door.connect(), door.connect()
        connection, _ = door.server._silent
        connection.waits_since_s -= 3600
        door.server._end_late()
        assert (door.waiting, silent.recv(1)) == (1, b"")
        younger.sendall(b"GET /elsewhere HTTP/1.1\r\nHost: test\r\n\r\n")
        with gevent.Timeout(30):
            while door.waiting:
                turn()
        turn()
        assert younger.recv(1000).endswith(b"through")
    finally:
        door.close()


def test_a_server_that_stops_lets_connections_go_on(door: Door) -> None:
    """A client that is connected may still ask for as long as the server gives it."""
    peer = door.connect()
    door.server.close()
    turn()
    peer.sendall(b"GET /elsewhere HTTP/1.1\r\nHost: test\r\n\r\n")
    turn()
    assert peer.recv(1000).endswith(b"through")


def test_nothing_is_left_when_a_client_is_gone_before_its_answer(door: Door) -> None:
    """The route meets it as an error of the connection."""
    door.answer = ConnectionResetError("gone")
    peer = door.connect(ASK + b"\r\n")
    assert peer.recv(1000) == b""
    assert len(door.server.connections) == 0


def test_a_connection_that_is_ended_for_another_is_forgotten(door: Door) -> None:
    """It has waited longest for its peer, without a greenlet."""
    peer = door.connect()
    assert door.server.admission.end_longest_waiting("of address", "127.0.0.1")
    with gevent.Timeout(30):
        while door.waiting:
            turn()
    assert peer.recv(1) == b""
    assert len(door.server.connections) == 0


def test_behind_a_proxy_a_request_too_many_of_an_address_is_refused() -> None:
    """429 by its handler; the route is not asked, and a connection at work is not ended."""
    door = Door(HttpLimits(proxies=1, max_connections_per_address=1))
    try:
        working = HttpConnection(door.server, Peer([]).as_socket(), ("192.0.2.1", 5))
        door.server.connections.open(working, "198.51.100.1")
        door.server.connections.work(working)
        peer = door.connect(ASK + b"X-Forwarded-For: 198.51.100.1\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 429 ")
        assert peer.recv(1000) == b""
        assert (door.asked, door.server.connections.count_at("198.51.100.1")) == ([], 1)
    finally:
        door.close()


def test_a_route_that_fails_behind_its_answer_keeps_the_socket(door: Door) -> None:
    """It is the route's, with the loop watching it: nothing is written to it, and nobody else closes it."""

    def take_and_fail(request: RoutedRequest) -> Answer | None:
        door.taken.append(detach(dict(request.environ), b"the answer")[:2])
        raise ValueError("no")

    door.server.routes = {("GET", "/socket"): NeverWaits(take_and_fail)}
    peer = door.connect(ASK + b"\r\n")
    ((sock, _),) = door.taken
    sock.send(b" and more")
    assert peer.recv(100) == b"the answer and more"
    assert len(door.server.connections) == 0


def test_half_a_request_line_that_ends_is_answered_by_nobody(door: Door) -> None:
    """Also where connections may be handed over; nothing is left."""
    door.server.to_owner = lambda *_: True
    peer = door.connect(ASK[:20])
    peer.shutdown(socket.SHUT_WR)
    with gevent.Timeout(30):
        while len(door.server.connections):
            turn()
    assert door.through == []
