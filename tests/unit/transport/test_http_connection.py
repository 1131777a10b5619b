"""One HTTP connection, by a peer with bytes and pauses that the test chooses: where a request ends, and how long it may take."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import gevent.socket
import msgspec
import pytest
from structlog.testing import capture_logs

from headgate.runtime.loop import in_hub_after
from headgate.transport.http_answers import Answer
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import BeginsInHub, Route, RoutedRequest
from headgate.transport.http_server import HTTPServer
from tests.support.http_peer import FOREVER, Pause, Peer, Reset, serve_on
from tests.support.session_clock import turn

LIMITS = HttpLimits(
    header_deadline_s=5, keep_alive_s=60, body_deadline_s=10, write_deadline_s=20, min_bytes_per_s=100, max_body_bytes=2_000_000
)
ECHO = b"POST /echo HTTP/1.1\r\nHost: test\r\n"
# A smuggler hides this after a request, and hopes for an answer to it.
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: test\r\n\r\n"
# Requests that a route answers where the server has routes.
ROUTED = [("POST", "/echo"), ("GET", "/echo"), ("GET", "/"), ("GET", "/hidden"), ("GET", "/last")]
LAST = b"GET /last HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class Application:
    """Echoes bodies, and remembers its requests: through WSGI, or as a route below it."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.failures: list[OSError] = []
        self.reads = True
        self.answer: Callable[[], Iterable[bytes]] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = self._body(environ["PATH_INFO"], environ["wsgi.input"].read)
        start_response("200 OK", [] if self.answer else [("Content-Length", str(len(body)))])
        return self.answer() if self.answer else [body]

    def route(self, request: RoutedRequest) -> Answer | None:
        if self.answer is not None:
            return None  # an answer in pieces
        body = self._body(request.head.path, request.body)
        return Answer("200 OK", [("Content-Length", str(len(body)))], body)

    def begin(self, request: RoutedRequest, body: bytes, done: Callable[[Answer], object]) -> Answer | bool:
        answer = self.route(msgspec.structs.replace(request, body=lambda: body))
        if answer is not None:
            in_hub_after(0, lambda: done(answer))
        return answer is not None

    def _body(self, path: str, read: Callable[[], bytes]) -> bytes:
        self.paths.append(path)
        try:
            return read() if self.reads else b"unread"
        except OSError as error:
            self.failures.append(error)
            raise


class Exchange:
    """Serves one peer after the other with one application."""

    def __init__(self, served: str = "application") -> None:
        self.application = Application()
        self.to_owner = (lambda *_: False) if "shared port" in served else None
        self.routes: dict[tuple[str, str], Route] = {}
        if served == "left to the application":
            self.routes = dict.fromkeys(ROUTED, lambda request: None)
        elif "hub" in served:
            self.routes = dict.fromkeys(ROUTED, BeginsInHub(self.application.route, self.application.begin))
        elif "route" in served:
            self.routes = dict.fromkeys(ROUTED, self.application.route)

    def with_(self, *sends: bytes | Pause | Reset, accepts: Iterable[int | Pause] = ()) -> Peer:
        """Serve a peer that sends this; return it when its connection is over."""
        peer = Peer(sends, accepts)
        peer.served_by(self.application, LIMITS, routes=self.routes, to_owner=self.to_owner)
        assert peer.closed
        return peer


