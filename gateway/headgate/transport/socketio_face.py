"""python-socketio as the gateway sees it: one typed face over sessions, connects, disconnects and dispatch.

In, from the gateway: handlers per namespace (`route`), and four hooks in the order of a session's life:

    `opening(session id, environ)`        before a session opens; may refuse it as one too many
    `connect(client id, environ, auth)`   a client wants to join a namespace; raises `ConnectRefused`, or lets it in
    `joined(session, namespace, client id)`  its CONNECT packet is queued; what this sends follows in the same write
    `over(session id)`                    the session has ended, behind the disconnect handlers of its clients

Out: `Session` objects (session.py) by client, and the WSGI application. A *session* is one browser over one Engine.IO connection,
by session id; a *client* is one of its namespaces, by client id. Namespaces have no slash here.

No other module of the gateway knows python-socketio or python-engineio; their private corners are in server.py and engine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import socketio
from socketio.packet import ACK, CONNECT_ERROR

from headgate.errors import UnknownNamespace
from headgate.protocol.frames import message_frame
from headgate.runtime.greenlet_pool import GreenletPool
from headgate.runtime.loop import spawn

from .engine import EngineServer, OneTooMany
from .fast_packet import FastPacket
from .limits import TransportLimits
from .members import Members
from .server import Server
from .session import Session
from .timers import Arguments

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

    from .http_answers import Answer
    from .http_routes import RoutedRequest

__all__ = ["ConnectRefused", "Hooks", "OneTooMany", "SocketIOFace"]

Environ = Mapping[str, object]
# A request's arguments behind the client id; the returned object is its acknowledgement.
RequestHandler = Callable[..., Mapping[str, object]]


class ConnectRefused(Exception):
    """A connect handler raises it: the client is sent CONNECT_ERROR with this message, and `data` as its data."""

    def __init__(self, message: str, data: Mapping[str, object]) -> None:
        super().__init__(message)
        self.message, self.data = message, data


class Hooks(Protocol):
    """The gateway, at the ends of a session. `joined` may wait; the others answer at once."""

    def opening(self, session_id: str, environ: Environ, /) -> OneTooMany | None:
        """Return why a session is one too many, if it is."""

    def joined(self, session: Session, namespace: str, client_id: str, /) -> None:
        """A client has joined a namespace."""

    def over(self, session_id: str, /) -> None:
        """A session that was opened is over."""


class _HookedServer(Server):
    """The server with the gateway's hooks. Attributes as in server.py.

    Attributes:
        connects: the connect handler of each namespace.
    """

    accept_binary = False
    acknowledges_ahead = True  # a client that is behind must hear that it has subscribed; what it misses, it is told

    def __init__(self, hooks: Hooks, members: socketio.Manager, named: Sequence[str], **options: object) -> None:
        super().__init__(members, serializer=FastPacket, logger=False, **options)
        self._hooks, self._named = hooks, named
        self.connects: dict[str, Callable[[str, WSGIEnvironment, object], None]] = {}

    def opening(self, eio_sid: str, environ: WSGIEnvironment) -> OneTooMany | None:
        return self._hooks.opening(eio_sid, environ)

    def not_served(self, namespace: str) -> Mapping[str, object]:
        refusal = super().not_served(namespace)
        if not self._named:
            return refusal
        return {**refusal, "data": UnknownNamespace(namespace.removeprefix("/"), self._named).to_wire()}

    def joined(self, eio_sid: str, namespace: str, sid: str) -> None:
        session = self.session_of(eio_sid)
        if session is not None:
            self._hooks.joined(session, namespace.removeprefix("/"), sid)

    def over(self, eio_sid: str) -> None:
        self._hooks.over(eio_sid)

    def ask(self, session: Session, namespace: str, data: object) -> None:
        """Let a client in, or refuse it: python-socketio's own steps, without those that other applications need.

        Its handler is looked up once, not by name in three places; it always takes the data, and refuses in one way.
        """
        eio_sid = session.sid
        sid = self.manager.pre_connect(eio_sid, namespace)
        if sid is None:
            self._refuse(eio_sid, namespace, "Unable to connect")
            return
        try:
            self.connects[namespace](sid, self.environ[eio_sid], data or None)
        except ConnectRefused as refusal:
            self._refuse(eio_sid, namespace, {"message": refusal.message, "data": refusal.data})
            self.manager.disconnect(sid, namespace, ignore_queue=True)
            return
        # It waits for the frames of `joined`: one write instead of two.
        session.offer_control(message_frame(b'0%b,{"sid":"%b"}' % (namespace.encode(), sid.encode())), flush=False)
        self.manager.connect(sid, namespace)

    def answered(self, session: Session) -> None:
        """Have it written with the answers of all joins that end in this turn of the loop. Until then the session is corked."""
        engine: EngineServer = self.eio
        engine.writes.add(session.let_out)

    def reserved(self, sid: str, eio_sid: str, name: str, namespace: str, id: int | None) -> None:
        """Answer as any other event that is no request."""
        answer = self.handlers[namespace]["*"](name, sid)
        if id is not None:
            self._send_packet(eio_sid, self.packet_class(ACK, namespace=namespace, id=id, data=[answer]))

    def _refuse(self, eio_sid: str, namespace: str, data: object) -> None:
        self._send_packet(eio_sid, self.packet_class(CONNECT_ERROR, data=data, namespace=namespace))


class SocketIOFace:
    """See the module."""

    def __init__(
        self,
        hooks: Hooks,
        *,
        namespaces: Iterable[str],
        limits: TransportLimits,
        allowed_origins: str | Callable[..., bool],
        allowing: Callable[[str, Environ], str | None] = lambda origin, environ: None,
        names_namespaces: bool = False,
    ) -> None:
        """Make the server.

        Args:
            names_namespaces: the refusal of another namespace names those that are served. For development.
            allowed_origins: "*", or answers whether an origin may connect.
            allowing: returns the line of a setting that would allow an origin, for the log.
        """
        served = tuple(namespaces)
        self._server = _HookedServer(
            hooks,
            Members(),
            served if names_namespaces else (),
            async_handlers=False,
            namespaces=[f"/{name}" for name in served],
            cors_allowed_origins=allowed_origins,
            transport_limits=limits,
            http_compression=False,
        )
        self._engine: EngineServer = self._server.eio
        self._engine.origin_setting, self._engine.allowing = "HEADGATE_ALLOWED_ORIGINS", allowing

    def own(self, letters: str) -> None:
        """Let the ids of sessions begin with letters that name this process."""
        self._engine.owner = letters

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return len(self._engine.sockets)

    def wsgi_app(self, application: WSGIApplication | None) -> WSGIApplication:
        """Return a WSGI application: Socket.IO's path is ours, the rest is `application`'s."""
        wrapped: WSGIApplication = socketio.WSGIApp(self._server, application)
        return wrapped

    def handshake(self, request: RoutedRequest) -> Answer | None:
        """Answer a request for a WebSocket below WSGI, as the application does; None when its socket is a session's now.

        Raises:
            ConnectionResetError: the client is gone.
        """
        return self._engine.handshake(request)

    def reuse_greenlets(self, reuse: bool) -> None:
        """Say whether handlers may run in greenlets in which others have run. Not if they run code of an application."""
        self._engine.start = GreenletPool().start if reuse else spawn

    # -- connect, disconnect, dispatch --------------------------------------------------------------------------------

    def route(
        self,
        namespace: str,
        *,
        connect: Callable[[str, WSGIEnvironment, object], None],
        disconnect: Callable[[str, str], None],
        requests: Mapping[str, RequestHandler],
        unknown: Callable[[str, str], Mapping[str, object]],
    ) -> None:
        """Serve a namespace. Handlers run one after the other for each session, in its own greenlet, and may wait.

        Args:
            namespace: without a slash.
            connect: gets client id, environ and the data of the CONNECT packet; raises ConnectRefused, or lets the client in.
            disconnect: gets client id and reason, once for each client that was let in.
            requests: by event name; each gets the client id and the arguments, and returns the acknowledgement.
            unknown: for any other event; gets its name and the client id, and returns the acknowledgement.
        """

        path = f"/{namespace}"
        self._server.connects[path] = connect
        self._server.on("disconnect", disconnect, namespace=path)
        for name, handler in requests.items():
            self._server.on(name, handler, namespace=path)
        self._server.on("*", lambda name, client_id, *_: unknown(name, client_id), namespace=path)

    def disconnect(self, namespace: str, client_id: str) -> None:
        """Disconnect a client from its namespace; its session goes on. The disconnect handler runs before this returns."""
        self._server.disconnect(client_id, f"/{namespace}")

    # -- sessions -----------------------------------------------------------------------------------------------------

    def session_of(self, namespace: str, client_id: str) -> Session:
        """Return the session of a client that has connected, until its disconnect handler is done.

        Raises:
            KeyError: there is no such client.
        """
        eio_sid = self._server.manager.eio_sid_from_sid(client_id, f"/{namespace}")
        session = None if eio_sid is None else self._server.session_of(eio_sid)
        if session is None:
            raise KeyError(client_id)
        return session

    def origin_refused(self, origin: str, environ: Environ) -> None:
        """Log that a page may not connect, with the line that would allow it."""
        self._engine.origin_refused(origin, dict(environ))

    def count_sessions(self) -> int:
        """Return how many sessions there are, one that is just opening included."""
        return len(self._engine.sockets)

    def environ_of(self, session_id: str) -> Environ:
        """Return the WSGI environment that a session was opened with; nothing of one that is over."""
        environ: Environ = self._server.environ.get(session_id, {})
        return environ

    def trim_environ(self, session_id: str, names: Iterable[str]) -> None:
        """Keep these entries of a session's environment only: the whole of it is 3 KB, for as long as the session lives."""
        environ = self._server.environ.get(session_id)
        if environ is not None:
            self._server.environ[session_id] = {name: environ[name] for name in names if name in environ}

    def after(self, delay_s: float, callback: Callable[[*Arguments], object], *args: *Arguments) -> None:
        """Call back by the sessions' own timer, in the hub: the callback must not wait."""
        self._engine.deadlines.after(delay_s, callback, *args)

    def close(self) -> None:
        """End every session. Idempotent."""
        self._engine.disconnect()
