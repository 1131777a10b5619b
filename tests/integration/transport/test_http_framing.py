"""The HTTP server on real connections, with one case for each thing that only a socket, or several clients, can show.

tests/unit/transport/test_http_connection.py has the rules: where a request ends, and how long each part of it may take.
"""

import contextlib
import socket
import threading

import pytest

from tests.integration.transport.clients import DEADLINE_S, WebSocket, answer_on, closing, dial
from tests.integration.transport.server_process import ServerProcess, StartServer


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """An HTTP server with the default limits."""
    return start_shared_server()


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
