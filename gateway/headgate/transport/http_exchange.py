"""Answers the requests of an HTTP connection, by a route (http_routes.py) or by the application (http_wsgi.py).

`begin` answers a request in the loop if its route needs no wait for it (http_routes.BeginsInHub), and leaves any other to a
greenlet, which calls `answer`. If several processes share the port and a request names the session of another process, the
connection goes there with the bytes read so far.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from wsgiref.types import WSGIEnvironment

import structlog

from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import unwatch
from headgate.runtime.metrics import HTTP_ENDED

from .http_answers import Answer, http_error, last_answer, too_large
from .http_channel import LINGER_S, BadBody, Part, wsgi_input
from .http_parser import BadRequest, ParserState, Request, read_head
from .http_routes import BeginsInHub, RoutedRequest, route_for
from .http_wsgi import WsgiExchange
from .peer_socket import PeerSocket

if TYPE_CHECKING:
    from .http_connection import HttpConnection
    from .http_server import HTTPServer

log = structlog.get_logger("headgate.wsgi")

# In the query of a request with a session. Another process on the port may own that.
NAMES_SESSION = "sid="
_UPGRADE = b"\r\nUpgrade: websocket\r\n"
# The answer of a route that was asked already; None for a route that leaves the request to the application.
Asked: TypeAlias = "tuple[Answer | None, ...]"
_log_throttle = LogThrottle()
LATE = last_answer("408 Request Timeout", http_error("request_timeout", "the request's headers took too long", retry=True))
_FAILED = last_answer("500 Internal Server Error", http_error("internal_error", "the server failed; its log says why"))


# -- in the hub -----------------------------------------------------------------------------------------------------------


def ask_at_once(server: HTTPServer, peer: PeerSocket, address: object, received: bytes) -> Asked | None:
    """Ask the route of a request for a WebSocket that has come with its connection, in its usual form, to take the socket.

    In a burst of joins most have. Without an HttpConnection, accepting them takes an eighth less. Returns None if the socket is
    taken or the client gone, and otherwise the answer of the route, if it was asked.
    """
    if _UPGRADE not in received or received.find(b"\r\n\r\n") != len(received) - 4:
        return ()
    request = read_head(received)
    if isinstance(request, BadRequest) or request.body_bytes or _is_foreign(server, request):
        return ()
    route, environ = route_for(server.routes, request), request.environ(server.base_environ.copy(), address)
    if not isinstance(route, BeginsInHub) or route.begin or not server.admission.may_pass(peer.fileno(), environ):
        return ()
    environ["headgate.handler"] = peer
    routed = RoutedRequest(bytes, request, route, environ)
    try:
        outcome = route.route(routed)
    except OSError:  # the client is gone
        if not peer.is_taken:
            peer.close()
        return None
    except Exception:  # noqa: BLE001 - it is logged
        outcome = _failed(routed)
    if not peer.is_taken:
        return (outcome,)
    server.on_request()
    return None


def begin(connection: HttpConnection, event: Request | BadRequest | bytes, asked: Asked = ()) -> None:
    """Begin to answer a request. Does not switch greenlets."""
    outcome: bool | None = False
    if isinstance(event, Request) and not _is_foreign(connection.server, event):
        routed, body = _routed(connection, event), connection.parser.whole_body(takes=False)
        if routed is not None and body is not None:
            outcome = begin_here(connection, routed, body, asked)
    if outcome is False or outcome is None:
        connection.go_on(partial(answer, connection, event, is_left=outcome is None))


def begin_here(connection: HttpConnection, routed: RoutedRequest, body: bytes, asked: Asked = ()) -> bool | None:
    """Begin to answer a request in the hub. Returns True, or leaves it to the greenlet as `BeginsInHub.begin`."""
    server, route = connection.server, routed.route
    if not isinstance(route, BeginsInHub):
        return False
    server.connections.work(connection)  # so that a newer connection of its address does not end it
    try:
        outcome: Answer | bool | None = server.admission.refusal(connection, routed.environ)
        if outcome is None and asked:
            outcome = asked[0]
        elif outcome is None:
            begins = route.begin
            outcome = route.route(routed) if begins is None else begins(routed, body, partial(_answered, connection, routed))
    except OSError:  # the client is gone
        connection.end()
        return True
    except Exception:  # noqa: BLE001 - it is logged
        outcome = _failed(routed)
    if connection.is_taken:
        server.on_request()
    elif outcome:
        server.on_request()
        server.answering += 1
        if connection.parser.state is not ParserState.HEAD:
            connection.parser.whole_body()
        if isinstance(outcome, Answer):
            _answered(connection, routed, outcome)
    else:
        return None if outcome is None else False
    return True


def _answered(connection: HttpConnection, routed: RoutedRequest, answer: Answer) -> None:
    """Write the answer to a request that began in the hub. In the hub."""
    connection.server.answering -= 1
    ends = answer.closes or connection.ends_after(routed.head)
    data = answer.to_bytes(time.time(), close=ends)
    try:
        sent = connection.peer.send(data)
    except OSError:
        sent = 0  # `serve` gets the same error
    connection.sent_bytes += sent
    if ends or sent < len(data) or connection.parser.held:
        connection.go_on(partial(finish, connection, data[sent:], ends=ends))
    elif connection.is_idle:  # the request was not parsed
        connection.server.admission.between_requests(connection)
        connection.wait()
    else:
        connection.next_request()
        connection.wait()


# -- in a greenlet --------------------------------------------------------------------------------------------------------


def answer(connection: HttpConnection, event: Request | BadRequest | bytes, *, is_left: bool = False) -> bool:
    """Answer a request; return whether the connection goes on. Its route has left it to the application if it `is_left`.

    Switches greenlets. Raises OSError if the client is gone.
    """
    server = connection.server
    if isinstance(event, BadRequest):
        HTTP_ENDED.labels("bad request").inc()
        if (other := event.other_protocol) is not None and (left_out := _log_throttle.due(other)) is not None:
            log.warning("another protocol refused", protocol=other, left_out=left_out)
        code = event.status[4:].lower().replace(" ", "_")
        refusal = last_answer(event.status, http_error(code, event.reason))
        return finish(connection, refusal.to_bytes(time.time()), ends=True)
    assert isinstance(event, Request)
    if _is_foreign(server, event) and _hand_over(connection):
        return False
    server.on_request()
    server.connections.work(connection)
    connection.begin_body(event)
    server.answering += 1
    try:
        routed = _routed(connection, event)
        if routed is None:
            return _answer_by_application(connection, event, _environ(connection, event))
        result = None if is_left else _ask(connection, routed)
        if connection.is_taken:
            return False
        if result is None:
            return _answer_by_application(connection, event, dict(routed.environ))
        is_whole = connection.parser.state is ParserState.WHOLE
        ends = connection.ends_after(event) or result.closes or (not is_whole and connection.must_end)
        connection.send(result.to_bytes(time.time(), close=ends))
        return (is_whole or connection.finish()) and not ends
    finally:
        server.answering -= 1


def finish(connection: HttpConnection, rest: bytes, *, ends: bool) -> bool:
    """Write the rest of an answer; return whether the connection goes on. Switches greenlets."""
    connection.begin_part(Part.ANSWER)
    connection.send(rest)
    return not ends


def _hand_over(connection: HttpConnection) -> bool:
    """Hand the connection to the owner of its next request's session; return whether it took it."""
    parser, peer, to_owner, is_taken = connection.parser, connection.peer, connection.server.to_owner, True
    assert to_owner is not None
    peer.stop()
    try:
        if is_taken := to_owner(parser.block + parser.held, peer.fileno()):
            unwatch(peer.fileno(), LINGER_S)
    finally:  # also when killed while waiting, because the owner may have it by now
        if is_taken:
            connection.leave()
            peer.close()
    return is_taken


