"""The answers of one HTTP connection, in the order of its requests.

In: a request whose head has been read (http_connection.py). Out: its answer, by a route below WSGI (http_routes.py) or by the
application (http_wsgi.py), and the rest of its body read. Where a route's answer is to come later, the requests behind it that
have come as a whole are asked of the same route before anybody waits, and their answers are written together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog

from .http_answers import ROUTE_FAILED, Answer, error_answer, http_error
from .http_body import RequestBody
from .http_channel import Channel
from .http_incoming import BadBody, Incoming
from .http_parser import Bad, ParserState, Request
from .http_routes import LaterAnswer, Route, Routed, Routes
from .http_wsgi import WsgiExchange

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

log = structlog.get_logger("headgate.wsgi")

# Requests that are answered together, at most; a read brings hardly more of them.
_MAX_TOGETHER = 64
FAILED = "500 Internal Server Error", ROUTE_FAILED
_BAD_BODY = "400 Bad Request", http_error("bad_request", "the body is not valid HTTP")


class Asked(NamedTuple):
    """What a route has said before there was a greenlet: its answer; None where it leaves the request to the application."""

    answer: Answer | None


class AnsweringServer(Protocol):
    """The server that accepted the connection (http_server.py)."""

    routes: Routes
    application: WSGIApplication
    access_log: Callable[[WsgiExchange, int, float], object] | None
    """Logs a request that the application has answered: with the bytes that were sent, and the seconds that it took."""

    def environ(self) -> dict[str, Any]:
        """Return a new WSGI environment, without a request."""


class AnsweredConnection(Protocol):
    """The connection (http_connection.py)."""

    is_taken: bool
    """Whether its socket is another's."""

    def is_foreign(self, request: Request) -> bool:
        """Return whether a request may name the session of another process."""

    def refusal(self, environ: WSGIEnvironment) -> Answer | None:
        """Let a request count; return the answer that refuses it if there is no room for it."""

    def has_reserved_place(self) -> bool:
        """Return whether it has a place of those for health pages: for one request."""


def route_for(server: AnsweringServer, request: Request) -> Route | None:
    """Return the route that a request is for, if its body has a length and needs no leave to be sent."""
    if request.is_chunked or request.expects_continue or request.protocol != "HTTP/1.1":
        return None
    return server.routes.get((request.method, request.path))


