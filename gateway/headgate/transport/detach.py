"""Sockets under the HTTP server: `detach` takes one for a WebSocket; `PollWatch` notices that a waiting poll was aborted.

A detached connection needs neither greenlet nor request object any more; over TLS it keeps both (tls_pipe.py). Our own server
(http_connection.py) gives a socket away by `take_socket`. The drop-in takes them of other servers, too
(socketio/other_servers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent
import gevent.socket
import gevent.ssl

from headgate.runtime.loop import READ, Watcher, io_watcher

from .http_connection import HttpConnection
from .peer_socket import NativeSocket, PlainPeer, TlsPeer, is_readable
from .tls_pipe import TlsPipe

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


class CannotDetach(Exception):
    """The WSGI server lets go of no socket. The text says why, if there is more to say than which server it is."""


class Detached(NamedTuple):
    """A socket that was taken away.

    Attributes:
        sock: non-blocking, and the caller's to close.
        received: the bytes that came behind the request.
        body: the application returns it, and the server has nothing more to do with the connection.
        unsent: the answer to the request, which is the caller's to write before anything else.
    """

    sock: NativeSocket
    received: bytes
    body: Iterable[bytes] = ()
    unsent: bytes = b""


def detach(environ: WSGIEnvironment, answer: bytes, *, takes_unsent: bool = False) -> Detached:
    """Take the request's socket away from our own HTTP server, and write the answer to the request.

    A caller that `takes_unsent` writes the answer itself where there is no greenlet yet.

    Raises:
        CannotDetach: under another WSGI server.
        OSError: the client is gone.
    """
    ours = environ.get("headgate.handler")
    if not isinstance(ours, HttpConnection):
        if "wsgi.websocket" in environ:
            raise CannotDetach("gevent-websocket has answered this request already: leave its handler_class out")
        raise CannotDetach
    peer, received, unsent = ours.take_socket(answer, takes_unsent=takes_unsent)
    del environ["headgate.handler"]
    forget_body(environ)
    if isinstance(peer, TlsPeer):
        pipe = TlsPipe(peer.tls)
        return Detached(pipe.plain, received, _Carrying(pipe))
    assert isinstance(peer, PlainPeer)
    return Detached(peer.sock, received, unsent=unsent)


def forget_body(environ: WSGIEnvironment) -> None:
    """Take the body out of an environment: its reader would keep 8 KiB for as long as anyone keeps that."""
    environ["wsgi.input"] = BytesIO()


class _Carrying:
    """The body of an answer that comes when the WebSocket is over: until then it carries its bytes, in the request's greenlet."""

    def __init__(self, pipe: TlsPipe) -> None:
        self._pipe = pipe

    def __iter__(self) -> Iterator[bytes]:
        self._pipe.carry()
        return iter(())


class PollWatch:
    """Watches the socket of a waiting long-poll for its end."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        ours = environ.get("headgate.handler")
        handler = None if ours is not None else handler_of(start_response)
        sock = ours or (gunicorn_socket(environ) if handler is None else handler.socket)
        self._fileno: Callable[[], int] | None = None if sock is None else sock.fileno
        self._watcher: Watcher | None = None
        self._wake: Callable[[], object] | None = None
        self.aborted = False

    def start(self, wake: Callable[[], object]) -> None:
        """Start watching, with a first look at once; does nothing under a server whose socket we cannot see."""
        if self._fileno is not None:
            self._wake = wake
            self._watcher = io_watcher(self._fileno(), READ)
            self._watcher.start(self._readable, self._fileno())
            self._readable(self._fileno())

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None

    def _readable(self, descriptor: int) -> None:
        try:
            readable = is_readable(descriptor)
        except OSError:
            readable = b""
        if readable is None:
            return
        self.stop()  # bytes mean a pipelined request, which waits its turn
        if not readable:
            self.aborted = True
            if self._wake is not None:
                self._wake()


def handler_of(start_response: StartResponse) -> Any:
    """Return the handler of gevent's pywsgi that has made `start_response`; None: another server has."""
    handler = getattr(start_response, "__self__", None)
    return handler if hasattr(handler, "rfile") and hasattr(handler, "close_connection") else None


def gunicorn_socket(environ: WSGIEnvironment) -> gevent.socket.socket | None:
    """Return the socket of a request under gunicorn, if its worker serves each connection in a greenlet of its own."""
    sock = environ.get("gunicorn.socket")
    in_main = gevent.getcurrent().parent is None  # a worker that lets nothing else run
    return sock if isinstance(sock, gevent.socket.socket | gevent.ssl.SSLSocket) and not in_main else None
