"""python-socketio on our sessions. Headgate's own clients are served without it (transport/socketio_face.py).

`Server` is a `socketio.Server` with engine.py for its Engine.IO server. Packets of clients come in by `_handle_eio_message`, are
checked by packet_check.py, and go to python-socketio's own dispatch. Its packets go out by `_send_packet` into the lanes of a
session. tests/contract/test_engineio_corners.py tests each private name of python-socketio.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import version

import socketio
import structlog
from socketio import packet as socket_packet
from socketio.packet import Packet

from headgate.runtime.loop import Signal, sleep
from headgate.runtime.patching import is_patched
from headgate.transport.frame_parser import PROTOCOL_ERROR
from headgate.transport.session import Session

from .engine import DropInEngine
from .packet_check import PacketRules

log = structlog.get_logger("headgate.engine")

# Attachments of one packet, in messages of the largest size. They are kept until the last has come.
MAX_ATTACHED_MESSAGES = 16
# The answers to a CONNECT, which go ahead of the events that the connect handler emits.
OPENING = (socket_packet.CONNECT, socket_packet.CONNECT_ERROR)
# Names of handlers that no event of a client may have. An event "*" would run the handler of all others with the client's
# arguments in the place of its id and of the name.
RESERVED_NAMES = frozenset({"connect", "disconnect", "*"})


# The minor versions with tested private names (tests/contract/test_engineio_corners.py).
TRIED = {"python-engineio": "4.15", "python-socketio": "5.18"}


class _RunningHandlers:
    """The running handlers of one session. It exists only while there are any."""

    __slots__ = ("count", "room")

    def __init__(self) -> None:
        self.count = 0
        self.room = Signal()


class Server(socketio.Server):  # type: ignore[misc]
    """A `socketio.Server` on Headgate's transport; docs/socketio.md says where it differs from python-socketio's.

    It takes the keyword arguments of `socketio.Server` and `transport_limits`, and needs gevent.

    `max_handlers` limits the handlers of one client that run at once; 0 for no limit.
    """

    max_handlers: int

    def __init__(
        self,
        client_manager: socketio.Manager | None = None,
        logger: logging.Logger | bool = False,
        serializer: str | type[Packet] = "default",
        **options: object,
    ) -> None:
        _check_serializer(serializer)
        if not is_patched():
            raise RuntimeError(
                "headgate.socketio needs gevent's cooperative sockets: put `from gevent import monkey; monkey.patch_all()` "
                "at the very top of the program, or start it with `headgate serve`"
            )
        _warn_of_untried_versions()
        super().__init__(client_manager, logger, serializer, **options)
        self._has_attachments = _has_attachments(self.packet_class)
        self._rules = PacketRules(self._has_attachments)
        self._running: dict[str, _RunningHandlers] = {}
        self._leaving: dict[str, _RunningHandlers] = {}

    def _engineio_server_class(self) -> type[DropInEngine]:
        return DropInEngine

    def session_of(self, eio_sid: str) -> Session | None:
        """Return an Engine.IO session until it is forgotten."""
        engine: DropInEngine = self.eio
        return engine.sessions.get(eio_sid)

    def failed(self, what: str, eio_sid: str) -> None:
        """Log the current exception of an application's handler."""
        log.exception(what, sid=eio_sid)

    def _handle_connect(self, eio_sid: str, namespace: str | None, data: object) -> None:
        namespace = namespace or "/"
        if not self._serves(namespace):
            self._send_packet(
                eio_sid,
                self.packet_class(socket_packet.CONNECT_ERROR, data={"message": "Invalid namespace"}, namespace=namespace),
            )
            return
        session = self.session_of(eio_sid)
        if session is None:
            return
        before = self.manager.sid_from_eio_sid(eio_sid, namespace)
        session.cork()
        try:
            try:
                self.ask(session, namespace, data)
            finally:
                sid = self.manager.sid_from_eio_sid(eio_sid, namespace)
                joined = sid not in (None, before) and self.manager.is_connected(sid, namespace)
                if joined:
                    session.joined = True
                elif sid not in (None, before):
                    self.manager.disconnect(sid, namespace, ignore_queue=True)  # its connect handler raised
        finally:
            session.uncork()

    def ask(self, session: Session, namespace: str, data: object) -> None:
        """Ask the application whether a client may join, and answer the client."""
        super()._handle_connect(session.sid, namespace, data)

    def _serves(self, namespace: str) -> bool:
        if namespace == "*":
            return False  # the key of the handlers for all namespaces
        named = self.namespaces == "*" or namespace in self.namespaces
        return named or namespace in self.handlers or namespace in self.namespace_handlers

    def _handle_eio_message(self, eio_sid: str, data: str | bytes) -> None:
        """Take one packet. A malformed one, or one out of order, ends the session with a code."""
        fault = packet = None
        if eio_sid in self._binary_packet:
            fault = self._attachment_fault(eio_sid, data)
        elif isinstance(data, bytes) and self._has_attachments:
            fault = "binary message without a binary packet before it"
        else:
            try:
                packet = self.packet_class(encoded_packet=data)
                fault = self._rules.fault(packet, in_namespace=self._is_in(eio_sid, packet.namespace))
            except Exception as error:  # noqa: BLE001 - whatever a packet class raises: the client is told, it is counted
                fault = f"malformed packet ({type(error).__name__})"
        if fault is not None:
            session = self.session_of(eio_sid)
            if session is not None:
                session.end("parse error", code=PROTOCOL_ERROR, told=fault)
            return
        try:
            if packet is None:
                super()._handle_eio_message(eio_sid, data)
            else:
                self._dispatch(eio_sid, packet)
        except Exception:  # noqa: BLE001 - application code: `failed` logs it
            # The session goes on, as with stock python-socketio.
            self.failed("event handler failed", eio_sid)

    def _attachment_fault(self, eio_sid: str, data: str | bytes) -> str | None:
        if not isinstance(data, bytes):
            return "attachment expected"
        size = len(data) + sum(map(len, self._binary_packet[eio_sid].attachments))
        most = MAX_ATTACHED_MESSAGES * self.eio.limits.max_message_bytes
        return None if size <= most else f"attachments of more than {most} bytes together"

    def _is_in(self, eio_sid: str, namespace: object) -> bool:
        if namespace is not None and not isinstance(namespace, str):
            return False
        return self.manager.sid_from_eio_sid(eio_sid, namespace or "/") is not None

    def _dispatch(self, eio_sid: str, packet: Packet) -> None:
        """Give a checked packet to python-socketio, whose own dispatch would parse it again."""
        kind, namespace = packet.packet_type, packet.namespace
        if kind == socket_packet.CONNECT:
            self._handle_connect(eio_sid, namespace, packet.data)
        elif kind == socket_packet.DISCONNECT:
            self._handle_disconnect(eio_sid, namespace, self.reason.CLIENT_DISCONNECT)
        elif kind == socket_packet.EVENT:
            self._handle_event(eio_sid, namespace, packet.id, packet.data)
        elif kind == socket_packet.ACK:
            self._handle_ack(eio_sid, namespace, packet.id, packet.data)
        else:
            self._binary_packet[eio_sid] = packet  # its attachments follow

    def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: list[object]) -> None:
        """Run an event's handler, with `async_handlers` in a greenlet, while there are fewer than `max_handlers`."""
        if not self.async_handlers:
            super()._handle_event(eio_sid, namespace, id, data)
            return
        namespace = namespace or "/"
        sid = self.manager.sid_from_eio_sid(eio_sid, namespace)
        self.logger.info('received event "%s" from %s [%s]', data[0], sid, namespace)
        if not self.manager.is_connected(sid, namespace):
            self.logger.warning("%s is not connected to namespace %s", sid, namespace)
            return
        running = self._running.setdefault(eio_sid, _RunningHandlers())
        while 0 < self.max_handlers <= running.count:
            running.room.clear()
            running.room.wait()
        running.count += 1
        self._running[eio_sid] = running
        self.start_background_task(self._run_handler, running, sid, eio_sid, data, namespace, id)

    def _handle_event_internal(
        self, server: Server, sid: str, eio_sid: str, data: list[object], namespace: str, id: int | None
    ) -> None:
        """Run an event's handler, unless the event has a reserved name."""
        if data[0] in RESERVED_NAMES:
            self.logger.info('event "%s" from %s [%s] has a reserved name, and is ignored', data[0], sid, namespace)
        else:
            super()._handle_event_internal(server, sid, eio_sid, data, namespace, id)

    def _run_handler(
        self, running: _RunningHandlers, sid: str, eio_sid: str, data: list[object], namespace: str, id: int | None
    ) -> None:
        try:
            self._handle_event_internal(self, sid, eio_sid, data, namespace, id)
        except Exception:  # noqa: BLE001 - application code: `failed` logs it
            self.failed("event handler failed", eio_sid)
        finally:
            running.count -= 1
            running.room.set()
            if not running.count:
                self._running.pop(eio_sid, None)

    def _trigger_event(self, event: str, namespace: str, *args: object) -> object:
        """Run a handler of the application. A client leaves its rooms even when its disconnect handler raises."""
        if event != "disconnect":
            return super()._trigger_event(event, namespace, *args)
        sid = args[0]
        eio_sid = self.manager.eio_sid_from_sid(sid, namespace)
        leaving = self._leaving.setdefault(eio_sid, _RunningHandlers())
        leaving.count += 1
        try:
            return super()._trigger_event(event, namespace, *args)
        except BaseException:
            self.manager.disconnect(sid, namespace, ignore_queue=True)  # python-socketio would not get there
            raise
        finally:
            leaving.count -= 1
            if not leaving.count:
                del self._leaving[eio_sid]
                leaving.room.set()

    def _handle_disconnect(self, eio_sid: str, namespace: str | None, reason: str | None = None) -> None:
        """Let a client leave a namespace, when the handlers of its earlier events have begun."""
        if eio_sid in self._running:
            sleep()
        super()._handle_disconnect(eio_sid, namespace, reason)

    def _handle_eio_disconnect(self, eio_sid: str, reason: str) -> None:
        """Let a client leave every namespace; forget its session after all its disconnect handlers."""
        self._binary_packet.pop(eio_sid, None)
        try:
            for namespace in list(self.manager.get_namespaces()):
                try:
                    self._handle_disconnect(eio_sid, namespace, reason)
                except Exception:  # noqa: BLE001 - one namespace's handler must not cost the others theirs
                    self.failed("disconnect handler failed", eio_sid)
            while (leaving := self._leaving.get(eio_sid)) is not None:
                leaving.room.wait()  # a handler of `disconnect` still runs
        finally:
            self.environ.pop(eio_sid, None)


