"""One HTTP connection. It reads its requests one after the other and answers them in order.

It waits for the first request in the loop, without a greenlet. A route that never waits (http_routes.NeverWaits), such as the
one for WebSockets, answers it there. A greenlet (`serve`) answers any other request, by a route (http_routes.py) or by the
application (http_wsgi.py). While it waits for the next request, the loop may answer some (http_routes.BeginsInHub).

`take_socket` gives the socket to a WebSocket (detach.py). If several processes share the port and a request names the session
of another process, the connection goes there with the bytes read so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from wsgiref.types import WSGIEnvironment

import structlog

from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import READ, Watcher, io_watcher, repeat, spawn, unwatch
from headgate.runtime.metrics import HTTP_ENDED

from .http_answers import Answer, http_error, last_answer, too_large
from .http_channel import LINGER_S, READ_BYTES, BadBody, Channel, wsgi_input
from .http_limits import Part
from .http_parser import BadRequest, ParserState, Request, RequestParser
from .http_routes import BeginsInHub, NeverWaits, RoutedRequest, route_for
from .http_wsgi import WsgiExchange
from .peer_socket import ClientSocket, PeerSocket, set_options

if TYPE_CHECKING:
    from .http_server import HTTPServer

log = structlog.get_logger("headgate.wsgi")

# In the query of a request with a session. Another process on the port may own that.
NAMES_SESSION = "sid="
_log_throttle = LogThrottle()


_LATE = last_answer("408 Request Timeout", http_error("request_timeout", "the request's headers took too long", retry=True))
_FAILED = last_answer("500 Internal Server Error", http_error("internal_error", "the server failed; its log says why"))


class HttpConnection:
    """See the module. If it `is_taken`, its socket has another owner, and if it `is_reserved`, it has a reserved place.

    `waits_since_s` is when it began to wait for its first byte, on the monotonic clock; 0 if it does not.
    """

    __slots__ = (
        *("_address", "_asked", "_channel", "_is_adopted", "_parser", "_peer", "_pending", "_rest", "_routed", "_server"),
        *("_timer", "_watcher", "fileno", "is_reserved", "is_taken", "waits_since_s"),
    )

    def __init__(
        self, server: HTTPServer, peer: PeerSocket, address: object, received: bytes = b"", *, is_adopted: bool = False
    ) -> None:
        """If another process accepted the connection (`is_adopted`), `received` has the bytes that it read."""
        self._server, self._peer, self._address, self._is_adopted = server, peer, address, is_adopted
        self.fileno: Callable[[], int] = peer.fileno
        self._parser = RequestParser(received)
        self._channel: Channel | None = None
        # The first request, read in the hub, and the answer of its route (None leaves it to the application).
        self._pending: Request | BadRequest | None = None
        self._asked: tuple[Answer | None] | None = None
        self._routed: RoutedRequest | None = None
        # The rest of an answer that the hub could not write at once, and whether the connection ends after it.
        self._rest: tuple[bytes, bool] | None = None
        self._watcher: Watcher | None = None
        self._timer: Watcher | None = None
        self.waits_since_s = 0.0
        self.is_taken = self.is_reserved = False

    @property
    def has_answered(self) -> bool:
        """Whether it has sent anything."""
        return self._channel is not None and self._channel.sent_bytes > 0

    # -- in the hub, before there is a greenlet -------------------------------------------------------------------------

    def read_first(self) -> None:
        """Read and answer the first request, or wait for its first byte. In the hub."""
        try:
            received = self._peer.recv(READ_BYTES)
        except BlockingIOError:
            if self._watcher is None:
                self.waits_since_s = time.monotonic()
                self._watcher = io_watcher(self.fileno(), READ)
                self._watcher.start(self.read_first)
                self._timer = repeat(self._server.admission.limits.header_deadline_s, partial(_end_silent, self))
            return
        except OSError:
            received = b""
        waited_s = 0.0
        if self._watcher is not None:
            waited_s = time.monotonic() - self.waits_since_s
            self._stop_watcher()
        if not received:
            self.close()
            return
        self._parser.feed(received)
        first = self._parser.next_event()
        self._pending = None if isinstance(first, bytes) else first
        if isinstance(first, Request) and not first.body_bytes and not _is_foreign(self._server, first):
            route = route_for(self._server.routes, first)
            if isinstance(route, NeverWaits):
                self._ask_in_hub(first, route)
                return
        spawn(self.serve, waited_s)

    def _ask_in_hub(self, request: Request, route: NeverWaits) -> None:
        routed = RoutedRequest(bytes, request, route.route, self._environ(request))
        self._server.on_request()
        self._server.connections.work(self)  # so that a newer connection of its address does not end it
        try:
            self._asked = (_ask(self._server, self, routed),)
        except OSError:  # the client is gone
            self.close()
            return
        if not self.is_taken:
            spawn(self.serve)

    def _stop_watcher(self) -> None:
        if self._watcher is not None and self._timer is not None:
            self._watcher.close()
            self._timer.close()
            self._watcher = self._timer = None
            self.waits_since_s = 0.0

    # -- in a greenlet --------------------------------------------------------------------------------------------------

    def serve(self, waited_s: float = 0.0) -> None:
        """Answer requests until the connection is over. The peer has already delayed us by `waited_s`. Switches greenlets."""
        server, peer, limits = self._server, self._peer, self._server.admission.limits
        self._stop_watcher()
        channel = self._channel = Channel(peer, self._parser, limits, lambda: server.connections.wait(self), waited_s)
        peer.first = partial(_begin_in_hub, self)
        try:
            with suppress(OSError):
                set_options(peer.sock, limits.send_buffer_bytes)
                while self._serve_next(channel):
                    pass
                if not self.is_taken:
                    channel.linger_if_unread()
            if self._is_adopted and not self.is_taken:
                # The process that accepted it may not have closed its descriptor yet.
                peer.stop()
                unwatch(peer.fileno(), LINGER_S)
        finally:
            self._channel = self._pending = self._routed = peer.first = None
            self.close()

    def close(self) -> None:
        """End the connection, unless it is taken, and stop counting it. Idempotent."""
        self._stop_watcher()
        if not self.is_taken:
            self._peer.close()
            self._server.connections.close(self)

    def count_as_client(self) -> None:
        """Stop counting it as a connection, because its answer is a stream, which counts as a client."""
        self._server.connections.close(self)

    def take_socket(self, first_bytes: bytes) -> tuple[ClientSocket, bytes, bytes]:
        """Write `first_bytes` and give the socket away, with the bytes after the request. May switch greenlets.

        Last in the result are the bytes that the caller must write, which are the first ones if there is no greenlet yet. Raises
        OSError if the client is gone or the socket is taken.
        """
        if self.is_taken:
            raise ConnectionResetError("this connection has been taken")
        unsent = first_bytes
        if self._channel is not None:
            self._channel.send(first_bytes)
            unsent = b""
        self._peer.stop()
        self.is_taken = True
        self._server.connections.close(self)
        return self._peer.sock, self._parser.leave(), unsent

    def write(self, data: bytes) -> None:
        """Write part of the current answer. Switches greenlets; raises as `Channel.send`."""
        if self.is_taken or self._channel is None:
            raise BrokenPipeError("the connection is taken")
        self._channel.send(data)

    def _serve_next(self, channel: Channel) -> bool:
        """Answer the next request; return whether the connection goes on."""
        request, self._pending = self._pending, None
        try:
            request = request or channel.request()
        except TimeoutError:
            if channel.part is Part.HEADERS and self._parser.held:
                self.write(_LATE.to_bytes(time.time()))
            raise
        if request is None and self._rest is not None:
            (rest, ends), self._rest = self._rest, None
            channel.begin(Part.ANSWER)
            channel.send(rest)
            return not ends and _begin_next(self, channel)
        if isinstance(request, BadRequest):
            HTTP_ENDED.labels("bad request").inc()
            if (other := request.other_protocol) is not None and (left_out := _log_throttle.due(other)) is not None:
                log.warning("another protocol refused", protocol=other, left_out=left_out)
            code = request.status[4:].lower().replace(" ", "_")
            self.write(last_answer(request.status, http_error(code, request.reason)).to_bytes(time.time()))
        if not isinstance(request, Request) or (_is_foreign(self._server, request) and self._hand_over()):
            return False
        if self._asked is None:
            self._server.on_request()
        self._server.connections.work(self)
        channel.begin_body(request)
        self._server.answering += 1
        try:
            if not self._answer(request, channel):
                return False
        finally:
            self._server.answering -= 1
        return _begin_next(self, channel)

    def _hand_over(self) -> bool:
        """Hand the connection to the owner of its next request's session; return whether it took it. Switches greenlets."""
        peer, to_owner, is_taken = self._peer, self._server.to_owner, True
        assert to_owner is not None
        peer.stop()
        try:
            if is_taken := to_owner(self._parser.block + self._parser.held, peer.fileno()):
                unwatch(peer.fileno(), LINGER_S)
        finally:  # also when killed while waiting, because the owner may have it by now
            if is_taken:
                self._server.connections.close(self)
                self.is_taken = True
                peer.close()
        return is_taken

    def _answer(self, request: Request, channel: Channel) -> bool:
        """Answer a request by a route or the application; return whether the connection can be reused."""
        asked, self._asked = self._asked, None
        routed = self._routed
        if routed is None or request is not routed.head:
            if routed is not None and self._parser.is_like_last:
                routed = routed.again(request)
            else:
                route = None if self.is_reserved else route_for(self._server.routes, request)
                routed = None if route is None else RoutedRequest(channel.read_body, request, route, self._environ(request))
            self._routed = routed
        if routed is None:
            return self._answer_by_application(request, self._environ(request), channel)
        try:
            answer = _ask(self._server, self, routed) if asked is None else asked[0]
            if self.is_taken:
                return False
            if answer is not None:
                is_whole = self._parser.state is ParserState.WHOLE
                ends = _ends_after(self._server, request) or answer.closes or (not is_whole and channel.must_end)
                channel.send(answer.to_bytes(time.time(), close=ends))
                return (is_whole or channel.finish()) and not ends
        except OSError:
            return False
        return self._answer_by_application(request, dict(routed.environ), channel)

    def _environ(self, request: Request) -> WSGIEnvironment:
        environ = request.environ(self._server.base_environ.copy(), self._address)
        environ["headgate.handler"] = self
        return environ

    def _answer_by_application(self, request: Request, environ: WSGIEnvironment, channel: Channel) -> bool:
        """Answer a request by the application; return whether the connection can be reused."""
        server, limit = self._server, self._server.admission.limits.max_body_bytes
        environ["wsgi.input"] = wsgi_input(channel.next_piece)
        exchange = WsgiExchange(self.write, channel, request, environ, lambda: self.is_reserved or _ends_after(server, request))
        began_s, sent_bytes = time.monotonic(), channel.sent_bytes
        try:
            refusal = server.admission.refusal(self, environ)
            if refusal is None and limit is not None and request.body_bytes > limit:
                refusal = too_large(request.body_bytes, limit)
            exchange.run(server.application if refusal is None else refusal.__call__)
            if not (exchange.is_begun or self.is_taken or channel.broken):  # the client would read the next answer as this one
                raise RuntimeError("the application did not call start_response")
        except Exception as error:
            exchange.ends = True
            answer = error.answer if isinstance(error, BadBody) else None if channel.broken else _FAILED
            if answer is _FAILED:
                log.exception("application failed", path=request.path)
            if answer is not None and not (self.is_taken or exchange.is_begun):
                self.write(answer.to_bytes(time.time()))
        finally:
            if server.access_log is not None:
                server.access_log(exchange, channel.sent_bytes - sent_bytes, time.monotonic() - began_s)
        return not self.is_taken and channel.finish() and not exchange.ends


