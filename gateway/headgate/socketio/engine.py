"""Our sessions in place of python-engineio's. Only this file imports python-engineio.

python-socketio creates an `engineio.Server`, registers its handlers there, and calls its public methods. This server answers
HTTP and sends by transport/engine.py. tests/contract/test_engineio_corners.py tests each private name.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast
from wsgiref.types import WSGIEnvironment

import engineio
from engineio.packet import MESSAGE, Packet
from werkzeug.http import parse_accept_header

from headgate.events.numbers import is_number, is_whole
from headgate.events.wire.frames import Frame
from headgate.runtime.wsgi_servers import transport_advice
from headgate.settings.addresses.origins import origin_in_header
from headgate.transport import limits
from headgate.transport.cors import Cors, IsAllowed
from headgate.transport.engine import Engine
from headgate.transport.session import Session, cut
from headgate.transport.session_state import Reason

from .other_servers import detach_any, socket_of

# For a session's limits, the greatest value, the least of those in seconds, and those that 0 disables.
MAX_LIMIT, LEAST_S = 2**31 - 1, 0.001
_OFF_WITH_0 = frozenset({"handshake_deadline_s", "inbound_per_s"})
# The forms of python-engineio's option `cors_allowed_origins`. None allows only pages of the server's own address, or of the one
# that a proxy reports, and "*" any. A callable gets the origin and, if it takes it, the environment. An empty list refuses none.
Allowed = str | Sequence[str] | Callable[..., bool] | None


@dataclass(frozen=True, slots=True)
class TransportLimits(limits.TransportLimits):
    """The limits of a session. 0 disables `handshake_deadline_s` and `inbound_per_s`.

    The gateway's defaults are for clients that can catch up from a log. These suit any application, with room for a burst, no
    rate limit on a client's messages, and no deadline for joining a namespace.
    """

    queue_frames: int = 16_384
    queue_bytes: int = 8 * 1024 * 1024
    handshake_deadline_s: float = 0
    inbound_per_s: float = 0


class DropInEngine(Engine, engineio.Server):  # type: ignore[misc]
    """Engine.IO 4 over our sessions. python-socketio constructs it, with its keyword arguments.

    `settle` makes the fan-out write its waiting events, so that nothing overtakes them.
    """

    advice = staticmethod(transport_advice)
    detach = staticmethod(detach_any)
    socket_of = staticmethod(socket_of)

    def __init__(self, *, transport_limits: limits.TransportLimits | None = None, **options: object) -> None:
        if options.get("async_mode") not in (None, "gevent"):
            raise ValueError(f"async_mode: expected 'gevent', the only one on this transport, got {options['async_mode']!r}")
        options["async_mode"] = "gevent"
        options["monitor_clients"] = False
        engineio.Server.__init__(self, **options)
        cors = Cors(origin_check(self.cors_allowed_origins), credentials=self.cors_credentials)
        own: Any = {"cors": cors, "transports": self.transports, "allow_upgrades": self.allow_upgrades}
        Engine.__init__(self, self, self._limits(transport_limits, options), **own)
        self.sockets = self.sessions
        self._user_sessions: dict[str, dict[str, object]] = {}
        self.settle: Callable[[], None] = lambda: None

    def _limits(self, given: limits.TransportLimits | None, options: Mapping[str, object]) -> limits.TransportLimits:
        """Return the limits. The options of python-engineio win over `given`, and that over python-engineio's defaults.

        Raises ValueError with the option and its allowed values.
        """
        if not isinstance(given, limits.TransportLimits | None):
            raise ValueError(f"transport_limits: expected TransportLimits, got {given!r:.80}")
        own = {
            "ping_interval": ("ping_interval_s", self.ping_interval),
            "ping_timeout": ("ping_timeout_s", self.ping_timeout),
            "max_http_buffer_size": ("max_message_bytes", self.max_http_buffer_size),
        }
        set_by = {name: value for option, (name, value) in own.items() if given is None or option in options}
        names = {name: option for option, (name, _) in own.items() if name in set_by}
        chosen = replace(given or TransportLimits(), **set_by)
        for field in fields(chosen):
            value, is_count = getattr(chosen, field.name), field.type == "int"
            least = 0 if field.name in _OFF_WITH_0 else 1 if is_count else LEAST_S
            if not (is_whole(value, 1, MAX_LIMIT) if is_count else is_number(value, least, MAX_LIMIT)):
                kind = "a whole number" if is_count else "a number"
                name = names.get(field.name, field.name)
                raise ValueError(f"{name}: expected {kind} from {least:g} to {MAX_LIMIT}, got {value!r:.80}")
        return chosen

    # -- what is above the sessions (engine.Application) --------------------------------------------------------------

    def opening(self, sid: str, environ: WSGIEnvironment) -> object:
        """Ask python-socketio whether a session may open. An exception there refuses it."""
        try:
            return self.handlers["connect"](sid, environ)
        except Exception:
            self.logger.exception("connect handler error")
            return False

    def message(self, session: Session, message: str | bytes) -> None:
        """Give one message to python-socketio. Its handlers log exceptions of the application."""
        self.handlers["message"](session.sid, message)

    def over(self, sid: str, reason: str) -> None:
        """Notify python-socketio of the end of a session."""
        try:
            self.handlers["disconnect"](sid, reason)
        except Exception:
            self.logger.exception("disconnect handler error")
        finally:
            self._user_sessions.pop(sid, None)

    def opening_headers(self, sid: str) -> list[tuple[str, str]]:
        """Return the cookie with the session id, if the application configures one."""
        return [("Set-Cookie", _cookie(self.cookie, sid))] if self.cookie else []

    def encoded(self, body: bytes, environ: WSGIEnvironment) -> tuple[bytes, list[tuple[str, str]]]:
        """Return the body of a poll's answer, compressed if it is large enough and the client accepts it."""
        if not self.http_compression or len(body) < self.compression_threshold:
            return body, []
        accepts = parse_accept_header(environ.get("HTTP_ACCEPT_ENCODING")).quality("gzip") > 0  # RFC 9110 section 12.5.3
        return (gzip.compress(body), [("Content-Encoding", "gzip")]) if accepts else (body, [])

    # -- what python-socketio asks of the engine ----------------------------------------------------------------------

    def get_session(self, sid: str) -> dict[str, object]:
        """Return the application's data of a session. Raises KeyError for an unknown session, as python-engineio does."""
        self._get_socket(sid)
        return self._user_sessions.setdefault(sid, {})

    def save_session(self, sid: str, session: dict[str, object]) -> None:
        """Replace the application's data of a session. Raises as `get_session`."""
        self._get_socket(sid)
        self._user_sessions[sid] = session

    def send_packet(self, sid: str, pkt: Packet) -> None:
        """Send a message by the data lane, or another Engine.IO packet by the control lane.

        Stock clients cannot handle gaps, so a full queue ends the session.
        """
        self.settle()
        if (session := self.sessions.get(sid)) is None:
            return
        frame = frame_of(pkt)
        if pkt.packet_type != MESSAGE:
            session.offer_control(frame)
        elif not session.offer(frame):
            cut(session)

    def disconnect(self, sid: str | None = None) -> None:
        """End one session or all. The disconnect handlers run in another greenlet and can still use the session."""
        self.settle()
        if sid is None:
            self.end_all()
        elif (session := self.sessions.get(sid)) is not None:
            session.end(Reason.SERVER_DISCONNECT)

    def _get_socket(self, sid: str) -> Session:
        """Return a session until it is forgotten. python-engineio forgets it before its handlers have run."""
        if (session := self.sessions.get(sid)) is None:
            raise KeyError("Session not found")
        return session