@pytest.fixture(params=["application", "left to the application", "route", "hub", "shared port", "route on a shared port"])
def exchange(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Iterator[Exchange]:
    """Exchanges that print and log nothing, whatever the peer does: through WSGI and below, on an own port and a shared one."""
    with capture_logs() as logs:
        yield Exchange(request.param)
    assert (capfd.readouterr().err, logs) == ("", [])


@contextmanager
def others(look: Callable[[], object]) -> Iterator[list[object]]:
    """Take a look in each turn of the others."""
    seen: list[object] = []

    def run() -> None:
        while True:
            seen.append(look())
            gevent.sleep(0)

    greenlet = gevent.spawn(run)
    yield seen
    greenlet.kill()


class TestFraming:
    """Where a request ends, and the next one begins."""

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (ECHO + b"Content-Length: 0\r\nContent-Length: 41\r\n\r\n", 400),
            (ECHO + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
            (ECHO + CHUNKED + b"\r\n5\r\nhelloX\r\n0\r\n\r\n", 400),
            (ECHO + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
            (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
            (ECHO + b"Expect: tea\r\nContent-Length: 0\r\n\r\n", 417),
        ],
        ids=lambda value: value.removeprefix(ECHO)[:60].decode("latin-1") if isinstance(value, bytes) else str(value),
    )
    def test_a_request_whose_end_is_in_doubt_is_refused_and_nothing_behind_it_is_read(
        self, exchange: Exchange, sent: bytes, status: int
    ) -> None:
        """One answer, and the end of the connection."""
        peer = exchange.with_(sent + HIDDEN, FOREVER)

        assert peer.received.startswith(b"HTTP/1.1 %d " % status), peer.received[:300]
        assert peer.received.count(b"HTTP/1.1 ") == 1
        assert b"\r\nConnection: close\r\n" in peer.received
        assert b"\r\nCache-Control: no-store\r\n" in peer.received
        assert json.loads(peer.bodies[0])["error"]["message"]
        assert "/hidden" not in exchange.application.paths

    @pytest.mark.parametrize(
        ("version", "sent", "answers"),
        [
            *(
                (b"1.1", sent, 1)
                for sent in (
                    *(b"Connection: close\r\n", b"Connection: keep-alive, close\r\n", b"Connection: close, keep-alive\r\n"),
                    *(b"connection:\tTE ,CLOSE\r\n", b"Connection: keep-alive\r\nConnection: close\r\n"),
                )
            ),
            *(
                (b"1.1", sent, 2)
                for sent in (
                    *(b"", b"Connection: keep-alive\r\n", b"Connection: x-close, closed\r\n"),
                    b"Connection: Upgrade, keep-alive\r\nUpgrade: h2c\r\n",
                )
            ),
            *((b"1.0", b"Connection: %b\r\n" % options, 2) for options in (b"keep-alive", b"Keep-Alive, TE")),
            *((b"1.0", b"Connection: %b\r\n" % options, 1) for options in (b"keep-alive, close", b"TE")),
        ],
    )
    def test_a_connection_ends_when_one_of_its_options_is_close(
        self, exchange: Exchange, version: bytes, sent: bytes, answers: int
    ) -> None:
        """The field is a list of words in any case, on one line or on several (RFC 9110 section 7.6.1). One of HTTP/1.0 goes on
        only when it asks for that (RFC 9112 section 9.3)."""
        peer = exchange.with_(b"GET / HTTP/%b\r\nHost: test\r\n" % version + sent + b"\r\n" + LAST, FOREVER)
        assert peer.received.count(b" 200 OK") == answers

    @pytest.mark.parametrize("expectation", [b"100-continue", b"100-Continue", b" 100-CONTINUE "])
    def test_leave_to_send_a_body_is_given_in_whatever_case_it_is_asked_for(self, exchange: Exchange, expectation: bytes) -> None:
        """A client would wait for a second or for ever (RFC 9110 section 10.1.1)."""
        head = ECHO + b"Content-Length: 5\r\nExpect: " + expectation + b"\r\n\r\n"
        peer = exchange.with_(head, b"hello", LAST, FOREVER)
        assert peer.received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")

    def test_a_client_of_http_1_0_gets_no_leave(self, exchange: Exchange) -> None:
        """It would take that for the answer."""
        peer = exchange.with_(
            ECHO.replace(b"1.1", b"1.0") + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", b"hello", FOREVER
        )
        assert b"100 Continue" not in peer.received
        assert peer.bodies == [b"hello"]

    @pytest.mark.parametrize(
        ("sent", "body"),
        [
            (ECHO + b"Content-Length: 5\r\n\r\nhello", b"hello"),
            (ECHO + b"Content-Length: 005\r\n\r\nhello", b"hello"),
            (ECHO + CHUNKED + b"\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
            (ECHO + CHUNKED + b"\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: x\r\n\r\n", b"hello"),
            (ECHO + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", b""),
            (ECHO + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
            (ECHO + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b""),
        ],
        ids=lambda value: value.removeprefix(ECHO)[:60].decode("latin-1") if isinstance(value, bytes) else str(value),
    )
    @pytest.mark.parametrize("piece_bytes", [1, 10_000])
    def test_a_plain_request_is_read_to_its_end_and_the_next_one_behind_it(
        self, exchange: Exchange, sent: bytes, body: bytes, piece_bytes: int
    ) -> None:
        """Two in one segment, or byte by byte, are two answers."""
        whole = sent + LAST
        peer = exchange.with_(*[whole[at : at + piece_bytes] for at in range(0, len(whole), piece_bytes)], FOREVER)

        assert peer.bodies == [body, b""]
        assert exchange.application.paths == ["/echo", "/last"]

    def test_a_body_that_the_application_leaves_is_not_taken_for_the_next_request(self, exchange: Exchange) -> None:
        """It is read and dropped. With a large one the connection ends; its client is notified, and may go on sending for a
        while. Closed at once, the connection would be reset."""
        exchange.application.reads = False
        small = exchange.with_(ECHO + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN + LAST, FOREVER)
        assert small.bodies == [b"unread", b"unread"]
        large = exchange.with_(ECHO + b"Content-Length: 1000000\r\n\r\n", Pause(1), b"x" * 1_000_000)

        assert b"\r\nConnection: close\r\n" in large.received
        assert (large.shut, large.sent_bytes > 1_000_000) == (True, True)
        assert exchange.application.paths == ["/echo", "/last", "/echo"]

    def test_a_chunked_body_has_an_end(self, exchange: Exchange) -> None:
        """Its sizes and extensions may not be much longer than its data. Chunks of one byte are as good as others."""
        exchange.with_(ECHO + CHUNKED + b"\r\n", *[b"1;" + b"x" * 100 + b"\r\nx\r\n"] * 20_000, FOREVER)
        assert [str(error) for error in exchange.application.failures] == ["[Errno 104] a chunked body that does not end"]
        small = exchange.with_(ECHO + CHUNKED + b"\r\n", *[b"1\r\nx\r\n"] * 20_000, b"0\r\n\r\n")
        assert small.bodies == [b"x" * 20_000]


class TestDeadlines:
    """How long a peer may keep the server waiting. The clock moves by the pauses of the peer alone."""

    @pytest.mark.parametrize(
        "begun", [b"G", b"GET /last HTTP/1.1", b"GET /last HTTP/1.1\r\nHost: test\r\nX-Slow: "], ids=["G", "line", "header"]
    )
    def test_late_headers_are_told(self, exchange: Exchange, begun: bytes) -> None:
        """408, once something has come, when the deadline is over and not before."""
        peer = exchange.with_(begun, FOREVER)

        assert peer.received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert peer.now_s == 1000 + LIMITS.header_deadline_s
        assert exchange.application.paths == []

    def test_headers_that_drip_are_late_all_the_same(self, exchange: Exchange) -> None:
        """The deadline is for all of them, not for the next byte."""
        drips = [part for byte in b"GET /last HTTP/1.1\r\nHost: test\r\n\r\n" for part in (bytes([byte]), Pause(1))]
        peer = exchange.with_(*drips)

        assert peer.received.startswith(b"HTTP/1.1 408 ")
        assert peer.sent_bytes == 6

    def test_a_connection_that_never_says_anything_is_closed_in_silence(self, exchange: Exchange) -> None:
        """A browser opens some to have them at hand."""
        peer = exchange.with_(FOREVER)
        assert (peer.received, peer.now_s) == (b"", 1000 + LIMITS.header_deadline_s)

    def test_a_connection_between_two_requests_is_closed_in_silence(self, exchange: Exchange) -> None:
        """After the keep-alive time; a request that begins in it has the time of a request."""
        get = b"GET /a HTTP/1.1\r\nHost: test\r\n\r\n"
        idle = exchange.with_(get, FOREVER)
        assert idle.bodies == [b""]
        assert idle.now_s == 1000 + LIMITS.keep_alive_s

        slow = exchange.with_(get, Pause(59), get[:10], Pause(4), get[10:], FOREVER)
        assert slow.bodies == [b"", b""]
        late = exchange.with_(get, Pause(59), get[:10], FOREVER)
        assert late.received.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 408 ")
        assert late.now_s == 1000 + 59 + LIMITS.header_deadline_s

    @pytest.mark.parametrize("framing", [b"Content-Length: 100000\r\n", CHUNKED], ids=["length", "chunked"])
    def test_a_body_that_drips_is_cut(self, exchange: Exchange, framing: bytes) -> None:
        """A byte a second is below the least rate. Bytes give so little time back that the grace runs out."""
        drips: list[bytes | Pause] = [b"1", Pause(1)] * 1000
        peer = exchange.with_(ECHO + framing + b"\r\n", *drips)

        assert peer.sent_bytes < 200
        assert peer.now_s < 1000 + 2 * LIMITS.body_deadline_s
        assert [str(error) for error in exchange.application.failures] == ["[Errno 104] the body took too long"]

    def test_a_body_that_keeps_its_pace_may_take_as_long_as_it_likes(self, exchange: Exchange) -> None:
        """Fifty times the grace, at the least rate."""
        pieces: list[bytes | Pause] = [b"x" * 900, Pause(9)] * 60
        peer = exchange.with_(ECHO + b"Content-Length: 54000\r\nConnection: close\r\n\r\n", *pieces)

        assert peer.bodies == [b"x" * 54_000]
        assert peer.now_s > 1000 + 50 * LIMITS.body_deadline_s

    def test_no_peer_saves_time_up_with_what_it_has_sent(self, exchange: Exchange) -> None:
        """A megabyte does not buy an hour of silence after it."""
        peer = exchange.with_(ECHO + b"Content-Length: 1500000\r\n\r\n", Pause(1), b"x" * 1_000_000, FOREVER)
        assert peer.now_s == 1001 + LIMITS.body_deadline_s

    def test_the_time_that_an_application_takes_does_not_count(self, exchange: Exchange) -> None:
        """Neither before it reads the body nor between two pieces of its answer."""
        peer = Peer([ECHO + b"Content-Length: 2\r\nConnection: close\r\n\r\n", Pause(9), b"{}"])

        def pieces() -> Iterator[bytes]:
            for _ in range(4):
                peer.now_s += 1000
                yield b"piece"

        exchange.application.answer = pieces
        peer.served_by(exchange.application, LIMITS)

        assert peer.received.count(b"piece") == 4

    def test_an_answer_that_nobody_reads_is_cut(self, exchange: Exchange) -> None:
        """At the write deadline, and hard, because the kernel would hold the rest for many minutes."""
        exchange.application.answer = lambda: iter([b"x" * 100_000])
        peer = exchange.with_(LAST, accepts=[1000, 500, Pause(1e9)])

        assert len(peer.received.partition(b"\r\n\r\n")[2]) == 500
        assert peer.now_s == 1000 + LIMITS.write_deadline_s
        assert peer.reset

    def test_an_answer_that_is_read_slowly_but_steadily_is_not_cut(self, exchange: Exchange) -> None:
        """Each byte that moves gives time back."""
        exchange.application.answer = lambda: iter([b"x" * 50_000])
        steady: list[int | Pause] = [1000, Pause(9)] * 60
        peer = exchange.with_(LAST, accepts=steady)

        assert peer.received.count(b"x") == 50_000
        assert peer.now_s > 1000 + 10 * LIMITS.write_deadline_s

    def test_answers_that_are_read_in_parts_are_all_read(self, exchange: Exchange) -> None:
        """In order, also those that the hub could not write at once, and the last one ends the connection."""
        request = ECHO + b"Content-Length: 3\r\n\r\n"
        steps: list[int | Pause] = [60, 1, Pause(1), 1000, 1000, 5, 5, Pause(1), Pause(1)]
        peer = exchange.with_(*(request + body for body in (b"one", b"two", b"six", b"ten")), accepts=steps)

        assert [body for *_, body in peer.answers] == [b"one", b"two", b"six", b"ten"]
        assert exchange.application.paths == ["/echo"] * 4

    def test_bytes_that_came_while_the_process_stood_still_are_read_first(self, exchange: Exchange) -> None:
        """A deadline within the stall is no fault of the peer, as the loop serves timers before sockets."""

        class Stalling(Peer):
            def wait(self, events: int, timeout_s: float) -> float | None:
                assert super().wait(events, timeout_s) is not None
                return None

        peer = Stalling([ECHO, Pause(1), b"Content-Length: 5\r\nConnection: close\r\n\r\nhello"])
        peer.served_by(exchange.application, LIMITS)

        assert peer.bodies == [b"hello"]


class TestManners:
    """The rest of the world has its share."""

    def test_a_client_that_is_gone_in_the_middle_of_its_headers_leaves_no_traceback(self, exchange: Exchange) -> None:
        """Nothing of ours has failed (the fixture checks standard error)."""
        for begun in (b"", b"GET /", b"GET / HTTP/1.1\r\nHost: test\r\nX-Slow: "):
            exchange.with_(begun, Reset())
            exchange.with_(begun)

        assert exchange.application.paths == []

    def test_everybody_else_has_a_turn_between_two_pipelined_requests(self, exchange: Exchange) -> None:
        """However many of them have come at once, and though a route waits for nothing."""
        with others(lambda: len(exchange.application.paths)) as turns:
            exchange.with_(b"GET /echo HTTP/1.1\r\nHost: test\r\n\r\n" * 50)

        assert len(exchange.application.paths) == 50
        assert len(set(turns)) > 40

    def test_everybody_else_has_turns_while_a_large_body_comes_in(self, exchange: Exchange) -> None:
        """A peer that never keeps the server waiting would keep the loop."""
        with others(lambda: None) as turns:
            exchange.with_(ECHO + b"Content-Length: 1000000\r\nConnection: close\r\n\r\n" + b"x" * 1_000_000)

        assert len(turns) >= 10

    def test_the_kernel_holds_little_of_an_answer_that_nobody_reads(self) -> None:
        """The application is asked for no more than the send buffer takes."""
        written = 0

        def large(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
            nonlocal written
            start_response("200 OK", [])
            for _ in range(1000):
                yield b"x" * 16384
                written += 16384

        ours, theirs = gevent.socket.socketpair()
        theirs.sendall(LAST)
        server = HTTPServer(("127.0.0.1", 0), large, limits=HttpLimits(send_buffer_bytes=32768))
        serving = serve_on(server, ours)
        turn()
        try:
            assert 0 < written < 150_000
        finally:
            theirs.close()
            serving.join()

    def test_a_request_counts_as_waiting_only_while_its_peer_keeps_the_server_waiting(self) -> None:
        """One at work is never ended for another; one with a slow body is."""
        peer = Peer([ECHO + b"Content-Length: 2\r\n\r\n", Pause(1), b"{}", FOREVER])
        waiting: list[bool] = []

        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
            waiting.append(server.connections.longest_waiting() is not None)
            environ["wsgi.input"].read()
            waiting.append(server.connections.longest_waiting() is not None)
            start_response("204 No Content", [])
            return []

        server = HTTPServer(("127.0.0.1", 0), application, limits=LIMITS)
        peer.served_by(application, LIMITS, server=server)

        assert waiting == [False, True]

    def test_a_request_that_is_one_too_many_is_answered_without_the_application(self) -> None:
        """With a proxy, where the address is known only now; the proxy may use the connection for others."""
        application = Application()
        limits = HttpLimits(max_connections_per_address=1, proxies=1)
        forwarded = b"GET /a HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 203.0.113.%d\r\n\r\n"
        peer = Peer([forwarded % 6, forwarded % 5])
        server = HTTPServer(("127.0.0.1", 0), application, limits=limits)
        busy = HttpConnection(server, Peer([]).as_socket(), ("192.0.2.1", 5))
        server.connections.open(busy, "203.0.113.5")
        server.connections.work(busy)
        peer.served_by(application, limits, server=server)

        first, second = peer.received.split(b"HTTP/1.1 ")[1:]
        assert first.startswith(b"200 ")
        assert second.startswith(b"429 ")
        assert b"connections_per_address (at most 1)" in second
        assert application.paths == ["/a"]
