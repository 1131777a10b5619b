"""The HTTP server: gevent's pywsgi with deadlines and bounds, and the way out of it for WebSockets.

In: accepted sockets. Out: WSGI calls; `detach`, which takes a socket away from the HTTP server after a WebSocket handshake, so
that the connection needs neither greenlet nor request object any more; `PollWatch`, which notices an aborted long-poll.

Every byte of HTTP goes through `_Handler.receive_into` and `_Handler._sendall`, which wait for a peer no longer than its `Pace`
allows (http_limits.py). One request at a time: the next one is read when the kernel has taken the whole answer of the last.

What is private to pywsgi and met here, each with a contract test: the handler is `start_response.__self__`; it lets go of
a socket when its `socket` attribute is None; `rfile` may hold bytes that came in behind the request; after an answer it calls
`wsgi_input._discard()`, and goes on with the connection unless `close_connection` is set; it makes headers with
`MessageClass(rfile, …)`, and asks them for what request_headers.py has; it writes with `_sendall` and finishes headers in
`finalize_headers`; what `_handle_client_error` returns is the answer to a bad request; it accepts with `do_read`, and does so
no more, without closing, between `stop_accepting` and `start_accepting`; `do_close` follows each connection.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from io import BytesIO
from typing import Any

import gevent
import structlog
from gevent import pywsgi

from headgate.metrics import ACCEPT_FAILURES, HTTP_CONNECTIONS, HTTP_ENDED
from headgate.runtime.loop import READ, Watcher, io_watcher, later, native_close
from headgate.transport.peer_address import address_key, address_of

from .http_connections import HttpConnections
from .http_limits import HttpLimits, Pace
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
# HTTP connections have at most this part of the descriptors, and one address that one. Each may hold a second descriptor, of the
# file that it is answered with, so WebSockets have half of them at least.
HTTP_SHARE = 4
ADDRESS_SHARE = 8
_READ_BYTES = 8192
# A peer that never keeps us waiting would keep the loop: after so many bytes of a message everybody else has a turn. Pieces of a
# chunked body may be of one byte, each of which has to be parsed.
_TURN_BYTES = 65536
_CHUNKED_TURN_BYTES = 8192
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

log = structlog.get_logger("headgate.wsgi")


class CannotDetach(Exception):
    """The WSGI server is not gevent's pywsgi over a plain socket: there is nothing to take over."""


class _TooSlow(TimeoutError):
    """A peer kept us waiting for longer than it may. Of this errno pywsgi prints no traceback; an application sees an OSError."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.ECONNRESET, message)


class _Part(Enum):
    """The part of an HTTP exchange that is under way. The value names it in errors and as the metric's label."""

    IDLE = "next request"
    HEADERS = "headers"
    BODY = "body"
    ANSWER = "answer"
    DETACHED = "nothing"


def _error_answer(status: str, told: str) -> bytes:
    """Return a whole answer that closes the connection, with a line that says what was wrong."""
    body = f"{told}\n".encode("latin-1", "replace")
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def _too_many_text(limit: int) -> str:
    return f"limit reached: connections_per_address (at most {limit} HTTP connections of one network address at once)"


class _Incoming(io.RawIOBase):
    """What pywsgi reads a connection's bytes from, through a buffer."""

    def __init__(self, handler: _Handler) -> None:
        self._handler = handler

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._handler.receive_into(buffer)


