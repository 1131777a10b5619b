"""One HTTP connection: its requests one after the other, each part of each within its deadline. A handler of gevent's pywsgi.

Every byte of HTTP goes through `receive_into` and `_sendall`, which wait for a peer no longer than its `Pace` allows
(http_limits.py). One request at a time: the next one is read when the kernel has taken the whole answer of the last.

A request with a plain head for a route of the server (http_routes.py) is answered here, without WSGI, when the head is there
at once. Of any other request nothing has been read then, and pywsgi reads it from its first byte. Where a route's answer is to
come later, the requests behind it that have come as a whole are asked of it before anybody waits.

Private corners of pywsgi that are met here, each with a contract test: `rfile` may hold bytes that came in behind the request;
pywsgi goes on with the connection unless `close_connection` is set; it makes headers with `MessageClass(rfile, …)`, and uses of
them the interface of request_headers.py; it writes with `_sendall` and finishes headers in `finalize_headers`;
`_handle_client_error` returns the answer to a bad request, and `_send_error_response_if_possible` gives that of a failure. Of
gevent's sockets: `_read_event` watches for bytes.
"""

from __future__ import annotations

import errno
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import gevent
import gevent.socket
import structlog
from gevent import pywsgi

from headgate.metrics import HTTP_ENDED
from headgate.runtime.epoll_set import leave_to_others
from headgate.runtime.loop import Arrivals, native_close

from .first_request import NAMES_SESSION, Beginning
from .http_answers import LATE_HEADERS, ROUTE_FAILED, Answer, error_answer, http_error
from .http_body import MAX_LINGER_BYTES, RequestBody
from .http_connections import HttpConnections
from .http_limits import HttpLimits, Pace, Part
from .http_routes import LaterAnswer, Route, Routes
from .peer_socket import PeerSocket, close_hard, native
from .request_head import read_head
from .request_headers import Reader, RequestHeaders, is_token, list_of
from .routed_request import Routed

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from _typeshed import ReadableBuffer, WriteableBuffer

log = structlog.get_logger("headgate.wsgi")

# Behind a request the connection is over (None), goes on (True), or is over with this status and answer.
Outcome = tuple[str, bytes] | bool | None

_READ_BYTES = 8192
# Requests that are answered together, at most; a read brings hardly more of them.
_MAX_TOGETHER = 64
# A peer that never keeps us waiting would keep the loop: after so many bytes of a message everybody else has a turn. Pieces of a
# chunked body may be of one byte, each of which has to be parsed.
_TURN_BYTES = 65536
_CHUNKED_TURN_BYTES = 8192
# A client that has sent ahead of the last answer has so long to read that, and to end.
LINGER_S = 2.0
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
_FAILED = "500 Internal Server Error", ROUTE_FAILED
_BAD_BODY = "400 Bad Request", http_error("bad_request", "the body is not valid HTTP")


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