class Responder:
    """See the module.

    Attributes:
        ends: whether the connection ends behind the answer that is under way.
    """

    __slots__ = ("_address", "_channel", "_connection", "_incoming", "_pending", "_routed", "_server", "ends")

    def __init__(
        self, connection: AnsweredConnection, server: AnsweringServer, channel: Channel, incoming: Incoming, address: object
    ) -> None:
        self._connection, self._server, self._address = connection, server, address
        self._channel, self._incoming = channel, incoming
        # The last request, if it was for a route: most clients send the same head again.
        self._routed: Routed | None = None
        self._pending: Request | Bad | None = None
        self.ends = False

    @property
    def must_end(self) -> bool:
        """Whether the connection cannot be used again behind the answer that is under way."""
        return self._incoming.must_end or self._connection.has_reserved_place()

    def take_pending(self) -> Request | Bad | None:
        """Return the next request, if it has been read already."""
        pending, self._pending = self._pending, None
        return pending

    def answer(self, request: Request, asked: Asked | None = None) -> bool:
        """Answer a request, and those behind it that are answered with it; return whether the connection can be used again.

        Switches greenlets. A peer that is gone ends the connection, and is no error.
        """
        connection = self._connection
        self.ends = request.ends
        self._incoming.begin(request)
        route = None if connection.has_reserved_place() else route_for(self._server, request)
        if route is None:
            self._routed = None
            return self._answer_by_application(request, request.environ(self._server.environ(), self._address))
        routed = self._routed_of(request, route)
        try:
            answer = (connection.refusal(routed.environ) or route(routed)) if asked is None else asked.answer
            if connection.is_taken:
                return False
            if isinstance(answer, Answer):
                return self._write_answer(answer)
            left = routed if answer is None else self._answer_together(route, answer)
        except OSError:
            return False  # of the connection: nobody is there to be answered
        except Exception:
            log.exception("route failed", path=request.path)
            if not connection.is_taken:
                self.write(error_answer(*FAILED).to_bytes(time.time(), close=True))
            return False
        if left is not None:
            return self._answer_by_application(left.head, dict(left.environ))
        return not self.ends and not self._channel.broken

    def write(self, data: bytes) -> None:
        """Write bytes of the answer that is under way. Switches greenlets.

        Raises:
            OSError: the peer is gone, or kept us waiting for too long.
        """
        if self._connection.is_taken:
            raise BrokenPipeError("the connection is another's")
        self._channel.send(data)

    def _write_answer(self, answer: Answer) -> bool:
        """Write an answer, and read what is left of the request; return whether the connection can be used again."""
        ends = self.ends = self.ends or answer.closes or self._incoming.must_end
        self.write(answer.to_bytes(time.time(), close=ends))
        return self._incoming.finish() and not ends

    def _answer_together(self, route: Route, first: LaterAnswer) -> Routed | None:
        """Answer a request whose answer is to come, and those behind it for the same route that have come as a whole.

        Returns:
            The request behind them that the route leaves to the application, if there is one.

        Raises:
            OSError: the peer is gone, or does not read.
        """
        parser, incoming, connection = self._incoming.parser, self._incoming, self._connection
        answers: list[Answer | LaterAnswer] = [first]
        left, failure = None, None
        while parser.held and not self.ends and len(answers) < _MAX_TOGETHER and incoming.finish():
            parser.next_request()
            event = parser.next_event()
            if event is None:
                break
            if (
                not isinstance(event, Request)
                or route_for(self._server, event) is not route
                or event.body_bytes > len(parser.held)
                or connection.is_foreign(event)
            ):
                self._pending = event  # type: ignore[assignment]
                break
            routed = self._routed_of(event, route)
            self.ends = event.ends
            incoming.begin(event)
            try:
                answer = connection.refusal(routed.environ) or route(routed)
            except Exception as error:  # noqa: BLE001 - raised behind the answers that are before it
                failure = error
                break
            if answer is None:
                left = routed
                break
            answers.append(answer)
            self.ends = self.ends or (isinstance(answer, Answer) and answer.closes)
        ends = self.ends and left is None and failure is None
        ready = [answer if isinstance(answer, Answer) else answer.wait() for answer in answers]
        now_s, last = time.time(), len(ready) - 1
        self.write(b"".join([each.to_bytes(now_s, close=ends and at == last) for at, each in enumerate(ready)]))
        if failure is not None:
            raise failure
        if left is None and self._pending is None and parser.state is not ParserState.HEAD:
            incoming.finish()
        return left

    def _answer_by_application(self, request: Request, environ: WSGIEnvironment) -> bool:
        """Have the application answer a request; return whether the connection can be used again."""
        server, channel, incoming, connection = self._server, self._channel, self._incoming, self._connection
        environ["wsgi.input"], environ["headgate.handler"] = RequestBody(incoming.next_piece), connection
        exchange = WsgiExchange(self, request, environ)
        began_s, sent_bytes = time.monotonic(), channel.sent_bytes
        try:
            refusal = connection.refusal(environ)
            exchange.run(server.application if refusal is None else refusal.__call__)
        except Exception as error:
            self.ends = True
            if not channel.broken:
                log.exception("application failed", path=request.path)
            if not connection.is_taken and not exchange.is_begun and (isinstance(error, BadBody) or not channel.broken):
                answer = error_answer(*(_BAD_BODY if isinstance(error, BadBody) else FAILED))
                self.write(answer.to_bytes(time.time(), close=True))
        finally:
            if server.access_log is not None:
                server.access_log(exchange, channel.sent_bytes - sent_bytes, time.monotonic() - began_s)
        return not connection.is_taken and incoming.finish() and not self.ends

    def _routed_of(self, request: Request, route: Route) -> Routed:
        """Return a request for a route; what is known of the head before it holds for it, if that is the same."""
        routed = self._routed
        if routed is not None and routed.route is route and self._incoming.parser.is_like_last:
            routed = routed.again(request)
        else:
            environ = request.environ(self._server.environ(), self._address)
            environ["headgate.handler"] = self._connection
            routed = Routed(self._incoming.read_body, request, route, environ)
        self._routed = routed
        return routed