def _begin_in_hub(connection: HttpConnection) -> bool:
    """Begin to answer a request like the last one, while `serve` waits for it; return False to leave it to `serve`."""
    server, channel, routed, arrivals = connection._server, connection._channel, connection._routed, connection._peer.arrivals
    if channel is None or routed is None or arrivals is None or not channel.awaits_request:
        return False
    if connection.is_reserved or not isinstance(routed.route, BeginsInHub):
        return False
    try:
        data = connection._peer.recv(READ_BYTES)
    except OSError:
        return False  # `serve` gets the same error
    body = connection._parser.repeated(data)
    answer: Answer | bool = False
    if body is not None:
        server.connections.work(connection)  # so that a newer connection does not end it
        answer = server.admission.refusal(connection, routed.environ) or False
        if not answer:
            answer = routed.route.begin(routed, body, partial(_answered, connection))
    if answer is False:
        channel.early = data
        return False
    server.on_request()
    server.answering += 1
    arrivals.hold()
    if isinstance(answer, Answer):
        _answered(connection, answer)
    return True


def _answered(connection: HttpConnection, answer: Answer) -> None:
    """Write the answer of a request that began in the hub. In the hub."""
    server, channel, routed, arrivals = connection._server, connection._channel, connection._routed, connection._peer.arrivals
    server.answering -= 1
    if channel is None or routed is None or arrivals is None:
        return  # the greenlet was killed
    ends = answer.closes or _ends_after(server, routed.head)
    data = answer.to_bytes(time.time(), close=ends)
    try:
        sent = connection._peer.send(data)
    except OSError:
        sent = 0  # `serve` gets the same error
    channel.sent_bytes += sent
    if ends or sent < len(data):
        connection._rest, channel.early = (data[sent:], ends), b""
        arrivals.end()
    else:
        server.admission.between_requests(connection)
        arrivals.go_on()


