"""`headgate.socketio.Server`: a `socketio.Server` for applications that know nothing of Headgate.

In: packets of browsers, through base.py. Out: packets of the application. Each goes one of three ways:

    CONNECT and its refusals    ahead of everything (the control lane)
    to one client               after everything before it; the emitting greenlet waits while the client's queue is too full
    to a room                   by the fan-out (rooms.py), which never waits; a full queue follows `overflow`

A session id without a session belongs to a test client, and every method calls python-socketio's own for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import socketio
from socketio import Server as Stock
from socketio import packet as socket_packet
from socketio.packet import Packet

from headgate.protocol.frames import Frame
from headgate.runtime.loop import current, in_hub
from headgate.transport.session import Session

from . import base
from .engine import frame_of, message_packet
from .json_text import refuse_not_json
from .limits import Overflow, TransportLimits
from .member import SLOW_CONSUMER, WRITE_DEADLINE, Member, bundled
from .rooms import FanOut, RoomAudience, adopt
from .traffic import Instrumented, Traffic

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from engineio.packet import Packet as EnginePacket

# Handlers of one client at once, with `async_handlers`; its next event waits, and we stop reading. python-socketio has no limit.
MAX_HANDLERS = 1024
EMIT_DEADLINE_S = 60.0


class Reason(Stock.reason):  # type: ignore[misc]
    """The reasons for a disconnect handler: python-socketio's, and those of this transport."""

    SLOW_CONSUMER = SLOW_CONSUMER
    WRITE_DEADLINE = WRITE_DEADLINE
    PARSE_ERROR = "parse error"
    INBOUND_FLOOD = "inbound flood"
    HANDSHAKE_DEADLINE = "handshake deadline"
    PAYLOAD_TOO_LARGE = "payload too large"


