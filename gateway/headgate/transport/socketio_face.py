"""Socket.IO 5 for the gateway's own clients, over the sessions of engine.py.

The gateway gives it handlers for each namespace (`serve`) and hooks for the start and end of a session (`Hooks`). A *session*
is one browser over one Engine.IO connection. A *client* is one namespace of a session. Names of namespaces have no slash here.

CONNECT, its refusal and acknowledgements overtake queued events, so that a slow client learns at once that it has subscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, cast
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import msgspec
import structlog

from headgate.errors import UnknownNamespace
from headgate.events.wire.frames import message_frame
from headgate.runtime.greenlet_pool import GreenletPool
from headgate.runtime.loop import Signal, spawn
from headgate.runtime.patching import NOT_PATCHED, is_patched

from .cors import Cors, IsAllowed
from .engine import Engine, OneTooMany
from .frame_parser import PROTOCOL_ERROR
from .limits import TransportLimits
from .session import Session, cut
from .session_state import Reason
from .socketio_packet import ACK, CONNECT, CONNECT_ERROR, DISCONNECT, EVENT, Packet, read_packet, write_packet

__all__ = ["ConnectRefused", "Hooks", "OneTooMany", "ServedNamespace", "SocketIOFace"]

log = structlog.get_logger("headgate.engine")

Environ = Mapping[str, object]
# Sends an acknowledgement. Never waits.
Acknowledge = Callable[[Mapping[str, object]], object]
# Starts work that acknowledges when done, so that the client's next message does not wait; returns a function that cancels it.
Later = Callable[[Acknowledge], Callable[[], object]]
# Gets the client id and the arguments of a request; returns the acknowledgement, or a Later.
RequestHandler = Callable[..., Mapping[str, object] | Later]
# Gets the session, the client's id, the environ and the data of the CONNECT packet; raises ConnectRefused. Returns a function
# to call when the CONNECT packet is queued. Its frames go out in the same write.
ConnectHandler: TypeAlias = "Callable[[Session, str, WSGIEnvironment, object], Callable[[], None]]"

PATH = "/socket.io/"


class ConnectRefused(Exception):
    """Raised by a connect handler to refuse the client by CONNECT_ERROR with this message and data."""

    def __init__(self, message: str, data: Mapping[str, object]) -> None:
        super().__init__(message)
        self.message, self.data = message, data


class Hooks(Protocol):
    """Called by the face at the start and end of a session. Never wait."""

    def opening(self, session_id: str, environ: Environ, /) -> OneTooMany | None:
        """Return a refusal if there is no room for the session."""

    def over(self, session_id: str, /) -> None:
        """Called after the end of a session and of its clients' disconnect handlers."""


class _Client(msgspec.Struct):
    """A client of a session in a namespace. `is_in` is True from the end of its connect handler until its disconnect handler."""

    session: Session
    id: str
    is_in: bool = False

    def leave(self) -> bool:
        """Begin to leave; return False if it is not in."""
        was_in, self.is_in = self.is_in, False
        return was_in


@dataclass(slots=True, eq=False)
class ServedNamespace:
    """The handlers of a namespace, and its clients by id and by session id. `path` is its name with a slash.

    Handlers of a session run one after the other, in its greenlet, and may wait. `disconnect` gets client id and reason, once for
    each accepted client. `unknown` gets the name of an event that is not in `requests`, and returns the acknowledgement.
    """

    path: bytes
    connect: ConnectHandler
    disconnect: Callable[[str, str], None]
    requests: Mapping[str, RequestHandler]
    unknown: Callable[[str, str], Mapping[str, object]]
    clients: dict[str, _Client] = field(default_factory=dict)
    of_sessions: dict[str, _Client] = field(default_factory=dict)

    def add(self, client: _Client) -> None:
        self.clients[client.id] = self.of_sessions[client.session.sid] = client

    def remove(self, client: _Client) -> None:
        del self.clients[client.id], self.of_sessions[client.session.sid]


