"""Requests with an answer below WSGI: by their route, in order, within the limits of the connection."""

import gc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headgate.transport.http_answers import Answer
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import RoutedRequest
from tests.support.http_peer import FOREVER, Pause, Peer

LIMITS = HttpLimits(header_deadline_s=5, keep_alive_s=60, body_deadline_s=10, write_deadline_s=20, min_bytes_per_s=100)
POST = b"POST /route HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n"
LAST = b"GET /elsewhere HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"


class Room:
    """A server with one route and an application; both record their requests."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.requests: list[RoutedRequest] = []
        self.route: Callable[[RoutedRequest], Answer | None] = self.answer

    def answer(self, request: RoutedRequest) -> Answer | None:
        """Be the route: leave a request with that wish to the application, refuse it, or fail; answer others with the body."""
        match request.head.fields.get("HTTP_X_A"):
            case "leave":
                return None
            case "refuse":
                return answer(b"refused", status="403 FORBIDDEN")
            case "fail":
                raise RuntimeError("the secret of the route")
        body = request.body()
        self.requests.append(request)
        self.told.append(("route", body))
        return answer(body)

    def application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        self.told.append(("application", environ["PATH_INFO"]))
        start_response("200 OK", [("Content-Length", "3")])
        return [b"app"]

    def serve(self, *sends: bytes | Pause, limits: HttpLimits = LIMITS) -> Peer:
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
    """Status, headers in their order, Date, body; also where the connection ends after it."""
    for module in ("http_answers", "http_wsgi"):
        monkeypatch.setattr(f"headgate.transport.{module}.date_line", lambda now_s: b"Date: Thu, 01 Jan 1970 00:16:40 GMT\r\n")
    found = answer(b"the body", ("X-A", "1"), ("Content-Type", "text/plain"), status="418 I'M A TEAPOT")

    def received(application: Callable[..., Any], route: Callable[[RoutedRequest], Answer | None] | None, sent: bytes) -> bytes:
        peer = Peer([sent])
        peer.served_by(application, LIMITS, routes={} if route is None else {("POST", "/route"): route})
        return peer.received

    for line, closes in ((b"", False), (b"", True), (b"Connection: keep-alive\r\n", False), (b"Connection: close\r\n", False)):
        sent, told = POST + line + b"\r\n12345", msgspec.structs.replace(found, closes=closes)
        through = received(told.__call__, None, sent)
        below = received(room.application, lambda request, told=told: told, sent)  # type: ignore[misc]
        assert (through, closes or b"close" in line) == (below, b"\r\nConnection: close\r\n" in below)
        assert below.endswith(b"\r\n\r\nthe body")
    assert room.told == []


def test_an_answer_may_end_the_connection(room: Room) -> None:
    """Nothing after it is read."""
    room.route = lambda request: msgspec.structs.replace(answer(b"bye"), closes=True)
    peer = room.serve(POST + b"\r\nfirst" + LAST)
    assert peer.received.count(b"Connection: close\r\n") == 1
    assert room.told == []


def test_a_header_with_a_line_break_is_a_fault_of_ours() -> None:
    """It would begin another header, or another answer."""
    with pytest.raises(ValueError, match="line break"):
        answer(b"", ("X-A", "1\r\nX-B: 2")).to_bytes(0, close=False)


def test_a_body_that_is_too_late_is_told_to_the_route_and_ends_the_connection(room: Room) -> None:
    """The route may still answer; it is unknown where the next request would begin."""

    def late(request: RoutedRequest) -> Answer:
        with pytest.raises(TimeoutError):
            request.body()
        return answer(b"too late", status="408 REQUEST TIMEOUT")

    room.route = late
    peer = room.serve(POST + b"\r\nab", FOREVER, b"cde" + LAST)
    assert peer.received.startswith(b"HTTP/1.1 408 REQUEST TIMEOUT\r\n")
    assert b"\r\nConnection: close\r\n" in peer.received
    assert room.told == []


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


def told(body: bytes, name: bytes = b"") -> bytes:
    """Return a request for the route with five bytes of a body, which names its fate."""
    return POST + (b"X-A: " + name + b"\r\n" if name else b"") + b"\r\n" + body


def test_the_application_gets_what_a_route_leaves_to_it(room: Room) -> None:
    """With its body and its environment; the connection goes on, and each request is answered in its place."""
    sent = [told(b"first"), told(b"12345", b"refuse"), told(b"again"), told(b"third", b"leave"), told(b"third")]
    peer = room.serve(b"".join([*sent, LAST.replace(b"Connection: close\r\n", b""), told(b"after")]))
    assert peer.bodies == [b"first", b"refused", b"again", b"app", b"third", b"app", b"after"]
    assert [what for kind, what in room.told if kind == "application"] == ["/route", "/elsewhere"]


def test_a_route_that_fails_is_logged_and_answered_without_a_word_of_it(room: Room) -> None:
    """500, and the connection ends after it; a caller with an earlier publish is notified of that."""
    with capture_logs() as logs:
        peer = room.serve(told(b"first") + told(b"again", b"fail") + told(b"third"))
    first, fault = peer.received.split(b"HTTP/1.1 ")[1:]
    assert first.endswith(b"first")
    assert fault.startswith(b"500 ")
    assert b"Connection: close" not in first
    assert b"secret" not in fault
    assert [line["event"] for line in logs] == ["route failed"]


def test_what_a_route_has_found_out_about_a_head_is_there_with_the_next(room: Room) -> None:
    """On the same connection, for the same head, whatever its length; each request has its own everywhere."""
    seen: list[tuple[object, ...]] = []

    def ask(request: RoutedRequest) -> Answer:
        body, fields = request.body(), request.head.fields
        lengths = {str(request.environ["CONTENT_LENGTH"]), fields["CONTENT_LENGTH"], str(request.head.body_bytes), str(len(body))}
        seen.append((request.known, request.environ["HTTP_HOST"], *lengths))
        request.known = request.known or fields.get("HTTP_X_A", "none")
        return answer(body)

    room.route = ask
    long, empty = POST.replace(b"5", b"16") + b"\r\nlonger than that", POST.replace(b"5", b"0") + b"\r\n"
    room.serve(told(b"first") + long, Pause(1), empty + told(b"first") + told(b"other", b"b") + told(b"other", b"b"))
    assert seen == [
        *((None, "test", "5"), ("none", "test", "16"), ("none", "test", "0"), ("none", "test", "5")),
        *((None, "test", "5"), ("b", "test", "5")),
    ]
