"""One HTTP connection: its requests one after the other, each part of each within its deadline. A handler of gevent's pywsgi.

Every byte of HTTP goes through `receive_into` and `_sendall`, which wait for a peer no longer than its `Pace` allows
(http_limits.py). One request at a time: the next one is read when the kernel has taken the whole answer of the last.

A request with a plain head for a route of the server (http_routes.py) is answered here, without WSGI, when the head is there
at once. Of any other request nothing has been read then, and pywsgi reads it from its first byte.

Private corners of pywsgi that are met here, each with a contract test: `rfile` may hold bytes that came in behind the request;
pywsgi goes on with the connection unless `close_connection` is set; it makes headers with `MessageClass(rfile, …)`, and uses of
them the interface of request_headers.py; it writes with `_sendall` and finishes headers in `finalize_headers`;
`_handle_client_error` returns the answer to a bad request. Of gevent's sockets: `_read_event` watches for bytes.
"""

from __future__ import annotations

import errno
import io
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import gevent
import gevent.socket
import structlog
from gevent import pywsgi

from headgate.metrics import HTTP_ENDED
from headgate.runtime.loop import native_close

from .first_request import NAMES_SESSION, Beginning
from .http_answers import ROUTE_FAILED_TEXT, Answer, error_answer
from .http_body import RequestBody
from .http_connections import HttpConnections
from .http_limits import HttpLimits, Part
from .http_routes import Route, Routes
from .peer_socket import PeerSocket, close_hard, native
from .request_head import Head, read_head
from .request_headers import Reader, RequestHeaders

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from _typeshed import ReadableBuffer, WriteableBuffer

log = structlog.get_logger("headgate.wsgi")

# Behind a request the connection is over (None), goes on (True), or is over with this status and answer.
Outcome = tuple[str, bytes] | bool | None

_READ_BYTES = 8192
# A peer that never keeps us waiting would keep the loop: after so many bytes of a message everybody else has a turn. Pieces of a
# chunked body may be of one byte, each of which has to be parsed.
_TURN_BYTES = 65536
_CHUNKED_TURN_BYTES = 8192
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class HandlerServer(Protocol):
    """The server that accepted the connection (http_server.py)."""

    limits: HttpLimits
    connections: HttpConnections[PeerSocket]
    routes: Routes
    route_starts: tuple[bytes, ...]
    """The beginnings of requests that may be for a route."""
    to_owner: Callable[[bytes, int], bool] | None
    """Takes a connection whose session is another process's; None where this process has the port for itself."""

    def between_requests(self, sock: PeerSocket) -> None:
        """A connection waits for its next request."""

    def has_reserved_place(self, sock: PeerSocket) -> bool:
        """Return whether a connection has a place of those for health pages: for one request."""

    def refusal(self, sock: PeerSocket, environ: WSGIEnvironment) -> Answer | None:
        """Let a request count; return the answer that refuses it if there is no room for it."""

    def get_environ(self) -> WSGIEnvironment:
        """Return a new WSGI environment, without a request."""

    def hand_over(self, sock: PeerSocket, received: bytes) -> bool:
        """Hand a connection whose next request is another process's to that one; return whether it was. Switches greenlets."""

    def log_access(self, handler: HttpHandler) -> None:
        """Log a request that was answered, where the operator asked for it."""


_FROM_THE_START = Beginning()


class _TooSlow(TimeoutError):
    """A peer kept us waiting for longer than it may. Of this errno pywsgi prints no traceback; an application sees an OSError."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.ECONNRESET, message)


class _Incoming(io.RawIOBase):
    """The stream from which pywsgi reads a connection's bytes, through a buffer."""

    def __init__(self, handler: HttpHandler) -> None:
        self._handler = handler

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        return self._handler.receive_into(buffer)


class _Routed:
    """A request that a route answers (http_routes.RoutedRequest)."""

    __slots__ = ("_handler", "counted", "environ", "head", "route")

    def __init__(
        self, handler: HttpHandler, head: Head, route: Route, environ: WSGIEnvironment, *, counted: bool = False
    ) -> None:
        self._handler, self.head, self.route, self.environ = handler, head, route, environ
        self.counted = counted  # it has been let in, or refused, already
        environ["headgate.handler"] = handler

    def body(self) -> bytes:
        """As http_routes.RoutedRequest."""
        return self._handler.read_body()


