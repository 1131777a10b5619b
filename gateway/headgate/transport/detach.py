"""Sockets under the HTTP server: `detach` takes one away for a WebSocket; `PollWatch` notices that a waiting poll was aborted.

A detached connection needs neither greenlet nor request object any more. Private corners of pywsgi that are met here, each
with a contract test: the handler is `start_response.__self__`; it lets go of a socket when its `socket` attribute is None;
`rfile` may hold bytes that came in behind the request.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Protocol

import gevent.ssl
from gevent import pywsgi

from headgate.runtime.loop import READ, Watcher, io_watcher
from headgate.runtime.servers import instead

from .first_request import FirstRequest
from .http_handler import HttpHandler
from .http_limits import Part
from .peer_socket import AcceptedSocket, NativeSocket, native

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


class Handler(Protocol):
    """A handler of pywsgi, ours or its own, whose socket can be taken away."""

    socket: AcceptedSocket | None
    close_connection: bool

    @property
    def rfile(self) -> object:
        """The reader of requests, which may hold more bytes than the request."""


class CannotDetach(Exception):
    """The WSGI server is not gevent's pywsgi over a plain socket: there is nothing to take over."""


def detach(environ: WSGIEnvironment, start_response: StartResponse, first_bytes: bytes) -> tuple[NativeSocket, bytes]:
    """Take the request's socket away from the HTTP server and write `first_bytes` to it.

    Returns:
        The socket, non-blocking, now the caller's to close; the bytes already received behind the request.

    Raises:
        CannotDetach: under another WSGI server, or over TLS inside this process (terminate TLS in front of it).
        OSError: the client is gone.
    """
    first = environ.get("headgate.handler")
    if isinstance(first, FirstRequest):  # there is no handler yet
        taken = first.detach(first_bytes)
        environ["wsgi.input"] = BytesIO()
        del environ["headgate.handler"]
        return taken
    handler = _handler_of(environ, start_response)
    if handler is None or handler.socket is None:
        raise CannotDetach(instead(environ))
    if isinstance(handler.socket, gevent.ssl.SSLSocket):
        raise CannotDetach("TLS inside this process carries no WebSocket: end TLS in a proxy in front of it")
    sock, reader = handler.socket, handler.rfile
    # The kernel has room for an answer on a connection that has had none: gevent's own way takes three times as long.
    try:
        sent = native(sock).send(first_bytes)
    except BlockingIOError:
        sent = 0
    if sent < len(first_bytes):
        sock.sendall(first_bytes[sent:])
    # A client may send its first frame without waiting for our answer: it then sits in the reader's buffer. `peek` returns what
    # is buffered, and asks for more only if nothing is; a detached connection waits for none.
    if isinstance(handler, HttpHandler):
        handler.part = Part.DETACHED
    sock.settimeout(0.0)  # where the handler is not ours
    received = _buffered(reader)
    handler.socket = None
    handler.close_connection = True
    environ["wsgi.input"] = BytesIO()  # the reader behind it would keep 8 KiB for as long as anyone keeps the environ
    environ.pop("headgate.handler", None)
    return NativeSocket(fileno=sock.detach()), received


class PollWatch:
    """Watches the socket of a waiting long-poll for its end."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        handler = _handler_of(environ, start_response)
        self._sock = None if handler is None else handler.socket
        self._watcher: Watcher | None = None
        self._wake: Callable[[], object] | None = None
        self.aborted = False

    def start(self, wake: Callable[[], object]) -> None:
        """Start watching, with a first look at once; does nothing under a server whose socket we cannot see."""
        if self._sock is not None:
            self._wake = wake
            self._watcher = io_watcher(self._sock.fileno(), READ)
            self._watcher.start(self._readable)
            self._readable()

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None

    def _readable(self) -> None:
        try:
            ended = native(self._sock).recv(1, socket.MSG_PEEK) == b"" if self._sock is not None else True
        except BlockingIOError:
            return
        except OSError:
            ended = True
        self.stop()  # bytes mean a pipelined request, which waits its turn
        if ended:
            self.aborted = True
            if self._wake is not None:
                self._wake()


def _handler_of(environ: WSGIEnvironment, start_response: StartResponse) -> Handler | None:
    handler: Handler | None = environ.get("headgate.handler") or getattr(start_response, "__self__", None)
    return handler if isinstance(handler, pywsgi.WSGIHandler) else None


def _buffered(reader: object) -> bytes:
    try:
        return bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        return b""
