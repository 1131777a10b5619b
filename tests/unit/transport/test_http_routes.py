"""Requests that are answered below WSGI: by their route, in order, within the limits of the connection."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import gevent
import gevent.socket
import pytest
from structlog.testing import capture_logs

from headgate.transport.detach import detach
from headgate.transport.http_answers import Answer
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_incoming import MAX_DISCARD_BYTES
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import RoutedRequest
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import NativeSocket
from tests.support.http_peer import FOREVER, Pause, Peer, serve_on
from tests.support.session_clock import turn

LIMITS = HttpLimits(header_deadline_s=5, keep_alive_s=60, body_deadline_s=10, write_deadline_s=20, min_bytes_per_s=100)
POST = b"POST /route HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n"
LAST = b"GET /elsewhere HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"

Told = list[tuple[str, Any]]


class Room:
    """A server with one route and an application; both say what they are asked."""

    def __init__(self) -> None:
        self.told: Told = []
        self.requests: list[RoutedRequest] = []
        self.route: Callable[[RoutedRequest], Answer | None] = self.answer

    def answer(self, request: RoutedRequest) -> Answer | None:
        """Be the route: answer with the body."""
        body = request.body()
        self.requests.append(request)
        self.told.append(("route", body))
        return answer(body)

    def application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Be the application."""
        self.told.append(("application", environ["PATH_INFO"]))
        start_response("200 OK", [("Content-Length", "3")])
        return [b"app"]

    def serve(self, *sends: bytes | Pause, limits: HttpLimits = LIMITS) -> Peer:
        """Serve a peer that sends this."""
        peer = Peer(sends)
        peer.served_by(self.application, limits, routes={("POST", "/route"): lambda asked: self.route(asked)})
        return peer


def answer(body: bytes, *headers: tuple[str, str], status: str = "200 OK") -> Answer:
    return Answer(status, [("Content-Length", str(len(body))), *headers], body)


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_route_answers_its_requests_and_the_application_all_others(room: Room) -> None:
    """By method and path, with or without a query, in the order of the connection."""
    get, query = b"GET /route HTTP/1.1\r\nHost: test\r\n\r\n", POST.replace(b"/route", b"/route?a=b")
    room.serve(POST + b"\r\nfirst" + get + query + b"\r\nthird" + POST.replace(b"/route", b"/router") + b"\r\nxxxxx" + LAST)
    assert room.told == [
        ("route", b"first"),
        ("application", "/route"),
        ("route", b"third"),
        ("application", "/router"),
        ("application", "/elsewhere"),
    ]
    assert [request.head.query for request in room.requests] == ["", "a=b"]


