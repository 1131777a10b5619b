"""Sockets under the HTTP server: `detach` takes one for a WebSocket; `PollWatch` notices that a waiting poll was aborted.

A detached connection needs neither greenlet nor request object any more; over TLS it keeps both (tls_pipe.py). Our own server
(http_connection.py) gives a socket away by `take_socket`. So do three others, by public names, for callers that take `of_others`:

    gevent's pywsgi     the handler is `start_response.__self__`; it lets go when its `socket` attribute is None; `rfile` may hold
                        bytes that came in behind the request
    gevent-websocket    a handler of pywsgi that has answered the request already; `wsgi.websocket` leads to it
    gunicorn -k gevent  the socket is `gunicorn.socket`; StopIteration out of the application is the end of the connection; the
                        request's `unreader` may hold bytes that came in behind it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gevent
import gevent.socket
import gevent.ssl

from headgate.runtime.loop import READ, Watcher, io_watcher

from .http_connection import HttpConnection
from .peer_socket import NativeSocket, PlainPeer, TlsPeer, is_readable
from .tls_pipe import TlsPipe

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


class ForeignSocket(Protocol):
    """A cooperative socket of another server."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Say how long a call may wait; 0 for not at all."""

    def sendall(self, data: bytes, /) -> None:
        """Write all."""

    def detach(self) -> int:
        """Return the descriptor, which is the caller's from now on."""

    def fileno(self) -> int:
        """Return the descriptor."""


class ForeignHandler(Protocol):
    """A handler of gevent's pywsgi."""

    socket: ForeignSocket | None
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
    """Take the request's socket away from the HTTP server; write the answer to the request, and the first frames after it.

    Without `of_others` only from our own server: a gateway needs more of a server than its sockets. A caller that `takes_unsent`
    writes the answer itself where there is no greenlet yet.

    Raises:
        CannotDetach: under another WSGI server.
        OSError: the client is gone.
    """
    ours = environ.get("headgate.handler")
    if isinstance(ours, HttpConnection):
        peer, received, unsent = ours.take_socket(accept + first_frames, takes_unsent=takes_unsent)
        taken = _taken(peer.tls, received) if isinstance(peer, TlsPeer) else Detached(_plain(peer), received, unsent=unsent)
        del environ["headgate.handler"]
    elif not of_others:
        if "wsgi.websocket" in environ:
            raise CannotDetach("gevent-websocket has answered this request already: leave its handler_class out")
        raise CannotDetach
    elif (answered := environ.get("wsgi.websocket")) is not None:
        taken = _of_handler(answered.handler, first_frames)
        answered.closed = True  # or it would write a close frame of its own when the application returns
        answered.stream = answered.raw_read = answered.raw_write = None
    elif (handler := _handler_of(start_response)) is not None:
        taken = _of_handler(handler, accept + first_frames)
    elif (sock := _gunicorn_socket(environ)) is not None:
        taken = _of_gunicorn(sock, start_response, accept + first_frames)
    else:
        raise CannotDetach
    environ["wsgi.input"] = BytesIO()  # the reader behind it would keep 8 KiB for as long as anyone keeps the environ
    return taken


def _plain(peer: object) -> NativeSocket:
    assert isinstance(peer, PlainPeer)
    return peer.sock


def _taken(sock: Any, received: bytes, stop: bool = False) -> Detached:
    """Return a cooperative socket as a detached one; `stop`: gunicorn has to be kept from its end of the connection."""
    if isinstance(sock, gevent.ssl.SSLSocket):
        pipe = TlsPipe(sock)
        return Detached(pipe.plain, received, _Stopping(pipe) if stop else _Carrying(pipe))
    plain = NativeSocket(fileno=sock.detach())
    plain.setblocking(False)
    return Detached(plain, received, _Stopping() if stop else ())


def _of_handler(handler: ForeignHandler, first_bytes: bytes) -> Detached:
    sock, reader = handler.socket, handler.rfile
    if sock is None:
        raise CannotDetach("the connection is another's already")
    sock.sendall(first_bytes)
    # A client may send its first frame without waiting for our answer: it then sits in the reader's buffer. `peek` returns what
    # is buffered, and asks for more only if nothing is; a detached connection waits for none.
    sock.settimeout(0.0)
    received = _buffered(reader)
    handler.socket = None
    handler.close_connection = True
    return _taken(sock, received)


def _of_gunicorn(sock: ForeignSocket, start_response: StartResponse, first_bytes: bytes) -> Detached:
    sock.sendall(first_bytes)
    response: Any = start_response.__self__  # type: ignore[attr-defined]
    received: bytes = response.req.unreader.take_buffered()
    return _taken(sock, received, stop=True)


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


class PollWatch:
    """Watches the socket of a waiting long-poll for its end."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        ours = environ.get("headgate.handler")
        handler = None if ours is not None else _handler_of(start_response)
        sock = ours or (_gunicorn_socket(environ) if handler is None else handler.socket)
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


def _handler_of(start_response: StartResponse) -> ForeignHandler | None:
    """Return the handler of gevent's pywsgi that has made `start_response`."""
    handler = getattr(start_response, "__self__", None)
    return handler if hasattr(handler, "rfile") and hasattr(handler, "close_connection") else None


def _gunicorn_socket(environ: WSGIEnvironment) -> ForeignSocket | None:
    """Return the socket of a request under gunicorn, if its worker serves each connection in a greenlet of its own."""
    sock: ForeignSocket | None = environ.get("gunicorn.socket")
    in_main = gevent.getcurrent().parent is None  # a worker that lets nothing else run
    return sock if isinstance(sock, gevent.socket.socket | gevent.ssl.SSLSocket) and not in_main else None


def _buffered(reader: object) -> bytes:
    try:
        return bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        return b""
