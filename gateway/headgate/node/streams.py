"""Streams over HTTP: `GET /api/v1/stream`, as Server-Sent Events or as a long-poll, by any gateway and without a session.

In: requests, each with its patterns and, in `Last-Event-ID` or `since`, the cursor of the one before. Out: a client like any
other (joining.py) for the time of the request, and its frames as text (protocol/stream_text.py). docs/stream.md describes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from headgate.auth.identity import Handshake
from headgate.errors import Forbidden, HeadgateError, InvalidRequest, OriginNotAllowed
from headgate.origins import authority_in_header, is_loopback
from headgate.protocol.packets import GAP, Overflow
from headgate.protocol.requests import Resume
from headgate.protocol.stream_text import EVENT_STREAM, HEARTBEAT, JSON, StreamText, is_notice, read_cursor
from headgate.runtime.logging import told
from headgate.settings import Settings
from headgate.transport.detach import PollWatch
from headgate.transport.http_answers import Answer, error_answer, http_error
from headgate.transport.limits import TransportLimits
from headgate.transport.statuses import STATUS_LINES, status_of
from headgate.transport.stream import Stream

from .joining import KEPT_OF_ENVIRON, Joining
from .namespace import Namespace
from .origin import origin_check, readable_by_pages

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

PATH = "/api/v1/stream"
# A stream writes at least as often; a proxy gives up a silent answer after 30 to 60 s.
HEARTBEAT_S = 10.0
DEFAULT_WAIT_S, MAX_WAIT_S = 25.0, 60.0
MAX_QUERY_FIELDS = 256
# How long a browser's EventSource waits before it comes back.
RETRY_MS = 1000
_PARAMETERS = ("namespace", "overflow", "pattern", "since", "wait")
_HEADERS = (
    ("Cache-Control", "no-store, no-transform"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Accel-Buffering", "no"),  # nginx passes on what it gets
    ("X-Content-Type-Options", "nosniff"),
)
_PREFLIGHT = (
    ("Access-Control-Allow-Methods", "GET"),
    ("Access-Control-Allow-Headers", "Authorization, Last-Event-ID"),
    ("Access-Control-Max-Age", "600"),
)


class Wanted(NamedTuple):
    """A request, read. `wait_s`: of a long-poll; None: an event stream."""

    namespace: str | None
    subscriptions: list[dict[str, str]]
    point: Resume | int | None
    wait_s: float | None


class Streams:
    """See the module."""

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        settings: Settings,
        joining: Joining,
        limits: TransportLimits,
        origin_refused: Callable[[str, Mapping[str, Any]], object],
    ) -> None:
        self._namespaces, self._settings, self._joining, self._limits = namespaces, settings, joining, limits
        self._origin_refused = origin_refused
        self._is_allowed = origin_check(settings)
        self._open: set[Stream] = set()

    def close(self) -> None:
        """End every stream. Idempotent."""
        for stream in list(self._open):
            stream.end("server disconnect")

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request for a stream. Switches greenlets."""
        try:
            self._check_site(environ)
            if environ["REQUEST_METHOD"] == "OPTIONS":
                return self._readable(Answer("204 No Content", _PREFLIGHT, b""), environ)(environ, start_response)
            if environ["REQUEST_METHOD"] != "GET":
                refusal = error_answer("405 Method Not Allowed", http_error("method_not_allowed", "expected GET"))
                refusal = refusal._replace(headers=(*refusal.headers, ("Allow", "GET, OPTIONS")))
                return self._readable(refusal, environ)(environ, start_response)
            wanted = read_wanted(environ)
            namespace = self._namespaces[self._settings.served(wanted.namespace)]
            stream, text = self._joined(namespace, wanted, environ)
        except HeadgateError as error:
            refusal = error_answer(STATUS_LINES[status_of(error)], told(error))
            return self._readable(refusal, environ)(environ, start_response)
        watch = PollWatch(environ, start_response)
        kind = EVENT_STREAM if wanted.wait_s is None else JSON
        headers = self._readable(Answer("200 OK", (("Content-Type", kind), *_HEADERS), b""), environ).headers
        if wanted.wait_s is None:
            start_response("200 OK", list(headers))
            return _Body(self._events(stream, text, watch), lambda: self._over(namespace, stream))
        try:
            body = self._poll(stream, text, watch, wanted.wait_s, welcomes=wanted.point is None)
        finally:
            self._over(namespace, stream)
        start_response("200 OK", [*headers, ("Content-Length", str(len(body)))])
        return [body]

    def _joined(self, namespace: Namespace, wanted: Wanted, environ: WSGIEnvironment) -> tuple[Stream, StreamText]:
        point = wanted.point
        if isinstance(point, int):
            point = Resume(namespace.bus.epoch or "", point)
        kept = {name: environ[name] for name in KEPT_OF_ENVIRON if name in environ}
        stream = Stream(secrets.token_urlsafe(15), kept, self._limits)
        kind, _, token = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        auth = {"token": token.strip()} if kind.lower() == "bearer" else {}
        self._joining.open_stream(namespace, stream, Handshake(namespace.name, auth, kept), wanted.subscriptions, point)
        self._open.add(stream)
        return stream, StreamText(point)

    def _over(self, namespace: Namespace, stream: Stream) -> None:
        self._open.discard(stream)
        stream.end("transport close", abort=True)
        self._joining.leave(namespace, stream.sid, stream.reason or "")

    def _events(self, stream: Stream, text: StreamText, watch: PollWatch) -> Iterator[bytes]:
        watch.start(stream.flush)
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            while (frames := stream.take(HEARTBEAT_S, lambda: watch.aborted)) is not None:
                yield text.events(frames) if frames else HEARTBEAT
        finally:
            watch.stop()

    def _poll(self, stream: Stream, text: StreamText, watch: PollWatch, wait_s: float, *, welcomes: bool) -> bytes:
        """Wait for the first events, or a gap, and return the answer. Without a cursor the welcome is in it."""
        until_s, frames = monotonic() + wait_s, list[Any]()
        watch.start(stream.flush)
        try:
            while not any(frame.topic is not None or is_notice(frame, GAP) for frame in frames):
                left_s = until_s - monotonic()
                more = stream.take(max(left_s, 0.0), lambda: watch.aborted)
                if more is None or (not more and left_s <= 0):
                    break
                frames += more
        finally:
            watch.stop()
        return text.answer(frames, welcomes=welcomes)

    def _check_site(self, environ: Mapping[str, Any]) -> None:
        """Refuse pages of other sites, as a WebSocket does; a page that may not read an answer must not cause one either."""
        origin = environ.get("HTTP_ORIGIN")
        if origin:
            if "*" not in self._settings.allowed_origins and not self._is_allowed(origin, environ):
                self._origin_refused(origin, environ)
                raise OriginNotAllowed(origin, "HEADGATE_ALLOWED_ORIGINS")
        elif environ.get("HTTP_SEC_FETCH_SITE") in ("cross-site", "same-site"):
            raise Forbidden("read a stream from", "a page of another site")
        if self._settings.dev and not environ.get("HTTP_AUTHORIZATION"):
            # Anyone on this machine is let in, and no page that has moved its name to this machine.
            host = str(environ.get("HTTP_HOST", ""))
            authority = authority_in_header(host)
            if authority is None or not is_loopback(authority[0]):
                raise Forbidden("call from host", host)

    def _readable(self, answer: Answer, environ: Mapping[str, Any]) -> Answer:
        return readable_by_pages(self._settings, answer, environ)


