"""`headgate.socketio.Server`, a `socketio.Server` on our sessions for applications that do not use the gateway.

Its Engine.IO server is engine.py. Packets of browsers come in by `_handle_eio_message`, are checked (packet_check.py), and go
to python-socketio's dispatch. Packets of the application go out in one of three ways:

    CONNECT and its refusals    ahead of everything (the control lane)
    to one client               in order; the emitting greenlet waits while the client's queue is too full
    to a room                   by the fan-out (rooms.py), which never waits; `overflow` is the policy for a full queue

A session id without a session belongs to a test client, and every method calls python-socketio's for it.
tests/contract/test_engineio_corners.py tests each private name of python-socketio.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from wsgiref.types import WSGIEnvironment

import socketio
import structlog
from socketio import packet as socket_packet
from socketio.packet import Packet

from headgate.events.numbers import is_number, is_whole
from headgate.events.wire.frames import Frame
from headgate.runtime.loop import Signal, current, in_hub, sleep
from headgate.runtime.patching import NOT_PATCHED, is_patched
from headgate.transport.frame_parser import PROTOCOL_ERROR
from headgate.transport.session import Session, cut
from headgate.transport.session_state import Reason

from .engine import DropInEngine, TransportLimits, frame_of, message_packet
from .member import Member, Overflow, bundled
from .packet_check import fault_of, refuse_not_json
from .rooms import FanOut, RoomAudience, adopt

if TYPE_CHECKING:
    from engineio.packet import Packet as EnginePacket

log = structlog.get_logger("headgate.engine")

# Concurrent handlers of one client, with `async_handlers`. Beyond that, its next event waits, and we stop reading.
# python-socketio has no limit.
MAX_HANDLERS = 1024
EMIT_DEADLINE_S = 60.0
MOST_HANDLERS = 1_000_000
MAX_EMIT_DEADLINE_S = 86400
# The most attachments of one packet, as a multiple of the largest message. They are kept until the last has come.
MAX_ATTACHED_MESSAGES = 16
# The answers to a CONNECT. They overtake events emitted by the connect handler.
OPENING = (socket_packet.CONNECT, socket_packet.CONNECT_ERROR)
# Names of handlers that a client's event must not have. An event "*" would run the catch-all handler with the client's
# arguments in place of the name and the client's id.
RESERVED_NAMES = frozenset({"connect", "disconnect", "*"})
# The minor versions with tested private names (tests/contract/test_engineio_corners.py).
TRIED = {"python-engineio": "4.15", "python-socketio": "5.18"}


@dataclass(slots=True, eq=False)
class _RunningHandlers:
    """The running handlers of one session. Exists only while there are any."""

    count: int = 0
    room: Signal = field(default_factory=Signal)


class Server(socketio.Server):  # type: ignore[misc]
    """A `socketio.Server` on Headgate's transport. docs/socketio.md has all options and the differences from python-socketio.

    Args:
        transport_limits: the limits of a session. python-socketio's options for the same limits win.
        overflow: the policy for a broadcast to a client with a full queue (`wait`, `drop` or `disconnect`).
        emit_deadline_s: how long `emit` waits for a client that reads too slowly, before disconnecting it.
        max_handlers: the most concurrent handlers of one client; 0 for no limit.

    Attributes:
        dropped: how many broadcast events clients have missed, with `overflow="drop"`.
        behind: the members with nearly full queues at their last broadcast.
        connecting: the greenlets that run connect handlers.
        traffic: the counts of the Admin UI.
    """

    reason = Reason

    def __init__(
        self,
        client_manager: socketio.Manager | None = None,
        logger: logging.Logger | bool = False,
        serializer: str | type[Packet] = "default",
        *,
        transport_limits: TransportLimits | None = None,
        overflow: Overflow | str = Overflow.DISCONNECT,
        emit_deadline_s: float = EMIT_DEADLINE_S,
        max_handlers: int = MAX_HANDLERS,
        **options: object,
    ) -> None:
        try:
            self.overflow = Overflow(overflow)
        except ValueError:
            allowed = ", ".join(repr(each.value) for each in Overflow)
            raise ValueError(f"overflow: expected one of {allowed}, got {overflow!r}") from None
        if not is_number(emit_deadline_s, 0.001, MAX_EMIT_DEADLINE_S):
            raise ValueError(f"emit_deadline_s: expected 0.001 to {MAX_EMIT_DEADLINE_S} seconds, got {emit_deadline_s!r:.80}")
        if not is_whole(max_handlers, 0, MOST_HANDLERS):
            raise ValueError(f"max_handlers: expected a whole number from 0 to {MOST_HANDLERS}, got {max_handlers!r:.80}")
        if client_manager is not None and (isinstance(client_manager, type) or not hasattr(client_manager, "set_server")):
            raise ValueError(f"client_manager: expected a socketio.Manager, got {client_manager!r:.80}")
        self.emit_deadline_s = emit_deadline_s
        self.dropped = 0
        self.behind: set[Member] = set()
        self.connecting: set[object] = set()
        self.traffic: Any = None
        self._fan_out = FanOut()
        if transport_limits is not None:
            options["transport_limits"] = transport_limits
        a_class = isinstance(serializer, type) and issubclass(serializer, Packet)
        if not a_class and serializer not in ("default", "msgpack"):
            raise ValueError(
                f"serializer: expected 'default', 'msgpack' or a subclass of socketio.packet.Packet, got {serializer!r}"
            )
        if not is_patched():
            raise RuntimeError(NOT_PATCHED)
        _warn_of_untried_versions()
        super().__init__(client_manager, logger, serializer, **options)
        self.max_handlers = max_handlers
        self._has_attachments = _has_attachments(self.packet_class)
        self._begun: dict[str, Packet] = {}  # by session, the packet that waits for its attachments
        self._running: dict[str, _RunningHandlers] = {}
        self._leaving: dict[str, _RunningHandlers] = {}
        self.eio.settle = self._fan_out.settle
        adopt(self.manager)

    def _engineio_server_class(self) -> type[DropInEngine]:
        return DropInEngine

    def instrument(self, *args: object, **options: object) -> object:
        """Report to the Socket.IO Admin UI, as python-socketio does, which counts packets and bytes only of its own sockets."""
        instrumented = super().instrument(*args, **options)
        self.traffic = instrumented.event_buffer
        return instrumented

    def session_of(self, eio_sid: str) -> Session | None:
        """Return an Engine.IO session until it is forgotten."""
        session = self.eio.sessions.get(eio_sid)
        return session if isinstance(session, Session) else None

    # -- packets out --------------------------------------------------------------------------------------------------

    def member(self, eio_sid: str) -> Member | None:
        """Return a session's member; None for an unknown session."""
        if (session := self.session_of(eio_sid)) is None:
            return None
        if not session.owners:
            session.owners = (Member(session, self),)
        member = session.owners[0]
        assert isinstance(member, Member)
        return member

    def eio_packets(self, packet: Packet) -> list[EnginePacket]:
        """Return the Engine.IO packets of a packet. Raises what its encoding raises, and ValueError for NaN or an infinity."""
        encoded = packet.encode()
        parts = encoded if isinstance(encoded, list) else [encoded]
        if isinstance(parts[0], str) and type(packet).encode is Packet.encode:
            refuse_not_json(parts[0], packet.namespace or "/")
        return [message_packet(part) for part in parts]

    def framed(self, packets: list[EnginePacket]) -> list[Frame]:
        """Return the frames of a packet."""
        first, *attachments = packets
        return [frame_of(first), *(frame_of(each, attachment=self._has_attachments) for each in attachments)]

    def to_one(self, member: Member, frames: Sequence[Frame], *, may_wait: bool = True) -> None:
        """Send a packet to one client, in order. Switches greenlets if its queue is too full."""
        self._fan_out.settle()
        self._note_sent(member.connection.sid, frames)
        member.send(frames, may_wait=may_wait and not in_hub())

    def to_room(self, frames: Sequence[Frame], audience: RoomAudience, namespace: str, *, may_wait: bool) -> None:
        """Send a packet to the members of a room of a namespace. Waits only with `overflow="wait"`."""
        self._note_sent(f"{len(audience.members)} sessions", frames, len(audience.members))
        frame = bundled(frames)
        frame.topic = namespace  # for a member whose connect handler runs
        self._fan_out.put(frame, audience)
        if self.overflow is not Overflow.WAIT:
            return
        self._fan_out.settle()
        if not self.behind:
            return
        waits = may_wait and not in_hub()
        for member in self.behind.intersection(audience.members):
            self.behind.discard(member)
            if waits:
                member.wait_for_room()
            elif member.connection.queue.level > 1:
                cut(member.connection)

    def _send_packet(self, eio_sid: str, pkt: Packet) -> None:
        packets = self.eio_packets(pkt)
        if (member := self.member(eio_sid)) is None:
            super()._send_packet(eio_sid, pkt)
            return
        frames = self.framed(packets)
        kind = pkt.packet_type
        if kind in OPENING:
            self._fan_out.settle()
            self._note_sent(eio_sid, frames)
            for frame in frames:
                # CONNECT waits for the frames of `joined`, which saves a write.
                member.connection.offer_control(frame, flush=kind != socket_packet.CONNECT)
        else:
            self.to_one(member, frames)

    def _send_eio_packet(self, eio_sid: str, eio_pkt: EnginePacket) -> None:
        """Send one message of a packet, for client managers that override `emit`. Does not wait."""
        if (member := self.member(eio_sid)) is None:
            super()._send_eio_packet(eio_sid, eio_pkt)
            return
        self.to_one(member, [frame_of(eio_pkt, attachment=eio_pkt.binary and self._has_attachments)], may_wait=False)

    def _note_sent(self, to: str, frames: Sequence[Frame], clients: int = 1) -> None:
        if self.traffic is not None:
            self.traffic.push("packetsOut", clients * len(frames))
            self.traffic.push("bytesOut", clients * sum(len(frame.packet) for frame in frames))
        logger = self.eio.logger
        if logger.isEnabledFor(logging.INFO):
            for frame in frames:
                logger.info("%s: Sending packet MESSAGE data %s", to, "<binary>" if frame.binary else frame.packet[1:].decode())

    # -- packets in ---------------------------------------------------------------------------------------------------

    def _handle_eio_connect(self, eio_sid: str, environ: WSGIEnvironment) -> object:
        refusal: object = super()._handle_eio_connect(eio_sid, environ)
        self.eio.logger.info("%s: Connected", eio_sid)
        return refusal

    def _handle_eio_message(self, eio_sid: str, data: str | bytes) -> None:
        """Take one packet. A malformed packet, or one out of order, ends the session with a code."""
        logger = self.eio.logger
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s: Received packet MESSAGE data %s", eio_sid, "<binary>" if isinstance(data, bytes) else data)
        if self.traffic is not None:
            self.traffic.push("packetsIn")
            self.traffic.push("bytesIn", len(data))
        if (session := self.session_of(eio_sid)) is None:
            super()._handle_eio_message(eio_sid, data)
            return
        fault = packet = None
        if (begun := self._begun.get(eio_sid)) is not None:
            most = MAX_ATTACHED_MESSAGES * self.eio.limits.max_message_bytes
            if not isinstance(data, bytes):
                fault = "attachment expected"
            elif len(data) + sum(map(len, begun.attachments)) > most:
                fault = f"attachments of more than {most} bytes together"
            else:
                try:
                    packet = begun if begun.add_attachment(data) else None
                except Exception:  # noqa: BLE001 - an IndexError, TypeError or RecursionError; counted, and the client is notified
                    fault = "placeholder without an attachment"
        elif isinstance(data, bytes) and self._has_attachments:
            fault = "binary message without a binary packet before it"
        else:
            try:
                packet = self.packet_class(encoded_packet=data)
                space = packet.namespace or "/"
                is_in = isinstance(space, str) and self.manager.sid_from_eio_sid(eio_sid, space) is not None
                fault = fault_of(packet, has_attachments=self._has_attachments, in_namespace=is_in)
            except Exception as error:  # noqa: BLE001 - a packet class may raise anything; counted, and the client is notified
                fault = f"malformed packet ({type(error).__name__})"
        if fault is not None:
            session.end(Reason.PARSE_ERROR, code=PROTOCOL_ERROR, shown=fault)
            return
        if packet is None:
            return  # more attachments follow
        self._begun.pop(eio_sid, None)
        try:
            self._dispatch(eio_sid, packet)
        except Exception:  # noqa: BLE001 - application code
            # The session stays, as in stock python-socketio.
            self._failed("event handler failed", eio_sid)

    def _dispatch(self, eio_sid: str, packet: Packet) -> None:
        """Give a checked packet to python-socketio's handlers. A binary packet first waits for its attachments."""
        kind, namespace = packet.packet_type, packet.namespace
        if kind == socket_packet.CONNECT:
            self._handle_connect(eio_sid, namespace, packet.data)
        elif kind == socket_packet.DISCONNECT:
            self._handle_disconnect(eio_sid, namespace, Reason.CLIENT_DISCONNECT)
        elif packet.attachment_count > len(packet.attachments):
            self._begun[eio_sid] = packet
        elif kind in (socket_packet.EVENT, socket_packet.BINARY_EVENT):
            self._handle_event(eio_sid, namespace, packet.id, packet.data)
        else:
            sid = self.manager.sid_from_eio_sid(eio_sid, namespace or "/")
            self.logger.info("received ack from %s [%s]", sid, namespace or "/")
            self.manager.trigger_callback(sid, packet.id, packet.data)

    def _handle_connect(self, eio_sid: str, namespace: str | None, data: object) -> None:
        """Ask the application whether a client may join, and answer the client. A refused client gets no broadcasts."""
        if (session := self.session_of(eio_sid)) is None:
            super()._handle_connect(eio_sid, namespace, data)
            return
        namespace = namespace or "/"
        # "*" is the key of the handlers for all namespaces.
        named = self.namespaces == "*" or namespace in {*self.namespaces, *self.handlers, *self.namespace_handlers}
        if namespace == "*" or not named:
            refusal = {"message": "Invalid namespace"}
            self._send_packet(eio_sid, self.packet_class(socket_packet.CONNECT_ERROR, data=refusal, namespace=namespace))
            return
        before = self.manager.sid_from_eio_sid(eio_sid, namespace)
        self.connecting.add(here := current())
        session.cork()
        try:
            try:
                super()._handle_connect(eio_sid, namespace, data)
            finally:
                self._decided(session, namespace, before)
        finally:
            session.uncork()
            self.connecting.discard(here)

    def _decided(self, session: Session, namespace: str, before: str | None) -> None:
        """Called after a connect handler, even if it raised. `before` was the session's client in the namespace."""
        sid = self.manager.sid_from_eio_sid(session.sid, namespace)
        admitted = sid is not None and self.manager.is_connected(sid, namespace)
        if not admitted:
            self._fan_out.settle()
        for member in session.owners:
            assert isinstance(member, Member)
            member.decided(namespace, admitted=admitted)
        if admitted:
            session.joined = True
        elif sid not in (None, before):
            self.manager.disconnect(sid, namespace, ignore_queue=True)

    def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: list[object]) -> None:
        """Run an event's handler. With `async_handlers` it runs in a greenlet if there are fewer than `max_handlers`."""
        if not self.async_handlers or self.session_of(eio_sid) is None:
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
            self.logger.info('event "%s" from %s [%s] has a reserved name and is ignored', data[0], sid, namespace)
        else:
            super()._handle_event_internal(server, sid, eio_sid, data, namespace, id)

    def _run_handler(
        self, running: _RunningHandlers, sid: str, eio_sid: str, data: list[object], namespace: str, id: int | None
    ) -> None:
        try:
            self._handle_event_internal(self, sid, eio_sid, data, namespace, id)
        except Exception:  # noqa: BLE001 - application code
            self._failed("event handler failed", eio_sid)
        finally:
            running.count -= 1
            running.room.set()
            if not running.count:
                self._running.pop(eio_sid, None)

    def _trigger_event(self, event: str, namespace: str, *args: object) -> object:
        """Run a handler of the application. A client leaves its rooms even if its disconnect handler raises."""
        if event != "disconnect":
            return super()._trigger_event(event, namespace, *args)
        sid = args[0]
        eio_sid = self.manager.eio_sid_from_sid(sid, namespace)
        leaving = self._leaving.setdefault(eio_sid, _RunningHandlers())
        leaving.count += 1
        try:
            return super()._trigger_event(event, namespace, *args)
        except BaseException:
            self.manager.disconnect(sid, namespace, ignore_queue=True)  # python-socketio skips this after an exception
            raise
        finally:
            leaving.count -= 1
            if not leaving.count:
                del self._leaving[eio_sid]
                leaving.room.set()

    def _handle_disconnect(self, eio_sid: str, namespace: str | None, reason: str | None = None) -> None:
        """Remove a client from a namespace, after the handlers of its earlier events have started."""
        if eio_sid in self._running:
            sleep()
        super()._handle_disconnect(eio_sid, namespace, reason)

    def _handle_eio_disconnect(self, eio_sid: str, reason: str) -> None:
        """Remove a client from every namespace, and forget its session after all its disconnect handlers.

        The application gets a reason of `Server.reason`, without the system's text after a colon.
        """
        self.eio.logger.info("%s: Disconnected, %s", eio_sid, reason)
        if self.behind and (member := self.member(eio_sid)) is not None:
            self.behind.discard(member)
        self._begun.pop(eio_sid, None)
        try:
            for namespace in list(self.manager.get_namespaces()):
                try:
                    self._handle_disconnect(eio_sid, namespace, reason.partition(":")[0])
                except Exception:  # noqa: BLE001 - one namespace's handler must not cost the others theirs
                    self._failed("disconnect handler failed", eio_sid)
            while (leaving := self._leaving.get(eio_sid)) is not None:
                leaving.room.wait()  # a handler of `disconnect` still runs
        finally:
            self.environ.pop(eio_sid, None)

    def _failed(self, what: str, eio_sid: str) -> None:
        """Log the exception of an application's handler to python-socketio's log."""
        self.eio.logger.exception("%s (%s)", what, eio_sid)


@cache  # once a process
def _warn_of_untried_versions() -> None:
    for package, tried in TRIED.items():
        if not (installed := version(package)).startswith(f"{tried}."):
            log.warning("untried version", package=package, version=installed, tried=f"{tried}.*")


def _has_attachments(packet_class: type[Packet]) -> bool:
    """Return whether bytes follow a text packet as attachments. Otherwise every message is a packet.

    Raises ValueError if the class encodes to an invalid type.
    """
    if packet_class.encode is Packet.encode:
        return bool(packet_class.uses_binary_events)
    encoded = packet_class(socket_packet.EVENT, data=["probe"], namespace="/").encode()
    if not isinstance(encoded, str | bytes | bytearray | list):
        made = type(encoded).__name__
        raise ValueError(f"serializer: encode() of {packet_class.__name__} must return str, bytes or a list of these, not {made}")
    return bool(packet_class.uses_binary_events) and not isinstance(encoded, bytes | bytearray)
