"""One session as a member of rooms, with its queue and the wait for room in it.

Broadcast frames that the fan-out could not write directly come by `offer`, which never waits, and frames for this client alone
by `send`. The frames of one packet go into the session's queue together or not at all. `wait_for_room` applies back-pressure by
suspending the emitting greenlet while the queue is too full.

A client is disconnected with the reason `write deadline` if it has accepted nothing for that time, or `slow consumer` if it is
too slow for a broadcast or for the deadline of an emit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame
from headgate.runtime.loop import Signal, current
from headgate.transport.frame_parser import POLICY
from headgate.transport.send_queue import HIGH_WATER, LOW_WATER, FrameOwner
from headgate.transport.session import Session, cut
from headgate.transport.session_state import MOVED, Reason
from headgate.transport.timers import monotonic

if TYPE_CHECKING:
    from .server import Server


class Overflow(Enum):
    """The policy for a broadcast to a client with a full queue. Events to one client always wait."""

    WAIT = "wait"
    """`emit` waits until every client has room or is disconnected, so the slowest client sets the pace."""
    DROP = "drop"
    """The client misses the event, and `Server.dropped` counts it."""
    DISCONNECT = "disconnect"
    """The client is disconnected with the reason `slow consumer`."""


class Bundle(Frame):
    """The frames of one packet with attachments, joined."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Frame]) -> None:
        first = parts[0]
        self.parts = tuple(parts)
        self.wire = b"".join([frame.wire for frame in parts])
        self.skip, self.binary, self.attachment = first.skip, first.binary, False
        self.topic = self.offset = None
        self.payload_bytes = self.time_ms = 0
        self.tally = None


def bundled(frames: Sequence[Frame]) -> Frame:
    """Return the frames of one packet as one frame."""
    return frames[0] if len(frames) == 1 else Bundle(frames)


@dataclass(slots=True, eq=False)
class ProvisionalSender:
    """The sender of broadcasts to be withdrawn if a running connect handler refuses the client."""

    sent: int = 0


class Member:
    """See the module. The fan-out needs its hash, `connection`, `direct`, `gone` and `offer`.

    It counts frames written to the socket (`direct`), `offered` to the queue and `sent` from it, and `gone` with the connection.
    """

    __slots__ = ("_early", "_owner", "_room", "connection", "direct", "gone", "offered", "sent")

    def __init__(self, session: Session, owner: Server) -> None:
        self.connection = session
        self._owner = owner
        self._early: dict[str | None, ProvisionalSender] | None = None
        self._room: Signal | None = None
        self.direct = self.gone = self.offered = self.sent = 0

    def drained(self) -> None:
        """Wake the waiting emitters."""
        room, self._room = self._room, None
        if room is not None:
            room.set()

    # -- a broadcast ----------------------------------------------------------------------------------------------

    def offer(self, frame: Frame) -> None:
        """Queue a packet of a broadcast, or follow the server's policy. Never waits."""
        session, owner = self.connection, self._owner
        if session.closed:
            return
        parts: Sequence[Frame] = frame.parts if isinstance(frame, Bundle) else (frame,)
        if not self._fits(frame, len(parts)):
            self._write()  # the kernel may have room again
            if not self._fits(frame, len(parts)):
                if owner.overflow is Overflow.DROP:
                    owner.dropped += 1
                    return
                if owner.overflow is Overflow.DISCONNECT:
                    cut(session)
                    return
        sender: FrameOwner = self
        if session.corks:
            self._early = {} if self._early is None else self._early
            sender = self._early.setdefault(frame.topic, ProvisionalSender())
        self._put(parts, sender)
        if owner.overflow is Overflow.WAIT and session.queue.level >= HIGH_WATER:
            owner.behind.add(self)

    def _fits(self, frame: Frame, count: int) -> bool:
        queue = self.connection.queue
        return not queue.frames or (queue.frames + count <= queue.max_frames and queue.bytes + len(frame.wire) <= queue.max_bytes)

    def decided(self, namespace: str, *, admitted: bool) -> None:
        """Called after a connect handler. Withdraws the waiting broadcasts if it refused the client."""
        early = self._early.pop(namespace, None) if self._early is not None else None
        if early is not None and not admitted:
            self.connection.queue.discard(early)

    def _write(self) -> None:
        """Write as much as the socket takes now, without waiting for the loop to report room."""
        if self.connection.wire is not None:
            self.connection.wire.flush()

    def _put(self, parts: Sequence[Frame], sender: FrameOwner | None = None) -> None:
        session = self.connection
        for part in parts:
            session.queue.put(part, sender or self)
        self.offered += len(parts)
        session.flush()

    # -- this client alone ----------------------------------------------------------------------------------------

    def send(self, frames: Sequence[Frame], *, may_wait: bool) -> None:
        """Send a packet to this client alone. Waits while its queue is too full, or ends the session if it may not wait."""
        session = self.connection
        if session.closed:
            return
        self._put(frames)
        if session.queue.level < HIGH_WATER or self._opens_after_us():
            return
        if may_wait:
            self.wait_for_room()
            return
        self._write()
        if session.queue.level > 1 and session.queue.frames > len(frames):
            cut(session)

    def wait_for_room(self) -> None:
        """Wait until the queue has drained or the session is over, at most for the server's deadline. Switches greenlets.

        While a connect handler runs, events stay in the queue. The client is then not disconnected, and the emitter continues
        after the deadline, because the handler may be waiting for it.
        """
        session = self.connection
        if self._opens_after_us():
            return
        now_s, corked = monotonic(), bool(session.corks)
        give_up_s, sent, progress_s = now_s + self._owner.emit_deadline_s, self.sent, now_s
        while not session.closed and session.queue.level > LOW_WATER:
            now_s = monotonic()
            if bool(session.corks) is not corked:
                corked, give_up_s = bool(session.corks), now_s + self._owner.emit_deadline_s
            if self.sent != sent or session.wire is not None or session.state in MOVED or corked:
                sent, progress_s = self.sent, now_s  # a WebSocket has its own write deadline
            stall_s = progress_s + session.server.limits.write_deadline_s
            if now_s >= stall_s:
                session.end(Reason.WRITE_DEADLINE, abort=True, code=POLICY, shown="write deadline: nothing was read for too long")
            elif now_s >= give_up_s:
                if corked:
                    return
                cut(session)
            else:
                session.awaits_drain = True
                self._room = self._room or Signal()
                self._room.wait(min(stall_s, give_up_s) - now_s)

    def _opens_after_us(self) -> bool:
        """Return whether this client and the caller are both in connect handlers, which could wait for each other."""
        return self.connection.corks > 0 and current() in self._owner.connecting