def frame_of(packet: Packet, *, attachment: bool = False) -> Frame:
    """Return the frame of a packet. It is encoded once and stored on the packet, because a broadcast shares it."""
    frame: Frame | None = getattr(packet, "headgate_frame", None)
    if frame is None:
        encoded = packet.encode()
        if isinstance(encoded, str):
            frame = Frame(encoded.encode())
        else:
            frame = Frame(bytes(encoded), binary=True, attachment=attachment)
        packet.headgate_frame = frame
    return frame


def message_packet(data: str | bytes) -> Packet:
    """Return the Engine.IO packet of a message."""
    return Packet(MESSAGE, data=data)


def _cookie(cookie: str | Mapping[str, Any], sid: str) -> str:
    """Return the value of Set-Cookie. An attribute with the value True gets no value. A callable is called for its value."""
    attributes = {"name": cookie, "path": "/", "SameSite": "Lax"} if isinstance(cookie, str) else cookie
    parts = [f"{attributes.get('name', 'io')}={sid}"]
    for attribute, given in attributes.items():
        value = given() if callable(given) else given
        if attribute != "name":
            parts.append(attribute if value is True else f"{attribute}={value}")
    return "; ".join(parts)


def origin_check(allowed: Allowed) -> IsAllowed | None:
    """Return a function that returns whether a page of an origin may connect; None if none is refused."""
    if allowed == []:
        return None

    def is_allowed(origin: str, environ: Mapping[str, Any]) -> bool:
        if callable(allowed):
            try:
                return bool(allowed(origin, environ))
            except TypeError:  # it takes only the origin
                return bool(allowed(origin))
        listed = _own(environ) if allowed is None else [allowed] if isinstance(allowed, str) else allowed
        if "*" in listed or origin in listed:
            return True
        shown = origin_in_header(origin)
        return shown is not None and any(origin_in_header(each) == shown for each in listed)

    return is_allowed


def _own(environ: Mapping[str, Any]) -> list[str]:
    """Return the origins of the server's own address, and of the address that a proxy reports."""
    if "wsgi.url_scheme" not in environ or "HTTP_HOST" not in environ:
        return []
    scheme, host = cast(str, environ["wsgi.url_scheme"]), cast(str, environ["HTTP_HOST"])
    own = [f"{scheme}://{host}"]
    if "HTTP_X_FORWARDED_PROTO" in environ or "HTTP_X_FORWARDED_HOST" in environ:
        its_scheme = environ.get("HTTP_X_FORWARDED_PROTO", scheme).split(",")[0].strip()
        own.append(f"{its_scheme}://{environ.get('HTTP_X_FORWARDED_HOST', host).split(',')[0].strip()}")
    return own
