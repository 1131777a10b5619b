"""Sockets of requests: `detach` takes one for a WebSocket, and `PollWatch` notices that a waiting poll was aborted.

A detached connection needs neither greenlet nor request any more. Over TLS it keeps both, as a session writes in the hub and asks
the kernel for room, which TLS cannot answer: there bytes go through a `TlsPipe`. The drop-in takes sockets of other servers, too
(socketio/other_servers.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any, NamedTuple
from wsgiref.types import StartResponse, WSGIEnvironment

import gevent
import gevent.socket
import gevent.ssl

from headgate.runtime.loop import READ, Watcher, io_watcher, later, spawn

from .http_connection import HttpConnection
from .peer_socket import NativeSocket, PlainPeer, TlsPeer, end, is_readable, say_last

# A TLS record has at most so many bytes.
RECORD_BYTES = 16384
LINGER_S = 2.0


class CannotDetach(Exception):
    """The WSGI server does not give its sockets away. The text has the reason, where it is another than the server."""


class Detached(NamedTuple):
    """A socket that was taken away.

    Attributes:
        sock: non-blocking. The caller closes it.
        received: the bytes that came after the request.
        body: what the application returns.
        unsent: the answer to the request, which the caller writes before anything else.
    """

    sock: NativeSocket
    received: bytes
    body: Iterable[bytes] = ()
    unsent: bytes = b""


def detach(
    environ: WSGIEnvironment,
    answer: bytes,
    first_frames: bytes = b"",
    *,
    start_response: StartResponse | None = None,
    takes_unsent: bool = False,
) -> Detached:
    """Take the request's socket from our own HTTP server; write the answer to the request, and the first frames after it.

    Without a greenlet, a caller that `takes_unsent` writes them itself. Other servers need `start_response` (the drop-in's
    way). Raises CannotDetach: under another WSGI server; OSError: the client is gone.
    """
    ours = environ.get("headgate.handler")
    if not isinstance(ours, HttpConnection):
        if "wsgi.websocket" in environ:
            raise CannotDetach("gevent-websocket has answered this request already: leave its handler_class out")
        raise CannotDetach
    peer, received, unsent = ours.take_socket(answer + first_frames, takes_unsent=takes_unsent)
    del environ["headgate.handler"]
    forget_body(environ)
    if isinstance(peer, TlsPeer):
        pipe = TlsPipe(peer.tls)
        return Detached(pipe.plain, received, Carrying(pipe))
    assert isinstance(peer, PlainPeer)
    return Detached(peer.sock, received, unsent=unsent)


def forget_body(environ: WSGIEnvironment) -> None:
    """Take the body out of an environment, as its reader keeps 8 KiB."""
    environ["wsgi.input"] = BytesIO()


class PlainEnd(NativeSocket):
    """The session's socket. Closing it ends the pipe."""

    pipe: TlsPipe

    def close(self) -> None:
        """End it. Idempotent."""
        if self.fileno() >= 0:
            super().close()
            self.pipe.plain_closed()


class TlsPipe:
    """A pipe between the TLS socket of a browser and a plain socket, which is the session's: `plain`, non-blocking.

    Two greenlets carry the bytes, one for each direction; `carry` runs in that of the request. Each waits for the slower side, so
    back-pressure and deadlines work as without TLS. When the session has closed its socket, the browser has LINGER_S to take the
    rest and to end its side.
    """

    def __init__(self, tls: gevent.ssl.SSLSocket) -> None:
        ours, theirs = socket.socketpair()
        self.plain = PlainEnd(fileno=ours.detach())
        self.plain.setblocking(False)
        self.plain.pipe = self
        self._inner = gevent.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=theirs.detach())
        self._tls = tls
        tls.settimeout(None)

    def carry(self) -> None:
        """Carry bytes both ways until one side is over; then close the inner socket. Switches greenlets. Once."""
        outward = spawn(self._carry_outward)
        try:
            with suppress(OSError):
                while data := self._tls.recv(RECORD_BYTES):
                    self._inner.sendall(data)
            with suppress(OSError):
                self._inner.shutdown(socket.SHUT_WR)
            outward.join()
        finally:
            outward.kill()
            self._inner.close()

    def plain_closed(self) -> None:
        """The session has closed its end."""
        later(LINGER_S, self._end)

    def _carry_outward(self) -> None:
        with suppress(OSError):
            while data := self._inner.recv(RECORD_BYTES):
                self._tls.sendall(data)
            say_last(self._tls.fileno())

    def _end(self) -> None:
        """End a connection whose browser takes no more, or goes on sending."""
        if (descriptor := self._tls.fileno()) >= 0:
            end(descriptor)


class Carrying:
    """The body of an answer. Over TLS it carries the bytes of the WebSocket in the request's greenlet, and ends with that."""

    def __init__(self, pipe: TlsPipe | None) -> None:
        self._pipe = pipe

    def __iter__(self) -> Iterator[bytes]:
        if self._pipe is not None:
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
        self.aborted = False

    def start(self, wake: Callable[[], object]) -> None:
        """Check the socket now, and watch it. Does nothing under a server that hides its socket."""
        if self._fileno is not None:
            self._watcher = io_watcher(self._fileno(), READ)
            self._watcher.start(self._readable, self._fileno(), wake)
            self._readable(self._fileno(), wake)

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _readable(self, descriptor: int, wake: Callable[[], object]) -> None:
        try:
            readable = is_readable(descriptor)
        except OSError:
            readable = b""
        if readable is None:
            return
        self.stop()  # bytes are a pipelined request, which waits its turn
        if not readable:
            self.aborted = True
            wake()


def handler_of(start_response: StartResponse) -> Any:
    """Return the handler of gevent's pywsgi that has made `start_response`; None under another server."""
    handler = getattr(start_response, "__self__", None)
    return handler if hasattr(handler, "rfile") and hasattr(handler, "close_connection") else None


def gunicorn_socket(environ: WSGIEnvironment) -> gevent.socket.socket | None:
    """Return the socket of a request under gunicorn, if its worker serves each connection in a greenlet of its own."""
    sock = environ.get("gunicorn.socket")
    in_main = gevent.getcurrent().parent is None  # its worker runs nothing else
    return sock if isinstance(sock, gevent.socket.socket | gevent.ssl.SSLSocket) and not in_main else None