class Server(base.Server):
    """A `socketio.Server` on Headgate's transport; docs/socketio.md has every option, and what differs from python-socketio.

    Args:
        transport_limits: the limits of a session; python-socketio's own options for the same things win.
        overflow: the policy for a broadcast to a client whose queue is full (`wait`, `drop` or `disconnect`).
        emit_deadline_s: how long `emit` may wait for one client that reads, but too slowly. Then that client is cut.
        max_handlers: handlers of one client that may run at once; 0 for no limit.

    Attributes:
        dropped: broadcast events that clients have missed, with `overflow="drop"`.
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
        self.overflow = _overflow(overflow)
        self.emit_deadline_s = emit_deadline_s
        self.dropped = 0
        self.behind: set[Member] = set()
        self.connecting: set[object] = set()
        self.traffic: Traffic | None = None
        self._fan_out = FanOut()
        if transport_limits is not None:
            options["transport_limits"] = transport_limits
        super().__init__(client_manager, logger, serializer, **options)
        self.max_handlers = max_handlers
        self.eio.settle = self._fan_out.settle
        adopt(self.manager)

    def instrument(self, *args: object, **options: object) -> object:
        """Report to the Socket.IO Admin UI. As python-socketio's, packets and bytes included."""
        return Instrumented(self, *args, **options)

    # -- packets out --------------------------------------------------------------------------------------------------

    def member(self, eio_sid: str) -> Member | None:
        """Return a session's member; None when there is no such session."""
        session = self.session_of(eio_sid)
        if session is None:
            return None
        if not session.owners:
            session.owners = (Member(session, self),)
        member = session.owners[0]
        assert isinstance(member, Member)
        return member

    def eio_packets(self, packet: Packet) -> list[EnginePacket]:
        """Return a packet as Engine.IO packets, as python-socketio makes them; raises what its encoding raises.

        Raises:
            ValueError: it holds NaN or an infinity, at which a browser would disconnect.
        """
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
        """Send a packet to one client, after everything before it. Switches greenlets if its queue is too full."""
        self._fan_out.settle()
        self._note_sent(member.connection.sid, frames)
        member.send(frames, may_wait=may_wait and not in_hub())

    def to_room(self, frames: Sequence[Frame], audience: RoomAudience, *, may_wait: bool) -> None:
        """Send a packet to the members of a room. Waits only with `overflow="wait"`."""
        self._note_sent(f"{len(audience.members)} sessions", frames, len(audience.members))
        self._fan_out.put(bundled(frames), audience)
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
                member.cut()

    def _send_packet(self, eio_sid: str, pkt: Packet) -> None:
        packets = self.eio_packets(pkt)
        member = self.member(eio_sid)
        if member is None:
            Stock._send_packet(self, eio_sid, pkt)
            return
        frames = self.framed(packets)
        kind = pkt.packet_type
        if kind in base.OPENING:
            self._fan_out.settle()
            self._note_sent(eio_sid, frames)
            for frame in frames:
                # CONNECT waits for the frames of `joined`: one write instead of two.
                member.connection.offer_control(frame, flush=kind != socket_packet.CONNECT)
        else:
            self.to_one(member, frames)

    def _send_eio_packet(self, eio_sid: str, eio_pkt: EnginePacket) -> None:
        """Send one message of a packet, for client managers with their own `emit`. Does not wait."""
        member = self.member(eio_sid)
        if member is None:
            Stock._send_eio_packet(self, eio_sid, eio_pkt)
            return
        self.to_one(member, [frame_of(eio_pkt, attachment=eio_pkt.binary and self._has_attachments)], may_wait=False)

    def failed(self, what: str, eio_sid: str) -> None:
        """Log the exception of an application's handler where python-socketio logs its own."""
        self.eio.logger.exception("%s (%s)", what, eio_sid)

    def _note_sent(self, to: str, frames: Sequence[Frame], clients: int = 1) -> None:
        if self.traffic is not None:
            self.traffic.sent(clients * len(frames), clients * sum(len(frame.packet) for frame in frames))
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
        logger = self.eio.logger
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s: Received packet MESSAGE data %s", eio_sid, "<binary>" if isinstance(data, bytes) else data)
        if self.traffic is not None:
            self.traffic.received(len(data))
        if self.session_of(eio_sid) is None:
            Stock._handle_eio_message(self, eio_sid, data)
        else:
            super()._handle_eio_message(eio_sid, data)

    def _handle_connect(self, eio_sid: str, namespace: str | None, data: object) -> None:
        if self.session_of(eio_sid) is None:
            Stock._handle_connect(self, eio_sid, namespace, data)
            return
        self.connecting.add(here := current())
        try:
            super()._handle_connect(eio_sid, namespace, data)
        finally:
            self.connecting.discard(here)

    def ask(self, session: Session, namespace: str, data: object) -> None:
        """Ask the application whether a client may join. A refused one gets no broadcast."""
        try:
            super().ask(session, namespace, data)
        finally:
            sid = self.manager.sid_from_eio_sid(session.sid, namespace)
            admitted = sid is not None and self.manager.is_connected(sid, namespace)
            if not admitted:
                self._fan_out.settle()
            for member in session.owners:
                assert isinstance(member, Member)
                member.decided(namespace, admitted=admitted)

    def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: list[object]) -> None:
        if self.session_of(eio_sid) is None:
            Stock._handle_event(self, eio_sid, namespace, id, data)
        else:
            super()._handle_event(eio_sid, namespace, id, data)

    def _handle_eio_disconnect(self, eio_sid: str, reason: str) -> None:
        """Give the application a reason of `Server.reason`, without the words of the system after a colon."""
        self.eio.logger.info("%s: Disconnected, %s", eio_sid, reason)
        if self.behind and (member := self.member(eio_sid)) is not None:
            self.behind.discard(member)
        super()._handle_eio_disconnect(eio_sid, reason.partition(":")[0])

    # -- sessions -----------------------------------------------------------------------------------------------------

    def session_of(self, eio_sid: str) -> Session | None:
        """Return an Engine.IO session until it is forgotten."""
        session = super().session_of(eio_sid)
        return session if isinstance(session, Session) else None


def _overflow(overflow: Overflow | str) -> Overflow:
    """Return the policy.

    Raises:
        ValueError: says what is allowed.
    """
    try:
        return Overflow(overflow)
    except ValueError:
        allowed = ", ".join(repr(each.value) for each in Overflow)
        raise ValueError(f"overflow: expected one of {allowed}, got {overflow!r}") from None