def _begin_next(connection: HttpConnection, channel: Channel) -> bool:
    """Begin to wait for the next request. Returns True."""
    if connection._parser.state is ParserState.WHOLE:
        connection._parser.next_request()
    channel.begin(Part.IDLE)
    connection._server.admission.between_requests(connection)
    return True


def _end_silent(connection: HttpConnection) -> None:
    """Close a connection without an answer, because its first byte is late."""
    HTTP_ENDED.labels("headers deadline").inc()
    connection.close()


def _ask(server: HTTPServer, connection: HttpConnection, routed: RoutedRequest) -> Answer | None:
    """Return the answer of a route, or the one that refuses the request. Raises OSError if the client is gone."""
    try:
        return server.admission.refusal(connection, routed.environ) or routed.route(routed)
    except OSError:
        raise
    except Exception:
        log.exception("route failed", path=routed.head.path)
        return _FAILED


def _is_foreign(server: HTTPServer, request: Request) -> bool:
    """Return whether another process may own the session of a request."""
    return server.to_owner is not None and NAMES_SESSION in request.query


def _ends_after(server: HTTPServer, request: Request) -> bool:
    """Return whether a connection ends with an answer that begins now."""
    return request.ends or server.is_leaving or server.is_closed or not server.admission.limits.keep_alive_s