class _Handler(pywsgi.WSGIHandler):  # type: ignore[misc]
    """One HTTP connection: its requests one after the other, each part of each within its deadline."""

    def __init__(self, sock: Any, address: Any, server: Server) -> None:
        # Without it, the answer after a WebSocket upgrade waits 40 ms for the browser's delayed acknowledgement.
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel would queue 4 MB of answers for a client that reads none.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server.limits.send_buffer_bytes)
        sock.settimeout(0.0)  # whoever wants to wait says for how long
        super().__init__(sock, address, server, rfile=io.BufferedReader(_Incoming(self), _READ_BYTES))
        self.broken = False  # nobody knows where the next request would begin
        self._heard = False  # a silent connection is closed in silence
        self._body_bytes = self._turn_bytes = 0
        self._begin(_Part.HEADERS)

    # -- bytes in and out ---------------------------------------------------------------------------------------------

    def receive_into(self, buffer: Any) -> int | None:
        """Read what there is into a buffer, waiting as long as the peer may keep us; 0 at the end. Switches greenlets.

        Raises:
            OSError: it kept us waiting for too long, the body is longer than it may be, or the connection broke.
        """
        try:
            size: int = self.socket.recv_into(buffer)
        except _WOULD_BLOCK:
            if self._part is _Part.DETACHED:
                return None
            size = self._in_time(lambda: self.socket.recv_into(buffer))
        if self._part is _Part.IDLE and size:
            self._begin(_Part.HEADERS)
        self._heard = self._heard or size > 0
        self._pace.moved(size)
        if self._part is _Part.BODY:
            self._body_bytes += size
            if self.wsgi_input.chunked_input and self._body_bytes > self.server.limits.max_chunked_bytes:
                raise OSError(errno.ECONNRESET, "a chunked body that does not end")
            self._let_others(size, _CHUNKED_TURN_BYTES if self.wsgi_input.chunked_input else _TURN_BYTES)
        return size

    def _sendall(self, data: Any) -> None:
        """Write all of a piece of the answer, waiting as long as the peer may keep us. Switches greenlets."""
        rest = memoryview(data)
        while rest:
            try:
                sent: int = self.socket.send(rest)
            except _WOULD_BLOCK:
                # pywsgi writes 100 Continue by itself; and an answer may begin before its request's body was read.
                if self._part is not _Part.ANSWER:
                    self._begin(_Part.ANSWER)
                piece = rest
                sent = self._in_time(lambda piece=piece: self.socket.send(piece))  # type: ignore[misc]
            if self._part is _Part.ANSWER:
                self._pace.moved(sent)
            rest = rest[sent:]
            self.response_length += sent
            self._let_others(sent, _TURN_BYTES)

    def _in_time(self, move: Callable[[], int]) -> int:
        """Move bytes once the socket is ready for it.

        Raises:
            _TooSlow: not while the peer may keep us waiting.
        """
        sock, pace = self.socket, self._pace
        self.server.connections.wait(sock)
        if pace.left_s > 0:
            began_s = time.monotonic()
            sock.settimeout(pace.left_s)
            try:
                return move()
            except TimeoutError:
                pass
            finally:
                sock.settimeout(0.0)
                pace.waited(time.monotonic() - began_s)
        try:
            return move()  # after a stall of our own, timers come before sockets
        except _WOULD_BLOCK:
            raise self._too_slow() from None

    def _let_others(self, size: int, turn_bytes: int) -> None:
        self._turn_bytes += size
        if self._turn_bytes >= turn_bytes:
            self._turn_bytes = 0
            gevent.sleep(0)

    def _too_slow(self) -> _TooSlow:
        part = self._part
        self.broken = self.close_connection = True
        if part is not _Part.IDLE:
            HTTP_ENDED.labels(f"{part.value} deadline").inc()
        if part is _Part.ANSWER:
            _close_hard(self.socket)
        return _TooSlow(f"the {part.value} took too long")

    def _begin(self, part: _Part) -> None:
        limits: HttpLimits = self.server.limits
        self._part = part
        if part is _Part.IDLE:
            self._pace = Pace(limits.keep_alive_s)
        elif part is _Part.BODY:
            self._pace = Pace(limits.body_deadline_s, limits.min_bytes_per_s)
        elif part is _Part.ANSWER:
            self._pace = Pace(limits.write_deadline_s, limits.min_bytes_per_s)
        else:
            self._pace = Pace(limits.header_deadline_s)

    # -- one request after the other ----------------------------------------------------------------------------------

    def handle(self) -> None:
        with suppress(OSError):  # the answer to a bad request found nobody
            super().handle()

    def handle_one_request(self) -> Any:
        if self.environ is not None:
            self.server.between_requests(self.socket)
            self._begin(_Part.IDLE)
            gevent.sleep(0)  # the next request may be here already, and the one behind it
        outcome = super().handle_one_request()
        return self._late_headers() if outcome is None and self._heard else outcome

    def read_request(self, raw_requestline: str) -> Any:
        read = super().read_request(raw_requestline)
        if self.headers.get("transfer-encoding") is not None and self.request_version != "HTTP/1.1":
            raise ValueError("transfer-encoding needs HTTP/1.1")  # RFC 9112 section 6.1
        return read

    def MessageClass(self, reader: Any, *_: Any) -> RequestHeaders:
        """Parse the headers our way. A client that is gone has sent bad ones: of any other error pywsgi prints a traceback."""
        try:
            return RequestHeaders(reader)
        except OSError as error:
            raise ValueError("the client is gone") from error

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        environ["headgate.handler"] = self
        self.wsgi_input: Any = _Body(self, self.wsgi_input)
        # Also where a WebSocket is asked for: pywsgi would hand out the bare stream, behind whose body the next request begins.
        environ["wsgi.input"], environ["wsgi.input_terminated"] = self.wsgi_input, True
        self.server.connections.work(self.socket)
        self._body_bytes = 0
        self._begin(_Part.BODY)
        return environ

    def run_application(self) -> None:
        limit = self.server.one_too_many(self.socket, self.environ)
        if limit is not None:
            self.application = _refusing(limit)
        super().run_application()

    def finalize_headers(self) -> None:
        super().finalize_headers()
        if self.wsgi_input.abandoned:
            self.close_connection = True
        if self.close_connection and not any(name.lower() == b"connection" for name, _ in self.response_headers):
            self.response_headers.append((b"Connection", b"close"))

    def _handle_client_error(self, ex: Exception) -> tuple[str, bytes]:
        """Return the answer to what could not be read as a request, and close. Prints nothing."""
        if not isinstance(ex, (ValueError, OSError)):
            super()._handle_client_error(ex)  # a fault of ours: a traceback
        headers = self.headers
        if (late := self._late_headers()) is not None:
            return late
        HTTP_ENDED.labels("bad request").inc()
        if isinstance(headers, RequestHeaders) and headers.status:
            return headers.answer[:3], _error_answer(headers.answer, headers.status)
        return "400", _error_answer("400 Bad Request", "not a valid HTTP request")

    def _late_headers(self) -> tuple[str, bytes] | None:
        """Return the answer to a request line or headers that took too long; None when they did not."""
        if not self.broken or self._part is not _Part.HEADERS:
            return None
        return "408", _error_answer("408 Request Timeout", "the request's headers took too long")

    def log_error(self, msg: str, *args: Any) -> None:
        """Say nothing per bad request: hostile clients must not fill the log."""

    def log_request(self) -> None:
        """Say nothing per request either; pywsgi would still put the line together."""


