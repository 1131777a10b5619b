"""Where a request ends: a request about whose end two readers could disagree (smuggling) is refused. And how long it may take."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.integration.transport.clients import DEADLINE_S, WebSocket, answer_on, closing, dial
from tests.integration.transport.server_process import ServerProcess, StartServer

# What a smuggler hides behind a request, hoping that it is answered as one of its own.
HIDDEN = b"GET /debug/state HTTP/1.1\r\nHost: test\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
ECHO = b"POST /debug/echo HTTP/1.1\r\nHost: test\r\n"
# What the hasty server gives each part of a message, and the pace of a body that it has to bear.
GRACE_S = 0.5
PIECES, PIECE_BYTES, PAUSE_S = 20, 1000, GRACE_S / 4


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """An HTTP server with the default limits."""
    return start_shared_server()


@pytest.fixture(scope="module")
def hasty(start_shared_server: StartServer) -> Iterator[tuple[ServerProcess, Iterator[socket.socket]]]:
    """Half a second for everything that begins; and some connections that have had an answer and are in no haste to go on.

    So what a test sends on one of these begins with its first byte, and not before the test has come to send it.
    """
    server = start_shared_server()
    server.debug("hasten", keep_alive_s=600)
    with contextlib.ExitStack() as connections:
        idle = [connections.enter_context(dial(server.port)) for _ in range(2)]
        for sock in idle:
            sock.sendall(b"GET /none HTTP/1.1\r\nHost: test\r\n\r\n")
            assert answer_on(sock).status == 404
        server.debug("hasten", header_deadline_s=GRACE_S, body_deadline_s=GRACE_S, keep_alive_s=GRACE_S, write_deadline_s=GRACE_S)
        yield server, iter(idle)


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[socket.socket]:
    with dial(server.port) as sock:
        yield sock


def everything(sock: socket.socket) -> bytes:
    """Read to the end of the connection."""
    got = b""
    while True:
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            return got
        if not data:
            return got
        got += data


def paced_body(port: int) -> tuple[int, str] | None:
    """Send a body piece by piece and return the answer; None where more than half the grace went by between two of its bytes."""
    last_s, longest_s, answer = time.monotonic(), 0.0, None
    with dial(port) as sock:
        pieces = iter([ECHO + b"Content-Length: %d\r\n\r\n" % (PIECES * PIECE_BYTES), *[b"x" * PIECE_BYTES] * PIECES])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                sock.sendall(piece)
                now_s = time.monotonic()
                last_s, longest_s = now_s, max(longest_s, now_s - last_s)
                time.sleep(PAUSE_S)  # the pace that is tried
        with contextlib.suppress(http.client.BadStatusLine, ConnectionResetError):
            answer = answer_on(sock)
    if answer is not None and answer.status == 200:
        return answer.status, answer.json
    assert longest_s > GRACE_S / 2, f"cut though no pause was longer than {longest_s:.2f} s: {answer}"
    return None


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (ECHO + b"Content-Length: 0\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: 0\r\nContent-Length: 41\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: 0, 41\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: +0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: -1\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: 0x0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: 0_0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length:\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length: 00000000000000000000\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length : 0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Content-Length\t: 0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"X: y\r\n Content-Length: 41\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"X: y\rContent-Length: 41\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"X: y\0\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"Transfer-Encoding: identity\r\n\r\n" + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding: xchunked\r\n\r\n" + HIDDEN, 501),
        (ECHO + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding:\r\n\r\n" + HIDDEN, 501),
        (ECHO + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"\r\n5 \r\nhello\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"\r\n0x5\r\nhello\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"\r\n5\nhello\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"\r\n5\r\nhelloX\r\n0\r\n\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"\r\n" + b"F" * 17 + b"\r\n" + HIDDEN, 400),
        (ECHO + CHUNKED + b"\r\n0\r\nbad trailer: x\r\n\r\n" + HIDDEN, 400),
        (ECHO + b"X: " + b"y" * 20_000 + b"\r\n\r\n" + HIDDEN, 431),
        (ECHO + b"X: y\r\n" * 101 + b"\r\n" + HIDDEN, 431),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n" + HIDDEN, 414),
    ],
    ids=lambda value: value[len(ECHO) :][:60].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_a_request_whose_end_is_in_doubt_is_refused_and_nothing_behind_it_is_read(
    server: ServerProcess, wire: socket.socket, sent: bytes, status: int
) -> None:
    """One answer, and the end of the connection."""
    wire.sendall(sent)

    answers = everything(wire)

    assert answers.startswith(b"HTTP/1.1 %d " % status), answers[:300]
    assert answers.count(b"HTTP/1.1 ") == 1
    assert "Traceback" not in server.errors


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (ECHO + b"Content-Length: 5\r\n\r\nhello", "hello"),
        (ECHO + b"Content-Length: 005\r\n\r\nhello", "hello"),
        (ECHO + CHUNKED + b"\r\n5\r\nhello\r\n0\r\n\r\n", "hello"),
        (ECHO + CHUNKED + b"\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: x\r\n\r\n", "hello"),
        (ECHO + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", ""),
        (ECHO + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello", "hello"),
        (ECHO + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", ""),
    ],
    ids=lambda value: value[len(ECHO) :][:60].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_a_plain_request_is_read_to_its_end_and_the_next_one_behind_it(wire: socket.socket, sent: bytes, body: str) -> None:
    """Two in one segment are two answers."""
    wire.sendall(sent + b"GET /none HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")

    answers = everything(wire)

    first, _, rest = answers.partition(b"HTTP/1.1 404 ")
    assert json.loads(first.partition(b"\r\n\r\n")[2]) == body
    assert rest


class TestDeadlines:
    """What keeps the server waiting; what does not."""

    def test_a_body_that_keeps_its_pace_may_take_as_long_as_it_likes(
        self, hasty: tuple[ServerProcess, Iterator[socket.socket]]
    ) -> None:
        """Five times the grace, at more than the least rate. A test that was held up has not kept the pace, and tries again."""
        server, _ = hasty
        while (answer := paced_body(server.port)) is None:
            pass

        assert answer == (200, "x" * (PIECES * PIECE_BYTES))

    def test_the_time_that_an_application_takes_does_not_count(
        self, hasty: tuple[ServerProcess, Iterator[socket.socket]]
    ) -> None:
        """An answer in pieces, far apart, and each read at once."""
        _, idle = hasty
        sock = next(idle)
        sock.sendall(b"POST /debug/stream HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        assert everything(sock).count(b"piece") == 4

    def test_late_headers_are_told(self, hasty: tuple[ServerProcess, Iterator[socket.socket]]) -> None:
        """408, once something has come."""
        _, idle = hasty
        sock = next(idle)
        sock.sendall(b"GET /none HTTP/1.1\r\nHost:")
        assert everything(sock).startswith(b"HTTP/1.1 408 ")

    @pytest.mark.parametrize("before", [b"", b"GET /none HTTP/1.1\r\nHost: test\r\n\r\n"])
    def test_a_connection_without_a_request_is_closed_in_silence(
        self, hasty: tuple[ServerProcess, Iterator[socket.socket]], before: bytes
    ) -> None:
        """A browser opens some to have them at hand."""
        server, _ = hasty
        with dial(server.port) as sock:
            sock.sendall(before)
            assert b"408" not in everything(sock)

    def test_who_pipelines_without_end_does_not_keep_the_server_from_others(self, start_server: StartServer) -> None:
        """Another client is served while one sends requests, and reads the answers, as fast as it can."""
        server = start_server()
        stop = threading.Event()

        def read(sock: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while sock.recv(65536):
                    pass

        def pour() -> None:
            with dial(server.port) as sock, contextlib.suppress(OSError):
                threading.Thread(target=read, args=(sock,), daemon=True).start()
                while not stop.is_set():
                    sock.sendall(b"GET /none HTTP/1.1\r\nHost: test\r\n\r\n" * 2000)

        pouring = threading.Thread(target=pour)
        pouring.start()
        try:
            witness = WebSocket(server.port)
            with closing(witness):
                witness.join()
                for number in range(20):
                    witness.send(f'42{number}["message-with-ack","alive"]')
                    assert witness.text() == f'43{number}["alive"]'
            assert pouring.is_alive()
        finally:
            stop.set()
            pouring.join(DEADLINE_S)

    def test_the_kernel_queues_little_for_who_reads_nothing(self, start_server: StartServer) -> None:
        """What a client takes that does not read: two send buffers and its own, not what the kernel would grow to."""
        server = start_server()
        with dial(server.port, 4096) as sock:
            sock.sendall(b"POST /debug/large HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n{}")
            written = server.until(lambda state: state["written"], "the answer begun")["written"]
            last = -1
            give_up_s = time.monotonic() + DEADLINE_S
            while written != last:
                assert time.monotonic() < give_up_s
                last = written
                time.sleep(0.2)  # it is still written while it grows
                written = server.state()["written"]
        assert written < 1_000_000


class TestConnectionsPerAddress:
    """As many as one address may have at once, when none of them waits for its peer; the others of F31 do."""

    WAITING = b"POST /debug/wait HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n%b\r\n{}"
    FORWARDED = b"X-Forwarded-For: 198.51.100.1, %b\r\n"

    @staticmethod
    def status(sock: socket.socket) -> int:
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        if answer.status == 429:
            assert b"connections_per_address (at most 2 " in answer.read()
        return answer.status

    def test_one_more_is_refused(self, start_server: StartServer) -> None:
        """429 before its request is read; when the others are done there is room again."""
        server = start_server()
        with dial(server.port) as first, dial(server.port) as second:
            first.sendall(self.WAITING % b"")
            second.sendall(self.WAITING % b"")
            server.until(lambda state: state["waiting"] == 2, "two at work")
            server.debug("hasten", max_connections_per_address=2)
            with dial(server.port) as third:
                assert self.status(third) == 429
        # Their clients have left; the application has not noticed yet, and works on.
        with dial(server.port) as fourth:
            assert self.status(fourth) == 429

    def test_behind_a_proxy_requests_count_for_the_address_that_it_names(self, start_server: StartServer) -> None:
        """One client of the proxy is refused its third, another is served, on the same connection too."""
        server = start_server()
        server.debug("hasten", max_connections_per_address=2, proxies=1)
        busy = [dial(server.port) for _ in range(2)]
        try:
            for sock in busy:
                sock.sendall(self.WAITING % (self.FORWARDED % b"203.0.113.5"))
            server.until(lambda state: state["waiting"] == 2, "two at work")
            with dial(server.port) as third:
                third.sendall(b"GET /none HTTP/1.1\r\nHost: test\r\n" + self.FORWARDED % b"203.0.113.6" + b"\r\n")
                assert self.status(third) == 404
                third.sendall(b"GET /none HTTP/1.1\r\nHost: test\r\n" + self.FORWARDED % b"203.0.113.5" + b"\r\n")
                assert self.status(third) == 429
        finally:
            for sock in busy:
                sock.close()
            server.debug("release")
