"""The HTTP server: gevent's pywsgi with deadlines, and the way out of it for WebSockets.

In: accepted sockets. Out: WSGI calls; `detach`, which takes a socket away from the HTTP server after a WebSocket handshake, so
that the connection needs neither greenlet nor request object any more; `PollWatch`, which notices an aborted long-poll.

What is private to pywsgi and met here, each with a contract test: the handler is `start_response.__self__`; it lets go of
a socket when its `socket` attribute is None; `rfile` may hold bytes that came in behind the request; after an answer it calls
`wsgi_input._discard()`, and goes on with the connection unless `close_connection` is set; it makes headers with
`MessageClass(rfile, …)`, and asks them for what request_headers.py has; it accepts with `do_read`, and does so no more, without
closing, between `stop_accepting` and `start_accepting`.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import gevent
import structlog
from gevent import pywsgi

from headgate.loop import READ, Watcher, io_watcher, later, native_close
from headgate.metrics import ACCEPT_FAILURES

from .request_headers import RequestHeaders

# What is left of a request's body when it has been answered is read up to here, so that the connection can be used again.
MAX_DISCARD_BYTES = 65536
# Of a larger one so much is read all the same, on a connection that is not used again: closed with bytes unread it would be
# reset, and a client that is still sending would find the reset instead of our answer (RFC 9112 section 9.6).
MAX_LINGER_BYTES = 1024 * 1024
# No descriptor, or no memory, for one more connection. Who knocks waits in the kernel's queue, and is asked in after a while;
# without that the listener, which stays readable, would have us try for ever.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
ACCEPT_AGAIN_S = 0.5
EXHAUSTED_LOG_S = 10.0
# The last descriptors are not for clients: a gateway that has given all away cannot reach Redis again when a connection breaks.
MAX_RESERVED_DESCRIPTORS = 32

log = structlog.get_logger("headgate.wsgi")


class CannotDetach(Exception):
    """The WSGI server is not gevent's pywsgi over a plain socket: there is nothing to take over."""


class _Handler(pywsgi.WSGIHandler):  # type: ignore[misc]
    """One HTTP connection. A request must have arrived within the server's `request_deadline_s`."""

    _deadline: gevent.Timeout | None = None

    def __init__(self, sock: Any, address: Any, server: Server) -> None:
        # Without it, the answer after a WebSocket upgrade waits 40 ms for the browser's delayed acknowledgement.
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(sock, address, server)

    def handle(self) -> None:
        try:
            super().handle()
        except gevent.Timeout as timeout:
            if timeout is not self._deadline:
                raise
        except OSError:
            pass  # the answer to a bad request found nobody
        finally:
            self._cancel()

    def read_requestline(self) -> str:
        self._deadline = gevent.Timeout.start_new(self.server.request_deadline_s)
        return super().read_requestline()  # type: ignore[no-any-return]

    def get_environ(self) -> dict[str, Any]:
        self._cancel()
        environ: dict[str, Any] = super().get_environ()
        environ["headgate.handler"] = self
        self.wsgi_input: Any = _Rest(self, self.wsgi_input)
        return environ

    def MessageClass(self, reader: Any, *_: Any) -> RequestHeaders:
        """Parse the headers our way. A client that is gone has sent bad ones: of any other error pywsgi prints a traceback."""
        try:
            return RequestHeaders(reader)
        except OSError as error:
            raise ValueError("the client is gone") from error

    def log_error(self, msg: str, *args: Any) -> None:
        """Say nothing per bad request: hostile clients must not fill the log."""

    def log_request(self) -> None:
        """Say nothing per request either; pywsgi would still put the line together."""

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.close()
            self._deadline = None


class _Rest:
    """What an answered request has left of its body. pywsgi would read all of it, however much and however slowly."""

    def __init__(self, handler: _Handler, body: Any) -> None:
        self._handler, self._body = handler, body

    def _discard(self) -> None:
        body = self._body
        left_bytes = (body.content_length or 0) - body.position
        if not left_bytes and not body.chunked_input:
            return
        try:
            with gevent.Timeout(self._handler.server.request_deadline_s, TimeoutError("request body")):
                if left_bytes > MAX_DISCARD_BYTES:
                    self._part()
                else:
                    body._discard()
        except OSError:
            self._handler.close_connection = True

    def _part(self) -> None:
        """Say that our answer was all, and read a while."""
        self._handler.close_connection = True
        sock = self._handler.socket
        if sock is not None:
            sock.shutdown(socket.SHUT_WR)
            left_bytes = MAX_LINGER_BYTES
            while left_bytes > 0 and (data := sock.recv(MAX_DISCARD_BYTES)):
                left_bytes -= len(data)


