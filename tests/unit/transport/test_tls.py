"""TLS: a server's handshake and answers, and a session's socket under ours and other servers."""

import socket
import ssl
import struct
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import gevent.ssl
import pytest
from gevent import pywsgi

from headgate.events.wire.frames import Frame
from headgate.socketio.other_servers import detach_any
from headgate.transport.detach import Detached, detach
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_server import HTTPServer
from headgate.transport.limits import TransportLimits
from headgate.transport.peer_socket import with_tls
from headgate.transport.session import Session
from tests.support.certificates import Authority
from tests.support.session_clock import Clock, SessionServer, controlled_clock, native_pair, turn
from tests.support.websocket_codec import CLOSE, TEXT, frames_in, masked

clock = pytest.fixture(controlled_clock)


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


def read_until(browser: Any, size: int) -> bytes:
    """Return what has come once it is this many bytes, or the end of the stream."""
    data = b""
    while len(data) < size and (piece := browser.recv(65536)):
        data += piece
    return data


def connected(contexts: tuple[Any, Any], server: Any) -> Any:
    sock = gevent.socket.create_connection(("127.0.0.1", server.server_port))
    return contexts[1].wrap_socket(sock, server_hostname="localhost")


@pytest.fixture
def dialled(contexts: tuple[Any, Any], clock: Clock) -> Any:
    """A session on a WebSocket over TLS, and the browser's socket."""
    ours, theirs = native_pair()
    browsing = gevent.spawn(
        contexts[1].wrap_socket, gevent.socket.socket(fileno=theirs.detach(), family=socket.AF_UNIX), server_hostname="localhost"
    )
    session = Session(SessionServer(clock, TransportLimits(handshake_deadline_s=0)), "sid")
    session.start_websocket(with_tls(ours, contexts[0]))
    yield session, browsing.get()
    session.end("the test is over", hard=True)
    browsing.get().close()


def test_a_session_talks_over_tls_in_order(dialled: Any) -> None:
    """Also when the browser takes only a part for a while, whichever way the frames come; and it gets the close frame last."""
    session, browser = dialled
    browser.sendall(masked(TEXT, "4hello") + masked(TEXT, "4" + "x" * 40_000))
    while len(session.server.delivered) < 2:
        turn()
    assert session.server.delivered == ["hello", "x" * 40_000]

    frames = [Frame(b"4%d" % at + b"x" * 30_000) for at in range(100)]
    assert session.stream(frames[:2], SimpleNamespace(direct=0, offered=0, sent=0)) == 2
    for frame in frames[2:]:
        session.queue.put(frame)
        session.flush()
    assert session.wire.writing
    session.end("over")
    *received, last, close = frames_in(read_until(browser, 1 << 30))[0]
    assert received == [(TEXT, frame.packet) for frame in frames]
    assert (last, close[0]) == ((TEXT, b"1"), CLOSE)


def test_a_browser_that_takes_nothing_is_ended_at_the_write_deadline(dialled: Any, clock: Clock) -> None:
    """As without TLS, and at once."""
    session, browser = dialled
    while not session.wire.writing:
        session.queue.put(Frame(b"4" + b"x" * 60_000))
        session.flush()
    clock.advance(session.server.limits.write_deadline_s)
    assert session.reason == "write deadline"
    with suppress(ConnectionResetError):
        read_until(browser, 1 << 30)


def test_an_answer_that_is_not_read_stops_nobody_else(contexts: tuple[Any, Any]) -> None:
    """It arrives whole when its client goes on."""
    body = b"x" * 10_000_000

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [("Connection", "close")])
        return [body]

    server = HTTPServer(("127.0.0.1", 0), application, ssl_context=contexts[0])
    server.start()
    browser = connected(contexts, server)
    browser.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    while not server.answering:
        turn()
    for _ in range(20):
        turn()
    assert read_until(browser, 1 << 30).endswith(b"\r\n\r\n" + body)
    browser.close()
    server.close()


@pytest.mark.parametrize("server_class", [HTTPServer, pywsgi.WSGIServer], ids=["ours", "pywsgi's own"])
def test_a_request_over_tls_gives_its_socket_away(contexts: tuple[Any, Any], server_class: Any) -> None:
    """It counts as no HTTP connection any more, and its greenlet ends when both sides have."""
    taken: list[Detached] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        is_ours = server_class is HTTPServer
        answer = b"the answer and a frame"
        taken.append(detach(environ, answer) if is_ours else detach_any(environ, answer, b"", start_response=start_response))
        return taken[0].body

    options = {} if server_class is HTTPServer else {"log": None}
    server = server_class(("127.0.0.1", 0), application, ssl_context=contexts[0], **options)
    server.start()
    browser = connected(contexts, server)
    browser.sendall(b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert read_until(browser, len(b"the answer and a frame")) == b"the answer and a frame"
    assert server_class is not HTTPServer or len(server.connections) == 0
    browser.sendall(b"hello")
    sock, received = taken[0].sock, b""
    while not received:
        turn()
        with suppress(BlockingIOError):
            received = sock.recv(100)
    assert received == b"hello"
    sock.close()
    assert browser.recv(100) == b""
    browser.close()
    server.stop()


def test_a_peer_that_speaks_no_tls_is_dropped(contexts: tuple[Any, Any]) -> None:
    """In silence, because it is not the server's fault."""
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], ssl_context=contexts[0])
    server.start()
    peer = gevent.socket.create_connection(("127.0.0.1", server.server_port))
    peer.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    with suppress(ConnectionResetError):
        while peer.recv(100):
            pass
    while len(server.connections):
        gevent.sleep(0)
    server.stop()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["silent", "unfinished"])
def test_a_peer_that_does_not_finish_its_handshake_is_dropped(contexts: tuple[Any, Any], sent: bytes) -> None:
    """At the deadline for the head of a request, which includes the handshake."""
    limits = HttpLimits(header_deadline_s=0.05, keep_alive_s=3600)
    server = HTTPServer(("127.0.0.1", 0), lambda environ, start_response: [], ssl_context=contexts[0], limits=limits)
    server.start()
    peer = gevent.socket.create_connection(("127.0.0.1", server.server_port))
    peer.sendall(sent)
    with suppress(ConnectionResetError):
        assert peer.recv(100) == b""
    assert len(server.connections) == 0
    server.stop()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"])
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