def _answer_by_application(connection: HttpConnection, request: Request, environ: WSGIEnvironment) -> bool:
    """Answer a request by the application; return whether the connection can be reused."""
    server, limit = connection.server, connection.limits.max_body_bytes
    environ["wsgi.input"] = wsgi_input(connection.next_piece)
    exchange = WsgiExchange(connection, request, environ)
    began_s, sent_bytes = time.monotonic(), connection.sent_bytes
    try:
        refusal = server.admission.refusal(connection, environ)
        if refusal is None and limit is not None and request.body_bytes > limit:
            refusal = too_large(request.body_bytes, limit)
        exchange.run(server.application if refusal is None else refusal.__call__)
        if not (exchange.is_begun or connection.is_taken or connection.broken):
            # The client would read the next answer as this one.
            raise RuntimeError("the application did not call start_response")
    except Exception as error:
        exchange.ends = True
        fault = error.answer if isinstance(error, BadBody) else None if connection.broken else _FAILED
        if fault is _FAILED:
            log.exception("application failed", path=request.path)
        if fault is not None and not (connection.is_taken or exchange.is_begun):
            connection.write(fault.to_bytes(time.time()))
    finally:
        if server.access_log is not None:
            server.access_log(exchange, connection.sent_bytes - sent_bytes, time.monotonic() - began_s)
    return not connection.is_taken and connection.finish() and not exchange.ends


# -- in both --------------------------------------------------------------------------------------------------------------


def _routed(connection: HttpConnection, request: Request) -> RoutedRequest | None:
    """Return a request as its route sees it; None without a route."""
    routed = connection.routed
    if routed is None or request is not routed.head:
        if routed is not None and connection.parser.is_like_last:
            routed = routed.again(request)
        else:
            route = None if connection.is_reserved else route_for(connection.server.routes, request)
            environ = {} if route is None else _environ(connection, request)
            routed = None if route is None else RoutedRequest(connection.read_body, request, route, environ)
        connection.routed = routed
    return routed


def _environ(connection: HttpConnection, request: Request) -> WSGIEnvironment:
    environ = request.environ(connection.server.base_environ.copy(), connection.address)
    environ["headgate.handler"] = connection
    return environ


def _ask(connection: HttpConnection, routed: RoutedRequest) -> Answer | None:
    """Return the answer of a route, or the one that refuses the request. Raises OSError if the client is gone."""
    try:
        return connection.server.admission.refusal(connection, routed.environ) or routed.route(routed)
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - it is logged
        return _failed(routed)


def _failed(routed: RoutedRequest) -> Answer:
    log.exception("route failed", path=routed.head.path)
    return _FAILED


def _is_foreign(server: HTTPServer, request: Request) -> bool:
    """Return whether another process may own the session of a request."""
    return server.to_owner is not None and NAMES_SESSION in request.query