class HttpHandler(pywsgi.WSGIHandler):  # type: ignore[misc]
    """One HTTP connection: its requests one after the other, each part of each within its deadline."""

    socket: PeerSocket
    wsgi_input: RequestBody
    environ: WSGIEnvironment | None
    response_length: int

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
        self._send_now: Callable[[ReadableBuffer], int] = native(sock).send if self._is_plain else sock.send
        # The last request that a route answered: most clients send the same head again, of at most _READ_BYTES.
        self._routed: Routed | None = None
        self._unread_bytes = 0
        # Bytes that have come and that `rfile` has not; whether that may hold others, which came before these; and
        # whether it gets no more now.
        self._received, self._heard = beginning.received, bool(beginning.received)
        self._is_streamed = self._is_cut_off = False
        self._arrivals: Arrivals | None = None
        self._answered = beginning.answered
        self._is_adopted = beginning.is_adopted
        # At the head of a request, before pywsgi reads it.
        self._looks_first = bool(server.routes) or server.to_owner is not None
        self.part = Part.HEADERS
        # How much longer the peer may keep us waiting with this part; None as long as it has not.
        self._pace: Pace | None = self.part.pace(server.limits)
        self._pace.waited(beginning.waited_s)

    # -- bytes in and out ---------------------------------------------------------------------------------------------

    def receive_into(self, buffer: WriteableBuffer) -> int | None:
        """Read what there is into a buffer, waiting as long as the peer may keep us; 0 at the end. Switches greenlets.

        Raises:
            OSError: it kept us waiting for too long, the body is longer than it may be, or the connection broke.
        """
        if self._is_cut_off:
            return None
        if self._received:
            piece, self._received = self._received[: len(memoryview(buffer))], self._received[len(memoryview(buffer)) :]
            memoryview(buffer)[: len(piece)] = piece
            return len(piece)
        try:
            size: int = self.socket.recv_into(buffer)
        except _WOULD_BLOCK:
            if self.part is Part.DETACHED:
                return None
            size = self._in_time(lambda: self.socket.recv_into(buffer))
        if self.part is Part.IDLE and size:
            self.begin(Part.HEADERS)
        self._heard = self._heard or size > 0
        if self._pace is not None:
            self._pace.moved(size)
        if self.part is Part.BODY:
            self._body_bytes += size
            if self._chunked and self._body_bytes > self.server.limits.max_chunked_bytes:
                raise OSError(errno.ECONNRESET, "a chunked body that does not end")
            self._let_others(size, _CHUNKED_TURN_BYTES if self._chunked else _TURN_BYTES)
        return size

    def _receive_next(self) -> bool:
        """Wait for the next request of a plain connection, and take what has come; return False at the end.

        Raises:
            OSError: none came in time, or the connection broke.
        """
        arrivals, sock = self._arrivals, native(self.socket)
        if arrivals is None:
            arrivals = self._arrivals = Arrivals(sock.fileno(), self.server.limits.keep_alive_s)
        self._waits += 1
        while True:
            in_time = arrivals.wait()
            try:
                received = self._received = sock.recv(_READ_BYTES)
            except BlockingIOError:
                if not in_time:
                    raise self._too_slow() from None
            else:
                return bool(received)

    def _sendall(self, data: ReadableBuffer) -> None:
        """Write all of a piece of the answer, waiting as long as the peer may keep us. Switches greenlets."""
        rest = memoryview(data)
        while rest:
            try:
                sent: int = self._send_now(rest)
            except _WOULD_BLOCK:
                # 100 Continue is written before the body was read; an answer may begin before that, too.
                if self.part is not Part.ANSWER:
                    self.begin(Part.ANSWER)
                piece = rest
                sent = self._in_time(lambda piece=piece: self.socket.send(piece))  # type: ignore[misc]
            if self.part is Part.ANSWER and self._pace is not None:
                self._pace.moved(sent)
            rest = rest[sent:]
            self.response_length += sent
            self._let_others(sent, _TURN_BYTES)

    def send_ahead(self, data: bytes) -> None:
        """Write what is no part of the answer, and does not count as one. Switches greenlets."""
        length_bytes = self.response_length
        self._sendall(data)
        self.response_length = length_bytes

    def _in_time(self, move: Callable[[], int]) -> int:
        """Move bytes once the socket is ready for it.

        Raises:
            _TooSlow: not while the peer may keep us waiting.
        """
        sock = self.socket
        pace = self._pace = self._pace or self.part.pace(self.server.limits)
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
        self.part, self._pace = part, None

    # -- one request after the other ----------------------------------------------------------------------------------

    def handle(self) -> None:
        try:
            with suppress(OSError):  # the answer to a bad request found nobody
                super().handle()
        finally:
            self._routed = None  # it holds this handler, as the next does: a cycle would stay until the garbage collector looks
            self.environ = None

    def _wait_no_more(self) -> None:
        """Forget the wait for the next request, while the descriptor is still ours. Idempotent."""
        if self._arrivals is not None:
            self._arrivals.close()
            self._arrivals = None

    def handle_one_request(self) -> Outcome:
        again = self.environ is not None or self._routed is not None
        if again:
            self.server.between_requests(self.socket)
            self.begin(Part.IDLE)
            if not self._looks_first:
                gevent.sleep(0)  # the next request may be here already, and the one behind it
        outcome: Outcome = None
        try:
            try:
                routed = self._answered_before() or (self._next_routed(again) if self._looks_first else None)
            except OSError:
                pass
            else:
                outcome = self._answer_streamed() if routed is None else self._answer_routed(routed)
        finally:
            if outcome is not True:
                self._wait_no_more()
        if outcome is None and self._heard and self.socket is not None:
            outcome = self._late_headers()
        return outcome if outcome is True or self.socket is None else self._end(outcome)

    def _end(self, outcome: Outcome) -> Outcome:
        """Write the last answer, if there is one, and read for a while what the client has sent ahead; return what is logged.

        A connection that is closed with bytes unread is reset, and the answers are lost that the kernel has not delivered yet
        (RFC 9112 section 9.6).
        """
        if isinstance(outcome, tuple):
            with suppress(OSError):
                self._sendall(outcome[1])
            outcome = outcome[0], b""
        if self._is_plain:
            with suppress(OSError):
                if not self.broken and native(self.socket).recv(1, socket.MSG_PEEK):
                    self._linger()
            if self._is_adopted:
                # The process that accepted it may be too busy to have closed it: we close ours first.
                leave_to_others(native(self.socket).fileno())
        return outcome

    def _linger(self) -> None:
        sock = self.socket
        sock.shutdown(socket.SHUT_WR)
        self.server.connections.wait(sock)
        buffer, left_bytes, until_s = bytearray(_TURN_BYTES), MAX_LINGER_BYTES, time.monotonic() + LINGER_S
        while left_bytes > 0 and (left_s := until_s - time.monotonic()) > 0:
            sock.settimeout(left_s)
            if not (size := sock.recv_into(buffer)):
                break
            left_bytes -= size
            gevent.sleep(0)

    def _answer_streamed(self) -> Outcome:
        """Let pywsgi read the next request, and the application answer it."""
        self._is_streamed = True
        self._wait_no_more()  # the application may take the socket
        outcome: Outcome = super().handle_one_request()
        if isinstance(outcome, tuple) and outcome[0] == "414":
            return _last("414 URI Too Long", http_error("uri_too_long", "the request line is too long"))
        return outcome

    # -- a request for a route ------------------------------------------------------------------------------------------

    def _answered_before(self) -> Routed | None:
        """Return the request that was answered before we had the connection (first_request.py), if there is one."""
        answered, self._answered = self._answered, None
        if answered is not None:
            self._routed = Routed(self, answered.head, lambda request: answered.answer, answered.environ, counted=True)
        return None if answered is None else self._routed

    def _next_routed(self, again: bool) -> Routed | None:
        """Wait for the next request; return it, with its head taken, if it is for a route, and else None with nothing taken.

        Raises:
            OSError: as `receive_into`.
        """
        waits = self._waits
        if self._is_streamed:
            self._take_back()
        if not self._received and not (self._receive_next() if again and self._is_plain else self._receive_more()):
            return None
        if again and waits == self._waits:
            gevent.sleep(0)  # it was here already, and the one behind it may be as well
        if self.server.to_owner is not None:
            while b"\n" not in self._received and len(self._received) < _READ_BYTES:
                if self.part is Part.IDLE:
                    self.begin(Part.HEADERS)  # once: the deadline is for all of them, not for the next byte
                if not self._receive_more():
                    break
            if NAMES_SESSION in self._received and self._hand_over():
                raise ConnectionResetError(errno.ECONNRESET, "it is another process's connection now")
        routed = self._take_routed()
        if routed is None and self.part is Part.IDLE:
            self.begin(Part.HEADERS)  # what has come is the beginning of a request, and the rest of it has a deadline
        return routed

    def _receive_more(self) -> bool:
        """Wait for bytes, and put them behind those that have come; return False at the end.

        Raises:
            OSError: as `receive_into`.
        """
        received, self._received = self._received, b""
        buffer = bytearray(_READ_BYTES - len(received))
        size = self.receive_into(buffer) or 0
        self._received = received + buffer[:size]
        return bool(size)

    def _take_back(self) -> None:
        """Take back what `rfile` has read and nobody wanted."""
        self._is_streamed, self._is_cut_off = False, True
        held = self.rfile.peek()
        self._is_cut_off = False
        self._received = self.rfile.read(len(held)) + self._received

    def _take_routed(self) -> Routed | None:
        """Take a request for a route off what has come; None, with nothing taken, when its head is not there, or not plain."""
        received = self._received
        again = None if self._routed is None else self._routed.again(received)
        if again is not None:
            self._routed, self._received = again, received[len(again.block) :]
            return again
        end = received.find(b"\r\n\r\n") + 4 if received.startswith(self.server.route_starts) else 0
        head = read_head(received[:end]) if end >= 4 and not self.server.has_reserved_place(self.socket) else None
        route = None if head is None else self.server.routes.get((head.method, head.path))
        if head is None or route is None:
            return None
        self._received = received[end:]
        environ = head.environ(self.server.get_environ(), self.client_address)
        routed = self._routed = Routed(self, head, route, environ, block=received[:end])
        return routed

    def _answer_routed(self, routed: Routed) -> Outcome:
        """Answer a request, or give it to the application if its route leaves it to that."""
        self._begin_routed(routed)
        self._body_bytes = self.response_length = 0
        self._chunked = False
        self.server.connections.work(self.socket)
        self.begin(Part.BODY)
        try:
            answer = self._asked(routed)
            if self.socket is None:
                return None  # detached
            if isinstance(answer, Answer):
                self._write_answer(answer)
                return None if self.close_connection else True
            if answer is not None:
                left = self._answer_together(routed.route, answer)
                if left is None:
                    return None if self.close_connection else True
                routed = left
        except OSError:
            return None  # of the connection: nobody is there to be answered
        except Exception:
            log.exception("route failed", path=routed.head.path)
            self._sendall(_last(*_FAILED)[1])
            return None
        self._is_streamed = True
        self.server.connections.work(self.socket)
        self.response_length = 0
        self.wsgi_input = self._rest_of_body()
        self.environ = {**routed.environ, "wsgi.input": self.wsgi_input, "wsgi.input_terminated": True}
        self.application = self.server.application
        self.handle_one_response()
        return None if self.close_connection else True

    def _begin_routed(self, routed: Routed) -> None:
        head = routed.head
        self.command, self.request_version, self.close_connection = head.method, "HTTP/1.1", head.ends
        self.content_length = self._unread_bytes = head.body_bytes

    def _asked(self, routed: Routed) -> Answer | LaterAnswer | None:
        """Return what the route says, or the refusal of a request for which there is no room."""
        refusal = None if routed.counted else self.server.refusal(self.socket, routed.environ)
        return refusal or routed.route(routed)

    def _answer_together(self, route: Route, first: LaterAnswer) -> Routed | None:
        """Answer a request whose answer is to come, and those behind it for the same route that have come as a whole.

        Returns:
            The request behind them that the route leaves to the application, if there is one.

        Raises:
            OSError: as `receive_into`.
        """
        if not self._received or self.close_connection:
            self._sendall(first.wait().to_bytes(time.time(), close=self.close_connection))
            return None
        answers: list[Answer | LaterAnswer] = [first]
        left, failure = None, None
        while self._received and not self.close_connection and len(answers) < _MAX_TOGETHER:
            routed = self._take_whole(route)
            if routed is None:
                break
            self._begin_routed(routed)
            try:
                answer = self._asked(routed)
            except Exception as error:  # noqa: BLE001 - raised behind the answers that are before it
                failure = error
                break
            if answer is None:
                left = routed
                break
            self._received, self._unread_bytes = self._received[self._unread_bytes :], 0
            answers.append(answer)
            if isinstance(answer, Answer) and answer.closes:
                self.close_connection = True
        ends = self.close_connection and left is None and failure is None
        ready = [answer if isinstance(answer, Answer) else answer.wait() for answer in answers]
        now_s, last = time.time(), len(ready) - 1
        self._sendall(b"".join([each.to_bytes(now_s, close=ends and at == last) for at, each in enumerate(ready)]))
        if failure is not None:
            raise failure
        return left

    def _take_whole(self, route: Route) -> Routed | None:
        """Take a request for `route` off what has come; None, with nothing taken, when it is not all there.

        None also for one that names a session, which may be another process's.
        """
        received, known = self._received, self._routed
        routed = self._take_routed()
        if routed is not None and (
            routed.route is not route
            or routed.head.body_bytes > len(self._received)
            or (self.server.to_owner is not None and NAMES_SESSION in routed.block)
        ):
            self._received, self._routed = received, known
            return None
        return routed

    def _write_answer(self, answer: Answer) -> None:
        """Write the answer of a route, or a refusal, and read what is left of the request.

        Raises:
            OSError: the peer is gone, or does not read.
        """
        rest = None
        if self._unread_bytes or self.broken:
            self._is_streamed = True
            rest = self._rest_of_body()
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
        body: bytes = self._received[:size]
        if len(body) == size:
            self._received = self._received[size:]
            return body
        self._is_streamed = True
        try:
            body = self.rfile.read(size)
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
        if not is_token(self.command):
            raise ValueError("the method is not a token")  # RFC 9110 section 9.1
        options = list_of(self.headers.get("connection") or "")  # pywsgi knows one word
        self.close_connection = "close" in options or (self.request_version != "HTTP/1.1" and "keep-alive" not in options)
        return read

    def MessageClass(self, reader: Reader, *_: object) -> RequestHeaders:
        """Parse the headers our way. An error of reading them goes to `_handle_client_error`, like a fault in them."""
        return RequestHeaders(reader)

    def get_environ(self) -> WSGIEnvironment:
        environ: WSGIEnvironment = super().get_environ()
        environ["headgate.handler"] = self
        if self.request_version != "HTTP/1.1":
            # No leave is expected, nor understood (RFC 9110 section 10.1.1).
            self.wsgi_input.socket = None  # type: ignore[misc]
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
            return _last(headers.answer, http_error(_code_of(headers.answer), headers.status))
        return _last("400 Bad Request", http_error("bad_request", "not a valid HTTP request"))

    def _send_error_response_if_possible(self, error_code: int) -> None:
        """Answer where the application failed (500), or where the body turned out malformed (400), before its answer began."""
        self.close_connection = True
        if not self.response_length:
            answer = error_answer(*(_BAD_BODY if error_code == 400 else _FAILED))
            with suppress(OSError):
                self.start_response(answer.status, [*answer.headers, ("Connection", "close")])
                self.write(answer.body)

    def _late_headers(self) -> tuple[str, bytes] | None:
        """Return the answer to a request line or headers that took too long; None when they did not."""
        if not self.broken or self.part is not Part.HEADERS:
            return None
        return _last("408 Request Timeout", LATE_HEADERS)

    def log_error(self, msg: str, *args: object) -> None:
        """Say nothing per bad request: hostile clients must not fill the log."""

    def log_request(self) -> None:
        """Say nothing per request either, unless the operator asked for it; pywsgi would still put the line together."""
        self.server.log_access(self)

    def let_go(self) -> None:
        """Wait for nothing any more: the socket is about to be another's."""
        self.part = Part.DETACHED
        self._wait_no_more()

    def _hand_over(self) -> bool:
        """Hand the connection to the owner of its next request's session; return whether it was."""
        try:
            is_taken: bool = self.server.hand_over(self.socket, self._received)
        except BaseException:
            self._leave()  # killed in the wait: it may be the owner's by now, and then nobody else may read it
            raise
        if is_taken:
            self._leave()
        return is_taken

    def _leave(self) -> None:
        """End our part of a connection that goes on elsewhere: nothing may be sent on it, and it is not shut down."""
        self.let_go()
        self.close_connection = True
        sock, self.socket = self.socket, None  # type: ignore[assignment]
        descriptor = sock.detach()  # type: ignore[attr-defined]
        leave_to_others(descriptor)
        native_close(descriptor)


def _last(status: str, error: Mapping[str, object]) -> tuple[str, bytes]:
    """Return the last answer of a connection, as pywsgi wants it."""
    return status[:3], error_answer(status, error).to_bytes(time.time(), close=True)


def _code_of(status: str) -> str:
    """Return the code of an error that is HTTP's own: the words of its status."""
    return status[4:].lower().replace(" ", "_")
