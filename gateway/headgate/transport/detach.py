"""The sockets of requests: `detach` takes one for a WebSocket, and `PollWatch` notices that the browser aborted a poll.

A detached connection no longer needs a greenlet or a request. The drop-in also takes sockets of other servers
(socketio/other_servers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import msgspec

from headgate.runtime.loop import READ, Watcher, io_watcher

from .http_connection import HttpConnection
from .peer_socket import ClientSocket, PeerSocket, is_readable


class CannotDetach(Exception):
    """The WSGI server does not give its sockets away. The text names the reason if that is not the server itself."""


class Detached(msgspec.Struct):
    """A non-blocking socket taken from its HTTP server. The caller closes it."""

    sock: ClientSocket
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
    if not isinstance(ours, HttpConnection | PeerSocket):
        if "wsgi.websocket" in environ:
            raise CannotDetach("gevent-websocket has answered this request already: leave its handler_class out")
        raise CannotDetach
    sock, received, unsent = ours.take_socket(answer + first_frames)
    del environ["headgate.handler"]
    forget_body(environ)
    return Detached(sock, received, unsent=unsent)


def forget_body(environ: WSGIEnvironment) -> None:
    """Take the body out of an environment, as its reader keeps 8 KiB."""
    environ["wsgi.input"] = BytesIO()


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
