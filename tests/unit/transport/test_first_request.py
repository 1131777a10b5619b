"""The first request of a connection: a route without waits is asked at once, and any other request goes to a handler."""

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import gevent
import pytest

from headgate.transport.detach import detach
from headgate.transport.http_answers import Answer
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import BeginsInHub, RoutedRequest
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import ClientSocket
from tests.support.http_peer import Peer
from tests.support.session_clock import turn, until

ASK = b"GET /socket?a=b HTTP/1.1\r\nHost: test\r\n"
ELSEWHERE = b"GET /elsewhere HTTP/1.1\r\nHost: test\r\n\r\n"


class Door:
    """A server with a route that never waits, and connections to it without a listener."""

    def __init__(self, limits: HttpLimits | None = None) -> None:
        self.ask = ASK
        self.asked: list[RoutedRequest] = []
        self.hubs: list[bool] = []
        self.taken: list[tuple[ClientSocket, bytes]] = []
        self.answer: Answer | None = None
        self.fault: Exception | None = None
        self.takes = True
        self.server = HTTPServer(
            ("127.0.0.1", 0), self._application, limits=limits, routes={("GET", "/socket"): BeginsInHub(self._route)}
        )
        self.server.start()
        self.through: list[dict[str, Any]] = []
        self.peers: list[socket.socket] = []

    def _route(self, request: RoutedRequest) -> Answer | None:
        self.asked.append(request)
        self.hubs.append(gevent.getcurrent() is gevent.get_hub())
        if self.takes:
            detached = detach(dict(request.environ), b"the answer")
            detached.sock.send(detached.unsent)
            self.taken.append((detached.sock, detached.received))
        if self.fault is not None:
            raise self.fault
        return self.answer

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.through.append(environ)
        start_response("200 OK", [("Content-Length", "7")])
        return [b"through"]

    def connect(self, sends: bytes = b"") -> socket.socket:
        """Have a connection accepted, on which something has come already."""
        theirs = socket.create_connection(self.server.address)
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
        """How many connections wait for their request."""
        return sum(each is not None for each in self.server.connections._waiting)

    @property
    def connections(self) -> int:
        """How many connections of HTTP there are."""
        return len(self.server.connections)

    def close(self) -> None:
        self.server.close()
        for sock in [*self.peers, *(sock for sock, _ in self.taken)]:
            sock.close()
        turn()


@pytest.fixture
def open_door() -> Iterator[Callable[..., Door]]:
    with ExitStack() as ending:
        yield lambda **limits: ending.enter_context(closing(Door(HttpLimits(**limits))))


@pytest.fixture(params=[ASK, ASK + b"Upgrade: websocket\r\n"], ids=["any route", "of a WebSocket"])
def door(request: pytest.FixtureRequest, open_door: Callable[..., Door]) -> Door:
    """Open a door for a request with or without what asks for its socket."""
    door = open_door()
    door.ask = request.param
    return door


def test_a_request_that_is_there_is_answered_in_the_hub(door: Door) -> None:
    """The route has the request as the application would, and the socket, with the bytes after it; it is no connection of
    HTTP's any more."""
    peer = door.connect(door.ask + b"X-One: 1\r\n\r\nbehind")
    ((sock, behind),) = door.taken
    assert (door.hubs, behind, door.waiting, door.connections) == ([True], b"behind", 0, 0)
    names, port = ("PATH_INFO", "QUERY_STRING", "HTTP_X_ONE", "REMOTE_ADDR", "REMOTE_PORT"), peer.getsockname()[1]
    assert [door.asked[0].environ[name] for name in names] == ["/socket", "a=b", "1", "127.0.0.1", str(port)]
    sock.send(b" and more")
    assert peer.recv(100) == b"the answer and more"


def test_a_request_that_comes_later_is_answered_in_the_hub(door: Door) -> None:
    """Until then the connection is counted, and waits without a greenlet. One that ends without a request is forgotten."""
    peer, silent = door.connect(), door.connect()
    assert (door.waiting, door.connections) == (2, 2)
    peer.sendall(door.ask + b"\r\n")
    until(lambda: door.taken)
    assert (door.hubs, door.waiting, door.connections) == ([True], 1, 1)
    silent.close()
    until(lambda: not door.waiting)
    assert door.connections == 0


