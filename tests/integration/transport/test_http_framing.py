"""The HTTP server on real connections, with one case for each thing that only a socket, or several clients, can show.

tests/unit/transport/test_http_connection.py has the rules: where a request ends, and how long each part of it may take.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from tests.integration.transport.clients import DEADLINE_S, WebSocket, answer_on, closing, dial
from tests.integration.transport.server_process import ServerProcess, StartServer

# A smuggler hides this after a request, and hopes for an answer to it.
HIDDEN = b"GET /debug/state HTTP/1.1\r\nHost: test\r\n\r\n"
ECHO = b"POST /debug/echo HTTP/1.1\r\nHost: test\r\n"
CHUNKED = ECHO + b"Transfer-Encoding: chunked\r\n\r\n"
# One for each place that refuses: request line, headers, and a body while the application reads it.
REFUSED = {
    b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n": 414,
    ECHO + b"Content-Length: 0\r\nContent-Length: 41\r\n\r\n": 400,
    ECHO + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n": 501,
    CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n": 400,
}


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """An HTTP server with the default limits."""
    return start_shared_server()


def everything(sock: socket.socket) -> bytes:
    """Read to the end of the connection."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            got += data
    return got


def test_a_request_whose_end_is_in_doubt_is_refused_and_nothing_behind_it_is_read(server: ServerProcess) -> None:
    """One answer, and the end of the connection."""
    for sent, status in REFUSED.items():
        with dial(server.port) as sock:
            sock.sendall(sent + HIDDEN)
            answers = everything(sock)

        assert answers.startswith(b"HTTP/1.1 %d " % status), (sent[:100], answers[:300])
        assert answers.count(b"HTTP/1.1 ") == 1, (sent[:100], answers[:300])


@pytest.mark.parametrize(
    ("target", "status"), [("/socket.io/", 200), ("http://elsewhere/socket.io/", 200), ("//socket.io/", 404)]
)
def test_a_target_leads_to_the_session_or_nowhere(server: ServerProcess, target: str, status: int) -> None:
    """In absolute form as in origin form; two slashes are another path."""
    with dial(server.port) as sock:
        sock.sendall(f"GET {target}?EIO=4&transport=polling HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        assert answer_on(sock).status == status


def test_a_client_that_is_still_sending_when_it_is_refused_meets_no_reset(server: ServerProcess) -> None:
    """After a close with its body unread, the connection would be reset, and most clients would never look at the answer."""
    with dial(server.port) as sock:
        sock.sendall(b"POST /none HTTP/1.1\r\nHost: t\r\nContent-Length: 1000001\r\n\r\n4")
        assert answer_on(sock).status == 404
        sock.sendall(b"x" * 1_000_000)
        sock.shutdown(socket.SHUT_WR)

        assert sock.recv(1) == b""


def test_a_client_that_pipelines_without_end_does_not_keep_the_server_from_others(start_server: StartServer) -> None:
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
