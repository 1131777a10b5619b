"""The pipe between a browser's TLS socket and a session's plain one: bytes, back-pressure, and the end of either side."""

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gevent
import gevent.socket
import gevent.ssl
import pytest
from gevent import pywsgi

from headgate.socketio.other_servers import detach_any
from headgate.transport import detach as module
from headgate.transport.detach import Detached, TlsPipe, detach
from headgate.transport.http_server import HTTPServer
from tests.support.certificates import Authority
from tests.support.session_clock import turn


@dataclass
class Piped:
    """A pipe that carries, the browser's TLS socket, and the session's plain one."""

    browser: Any
    tls: Any
    plain: TlsPipe
    carrying: Any

    def at_plain(self, size: int) -> bytes:
        """Return so many bytes that the browser has sent; none at its end."""
        data = b""
        while len(data) < size:
            turn()
            with suppress(BlockingIOError):
                data += (piece := self.plain.recv(size))
                if not piece:
                    break
        return data


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """TLS of a server, and of a browser that trusts it."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    certificate, key = authority.issue("localhost")
    serving = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    browsing = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    browsing.load_verify_locations(authority.ca_file)
    return serving, browsing


@pytest.fixture
def piped(contexts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Piped]:
    monkeypatch.setattr(module, "LINGER_S", 0.01)
    serving, browsing = contexts
    ours, theirs = gevent.socket.socketpair()
    accepting = gevent.spawn(serving.wrap_socket, ours, server_side=True)
    browser = browsing.wrap_socket(theirs, server_hostname="localhost")
    pipe = TlsPipe(tls := accepting.get())
    yield Piped(browser, tls, pipe, carrying := gevent.spawn(pipe.carry))
    pipe.close()
    browser.close()
    carrying.join()


def test_bytes_go_both_ways(piped: Piped) -> None:
    """As they were sent, however many."""
    piped.browser.sendall(b"hello")
    assert piped.at_plain(5) == b"hello"
    data, sent = bytes(range(256)) * 4000, 0
    reading = gevent.spawn(lambda: b"".join(iter(lambda: piped.browser.recv(65536), b"")))
    while sent < len(data):
        with suppress(BlockingIOError):
            sent += piped.plain.send(data[sent:])
        gevent.sleep(0)
    piped.plain.shutdown(socket.SHUT_WR)

    assert reading.get() == data


def test_a_browser_that_leaves_ends_the_sessions_socket(piped: Piped) -> None:
    """It reads the end, closes, and the pipe is over."""
    piped.browser.close()
    assert piped.at_plain(1) == b""
    piped.plain.close()
    piped.carrying.join()

    assert piped.plain.fileno() == -1


def test_a_session_that_closes_ends_a_browser_that_takes_nothing(piped: Piped) -> None:
    """After a moment, although a greenlet waits for that browser; nothing of the pipe is left."""
    with suppress(BlockingIOError):
        while True:
            piped.plain.send(bytes(65536))
            turn()
    piped.plain.close()
    piped.plain.close()
    piped.carrying.join()

    assert piped.carrying.successful()


def test_a_connection_that_has_ended_in_time_is_not_ended_again(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has closed its socket by then."""
    due: list[Callable[[], None]] = []
    monkeypatch.setattr(module, "later", lambda _delay_s, function: due.append(function))
    piped.plain.close()
    piped.browser.close()
    piped.carrying.join()
    piped.tls.close()
    [end] = due
    end()


@pytest.mark.parametrize("server_class", [HTTPServer, pywsgi.WSGIServer], ids=["ours", "pywsgi's own"])
def test_a_request_over_tls_gives_its_socket_away(contexts: tuple[Any, Any], server_class: Any) -> None:
    """It counts as no HTTP connection any more, and its greenlet ends when both sides have."""
    serving, browsing = contexts
    taken: list[Detached] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        is_ours = server_class is HTTPServer
        answer = b"the answer and a frame"
        taken.append(detach(environ, answer) if is_ours else detach_any(environ, answer, b"", start_response=start_response))
        return taken[0].body

    options = {} if server_class is HTTPServer else {"log": None}
    server = server_class(("127.0.0.1", 0), application, ssl_context=serving, **options)
    server.start()
    browser = browsing.wrap_socket(
        gevent.socket.create_connection(("127.0.0.1", server.server_port)), server_hostname="localhost"
    )
    browser.sendall(b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    said = b""
    while len(said) < len(b"the answer and a frame"):
        said += browser.recv(100)
    assert said == b"the answer and a frame"
    assert server_class is not HTTPServer or len(server.connections) == 0
    browser.sendall(b"hello")
    piped = Piped(browser, None, taken[0].sock, None)  # type: ignore[arg-type]
    assert piped.at_plain(5) == b"hello"
    taken[0].sock.close()

    with suppress(ConnectionResetError):  # when this process has been paused for longer than the linger
        assert browser.recv(100) == b""
    browser.close()
    server.stop()


def test_a_peer_that_speaks_no_tls_is_dropped(contexts: tuple[Any, Any]) -> None:
    """In silence, because it is not the server's fault."""
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], ssl_context=contexts[0])
    server.start()
    peer = gevent.socket.create_connection(("127.0.0.1", server.server_port))
    peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with suppress(ConnectionResetError):
        while peer.recv(100):
            pass
    while len(server.connections):
        gevent.sleep(0)
    server.stop()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_peer_that_has_gone_before_it_is_accepted_is_dropped(
    contexts: tuple[Any, Any], capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    """Without notice, because anyone can reset a connection."""
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], ssl_context=contexts[0])
    server.init_socket()
    with socket.create_connection(server.address) as peer:
        peer.sendall(sent)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.start()
    turn()
    turn()
    server.close()
    assert (len(server.connections), capfd.readouterr().err) == (0, "")