class Server(pywsgi.WSGIServer):  # type: ignore[misc]
    """pywsgi with a deadline for requests, TCP_NODELAY and no access log."""

    handler_class = _Handler

    def __init__(self, listener: Any, application: Any, *, request_deadline_s: float = 10.0, **options: Any) -> None:
        super().__init__(listener, application, log=None, **options)
        self.request_deadline_s = request_deadline_s
        self._exhausted_told_s = -EXHAUSTED_LOG_S
        self._newest_fd = sys.maxsize  # of the last connection: the lowest that was free then (open(2))

    def do_read(self) -> Any:
        """Accept a connection; None when there is none, or when there is nothing left to have it with."""
        try:
            self._keep_reserve()
            accepted = super().do_read()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._back_off(error)
            return None
        if accepted is not None:
            self._newest_fd = accepted[0].fileno()
        return accepted

    def _keep_reserve(self) -> None:
        """Look which descriptor a connection would get, once the last one's was close to the reserve.

        Raises:
            OSError: EMFILE, as if it could not have had one.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # each time, as it can be changed while we run
        reserve = limit - min(MAX_RESERVED_DESCRIPTORS, limit // 16)
        if limit == resource.RLIM_INFINITY or self._newest_fd < reserve - MAX_RESERVED_DESCRIPTORS:
            return
        free = os.dup(self.socket.fileno())
        native_close(free)
        if free >= reserve:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _back_off(self, error: OSError) -> None:
        """Accept nothing for a while."""
        ACCEPT_FAILURES.inc()
        now_s = time.monotonic()
        if now_s - self._exhausted_told_s >= EXHAUSTED_LOG_S:
            self._exhausted_told_s = now_s
            log.error("cannot accept connections", reason=error.strerror, again_in_s=ACCEPT_AGAIN_S)
        self.stop_accepting()
        later(ACCEPT_AGAIN_S, self._accept_again)

    def _accept_again(self) -> None:
        if self.started:
            self.start_accepting()


def read_body(environ: Mapping[str, Any], size_bytes: int) -> bytes:
    """Return a request's body, which must arrive within the server's deadline. Switches greenlets.

    Raises:
        OSError: it did not, or the client is gone.
    """
    handler = environ.get("headgate.handler")
    deadline_s = handler.server.request_deadline_s if handler is not None else None
    with gevent.Timeout(deadline_s, TimeoutError("the body did not arrive in time")):
        return environ["wsgi.input"].read(size_bytes)  # type: ignore[no-any-return]


def detach(environ: dict[str, Any], start_response: Any, first_bytes: bytes) -> tuple[int, bytes]:
    """Take the request's socket away from the HTTP server and write `first_bytes` to it.

    Returns:
        The file descriptor, non-blocking, now the caller's to close; the bytes already received behind the request.

    Raises:
        CannotDetach: under another WSGI server, or over TLS inside this process (terminate TLS in front of it).
        OSError: the client is gone.
    """
    handler = _handler_of(environ, start_response)
    if handler is None or isinstance(handler.socket, gevent.ssl.SSLSocket):
        raise CannotDetach("WebSocket needs gevent's pywsgi server over a plain socket (TLS ends in front of it)")
    sock, reader = handler.socket, handler.rfile
    sock.sendall(first_bytes)
    # A client may send its first frame without waiting for our answer: it then sits in the reader's buffer. The socket is
    # non-blocking for the buffered reader's purposes here: `peek` returns what is buffered, and asks for more only if nothing is.
    received = _buffered(sock, reader)
    handler.socket = None
    handler.close_connection = True
    environ["wsgi.input"] = BytesIO()  # the reader behind it would keep 8 KiB for as long as anyone keeps the environ
    environ.pop("headgate.handler", None)
    return sock.detach(), received


class PollWatch:
    """Watches the socket of a waiting long-poll for its end."""

    def __init__(self, environ: Mapping[str, Any], start_response: Any) -> None:
        handler = _handler_of(environ, start_response)
        self._sock = getattr(handler, "socket", None)
        self._watcher: Watcher | None = None
        self._wake: Callable[[], Any] | None = None
        self.aborted = False

    def start(self, wake: Callable[[], Any]) -> None:
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
            ended = self._sock._sock.recv(1, socket.MSG_PEEK) == b"" if self._sock is not None else True
        except BlockingIOError:
            return
        except OSError:
            ended = True
        self.stop()  # bytes mean a pipelined request, which waits its turn
        if ended:
            self.aborted = True
            if self._wake is not None:
                self._wake()


def _handler_of(environ: Mapping[str, Any], start_response: Any) -> Any:
    handler = environ.get("headgate.handler") or getattr(start_response, "__self__", None)
    return handler if isinstance(handler, pywsgi.WSGIHandler) else None


def _buffered(sock: Any, reader: Any) -> bytes:
    sock.settimeout(0.0)
    try:
        return bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        return b""
