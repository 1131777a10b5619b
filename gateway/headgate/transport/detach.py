"""Sockets under the HTTP server: `detach` takes one away for a WebSocket; `PollWatch` notices that a waiting poll was aborted.

A detached connection needs neither greenlet nor request object any more; over TLS it keeps both (tls_pipe.py). Three servers let
go of a socket, and a test meets the corners of each:

    gevent's pywsgi     the handler is `start_response.__self__`; it lets go when its `socket` attribute is None; `rfile` may hold
                        bytes that came in behind the request
    gevent-websocket    a handler of pywsgi that has answered the request already; `wsgi.websocket` leads to it
    gunicorn -k gevent  the socket is `gunicorn.socket`; StopIteration out of the application is the end of the connection; the
                        request's `unreader` may hold bytes that came in behind it
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gevent
import gevent.socket
import gevent.ssl
from gevent import pywsgi

from headgate.runtime.loop import READ, Watcher, io_watcher

from .first_request import FirstRequest
from .http_handler import HttpHandler
from .peer_socket import AcceptedSocket, NativeSocket, native
from .tls_pipe import TlsPipe

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


def detach(
    environ: WSGIEnvironment,
    start_response: StartResponse,
    accept: bytes,
    first_frames: bytes = b"",
    *,
    of_others: bool = True,
    takes_unsent: bool = False,
) -> Detached:
    """Take the request's socket away from the HTTP server; write the answer to the request, and the first frames behind it.

    Without `of_others` only from pywsgi and our own server: a gateway needs more of a server than its sockets. A caller that
    `takes_unsent` writes the answer itself where there is no handler yet.

    Raises:
        CannotDetach: under another WSGI server.
        OSError: the client is gone.
    """
    first = environ.get("headgate.handler")
    if isinstance(first, FirstRequest):  # there is no handler yet
        first_bytes = accept + first_frames
        if takes_unsent:
            taken = Detached(*first.detach(b""), unsent=first_bytes)
        else:
            taken = Detached(*first.detach(first_bytes))
        del environ["headgate.handler"]
    elif (answered := environ.get("wsgi.websocket")) is not None:
        if not of_others:
            raise CannotDetach("gevent-websocket has answered this request already: leave its handler_class out")
        taken = _of_handler(answered.handler, first_frames)
        answered.closed = True  # or it would write a close frame of its own when the application returns
        answered.stream = answered.raw_read = answered.raw_write = None
    elif (handler := _handler_of(environ, start_response)) is not None:
        taken = _of_handler(handler, accept + first_frames)
        environ.pop("headgate.handler", None)
    elif of_others and (sock := _gunicorn_socket(environ)) is not None:
        taken = _of_gunicorn(sock, start_response, accept + first_frames)
    else:
        raise CannotDetach
    environ["wsgi.input"] = BytesIO()  # the reader behind it would keep 8 KiB for as long as anyone keeps the environ
    return taken


def _of_handler(handler: Handler, first_bytes: bytes) -> Detached:
    sock, reader = handler.socket, handler.rfile
    if sock is None:
        raise CannotDetach("the connection is another's already")
    _write(sock, first_bytes)
    if isinstance(handler, HttpHandler):
        handler.let_go()
    # A client may send its first frame without waiting for our answer: it then sits in the reader's buffer. `peek` returns what
    # is buffered, and asks for more only if nothing is; a detached connection waits for none.
    sock.settimeout(0.0)  # where the handler is not ours
    received = _buffered(reader)
    handler.socket = None
    handler.close_connection = True
    if isinstance(sock, gevent.ssl.SSLSocket):
        if isinstance(handler, HttpHandler):
            handler.server.connections.close(sock)
        pipe = TlsPipe(sock)
        return Detached(pipe.plain, received, _Carrying(pipe))
    return Detached(NativeSocket(fileno=sock.detach()), received)


def _of_gunicorn(sock: AcceptedSocket, start_response: StartResponse, first_bytes: bytes) -> Detached:
    _write(sock, first_bytes)
    response: Any = start_response.__self__  # type: ignore[attr-defined]
    received: bytes = response.req.unreader.take_buffered()
    if isinstance(sock, gevent.ssl.SSLSocket):
        pipe = TlsPipe(sock)
        return Detached(pipe.plain, received, _Stopping(pipe))
    return Detached(NativeSocket(fileno=sock.detach()), received, _Stopping())


class _Carrying:
    """The body of an answer that comes when the WebSocket is over: until then it carries its bytes, in the request's greenlet."""

    def __init__(self, pipe: TlsPipe) -> None:
        self._pipe = pipe

    def __iter__(self) -> Iterator[bytes]:
        self._pipe.carry()
        return iter(())


class _Stopping:
    """The body of an answer that gunicorn is not to send: it then closes its end of a connection, which may be ours by now."""

    def __init__(self, pipe: TlsPipe | None = None) -> None:
        self._pipe = pipe

    def __iter__(self) -> Iterator[bytes]:
        if self._pipe is not None:
            self._pipe.carry()
        raise StopIteration


def _write(sock: AcceptedSocket, data: bytes) -> None:
    # The kernel has room for an answer on a connection that has had none: gevent's own way takes three times as long.
    try:
        if isinstance(sock, gevent.ssl.SSLSocket):
            sent = 0
            sock.settimeout(None)
        else:
            sent = native(sock).send(data)
    except BlockingIOError:
        sent = 0
    if sent < len(data):
        sock.sendall(data[sent:])


class PollWatch:
    """Watches the socket of a waiting long-poll for its end."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        handler = _handler_of(environ, start_response)
        self._sock = _gunicorn_socket(environ) if handler is None else handler.socket
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


def _gunicorn_socket(environ: WSGIEnvironment) -> AcceptedSocket | None:
    """Return the socket of a request under gunicorn, if its worker serves each connection in a greenlet of its own."""
    sock: AcceptedSocket | None = environ.get("gunicorn.socket")
    in_main = gevent.getcurrent().parent is None  # a worker that lets nothing else run
    return sock if isinstance(sock, gevent.socket.socket | gevent.ssl.SSLSocket) and not in_main else None


def _buffered(reader: object) -> bytes:
    try:
        return bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        return b""