class _Body(pywsgi.Input):  # type: ignore[misc]
    """A request's body. Once reading it has failed nobody knows where the next request would begin."""

    __slots__ = ("_handler",)

    def __init__(self, handler: _Handler, body: Any) -> None:
        super().__init__(body.rfile, body.content_length, body.socket, body.chunked_input)
        self._handler = handler

    def read(self, length: int | None = None) -> bytes:
        return self._read(super().read, length)

    def readline(self, size: int | None = None) -> bytes:
        return self._read(super().readline, size)

    def _read(self, read: Callable[[int | None], bytes], size: int | None) -> bytes:
        handler = self._handler
        if handler._part is _Part.ANSWER:
            handler._begin(_Part.BODY)
        try:
            return read(size)
        except OSError:
            handler.broken = handler.close_connection = True
            raise

    @property
    def unread_bytes(self) -> int:
        """How many are known to be missing; of a chunked body, more than we would read, until its end has come."""
        if self.chunked_input:
            return 0 if self.chunk_length == 0 else MAX_DISCARD_BYTES
        declared: int = self.content_length or 0
        return declared - int(self.position)

    @property
    def abandoned(self) -> bool:
        """Whether the connection cannot be used again: there is too much that nobody has read, or it waits for our word."""
        left_bytes = self.unread_bytes
        return self._handler.broken or left_bytes > MAX_DISCARD_BYTES or bool(left_bytes and self.socket is not None)

    def _discard(self) -> None:
        """Read what an answered request has left. pywsgi would read all of it, however much."""
        handler = self._handler
        if handler.broken or handler.socket is None or not self.unread_bytes:
            return
        try:
            if self.socket is not None:
                handler.close_connection = True  # it waits for 100 Continue with its body, and need not send it
            elif self.unread_bytes > MAX_DISCARD_BYTES or not self._read_rest():
                self._linger()
        except OSError:
            handler.close_connection = True

    def _read_rest(self) -> bool:
        """Return whether the body's end has come before too many bytes."""
        left_bytes = MAX_DISCARD_BYTES
        while left_bytes >= 0:
            piece = self.read(min(16384, left_bytes + 1))
            if not piece:
                return True
            left_bytes -= len(piece)
        return False

    def _linger(self) -> None:
        """Say that our answer was all, and read a while."""
        handler = self._handler
        handler.close_connection = True
        handler.socket.shutdown(socket.SHUT_WR)
        buffer, left_bytes = bytearray(MAX_DISCARD_BYTES), MAX_LINGER_BYTES
        while left_bytes > 0 and (size := handler.receive_into(buffer)):
            left_bytes -= size


