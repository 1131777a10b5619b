"""Streams over HTTP (`/api/v1/stream`), as Server-Sent Events or as a long-poll, at any gateway and without a session.

In: requests with patterns and, in `Last-Event-ID` or `since`, the cursor of the previous one, or with the object of a CONNECT
in a POST. Out: a client like any other (joining.py) for the time of the request, and its frames as text
(events/wire/stream_text.py). `POST /api/v1/request` answers one request of a client without a stream. docs/stream.md describes
both.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from werkzeug.wsgi import ClosingIterator

from headgate.auth.identity import Handshake
from headgate.errors import Forbidden, HeadgateError, InvalidRequest
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import GAP, PRESENCE, notice_packet
from headgate.events.wire.requests import Position
from headgate.events.wire.stream_text import EVENT_STREAM, HEARTBEAT, JSON, StreamText, is_notice
from headgate.node.access.origin import check_local_host, readable_by_pages
from headgate.node.namespace import Namespace
from headgate.node.population.joining import KEPT_OF_ENVIRON, Joining
from headgate.runtime.logging import wire_form
from headgate.runtime.loop import Signal
from headgate.settings.settings import Settings
from headgate.transport.detach import PollWatch
from headgate.transport.http_answers import STATUS_LINES, Answer, error_answer, http_error, status_of
from headgate.transport.http_connection import HttpConnection
from headgate.transport.session_state import Reason
from headgate.transport.socketio_face import Later, RequestHandler, SocketIOFace
from headgate.transport.stream import Stream

from .stream_request import ALONE, Wanted, one_of, read_body, read_posted, read_query, read_wanted

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

PATH, REQUEST_PATH = "/api/v1/stream", "/api/v1/request"
# Pages use the path below Socket.IO's, because a proxy may forward nothing else to the gateway.
REQUEST_PATHS = (REQUEST_PATH, "/socket.io/request")
PATHS = (PATH, "/socket.io/stream", *REQUEST_PATHS)
# The longest silence of a stream. A proxy drops a silent answer after 30 to 60 s.
HEARTBEAT_S = 10.0
# How long a browser's EventSource waits before it reconnects.
RETRY_MS = 1000
# The name of the notice with the answers to a stream's requests, in their order.
ANSWERS = "answers"
# How long a long-poll gathers presence, which is unlimited. Each poll of a page is a change at another gateway. With immediate
# answers two pages in a room would keep each other polling, and would never read the log.
GATHER_S = 1.0
to_json = msgspec.json.encode
_HEADERS = (
    ("Cache-Control", "no-store, no-transform"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Accel-Buffering", "no"),  # nginx then does not buffer
    ("X-Content-Type-Options", "nosniff"),
)
_PREFLIGHT = (
    ("Access-Control-Allow-Methods", "GET, POST"),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID"),
    ("Access-Control-Max-Age", "600"),
)


class Streams:
    """See the module. `handlers` are those of requests, by namespace and name."""

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        settings: Settings,
        joining: Joining,
        handlers: Mapping[str, dict[str, RequestHandler]],
        sockets: SocketIOFace,
    ) -> None:
        self._namespaces, self._settings, self._joining, self._handlers = namespaces, settings, joining, handlers
        self._limits, self._cors = sockets.limits, sockets.engine.cors
        self._open: set[Stream] = set()

    def close(self) -> None:
        """End every stream. Idempotent."""
        for stream in list(self._open):
            stream.end(Reason.SERVER_DISCONNECT)

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request for one of the two paths. Switches greenlets."""
        method, is_alone = environ["REQUEST_METHOD"], environ["PATH_INFO"] in REQUEST_PATHS

        def respond(answer: Answer) -> Iterable[bytes]:
            return readable_by_pages(self._settings, answer, environ)(environ, start_response)

        try:
            self._check_site(environ)
            if method == "OPTIONS":
                return respond(Answer("204 No Content", _PREFLIGHT, b""))
            if method not in (methods := ("POST",) if is_alone else ("GET", "POST")):
                fault = http_error("method_not_allowed", f"expected {' or '.join(methods)}")
                refusal = error_answer("405 Method Not Allowed", fault)
                allow = ("Allow", ", ".join((*methods, "OPTIONS")))
                return respond(msgspec.structs.replace(refusal, headers=(*refusal.headers, allow)))
            if method == "POST" and not environ.get("CONTENT_LENGTH"):
                return respond(error_answer("411 Length Required", http_error("bad_request", "Content-Length is required")))
            posted = read_body(environ, self._limits.max_message_bytes) if method == "POST" else None
            if is_alone:
                return respond(self._requested(environ, posted or {}))
            wanted = read_wanted(environ) if posted is None else read_posted(environ, posted)
            namespace = self._namespaces[self._settings.served(wanted.namespace)]
            stream, text = self._joined(namespace, wanted, environ)
        except HeadgateError as error:
            return respond(error_answer(STATUS_LINES[status_of(error)], wire_form(error)))
        except TimeoutError:
            late = http_error("request_timeout", "the body took too long", retry=True)
            return respond(error_answer("408 Request Timeout", late))
        watch = PollWatch(environ.get("headgate.handler"))
        kind = EVENT_STREAM if wanted.wait_s is None else JSON
        answer = Answer("200 OK", (("Content-Type", kind), *_HEADERS), b"")
        headers = readable_by_pages(self._settings, answer, environ).headers
        if wanted.wait_s is None:
            if isinstance(connection := environ.get("headgate.handler"), HttpConnection):
                connection.server.connections.close(connection)  # as for a WebSocket, because the limits of clients apply
                headers = (*headers, ("Connection", "close"))
            start_response("200 OK", list(headers))
            # Servers close it after writing it or failing to. It ends the events first, while the socket still exists.
            return ClosingIterator(self._events(stream, text, watch), lambda: self._over(namespace, stream))
        try:
            welcomes = wanted.point is None or not wanted.is_strict
            body = self._poll(stream, text, watch, wanted.wait_s, welcomes=welcomes)
        finally:
            self._over(namespace, stream)
        start_response("200 OK", [*headers, ("Content-Length", str(len(body)))])
        return [body]

    def _joined(
        self, namespace: Namespace, wanted: Wanted, environ: WSGIEnvironment, *, stays: bool = True
    ) -> tuple[Stream, StreamText]:
        point = wanted.point
        if isinstance(point, int):
            point = Position(namespace.bus.epoch or "", point)
        kept = {name: environ[name] for name in KEPT_OF_ENVIRON if name in environ}
        stream = Stream(secrets.token_urlsafe(15), kept, self._limits)
        handshake = Handshake(namespace.name, wanted.auth, environ)
        self._open.add(stream)
        try:
            self._joining.open_stream(
                namespace, stream, handshake, wanted.subscriptions, point, is_strict=wanted.is_strict, stays=stays
            )
            if wanted.requests:
                answers = [self._handlers[namespace.name][name](stream.sid, body) for name, body in wanted.requests]
                stream.offer_control(message_frame(notice_packet(namespace.name, ANSWERS, {"answers": answers})))
        except BaseException:
            self._over(namespace, stream)
            raise
        return stream, StreamText(point)

    def _requested(self, environ: WSGIEnvironment, body: Mapping[str, Any]) -> Answer:
        """Return the acknowledgement of one request of a client without a stream, which may be a refusal."""
        fields = dict(body)
        name, request = fields.pop("name", None), fields.pop("body", None)
        if name not in ALONE or not isinstance(request, Mapping):
            raise InvalidRequest(f"expected {{name, body}} with a name of {', '.join(ALONE)}, and perhaps a token")
        wanted = Wanted(one_of(read_query(environ), "namespace"), fields, [], None, None)
        namespace = self._namespaces[self._settings.served(wanted.namespace)]
        watch = PollWatch(environ.get("headgate.handler"))
        stream, _ = self._joined(namespace, wanted, environ, stays=False)
        try:
            answer = self._handlers[namespace.name][name](stream.sid, request)
            text = to_json(_waited(answer, watch) if callable(answer) else answer)
        finally:
            self._over(namespace, stream)
        return Answer("200 OK", (("Content-Type", JSON), *_HEADERS, ("Content-Length", str(len(text)))), text)

    def _over(self, namespace: Namespace, stream: Stream) -> None:
        self._open.discard(stream)
        stream.end(Reason.TRANSPORT_CLOSE, abort=True)
        self._joining.leave(namespace, stream.sid, stream.reason or "")

    def _events(self, stream: Stream, text: StreamText, watch: PollWatch) -> Generator[bytes, None, None]:
        watch.start(stream.flush)
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            while (frames := stream.take(HEARTBEAT_S, lambda: watch.aborted)) is not None:
                yield text.events(frames) if frames else HEARTBEAT
        finally:
            watch.stop()

    def _poll(self, stream: Stream, text: StreamText, watch: PollWatch, wait_s: float, *, welcomes: bool) -> bytes:
        """Wait for the first events or gap, or gather presence; return the answer, with the welcome if `welcomes`."""
        until_s, frames = monotonic() + wait_s, list[Any]()
        watch.start(stream.flush)
        try:
            while not any(frame.topic is not None or is_notice(frame, GAP) for frame in frames):
                left_s = until_s - monotonic()
                more = stream.take(max(left_s, 0.0), lambda: watch.aborted)
                if more is None or (not more and left_s <= 0):
                    break
                frames += more
                if any(is_notice(frame, PRESENCE) for frame in more):
                    until_s = min(until_s, monotonic() + GATHER_S)
        finally:
            watch.stop()
        return text.answer(frames, welcomes=welcomes)

    def _check_site(self, environ: Mapping[str, Any]) -> None:
        """Refuse pages of other sites, as for a WebSocket. A page that may not read an answer must not cause one."""
        if not self._cors.lets_in(environ):
            raise self._cors.refusal(environ)
        if not environ.get("HTTP_ORIGIN") and environ.get("HTTP_SEC_FETCH_SITE") in ("cross-site", "same-site"):
            raise Forbidden("read a stream from", "a page of another site")
        if self._settings.dev and not environ.get("HTTP_AUTHORIZATION"):
            # Any page of this machine is admitted, but not a page from a name rebound to this machine.
            check_local_host(str(environ.get("HTTP_HOST", "")))


def _waited(later: Later, watch: PollWatch) -> Mapping[str, object]:
    """Wait for an acknowledgement. A client that hangs up cancels it."""
    answers: list[Mapping[str, object]] = []
    done = Signal()

    def take(answer: Mapping[str, object]) -> None:
        answers.append(answer)
        done.set()

    cancel = later(take)
    watch.start(cancel)
    try:
        done.wait()
    finally:
        watch.stop()
        cancel()
    return answers[0]