@pytest.mark.parametrize(
    "sent",
    [ELSEWHERE, b"GET /socket HTTP/1.0\r\nHost: test\r\n\r\n", ASK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ids=["another path", "HTTP/1.0", "chunked"],
)
def test_any_other_request_is_the_applications(door: Door, sent: bytes) -> None:
    """Its handler begins with the bytes that have been read."""
    assert door.connect(sent).recv(1000).endswith(b"through")
    assert not door.asked


@pytest.mark.parametrize("fault", [None, ConnectionResetError("gone")], ids=["taken", "gone"])
def test_a_later_request_that_is_answered_in_the_hub_leaves_no_greenlet_behind(door: Door, fault: Exception | None) -> None:
    """The greenlet of an earlier one rests, and ends when the socket is a WebSocket's, or the client is gone."""
    peer = door.connect(ELSEWHERE)
    assert peer.recv(1000).endswith(b"through")
    resting = [each for each in gc.get_objects() if isinstance(each, gevent.Greenlet) and each]
    door.fault, door.takes = fault, fault is None
    peer.sendall(door.ask + b"\r\n")
    until(lambda: any(each.dead for each in resting))
    assert (door.hubs, peer.recv(100), door.connections) == ([True], b"" if fault else b"the answer", 0)


def test_a_request_that_is_not_there_as_a_whole_is_read_by_a_handler(door: Door) -> None:
    """It may wait for the body, so the route is asked there; after a head in two pieces it goes on, too."""
    door.takes = False
    door.connect(door.ask + b"Content-Length: 2\r\n\r\nx")
    assert door.hubs == [False]
    peer = door.connect(door.ask)
    assert (door.waiting, len(door.through)) == (2, 1)  # one for its body, one for its head
    peer.sendall(b"\r\n")
    turn()
    assert peer.recv(1000).endswith(b"through")


def test_an_answer_is_written_and_the_connection_goes_on(door: Door) -> None:
    """The route is asked once; the next request, which had come after the first, is a handler's."""
    door.takes, door.answer = False, Answer("200 OK", [("Content-Length", "2")], b"no")
    peer = door.connect(door.ask + b"\r\n" + ELSEWHERE)
    received = b""
    while not received.endswith(b"through"):
        received += peer.recv(1000)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\nnoHTTP/1.1 200 OK\r\n" in received
    assert (len(door.asked), len(door.through)) == (1, 1)


def test_a_request_that_is_left_is_the_applications(door: Door) -> None:
    """The route is not asked twice."""
    door.takes = False
    assert door.connect(door.ask + b"\r\n").recv(1000).endswith(b"through")
    assert len(door.asked) == 1
    assert door.through[0]["REMOTE_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("fault", "answer"),
    [(ValueError("no"), b"HTTP/1.1 500 "), (ConnectionResetError("gone"), b"")],
    ids=["ours", "of the connection"],
)
def test_a_route_that_fails_ends_its_connection_only(door: Door, fault: Exception, answer: bytes) -> None:
    """500, or nothing if the client has left; no object stays."""
    door.fault, door.takes = fault, False
    peer = door.connect(door.ask + b"\r\n")
    assert peer.recv(1000)[: len(b"HTTP/1.1 500 ")] == answer
    assert (peer.recv(1000), door.connections) == (b"", 0)


def test_a_request_for_a_websocket_that_has_come_whole_needs_no_connection_of_http(
    open_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its route takes the socket as it was accepted."""
    door = open_door()
    monkeypatch.setattr("headgate.transport.http_server.HttpConnection", None)
    assert door.connect(ASK + b"Upgrade: websocket\r\n\r\n").recv(100) == b"the answer"
    assert (door.hubs, door.connections) == ([True], 0)


def test_a_connection_that_stays_silent_is_closed_in_silence(open_door: Callable[..., Door]) -> None:
    """At the deadline for the head, which has begun when it was accepted."""
    door = open_door(header_deadline_s=0.01)
    silent = door.connect()
    until(lambda: not door.connections)
    assert silent.recv(1) == b""


def test_a_server_that_stops_lets_connections_go_on(door: Door) -> None:
    """A connected client may still ask for as long as the server gives it."""
    peer = door.connect()
    door.server.close()
    turn()
    peer.sendall(ELSEWHERE)
    turn()
    assert peer.recv(1000).endswith(b"through")


def test_a_connection_that_is_ended_for_another_is_forgotten(door: Door) -> None:
    """It has waited longest for its peer, without a greenlet."""
    peer = door.connect()
    assert door.server.admission.end_longest_waiting("of address", "127.0.0.1")
    until(lambda: not door.waiting)
    assert peer.recv(1) == b""
    assert door.connections == 0


@pytest.mark.parametrize("ask", [ASK, ASK + b"Upgrade: websocket\r\n"])
def test_behind_a_proxy_a_request_too_many_of_an_address_is_refused(open_door: Callable[..., Door], ask: bytes) -> None:
    """429 by its handler; the route is not asked, and a connection at work is not ended."""
    door = open_door(proxies=1, max_connections_per_address=1)
    working = HttpConnection(door.server, Peer([]).as_socket(), ("192.0.2.1", 5))
    door.server.connections.open(working, "198.51.100.1")
    door.server.connections.work(working)
    peer = door.connect(ask + b"X-Forwarded-For: 198.51.100.1\r\n\r\n")
    assert peer.recv(1000).startswith(b"HTTP/1.1 429 ")
    assert peer.recv(1000) == b""
    assert (door.asked, door.server.connections.count_at("198.51.100.1")) == ([], 1)


def test_a_route_that_fails_behind_its_answer_keeps_the_socket(door: Door) -> None:
    """It is the route's, with the loop watching it. Nothing is written to it, and no other part closes it."""
    door.fault = ValueError("no")
    peer = door.connect(door.ask + b"\r\n")
    ((sock, _),) = door.taken
    sock.send(b" and more")
    assert peer.recv(100) == b"the answer and more"
    assert door.connections == 0


def test_half_a_request_line_that_ends_is_answered_by_nobody(door: Door) -> None:
    """Also where connections may be handed over; nothing is left."""
    door.server.to_owner = lambda *_: True
    peer = door.connect(door.ask[:20])
    peer.shutdown(socket.SHUT_WR)
    until(lambda: not door.connections)
    assert door.through == []