def test_the_answer_of_a_route_is_that_of_wsgi_to_the_byte(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, headers in their order, Date, body; also where the connection ends behind it."""
    monkeypatch.setattr("headgate.transport.http_answers._date", lambda now_s: b"Thu, 01 Jan 1970 00:16:40 GMT")
    found = answer(b"the body", ("X-A", "1"), ("Content-Type", "text/plain"), status="418 I'M A TEAPOT")

    def received(application: Callable[..., Any], route: Callable[[RoutedRequest], Answer | None] | None, sent: bytes) -> bytes:
        peer = Peer([sent])
        peer.served_by(application, LIMITS, routes={} if route is None else {("POST", "/route"): route})
        return peer.received

    for line, closes in ((b"", False), (b"", True), (b"Connection: keep-alive\r\n", False), (b"Connection: close\r\n", False)):
        sent, told = POST + line + b"\r\n12345", found._replace(closes=closes)
        through = received(told.__call__, None, sent)
        below = received(room.application, lambda request, told=told: told, sent)  # type: ignore[misc]
        assert (through, closes or b"close" in line) == (below, b"\r\nConnection: close\r\n" in below)
        assert below.endswith(b"\r\n\r\nthe body")
    assert room.told == []


def test_an_answer_may_end_the_connection(room: Room) -> None:
    """Nothing behind it is read."""
    room.route = lambda request: answer(b"bye")._replace(closes=True)
    peer = room.serve(POST + b"\r\nfirst" + LAST)
    assert peer.received.count(b"Connection: close\r\n") == 1
    assert room.told == []


def test_a_header_with_a_line_break_is_a_fault_of_ours() -> None:
    """It would begin another header, or another answer."""
    with pytest.raises(ValueError, match="line break"):
        answer(b"", ("X-A", "1\r\nX-B: 2")).to_bytes(0, close=False)


def test_requests_with_the_same_head_share_it(room: Room) -> None:
    """A route can keep what it has found out about a head."""
    room.serve(POST + b"\r\nfirst" + POST + b"\r\nagain" + POST + b"X-A: 1\r\n\r\nother" + LAST)
    first, again, other = (request.head for request in room.requests)
    assert first is again
    assert (first.fields.get("HTTP_X_A"), other.fields["HTTP_X_A"]) == (None, "1")


def test_the_application_gets_what_a_route_leaves_to_it(room: Room) -> None:
    """With its body and its environment; the connection goes on, with both."""
    room.route = lambda request: None if request.head.fields.get("HTTP_X_A") else room.answer(request)
    peer = room.serve(POST + b"X-A: 1\r\n\r\nfirst" + POST + b"\r\nagain" + LAST)
    assert room.told == [("application", "/route"), ("route", b"again"), ("application", "/elsewhere")]
    assert peer.received.count(b"HTTP/1.1 200 OK") == 3


def test_a_body_that_is_too_late_is_told_to_the_route_and_ends_the_connection(room: Room) -> None:
    """The route may still answer; nobody knows where the next request would begin."""

    def late(request: RoutedRequest) -> Answer:
        with pytest.raises(TimeoutError):
            request.body()
        return answer(b"too late", status="408 REQUEST TIMEOUT")

    room.route = late
    peer = room.serve(POST + b"\r\nab", FOREVER, b"cde" + LAST)
    assert peer.received.startswith(b"HTTP/1.1 408 REQUEST TIMEOUT\r\n")
    assert b"\r\nConnection: close\r\n" in peer.received
    assert room.told == []


def test_what_a_route_has_not_read_is_read_behind_its_answer(room: Room) -> None:
    """Up to a limit the connection goes on; beyond that it ends, once the peer has had its answer."""
    room.route = lambda request: answer(b"no", status="401 UNAUTHORIZED")
    for size, goes_on in ((MAX_DISCARD_BYTES, True), (MAX_DISCARD_BYTES + 1, False)):
        head = POST.replace(b"5", b"%d" % size, 1)
        peer = room.serve(head + b"\r\n" + b"a" * size + LAST)
        assert (peer.received.count(b"HTTP/1.1 "), peer.shut) == ((2, False) if goes_on else (1, True))
        assert (b"Connection: close" in peer.received.partition(b"\r\n\r\n")[0]) != goes_on
    assert room.told == [("application", "/elsewhere")]


def test_a_route_that_fails_is_logged_and_answered_without_a_word_of_it(room: Room) -> None:
    """500, and the connection ends."""

    def fail(request: RoutedRequest) -> Answer:
        raise RuntimeError("the secret of the route")

    room.route = fail
    with capture_logs() as logs:
        peer = room.serve(POST + b"\r\nfirst" + LAST)
    assert peer.received.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in peer.received
    assert [line["event"] for line in logs] == ["route failed"]


def test_a_request_in_a_reserved_place_is_not_for_a_route(room: Room) -> None:
    """There is room for a health page only, and the connection ends."""
    peer = Peer([POST + b"\r\nfirst" + LAST])
    peer.served_by(room.application, LIMITS, routes={("POST", "/route"): lambda asked: room.route(asked)}, is_reserved=True)
    assert peer.received.startswith(b"HTTP/1.1 503 ")
    assert room.told == []


def test_a_connection_leaves_nothing_behind_that_only_the_garbage_collector_finds(room: Room) -> None:
    """A connection knows its last request, and the request its connection, only while there is one."""

    def left() -> set[int]:
        return {id(each) for each in gc.get_objects() if isinstance(each, HttpConnection)}

    gc.collect()
    gc.disable()
    try:
        before = left()
        room.serve(POST + b"\r\nfirst" + LAST)
        room.requests.clear()
        assert left() <= before
    finally:
        gc.enable()


# Requests that come together ----------------------------------------------------------------------------------------


@pytest.fixture
def later(room: Room) -> Room:
    """Have the route leave requests that say so to the application, refuse them, or fail."""

    def ask(request: RoutedRequest) -> Answer | None:
        said = request.head.fields.get("HTTP_X_A")
        if said == "leave":
            return None
        if said == "refuse":
            return answer(b"refused", status="403 FORBIDDEN")
        if said == "fail":
            raise RuntimeError("a fault")
        body = request.body()
        room.told.append(("route", body))
        return answer(body)

    room.route = ask
    return room


def told(body: bytes, name: bytes = b"") -> bytes:
    return POST + (b"X-A: " + name + b"\r\n" if name else b"") + b"\r\n" + body


def bodies(received: bytes) -> list[bytes]:
    """Return the bodies of answers."""
    return [piece.partition(b"\r\n\r\n")[2] for piece in received.split(b"HTTP/1.1 ")[1:]]


def test_a_request_behind_it_may_be_for_another_route_for_the_application_or_refused(later: Room) -> None:
    """Each is answered in its place."""
    get = b"GET /elsewhere HTTP/1.1\r\nHost: test\r\n\r\n"
    sent = [told(b"first"), told(b"12345", b"refuse"), told(b"again"), told(b"third", b"leave"), told(b"third")]
    peer = later.serve(b"".join([*sent, get, told(b"after")]))
    assert bodies(peer.received) == [b"first", b"refused", b"again", b"app", b"third", b"app", b"after"]
    assert [what for kind, what in later.told if kind == "application"] == ["/route", "/elsewhere"]


def test_a_fault_behind_it_does_not_take_its_answer(later: Room) -> None:
    """Who has published is told so, and the connection ends behind the fault."""
    with capture_logs() as logs:
        peer = later.serve(told(b"first") + told(b"again", b"fail") + told(b"third"))
    first, fault = peer.received.split(b"HTTP/1.1 ")[1:]
    assert first.endswith(b"first")
    assert fault.startswith(b"500 ")
    assert b"Connection: close" not in first
    assert [line["event"] for line in logs] == ["route failed"]


def test_what_a_route_has_found_out_about_a_head_is_there_with_the_next(later: Room) -> None:
    """On the same connection, for the same head."""
    found: list[object] = []

    def ask(request: RoutedRequest) -> Answer:
        found.append(request.known)
        request.known = request.known or request.head.fields.get("HTTP_X_A", "none")
        return answer(request.body())

    later.route = ask
    later.serve(told(b"first") + told(b"again"), Pause(1), told(b"third") + told(b"other", b"b") + told(b"other", b"b"))
    assert found == [None, "none", "none", None, "b"]


def test_what_is_known_of_a_head_holds_for_another_length(later: Room) -> None:
    """The request has its own length everywhere."""
    lengths: list[tuple[object, ...]] = []

    def ask(request: RoutedRequest) -> Answer:
        body, fields = request.body(), request.head.fields
        shown = (str(request.environ["CONTENT_LENGTH"]), fields["CONTENT_LENGTH"], str(request.head.body_bytes), str(len(body)))
        lengths.append((request.known, request.environ["HTTP_HOST"], *sorted(set(shown))))
        request.known = "known"
        return answer(body)

    later.route = ask
    sent = [POST.replace(b"5", b"%d" % len(body), 1) + b"\r\n" + body for body in (b"first", b"longer than that", b"", b"first")]
    peer = later.serve(*sent)
    assert bodies(peer.received) == [b"first", b"longer than that", b"", b"first"]
    assert lengths == [(None, "test", "5"), ("known", "test", "16"), ("known", "test", "0"), ("known", "test", "5")]


# Over a real socket ------------------------------------------------------------------------------------------------------


def test_a_route_may_take_the_socket_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bytes behind the request, for a WebSocket; the handler reads, writes and closes it no more."""
    taken: list[tuple[NativeSocket, bytes]] = []

    def take(request: RoutedRequest) -> None:
        taken.append(detach(dict(request.environ), b"the answer")[:2])

    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], routes={("GET", "/socket"): take})
    ours, theirs = gevent.socket.socketpair()
    greenlet = serve_on(server, ours)
    theirs.sendall(b"GET /socket?a=b HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbehind")
    turn()
    try:
        ((sock, received),) = taken
        assert (received, greenlet.dead, os.get_blocking(sock.fileno())) == (b"behind", True, False)
        sock.send(b" and more")
        assert theirs.recv(100) == b"the answer and more"
        sock.close()
    finally:
        theirs.close()
        greenlet.kill()


def test_the_next_request_is_read_when_it_comes() -> None:
    """Over a real socket: one after the other, each as it comes, two at once, and the end; nothing is left of the connection."""
    told: list[bytes] = []

    def route(request: RoutedRequest) -> Answer:
        told.append(request.body())
        return answer(told[-1])

    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], routes={("POST", "/route"): route})
    ours, theirs = gevent.socket.socketpair()
    greenlet = serve_on(server, ours)
    for sent in ([b"first"], [b"later"], [b"two  ", b"three"]):
        turn()
        theirs.sendall(b"".join(POST + b"\r\n" + body for body in sent))
        received = b""
        with gevent.Timeout(30):
            while not received.endswith(sent[-1]):
                received += theirs.recv(10_000)
        assert received.count(b"HTTP/1.1 200 OK") == len(sent)
    theirs.close()
    greenlet.join(30)
    assert greenlet.dead
    assert told == [b"first", b"later", b"two  ", b"three"]