class HttpHandler(pywsgi.WSGIHandler):  # type: ignore[misc]
    """One HTTP connection: its requests one after the other, each part of each within its deadline."""

    socket: PeerSocket
    wsgi_input: RequestBody
    environ: WSGIEnvironment | None

    def __init__(self, sock: PeerSocket, address: object, server: HandlerServer, beginning: Beginning = _FROM_THE_START) -> None:
        # Without it, the answer after a WebSocket upgrade waits 40 ms for the browser's delayed acknowledgement.
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel would queue 4 MB of answers for a client that reads none.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server.limits.send_buffer_bytes)
        sock.settimeout(0.0)  # a caller that wants to wait says for how long
        super().__init__(sock, address, server, rfile=io.BufferedReader(_Incoming(self), _READ_BYTES))
        self.broken = False  # nobody knows where the next request would begin
        self._body_bytes = self._turn_bytes = self._waits = 0
        self._chunked = False
        self._is_plain = type(sock) is gevent.socket.socket  # below TLS the socket does not tell what can be read
        # The last request that a route answered: most clients send the same head again, of at most _READ_BYTES.
        self._routed: _Routed | None = None
        self._routed_block = b""
        self._unread_bytes = 0
        self._received, self._heard = beginning.received, bool(beginning.received)
        self._answered = beginning.answered
        self.begin(Part.HEADERS)
        self._pace.waited(beginning.waited_s)

    # -- bytes in and out ---------------------------------------------------------------------------------------------

    def receive_into(self, buffer: WriteableBuffer) -> int | None:
        """Read what there is into a buffer, waiting as long as the peer may keep us; 0 at the end. Switches greenlets.

        Raises:
            OSError: it kept us waiting for too long, the body is longer than it may be, or the connection broke.
        """
        if self._received:
            piece, self._received = self._received[: len(memoryview(buffer))], self._received[len(memoryview(buffer)) :]
            memoryview(buffer)[: len(piece)] = piece
            return len(piece)
        try:
            # The next request is hardly ever there when the last one has been answered: asking for it would be in vain, twice.
            waits = self.part is Part.IDLE and self._is_plain
            size: int = self._in_time(lambda: self._receive_when_readable(buffer)) if waits else self.socket.recv_into(buffer)
        except _WOULD_BLOCK:
            if self.part is Part.DETACHED:
                return None
            size = self._in_time(lambda: self.socket.recv_into(buffer))
        if self.part is Part.IDLE and size:
            self.begin(Part.HEADERS)
        self._heard = self._heard or size > 0
        self._pace.moved(size)
        if self.part is Part.BODY:
            self._body_bytes += size
            if self._chunked and self._body_bytes > self.server.limits.max_chunked_bytes:
                raise OSError(errno.ECONNRESET, "a chunked body that does not end")
            self._let_others(size, _CHUNKED_TURN_BYTES if self._chunked else _TURN_BYTES)
        return size

    def _receive_when_readable(self, buffer: WriteableBuffer) -> int:
        """Wait for bytes, for as long as the socket's timeout says, and read them. A turn of the loop goes by in any case."""
        sock = self.socket
        if timeout_s := sock.gettimeout():  # type: ignore[attr-defined]
            gevent.socket.wait(sock._read_event, timeout_s, TimeoutError("timed out"))  # type: ignore[attr-defined]
        return native(sock).recv_into(buffer)

    def _sendall(self, data: ReadableBuffer) -> None:
        """Write all of a piece of the answer, waiting as long as the peer may keep us. Switches greenlets."""
        rest = memoryview(data)
        while rest:
            try:
                sent: int = self.socket.send(rest)
            except _WOULD_BLOCK:
                # pywsgi writes 100 Continue by itself; and an answer may begin before its request's body was read.
                if self.part is not Part.ANSWER:
                    self.begin(Part.ANSWER)
                piece = rest
                sent = self._in_time(lambda piece=piece: self.socket.send(piece))  # type: ignore[misc]
            if self.part is Part.ANSWER:
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
        self._waits += 1
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
        part = self.part
        self.broken = self.close_connection = True
        if part is not Part.IDLE:
            HTTP_ENDED.labels(f"{part.value} deadline").inc()
        if part is Part.ANSWER:
            close_hard(self.socket)
        return _TooSlow(f"the {part.value} took too long")

    def begin(self, part: Part) -> None:
        """Another part of the exchange is under way, with a pace of its own."""
        self.part = part
        self._pace = part.pace(self.server.limits)

    # -- one request after the other ----------------------------------------------------------------------------------

    def handle(self) -> None:
        try:
            with suppress(OSError):  # the answer to a bad request found nobody
                super().handle()
        finally:
            self._routed = None  # it holds this handler, as the next does: a cycle would stay until the garbage collector looks
            self.environ = None

    def handle_one_request(self) -> Outcome:
        again = self.environ is not None or self._routed is not None
        if again:
            self.server.between_requests(self.socket)
            self.begin(Part.IDLE)
            if not self.server.routes:
                gevent.sleep(0)  # the next request may be here already, and the one behind it
        outcome: Outcome
        try:
            routed = self._answered_before() or (self._next_routed(again) if self.server.routes else None)
        except OSError:
            outcome = None
        else:
            outcome = super().handle_one_request() if routed is None else self._answer_routed(routed)
        return self._late_headers() if outcome is None and self._heard and self.socket is not None else outcome

    # -- a request for a route ------------------------------------------------------------------------------------------

    def _answered_before(self) -> _Routed | None:
        """Return the request that was answered before we had the connection (first_request.py), if there is one."""
        answered, self._answered = self._answered, None
        if answered is not None:
            self._routed = _Routed(self, answered.head, lambda _: answered.answer, answered.environ, counted=True)
        return None if answered is None else self._routed

    def _next_routed(self, again: bool) -> _Routed | None:
        """Wait for the next request; return it, with its head read, if there is a route for it, and else None with nothing read.

        Raises:
            OSError: as `receive_into`.
        """
        waits = self._waits
        received = self.rfile.peek()
        if again and waits == self._waits:
            gevent.sleep(0)  # it was here already, and the one behind it may be as well
        if self.server.to_owner is not None:
            if received and b"\n" not in received:
                received = self._peek_line(received)
            if NAMES_SESSION in received and self.server.hand_over(self.socket, received):
                self._leave()
                raise ConnectionResetError(errno.ECONNRESET, "it is another process's connection now")
        if not received.startswith(self.server.route_starts):
            return None
        end = received.find(b"\r\n\r\n") + 4
        if end < 4 or self.server.has_reserved_place(self.socket):
            return None
        routed, block = self._routed, received[:end]
        if routed is None or block != self._routed_block:
            head = read_head(block)
            route = None if head is None else self.server.routes.get((head.method, head.path))
            if head is None or route is None:
                return None
            routed = self._routed = _Routed(self, head, route, head.environ(self.server.get_environ(), self.client_address))
            self._routed_block = block
        self.rfile.read(end)
        return routed

    def _peek_line(self, received: bytes) -> bytes:
        """Wait for the rest of a request line; return what there is of the request then, with nothing read.

        Raises:
            OSError: as `receive_into`.
        """
        self.rfile.read(len(received))
        buffer = bytearray(_READ_BYTES)
        while b"\n" not in received and len(received) < _READ_BYTES:
            size = self.receive_into(memoryview(buffer)[: _READ_BYTES - len(received)])
            if not size:
                break
            received += buffer[:size]
        self._received = received
        peeked: bytes = self.rfile.peek()
        return peeked

    def _answer_routed(self, routed: _Routed) -> Outcome:
        """Answer a request, or give it to the application if its route leaves it to that."""
        head = routed.head
        self.command, self.request_version, self.close_connection = head.method, "HTTP/1.1", head.ends
        self.content_length = self._unread_bytes = head.body_bytes
        self._body_bytes = self.response_length = 0
        self._chunked = False
        self.server.connections.work(self.socket)
        self.begin(Part.BODY)
        try:
            refusal = None if routed.counted else self.server.refusal(self.socket, routed.environ)
            answer = refusal or routed.route(routed)
            if self.socket is None:
                return None  # detached
            if answer is not None:
                self._write_answer(answer)
                return None if self.close_connection else True
        except OSError:
            return None  # of the connection: nobody is there to be answered
        except Exception:
            log.exception("route failed", path=head.path)
            self._sendall(error_answer("500 Internal Server Error", ROUTE_FAILED_TEXT))
            return None
        self.wsgi_input = self._rest_of_body()
        self.environ = {**routed.environ, "wsgi.input": self.wsgi_input, "wsgi.input_terminated": True}
        self.application = self.server.application
        self.handle_one_response()
        return None if self.close_connection else True

    def _write_answer(self, answer: Answer) -> None:
        """Write the answer of a route, or a refusal, and read what is left of the request.

        Raises:
            OSError: the peer is gone, or does not read.
        """
        rest = self._rest_of_body() if self._unread_bytes or self.broken else None
        close = self.close_connection or answer.closes or (rest is not None and rest.abandoned)
        self.close_connection = close
        self._sendall(answer.to_bytes(time.time(), close=close))
        if rest is not None:
            rest._discard()

    def read_body(self) -> bytes:
        """Return the whole body of a request for a route. Switches greenlets.

        Raises:
            TimeoutError: the peer kept us waiting for too long.
            ConnectionError: the peer has ended the connection before its body has come.
        """
        size, self._unread_bytes = self._unread_bytes, 0
        try:
            body: bytes = self.rfile.read(size)
            if len(body) < size:
                raise ConnectionResetError(errno.ECONNRESET, "the body ended too early")
        except OSError:
            self.broken = self.close_connection = True
            raise
        return body

    def _rest_of_body(self) -> RequestBody:
        """Return what is to come of the body of a request for a route."""
        return RequestBody(self, pywsgi.Input(self.rfile, self._unread_bytes))

    def read_request(self, raw_requestline: str) -> bool:
        read: bool = super().read_request(raw_requestline)
        if self.headers.get("transfer-encoding") is not None and self.request_version != "HTTP/1.1":
            raise ValueError("transfer-encoding needs HTTP/1.1")  # RFC 9112 section 6.1
        return read

    def MessageClass(self, reader: Reader, *_: object) -> RequestHeaders:
        """Parse the headers our way. An error of reading them goes to `_handle_client_error`, like a fault in them."""
        return RequestHeaders(reader)

    def get_environ(self) -> WSGIEnvironment:
        environ: WSGIEnvironment = super().get_environ()
        environ["headgate.handler"] = self
        self.wsgi_input = RequestBody(self, self.wsgi_input)
        # Also where a WebSocket is asked for: pywsgi would hand out the bare stream, behind whose body the next request begins.
        environ["wsgi.input"], environ["wsgi.input_terminated"] = self.wsgi_input, True
        self.server.connections.work(self.socket)
        self._body_bytes = 0
        self._chunked = self.wsgi_input.chunked_input
        self.begin(Part.BODY)
        return environ

    def run_application(self) -> None:
        if self.server.has_reserved_place(self.socket):
            self.close_connection = True
        refusal = self.server.refusal(self.socket, self.environ)
        if refusal is not None:
            self.application = refusal
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
            return headers.answer[:3], error_answer(headers.answer, headers.status)
        return "400", error_answer("400 Bad Request", "not a valid HTTP request")

    def _late_headers(self) -> tuple[str, bytes] | None:
        """Return the answer to a request line or headers that took too long; None when they did not."""
        if not self.broken or self.part is not Part.HEADERS:
            return None
        return "408", error_answer("408 Request Timeout", "the request's headers took too long")

    def log_error(self, msg: str, *args: object) -> None:
        """Say nothing per bad request: hostile clients must not fill the log."""

    def log_request(self) -> None:
        """Say nothing per request either, unless the operator asked for it; pywsgi would still put the line together."""
        self.server.log_access(self)

    def _leave(self) -> None:
        """End our part of a connection that goes on elsewhere: nothing may be sent on it, and it is not shut down."""
        self.part = Part.DETACHED
        self.close_connection = True
        sock, self.socket = self.socket, None  # type: ignore[assignment]
        native_close(sock.detach())  # type: ignore[attr-defined]