def _refusing(limit: int) -> Any:
    """Return an application that answers 429."""

    def refuse(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = f"{_too_many_text(limit)}\n".encode()
        headers = [
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(body))),
            ("Retry-After", "1"),
            ("Connection", "close"),
        ]
        start_response("429 Too Many Requests", headers)
        return [body]

    return refuse


class Server(pywsgi.WSGIServer):  # type: ignore[misc]
    """pywsgi with deadlines, a bounded number of connections (in all, and per address), TCP_NODELAY and no access log."""

    handler_class = _Handler
    # In one turn of the loop: connections that are ended for others close theirs in the next.
    max_accept = 32

    def __init__(self, listener: Any, application: Any, *, limits: HttpLimits | None = None, **options: Any) -> None:
        super().__init__(listener, application, log=None, **options)
        self.limits = limits or HttpLimits()
        self.connections: HttpConnections[Any] = HttpConnections()
        HTTP_CONNECTIONS.set_function(lambda: len(self.connections))
        self._exhausted_told_s = -EXHAUSTED_LOG_S
        self._newest_fd = sys.maxsize  # of the last connection: the lowest that was free then (open(2))

    def do_read(self) -> Any:
        """Accept a connection; None when there is none, or when there is nothing left to have it with."""
        for _ in range(self.max_accept):
            try:
                self._keep_reserve()
                accepted = super().do_read()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._back_off(error)
                return None
            if accepted is None:
                return None
            sock, address = accepted
            self._newest_fd = sock.fileno()
            if self._take_in(sock, address):
                return accepted
        return None

    def do_close(self, sock: Any, *args: Any) -> None:
        """A connection is over, or has been detached."""
        self.connections.close(sock)
        super().do_close(sock, *args)

    def between_requests(self, sock: Any) -> None:
        """A connection waits for its next request, which may be another client's when a proxy of ours sends it."""
        self.connections.wait(sock)
        if self.limits.proxies:
            self.connections.attribute(sock, None)

    def one_too_many(self, sock: Any, environ: Mapping[str, Any]) -> int | None:
        """Let a request count for the client that a proxy of ours names; return the limit if there is no room for one more."""
        limit = self._per_address()
        if not self.limits.proxies or not limit:
            return None
        address = address_of(environ, self.limits.proxies)
        self.connections.attribute(sock, address)
        if address is None or self.connections.count_at(address) <= limit or self._end_longest_waiting("of address", address):
            return None
        self.connections.attribute(sock, None)
        HTTP_ENDED.labels("too many of address").inc()
        return limit

    def _take_in(self, sock: Any, address: Any) -> bool:
        """Count a connection, if need be in place of another that waits for its peer; refuse it when there is no such one.

        Behind a proxy all connections come from the proxy, so an address of its own tells nothing: `one_too_many` asks for each
        request instead.
        """
        key = address_key(str(address[0])) if isinstance(address, tuple) and not self.limits.proxies else None
        per_address = self._per_address()
        connections = self.connections
        descriptors = _descriptor_limit()
        if descriptors is not None and len(connections) >= descriptors // HTTP_SHARE and not self._end_longest_waiting("in all"):
            return self._refuse(
                sock, "503 Service Unavailable", "too many", "this gateway has as many HTTP connections as it can"
            )
        if (
            key is not None
            and per_address
            and connections.count_at(key) >= per_address
            and not self._end_longest_waiting("of address", key)
        ):
            return self._refuse(sock, "429 Too Many Requests", "too many of address", _too_many_text(per_address))
        connections.open(sock, key)
        return True

    def _per_address(self) -> int:
        """Return how many HTTP connections one address may have; 0 for any number."""
        limit, descriptors = self.limits.max_connections_per_address, _descriptor_limit()
        return min(limit, max(1, descriptors // ADDRESS_SHARE)) if limit and descriptors is not None else limit

    def _end_longest_waiting(self, why: str, address: str | None = None) -> bool:
        """End the connection (of an address) that has waited longest for its peer; its greenlet closes it."""
        sock = self.connections.longest_waiting(address)
        if sock is None:
            return False
        self.connections.close(sock)
        HTTP_ENDED.labels(f"longest waiting {why}").inc()
        _close_hard(sock)
        with suppress(OSError):
            sock._sock.shutdown(socket.SHUT_RDWR)  # not the cooperative one, which raises in the greenlet that waits
        return True

    def _refuse(self, sock: Any, status: str, reason: str, told: str) -> bool:
        HTTP_ENDED.labels(reason).inc()
        with suppress(OSError):
            sock._sock.send(_error_answer(status, told))
        native_close(sock.detach())
        return False

    def _keep_reserve(self) -> None:
        """Look which descriptor a connection would get, once the last one's was close to the reserve.

        Raises:
            OSError: EMFILE, as if it could not have had one.
        """
        limit = _descriptor_limit()
        if limit is None:
            return
        reserve = limit - min(MAX_RESERVED_DESCRIPTORS, limit // 16)
        if self._newest_fd < reserve - MAX_RESERVED_DESCRIPTORS:
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


def _close_hard(sock: Any) -> None:
    """Let closing a socket throw away what the kernel holds for its peer, for which it would try for many minutes."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _descriptor_limit() -> int | None:
    """Return how many descriptors the process may have; None for any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # each time, as it can be changed while we run
    return None if limit == resource.RLIM_INFINITY else limit


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
    # A client may send its first frame without waiting for our answer: it then sits in the reader's buffer. `peek` returns what
    # is buffered, and asks for more only if nothing is; a detached connection waits for none.
    handler._part = _Part.DETACHED
    sock.settimeout(0.0)  # where the handler is not ours
    received = _buffered(reader)
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


def _buffered(reader: Any) -> bytes:
    try:
        return bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        return b""