class SocketIOFace:
    """See the module. `engine` has the sessions, their timer, and the requests answered below WSGI."""

    def __init__(
        self,
        *,
        namespaces: Iterable[str],
        limits: TransportLimits,
        is_allowed: IsAllowed,
        allowing: Callable[[str, Environ], str | None] = lambda origin, environ: None,
        names_namespaces: bool = False,
    ) -> None:
        """The caller must set `hooks` before sessions open. For `is_allowed` and `allowing` see Cors.

        With `names_namespaces`, for development, the refusal of an unknown namespace lists the known ones.

        Raises RuntimeError if gevent has not patched this process.
        """
        if not is_patched():
            raise RuntimeError(NOT_PATCHED)
        self.hooks: Hooks
        self.limits = limits
        self._named = tuple(namespaces) if names_namespaces else ()
        cors = Cors(is_allowed)
        cors.setting, cors.allowing = "HEADGATE_ALLOWED_ORIGINS", allowing
        self.engine = Engine(self, limits, cors=cors)
        self._namespaces: dict[str, ServedNamespace] = {}
        self._environs: dict[str, WSGIEnvironment] = {}
        self._left: dict[str, Signal] = {}  # by session, set when one of its clients has left

    def wsgi_app(self, application: WSGIApplication) -> WSGIApplication:
        """Return a WSGI application that answers requests for Socket.IO's path and passes others to `application`."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            serve = self.engine.handle_request if environ["PATH_INFO"].startswith(PATH) else application
            return serve(environ, start_response)

        return answer

    def reuse_greenlets(self, reuse: bool) -> None:
        """Set whether handlers may reuse greenlets. They must not if they run code of an application."""
        self.engine.start = GreenletPool().start if reuse else spawn

    # -- connect, disconnect, dispatch --------------------------------------------------------------------------------

    def serve(self, namespace: ServedNamespace) -> None:
        """Serve a namespace. Call it before sessions open."""
        self._namespaces[namespace.path.decode()] = namespace

    def disconnect(self, namespace: str, client_id: str) -> None:
        """Disconnect a client from its namespace and run its disconnect handler. Its session stays. May wait."""
        served = self._namespaces[f"/{namespace}"]
        client = served.clients.get(client_id)
        if client is None or not client.leave():
            return
        session = client.session
        if not session.offer(message_frame(b"1%b," % served.path)):
            cut(session)
        self._leave(served, client, Reason.SERVER_DISCONNECT)

    # -- what the engine asks (engine.Application) --------------------------------------------------------------------

    def opening(self, sid: str, environ: WSGIEnvironment) -> OneTooMany | None:
        if (refusal := self.hooks.opening(sid, environ)) is None:
            self._environs[sid] = environ
        return refusal

    def message(self, session: Session, message: str | bytes) -> None:
        """Take one packet. A malformed packet, or one out of order, ends the session with a code."""
        fault = "binary message without a binary packet before it"
        if isinstance(message, str):
            try:
                packet = read_packet(message)
            except ValueError as error:
                fault = str(error)
            else:
                served = self._namespaces.get(packet.path)
                client = None if served is None else served.of_sessions.get(session.sid)
                if client is not None or packet.kind in (CONNECT, DISCONNECT):
                    try:
                        self._dispatch(session, packet, served, client)
                    except Exception:
                        # The session stays, as in any Socket.IO server.
                        log.exception("event handler failed", sid=session.sid)
                    return
                fault = "packet before CONNECT"
        session.end(Reason.PARSE_ERROR, code=PROTOCOL_ERROR, shown=fault)

    def over(self, sid: str, reason: str) -> None:
        """Remove the clients of an ended session, and wait for all their disconnect handlers."""
        try:
            for served in self._namespaces.values():
                client = served.of_sessions.get(sid)
                if client is not None and client.leave():
                    try:
                        self._leave(served, client, reason)
                    except Exception:  # the handlers of other namespaces must still run
                        log.exception("disconnect handler failed", sid=sid)
            while any(sid in served.of_sessions for served in self._namespaces.values()):
                left = self._left[sid] = Signal()
                left.wait()  # a handler of `disconnect` still runs
        finally:
            self._left.pop(sid, None)
            self._environs.pop(sid, None)
            self.hooks.over(sid)

    def _dispatch(self, session: Session, packet: Packet, served: ServedNamespace | None, client: _Client | None) -> None:
        kind = packet.kind
        if kind == CONNECT:
            if served is None:
                refusal: dict[str, Any] = {"message": "Invalid namespace"}
                if self._named:
                    refusal["data"] = UnknownNamespace(packet.path.removeprefix("/"), self._named).to_wire()
                _refuse(session, packet.path.encode(), refusal)
            elif client is not None:
                _refuse(session, served.path, "Unable to connect")
            else:
                self._connect(session, served, packet.data or None)
        elif client is None or served is None or not client.is_in:
            return  # the sender is not a client, or is leaving
        elif kind == DISCONNECT:
            if client.leave():
                self._leave(served, client, Reason.CLIENT_DISCONNECT)
        elif kind == EVENT:
            name, *arguments = cast(list[Any], packet.data)
            handler = served.requests.get(name)
            answer = served.unknown(name, client.id) if handler is None else handler(client.id, *arguments)
            acknowledge = partial(_acknowledge, session, served.path, packet.id)
            if callable(answer):
                answer(acknowledge)
            else:
                acknowledge(answer)

    def _connect(self, session: Session, served: ServedNamespace, auth: object) -> None:
        """Accept a client or refuse it. The answers to all joins of one turn of the loop are written together."""
        client = _Client(session, self.engine.generate_id())
        served.add(client)
        session.cork()
        try:
            try:
                joined = served.connect(session, client.id, self._environs[session.sid], auth)
            except ConnectRefused as refusal:
                served.remove(client)
                _refuse(session, served.path, {"message": refusal.message, "data": refusal.data})
                return
            except BaseException:
                served.remove(client)
                raise
            # It waits for the frames of `joined`, which saves a write.
            session.offer_control(message_frame(b'0%b,{"sid":"%b"}' % (served.path, client.id.encode())), flush=False)
            client.is_in = True
            session.joined = True
            joined()
        finally:
            self.engine.writes.add(session.uncork)

    def _leave(self, served: ServedNamespace, client: _Client, reason: str) -> None:
        """Run the disconnect handler of a leaving client, and forget the client. May wait."""
        try:
            served.disconnect(client.id, reason)
        finally:
            served.remove(client)
            if (left := self._left.pop(client.session.sid, None)) is not None:
                left.set()

    # -- sessions -----------------------------------------------------------------------------------------------------

    def session_of(self, namespace: str, client_id: str) -> Session:
        """Return the session of a client, until its disconnect handler is done. Raises KeyError for an unknown client."""
        return self._namespaces[f"/{namespace}"].clients[client_id].session

    @property
    def count(self) -> int:
        """How many sessions there are, including opening ones."""
        return len(self.engine.sessions)

    def environ_of(self, session_id: str) -> Environ:
        """Return the WSGI environment of a session's handshake; empty when the session is over."""
        return self._environs.get(session_id, {})

    def trim_environ(self, session_id: str, names: Iterable[str]) -> None:
        """Keep only these entries of a session's environment, which takes 3 KB as a whole."""
        if (environ := self._environs.get(session_id)) is not None:
            self._environs[session_id] = {name: environ[name] for name in names if name in environ}


def _acknowledge(session: Session, path: bytes, packet_id: int | None, answer: Mapping[str, object]) -> None:
    """Answer an event, if the client asked for an acknowledgement."""
    if packet_id is not None:
        session.offer_control(message_frame(write_packet(ACK, path, [answer], packet_id)))


def _refuse(session: Session, path: bytes, data: object) -> None:
    session.offer_control(message_frame(write_packet(CONNECT_ERROR, path, data)))