class _Body:
    """The body of an answer. Servers close it when it was written, or could not be."""

    def __init__(self, parts: Iterator[bytes], close: Callable[[], object]) -> None:
        self._parts, self._close = parts, close

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._close()


def read_wanted(environ: Mapping[str, Any]) -> Wanted:
    """Read the query and the headers of a request.

    Raises:
        InvalidRequest: with what is wrong, and what is allowed.
    """
    try:
        query = parse_qs(
            environ.get("QUERY_STRING", ""), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise InvalidRequest(f"the query: at most {MAX_QUERY_FIELDS} fields, in UTF-8") from error
    if unknown := sorted(query.keys() - set(_PARAMETERS)):
        raise InvalidRequest(f"unknown parameter {unknown[0][:40]!r}; known: {', '.join(_PARAMETERS)}")
    one = {name: values[0] for name, values in query.items() if name != "pattern"}
    if twice := next((name for name in one if len(query[name]) > 1), None):
        raise InvalidRequest(f"the parameter {twice!r} is there more than once")
    patterns = query.get("pattern")
    if not patterns:
        raise InvalidRequest("pattern: expected at least one, such as ?pattern=orders.*")
    overflow = one.get("overflow", Overflow.CATCH_UP)
    accepted = [kind.partition(";")[0].strip().lower() for kind in str(environ.get("HTTP_ACCEPT", "")).split(",")]
    polls = JSON in accepted and EVENT_STREAM not in accepted
    if "wait" in one and not polls:
        raise InvalidRequest(f"wait: only with Accept: {JSON}")
    return Wanted(
        one.get("namespace"),
        [{"pattern": pattern, "overflow": overflow} for pattern in dict.fromkeys(patterns)],
        _point(environ.get("HTTP_LAST_EVENT_ID") or one.get("since")),
        _wait_s(one.get("wait")) if polls else None,
    )


def _point(text: str | None) -> Resume | int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    return read_cursor(text)


def _wait_s(text: str | None) -> float:
    if text is None:
        return DEFAULT_WAIT_S
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= MAX_WAIT_S):
        raise InvalidRequest(f"wait: expected whole seconds from 0 to {MAX_WAIT_S:g}")
    return float(text)