@cache  # once a process
def _warn_of_untried_versions() -> None:
    for package, tried in TRIED.items():
        if not (installed := version(package)).startswith(f"{tried}."):
            log.warning("untried version", package=package, version=installed, tried=f"{tried}.*")


def _check_serializer(serializer: object) -> None:
    """Refuse what is no packet class.

    Raises:
        ValueError: it names what is allowed.
    """
    a_class = isinstance(serializer, type) and issubclass(serializer, Packet)
    if not a_class and serializer not in ("default", "msgpack"):
        raise ValueError(f"serializer: expected 'default', 'msgpack' or a subclass of socketio.packet.Packet, got {serializer!r}")


def _has_attachments(packet_class: type[Packet]) -> bool:
    """Return whether bytes go as attachments, in binary messages after a text packet; else every message is a packet.

    Raises:
        ValueError: the class encodes to a type that no message can have.
    """
    if packet_class.encode is Packet.encode:
        return bool(packet_class.uses_binary_events)
    encoded = packet_class(socket_packet.EVENT, data=["probe"], namespace="/").encode()
    if not isinstance(encoded, str | bytes | bytearray | list):
        made = type(encoded).__name__
        raise ValueError(f"serializer: encode() of {packet_class.__name__} must return str, bytes or a list of these, not {made}")
    return bool(packet_class.uses_binary_events) and not isinstance(encoded, bytes | bytearray)
