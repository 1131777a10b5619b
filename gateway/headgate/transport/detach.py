"""The sockets of requests: `detach` takes one for a WebSocket, and `PollWatch` notices that the browser aborted a poll.

A detached connection no longer needs a greenlet or a request. Over TLS it keeps both, because a session writes in the hub and
asks the kernel for room, which a TLS socket cannot answer. There a `TlsPipe` carries the bytes. The drop-in also takes sockets
of other servers (socketio/other_servers.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import gevent.socket
import gevent.ssl
import msgspec

from headgate.runtime.loop import READ, Watcher, io_watcher, later, spawn

from .http_connection import HttpConnection
from .peer_socket import NativeSocket, PlainPeer, end, is_readable, say_last

# The largest TLS record (RFC 8446 section 5.1).
RECORD_BYTES = 16384
LINGER_S = 2.0


class CannotDetach(Exception):
    """The WSGI server does not give its sockets away. The text names the reason if that is not the server itself."""


class Detached(msgspec.Struct):
    """A non-blocking socket taken from its HTTP server. The caller closes it."""

    sock: NativeSocket
    received: bytes
    """The bytes after the request."""
    body: Iterable[bytes] = ()
    """The application returns this."""
    unsent: bytes = b""
    """The answer to the request. The caller writes it before anything else."""


def detach(
    environ: WSGIEnvironment, answer: bytes, first_frames: bytes = b"", *, start_response: StartResponse | None = None
) -> Detached:
    """Take the request's socket from our own HTTP server. Writes the answer and the first frames, or returns them as `unsent`.

    Other servers need `start_response` (used by the drop-in). Raises CannotDetach under another WSGI server, and OSError if the
    client is gone.
    """
    ours = environ.get("headgate.handler")
    if not isinstance(ours, HttpConnection):
        if "wsgi.websocket" in environ:
            raise CannotDetach("gevent-websocket has answered this request already: leave its handler_class out")
        raise CannotDetach
    peer, received, unsent = ours.take_socket(answer + first_frames)
    del environ["headgate.handler"]
    forget_body(environ)
    if isinstance(peer, PlainPeer):
        return Detached(peer.sock, received, unsent=unsent)
    pipe = TlsPipe(peer.sock)
    return Detached(pipe, received, carrying(pipe))


def forget_body(environ: WSGIEnvironment) -> None:
    """Take the body out of an environment, as its reader keeps 8 KiB."""
    environ["wsgi.input"] = BytesIO()


class TlsPipe(NativeSocket):
    """The plain, non-blocking socket of a session, with a pipe to the TLS socket of its browser.

    Two greenlets carry the bytes, one for each direction; `carry` runs in the request's. Each waits for the slower side, so
    back-pressure and deadlines work as without TLS. After the session has closed its socket, the browser has LINGER_S to read the
    rest and close its side.
    """

    def __init__(self, tls: gevent.ssl.SSLSocket) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self.setblocking(False)
        self._inner = gevent.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=theirs.detach())
        self._tls = tls
        tls.settimeout(None)

    def carry(self) -> None:
        """Carry bytes both ways until one side ends, then close the inner socket. Switches greenlets. Call it once."""
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

    def close(self) -> None:
        """Close the session's end. Idempotent."""
        if self.fileno() >= 0:
            super().close()
            later(LINGER_S, self._end)

    def _carry_outward(self) -> None:
        with suppress(OSError):
            while data := self._inner.recv(RECORD_BYTES):
                self._tls.sendall(data)
            say_last(self._tls.fileno())

    def _end(self) -> None:
        """End a connection if the browser has stopped reading or keeps sending."""
        if (descriptor := self._tls.fileno()) >= 0:
            end(descriptor)


def carrying(pipe: TlsPipe) -> Iterator[bytes]:
    """Return an empty body. Iterating carries the WebSocket's bytes until it ends, in the request's greenlet."""
    pipe.carry()
    yield from ()


class PollWatch:
    """Notices when the browser closes the socket of a waiting long-poll."""

    def __init__(self, sock: Any) -> None:
        """`sock` is the request's socket or connection; None under a server that hides it, where nothing is watched."""
        self._fileno: Callable[[], int] | None = None if sock is None else sock.fileno
        self._watcher: Watcher | None = None
        self.aborted = False

    def start(self, wake: Callable[[], object]) -> None:
        """Check the socket now, and watch it."""
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
