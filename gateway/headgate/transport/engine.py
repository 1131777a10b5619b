"""The Engine.IO server. In: requests for the Engine.IO path. Out: sessions (session.py), reported to the application."""

from __future__ import annotations

import binascii
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from wsgiref.types import StartResponse, WSGIEnvironment

import msgspec
import structlog

from headgate.errors import HeadgateError, PayloadTooLarge
from headgate.events.wire.frames import text_frame
from headgate.runtime.loop import DeferredWrites, spawn
from headgate.runtime.metrics import SESSIONS_ENDED
from headgate.runtime.wsgi_servers import advice

from . import engineio_http as eio
from .cors import METHODS, Cors, Headers
from .detach import CannotDetach, Detached, PollWatch, detach
from .frame_parser import PROTOCOL_ERROR
from .http_answers import NO_STORE, Answer, error_answer
from .http_parser import list_of
from .limits import TransportLimits
from .long_poll import FinalFrames, SessionClosed
from .session import Session
from .session_state import Reason
from .timers import Deadlines
from .upgrade import UPGRADE_S, begin_upgrade

if TYPE_CHECKING:
    from .http_routes import RoutedRequest

log = structlog.get_logger("headgate.engine")

_TO_URL = bytes.maketrans(b"+/", b"-_")
_IDS_AT_ONCE = 64
# What a refusal must name, by its status (RFC 9110 sections 15.5.6 and 15.5.22, RFC 6455 section 4.4).
_FIELDS_OF = {
    "405": (("Allow", METHODS),),
    "426": (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")),
}
_ids: list[str] = []
# Two processes must not hand out the same ids.
os.register_at_fork(after_in_child=_ids.clear)


@dataclass(frozen=True, slots=True)
class OneTooMany:
    """Refuses a session that may find room later: 429 if the client's address has too many sessions, else 503."""

    error: HeadgateError
    status: str = "429 Too Many Requests"


class Application(Protocol):
    """Uses the sessions: Socket.IO (socketio_face.py) or python-socketio."""

    def opening(self, sid: str, environ: WSGIEnvironment, /) -> object:
        """Return None or True to let a session open, or OneTooMany, or anything else to refuse it."""

    def message(self, session: Session, message: str | bytes, /) -> None:
        """Take one message, in order, in the session's greenlet. May wait. Logs the exceptions of its handlers."""

    def over(self, sid: str, reason: str, /) -> None:
        """Called when a session is over. The engine forgets it when this returns. May wait."""


class Engine:
    """Engine.IO 4: handshakes, polls, bodies and upgrades of sessions. `transports` has `polling`, `websocket`, or both.

    Attributes:
        owner: the prefix of our session ids, if several processes share a port.
        start: starts the greenlet for the messages of a session.
        writes: the answers to handshakes and CONNECTs.
        detach, socket_of: take the socket of a request, and return it.
        advice: returns why the WSGI server of a request cannot carry a client, and which server can.
    """

    advice: Callable[[WSGIEnvironment], str] = staticmethod(advice)
    detach: Callable[..., Detached] = staticmethod(detach)
    socket_of: Callable[[WSGIEnvironment, StartResponse], Any] = staticmethod(lambda environ, _: environ.get("headgate.handler"))

    def __init__(
        self,
        application: Application,
        limits: TransportLimits,
        *,
        cors: Cors,
        transports: Collection[str] = ("polling", "websocket"),
        allow_upgrades: bool = True,
    ) -> None:
        self._application, self.cors = application, cors
        self.deliver: Callable[[Session, str | bytes], None] = application.message
        self.limits, self.sessions = limits, dict[str, Session]()
        self.transports, self.allow_upgrades = transports, allow_upgrades
        shortest_s = min(
            limits.ping_interval_s, limits.ping_timeout_s, limits.write_deadline_s, limits.handshake_deadline_s or UPGRADE_S
        )
        self.deadlines = Deadlines(tick_s=min(0.25, shortest_s / 5))
        self.owner = ""
        # The opening packet after the id, without and with an upgrade.
        self._opening_ends = eio.opening_end(limits, []), eio.opening_end(limits, ["websocket"])
        self._is_logged = False
        self.final_frames = FinalFrames(self.deadlines)
        self.writes = DeferredWrites(lambda: log.exception("answer not written"))
        # A new greenlet each time gives the application fresh greenlet-locals.
        self.start: Callable[[Callable[[], None]], object] = spawn

    # -- what a session needs (SessionServer) -------------------------------------------------------------------------

    def ended(self, sid: str, reason: str) -> None:
        """Notify the application of the end of a session, then forget the session. May wait."""
        SESSIONS_ENDED.labels(reason.partition(":")[0]).inc()  # the words of the system, after the colon, are no label
        try:
            self._application.over(sid, reason)
        finally:
            self.sessions.pop(sid, None)

    def generate_id(self) -> str:
        """Return an id for a session or a client, made of `owner` and 120 random bits."""
        if not _ids:
            fresh = binascii.b2a_base64(os.urandom(15 * _IDS_AT_ONCE), newline=False).translate(_TO_URL).decode()
            _ids.extend([fresh[at : at + 20] for at in range(0, len(fresh), 20)])
        return self.owner + _ids.pop()

    def end_all(self) -> None:
        """End every session. Idempotent."""
        for session in list(self.sessions.values()):
            session.end(Reason.SERVER_DISCONNECT)

    # -- what the drop-in adds (socketio/engine.py) --------------------------------------------------------------------

    def opening_headers(self, sid: str) -> Headers:
        """Return headers for the answer that opens a polling session."""
        return []

    def encoded(self, body: bytes, environ: WSGIEnvironment) -> tuple[bytes, Headers]:
        """Return the body of a poll's answer, perhaps compressed, and the headers for that."""
        return body, []

    # -- HTTP ---------------------------------------------------------------------------------------------------------

    def handle_request(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one HTTP request of the Engine.IO path."""
        answer = self._answered(environ, start_response)
        return answer(environ, start_response) if isinstance(answer, Answer) else answer

    def handshake(self, request: RoutedRequest) -> Answer | None:
        """Answer a request for a WebSocket below WSGI (http_routes.py). Returns None after a session has taken the socket.

        Raises ConnectionResetError if the client is gone.
        """
        environ = request.environ  # `detach` changes it when no other request of the connection follows
        answer = self._answered(environ, _no_start_response)
        if isinstance(answer, Answer):
            return answer
        if "headgate.handler" in environ:  # `detach` takes it out
            raise ConnectionResetError("the client is gone")
        return None

    def _answered(self, environ: WSGIEnvironment, start_response: StartResponse) -> Answer | Iterable[bytes]:
        """Return the answer to a request, or the body of one already begun."""
        try:
            if not self.cors.lets_in(environ):
                raise eio.Refused(eio.FORBIDDEN, "403 Forbidden", error=self.cors.refusal(environ))
            if environ["REQUEST_METHOD"] == "OPTIONS":
                return Answer("204 No Content", [NO_STORE, *self.cors.headers(environ)], b"")
            return self._answer(environ, start_response)
        except eio.Refused as refusal:
            answer = error_answer(refusal.status, refusal.error, **refusal.body)
            further = [*self.cors.refusal_headers(environ), *_FIELDS_OF.get(refusal.status[:3], ())]
            return msgspec.structs.replace(answer, headers=[*answer.headers, *further])

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Answer | Iterable[bytes]:
        transport, version, sid = eio.read_query(environ.get("QUERY_STRING", ""))
        method = environ["REQUEST_METHOD"]
        if transport not in self.transports:
            raise eio.Refused(eio.UNKNOWN_TRANSPORT)
        if version != "4":
            raise eio.Refused(eio.BAD_VERSION)
        websocket = transport == "websocket"
        if websocket and "websocket" not in list_of(environ.get("HTTP_UPGRADE", "")):
            raise eio.Refused(eio.BAD_REQUEST, detail="transport websocket without a WebSocket upgrade")
        cors: Headers = [] if websocket else self.cors.headers(environ)  # of no use to a WebSocket
        if not sid:
            if method != "GET":
                raise eio.Refused(eio.BAD_METHOD)
            return self._handshake(environ, start_response, cors, websocket=websocket)
        session = self.sessions.get(sid)
        if session is None or not session.alive():
            last_words = self.final_frames.take(sid, by_poll=method == "GET" and not websocket)
            if isinstance(last_words, list):
                return _ok(eio.join_packets(last_words), cors)
            raise eio.Refused(eio.UNKNOWN_SESSION, detail=last_words)
        if method != "GET" and (method != "POST" or websocket):
            raise eio.Refused(eio.UNSERVED_METHOD, "405 Method Not Allowed", f"expected {METHODS}")
        if websocket:
            return self._upgrade(session, environ, start_response)
        if session.upgraded:
            raise eio.Refused(eio.BAD_REQUEST, detail="this session moved to WebSocket")
        if method == "POST":
            return self._post(session, environ, cors)
        return self._get(session, environ, start_response, cors)

    def _handshake(
        self, environ: WSGIEnvironment, start_response: StartResponse, cors: Headers, *, websocket: bool
    ) -> Answer | Iterable[bytes]:
        if "uwsgi.version" in environ:
            raise self._unsupported(environ)  # polls hang there, too
        accept = eio.switching_protocols(environ) if websocket else b""
        sid = self.generate_id()
        session = self.sessions[sid] = Session(self, sid)
        refusal = self._application.opening(sid, environ)
        if refusal is not None and refusal is not True:
            del self.sessions[sid]
            if isinstance(refusal, OneTooMany):
                raise eio.Refused(eio.BAD_REQUEST, refusal.status, error=refusal.error)
            raise eio.Refused(eio.FORBIDDEN, "401 Unauthorized")
        if session.closed:  # its connect handler has ended it
            raise eio.Refused(eio.FORBIDDEN, "401 Unauthorized")
        upgrades = not websocket and self.allow_upgrades and "websocket" in self.transports
        opening = b'0{"sid":"%b%b' % (sid.encode(), self._opening_ends[upgrades])
        if not websocket:
            session.start_polling()
            return _ok(opening, self.opening_headers(sid) + cors)
        try:
            detached = self.detach(environ, accept, text_frame(opening), start_response=start_response)
        except (CannotDetach, OSError) as error:
            session.end(f"handshake failed: {error}", abort=True)
            if isinstance(error, CannotDetach):
                raise self._unsupported(environ, str(error)) from error
            return []
        session.start_websocket(detached.sock, detached.received, detached.unsent)
        return detached.body

    def _upgrade(self, session: Session, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not self.allow_upgrades:
            raise eio.Refused(eio.BAD_REQUEST, detail="this server does not upgrade")
        try:
            detached = self.detach(environ, eio.switching_protocols(environ), start_response=start_response)
        except CannotDetach as error:
            raise self._unsupported(environ, str(error)) from error
        except OSError:
            return []
        begin_upgrade(session, detached.sock, detached.received, detached.unsent)
        return detached.body

    def _unsupported(self, environ: WSGIEnvironment, why: str = "") -> eio.Refused:
        """Return the refusal of a client under an unsupported server. Logs only the first, because clients retry."""
        reason = why or self.advice(environ)
        if not self._is_logged:
            self._is_logged = True
            log.error("a client was refused", reason=reason)
        return eio.Refused(eio.NOT_SUPPORTED, "501 Not Implemented", reason)

    def _get(self, session: Session, environ: WSGIEnvironment, start_response: StartResponse, cors: Headers) -> Iterable[bytes]:
        try:
            body = eio.join_packets(session.long_poll.poll(PollWatch(self.socket_of(environ, start_response))))
        except SessionClosed as error:
            raise eio.Refused(eio.BAD_REQUEST, detail=session.shown or str(error)) from error
        body, headers = self.encoded(body, environ)
        answer = _ok(body, headers + cors)
        start_response(answer.status, list(answer.headers))
        return _written(session, body)

    def _post(self, session: Session, environ: WSGIEnvironment, cors: Headers) -> Answer:
        limits, length = self.limits, eio.read_length(environ)
        if length > limits.max_message_bytes:
            session.end(Reason.PAYLOAD_TOO_LARGE, code=PROTOCOL_ERROR)
            raise eio.Refused(
                eio.BAD_REQUEST, "413 Content Too Large", error=PayloadTooLarge(length, limits.max_message_bytes, "gateway")
            )
        max_packets = limits.inbound_burst if limits.inbound_per_s else None
        try:
            session.long_poll.post(lambda: eio.split_packets(_read(environ, length).decode(), max_packets))
        except (ValueError, OSError, SessionClosed) as error:
            session.end(Reason.TRANSPORT_ERROR)
            raise eio.Refused(eio.BAD_REQUEST, detail=session.shown or str(error)) from error
        return _ok(b"ok", cors, content_type="text/html")


def _written(session: Session, body: bytes) -> Iterator[bytes]:
    """Yield the answer of a poll. Ends the session if the browser did not get it, as the reference server does.

    A WSGI server asks for the next part only after it has written the last one.
    """
    try:
        yield body
    except GeneratorExit:
        session.end(Reason.TRANSPORT_ERROR, abort=True)


def _read(environ: WSGIEnvironment, size: int) -> bytes:
    """Return the body of a request. Raises ValueError if it ends early, which gunicorn's reader does not report."""
    body: bytes = environ["wsgi.input"].read(size)
    if len(body) < size:
        raise ValueError("the body ends too early")
    return body


def _ok(body: bytes, headers: Headers, content_type: str = "text/plain; charset=UTF-8") -> Answer:
    """Return an answer that no cache may store, because it would serve the session to anyone with its URL."""
    return Answer("200 OK", [("Content-Type", content_type), ("Content-Length", str(len(body))), NO_STORE, *headers], body)


def _no_start_response(status: str, headers: Headers, exc_info: object = None) -> Callable[[bytes], object]:
    raise RuntimeError("a handshake below WSGI has no answer in parts")
