"""A socket taken away from another WSGI server: over socket pairs, in one process."""

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import pytest
from gevent import pywsgi

from headgate.socketio.other_servers import detach_any
from headgate.transport.detach import CannotDetach, Detached
from tests.support.session_clock import turn
from tests.support.wsgi import Said

REQUEST = b"GET /socket HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class Served:
    """One connection under gevent's pywsgi, and its peer; `application` is called in the request."""

    def __init__(self, application: Callable[[dict[str, Any], Any], Any]) -> None:
        self._application = application
        ours, self.peer = gevent.socket.socketpair()
        self.greenlet = gevent.spawn(self._serve, ours)

    def close(self) -> None:
        self.peer.close()
        self.greenlet.kill()

    def _serve(self, sock: Any) -> None:
        server = pywsgi.WSGIServer(("127.0.0.1", 0), self._application)
        pywsgi.WSGIHandler(sock, "", server).handle()
        server.do_close(sock)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(application: Callable[[dict[str, Any], Any], Any]) -> Served:
        made.append(Served(application))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.mark.parametrize("behind", [b"", b"\x81\x85 the first frame"], ids=["nothing behind", "a frame behind"])
def test_a_socket_of_pywsgi_is_taken_away_with_the_bytes_behind_the_request(serve: Callable[..., Served], behind: bytes) -> None:
    """The answer goes out first; nothing is waited for, and the handler reads, writes and closes it no more."""
    taken: list[Detached] = []

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        taken.append(detach_any(environ, b"the answer", b"", start_response=start_response))
        assert environ["wsgi.input"].read() == b""
        return []

    served = serve(application)
    served.peer.sendall(REQUEST + behind)
    turn()
    sock, received = taken[0].sock, taken[0].received
    assert received == behind
    assert served.greenlet.dead
    assert not os.get_blocking(sock.fileno())
    sock.send(b" and more")
    assert served.peer.recv(100) == b"the answer and more"
    served.peer.sendall(b"later")
    assert sock.recv(100) == b"later"
    sock.close()


def test_a_socket_of_an_unknown_server_cannot_be_taken_away() -> None:
    with pytest.raises(CannotDetach):
        detach_any({}, b"", start_response=Said())


def test_a_socket_that_gevent_websocket_has_answered_is_taken_without_a_second_answer(serve: Callable[..., Served]) -> None:
    """Only the frames go out, and its own WebSocket says nothing when the request ends."""
    taken: list[Detached] = []
    answered: list[SimpleNamespace] = []

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        its = SimpleNamespace(handler=start_response.__self__, closed=False, stream=1, raw_read=1, raw_write=1)
        answered.append(its)
        environ["wsgi.websocket"] = its
        taken.append(detach_any(environ, b"the answer", b"the frames", start_response=Said()))
        return []

    served = serve(application)
    served.peer.sendall(REQUEST)
    turn()
    taken[0].sock.send(b" and more")

    assert served.peer.recv(100) == b"the frames and more"
    assert answered[0].closed
    assert answered[0].stream is None
    taken[0].sock.close()


def gunicorn_response() -> Any:
    """Return a `start_response` as gunicorn has it, a method of its response, which knows the request and the bytes after it."""

    class Response:
        req = SimpleNamespace(unreader=SimpleNamespace(take_buffered=lambda: b"a frame"))

        def start_response(self, status: str, headers: list[tuple[str, str]]) -> None:
            raise AssertionError(status)

    return Response().start_response


def test_a_socket_of_gunicorns_gevent_worker_is_taken_away() -> None:
    """The end of the request is StopIteration, of which the worker makes the end of its connection."""
    ours, peer = gevent.socket.socketpair()
    environ = {"gunicorn.socket": ours}
    detached = gevent.spawn(detach_any, environ, b"answer", b" and frames", start_response=gunicorn_response()).get()

    assert peer.recv(100) == b"answer and frames"
    assert detached.received == b"a frame"
    with pytest.raises(StopIteration):
        iter(detached.body)
    ours.close()  # as gunicorn does
    detached.sock.send(b"later")
    assert peer.recv(100) == b"later"
    detached.sock.close()


def test_a_socket_of_a_worker_that_lets_nothing_else_run_stays() -> None:
    """gunicorn's sync worker answers in the main greenlet, so no WebSocket would ever have a turn."""
    ours, _ = gevent.socket.socketpair()
    with pytest.raises(CannotDetach):
        detach_any({"gunicorn.socket": ours, "SERVER_SOFTWARE": "gunicorn/27"}, b"", start_response=gunicorn_response())
