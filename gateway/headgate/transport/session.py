"""One Engine.IO session, which is a browser connected by long-polling or by WebSocket, or moving from the first to the second.

A session is an outbox (outbox.py) with states (session_state.py), which only `advance` changes. Packets from the browser go
through the inbox (inbox.py) to the application, in order (`SessionServer.deliver`). `SessionServer.ended` is called once, after
the last message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.events.wire.frames import Frame
from headgate.runtime.loop import DeferredWrites, spawn

from .frame_parser import NORMAL, POLICY
from .heartbeat import Heartbeat
from .inbox import Inbox
from .limits import TransportLimits
from .long_poll import FinalFrames, LongPoll
from .outbox import Outbox
from .peer_socket import ClientSocket
from .send_queue import ALL_BYTES, ClientQueue
from .session_state import MACHINE, OVER, Reason, SessionState
from .timers import Deadlines, monotonic
from .upgrade import UpgradeProbe
from .websocket import WebSocket

_CLOSE, _NOOP = Frame(b"1"), Frame(b"6")


class SessionServer(Protocol):
    """The server of a session, as the session sees it."""

    deadlines: Deadlines
    limits: TransportLimits
    final_frames: FinalFrames
    writes: DeferredWrites

    def start(self, work: Callable[[], None], /) -> object:
        """Run a function in a greenlet, from the next turn of the loop."""

    def deliver(self, session: Session, message: str | bytes, /) -> None:
        """Give one message to the application. Called in order, in the session's greenlet; may wait."""

    def ended(self, sid: str, reason: str) -> None:
        """Called once when the session is over, in a greenlet, after the last message."""


class Session(Outbox):
    """See the module.

    Attributes:
        reason, shown: why it ended, and the text for the browser, if any.
        joined: whether any of its clients has joined a namespace. A session that never joins ends at the handshake deadline.
        upgraded: whether it is on WebSocket, or was when it ended. python-engineio reads this and `closed`.
        inbox: None while the browser sends nothing but pongs.
        probe: the WebSocket being tried, if any.
    """

    __slots__ = ("heartbeat", "inbox", "joined", "probe", "reason", "server", "shown", "sid", "state", "transport", "upgraded")

    def __init__(self, server: SessionServer, sid: str) -> None:
        super().__init__(ClientQueue(server.limits.queue_frames, server.limits.queue_bytes))
        self.server, self.sid = server, sid
        self.state = SessionState.HANDSHAKE
        self.joined = self.upgraded = False
        self.transport = "polling"
        self.reason: str | None = None
        self.shown = ""
        self.heartbeat = Heartbeat(server)
        self.inbox: Inbox | None = None
        self.probe: UpgradeProbe | None = None

    def advance(self, state: SessionState) -> None:
        """Go to the next state. Raises IllegalStep."""
        self.state = MACHINE[self.state, state]
        self.closed = self.state in OVER
        if self.state is SessionState.OPEN:
            self.upgraded, self.transport = True, "websocket"

    # -- the beginning ------------------------------------------------------------------------------------------------

    def start_polling(self) -> None:
        """Begin a session on long-polling."""
        self.advance(SessionState.POLLING)
        self._start_deadlines()

    def start_websocket(self, sock: ClientSocket, already_received: bytes = b"", unsent: bytes = b"") -> None:
        """Begin a session on this WebSocket, or close it if the session has ended. `unsent` is written soon and first."""
        wire = WebSocket(sock, self, self.server.deadlines, self.server.limits)
        if self.closed:
            wire.lose(Reason.SERVER_DISCONNECT)
            return
        self.advance(SessionState.OPEN)
        self.wire = wire
        self._start_deadlines()
        wire.open(already_received, unsent)
        if unsent:
            self.server.writes.add(wire.flush)
        else:
            self.flush()

    def _start_deadlines(self) -> None:
        self.heartbeat.start(self)
        if self.server.limits.handshake_deadline_s:
            self.server.deadlines.after(self.server.limits.handshake_deadline_s, self._check_joined)

    def _check_joined(self) -> None:
        if self.closed or self.joined:
            return
        limit_s = self.server.limits.handshake_deadline_s
        if self.inbox is not None and not self.inbox.at_rest:
            # Its CONNECT waits for us, as after a restart. Ending it would repeat the work of its handshake.
            self.server.deadlines.after(limit_s, self._check_joined)
        else:
            self.end(Reason.HANDSHAKE_DEADLINE, code=POLICY, shown=f"no CONNECT within {limit_s:g} s")

    # -- what the WebSocket and the polls bring -----------------------------------------------------------------------

    @property
    def long_poll(self) -> LongPoll:
        """The session's HTTP side."""
        if self.polls is None:
            self.polls = LongPoll(self)
        return self.polls

    def received(self, packet: str | bytes) -> None:
        """Take one Engine.IO packet, or a binary message (an attachment)."""
        inbox = self.inbox = self.inbox or Inbox(self)
        inbox.take(packet)

    def control_received(self) -> bool:
        """Count a WebSocket ping, pong or fragments like a message. Returns False if the session is over."""
        inbox = self.inbox = self.inbox or Inbox(self)
        return inbox.admit()

    def websocket_lost(self, reason: str) -> None:
        self.end(reason, abort=True)

    # -- what the heartbeat asks --------------------------------------------------------------------------------------

    @property
    def pong_blocked(self) -> bool:
        """Whether silence proves nothing, because reading is paused or our ping may wait in the browser's buffers."""
        return (self.inbox is not None and self.inbox.paused) or (self.wire is not None and self.wire.writing)

    @property
    def stalled_s(self) -> float:
        """How long the browser has accepted no bytes while some waited."""
        return monotonic() - self.wire.progress_s if self.wire is not None and self.wire.writing else 0.0

    def alive(self) -> bool:
        """Return whether the session takes requests."""
        return not self.closed and self.state is not SessionState.HANDSHAKE

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, reason: str, *, abort: bool = False, code: int = NORMAL, shown: str = "", hard: bool = False) -> None:
        """Send queued frames, a CLOSE packet and a close frame; then call `ended` once. Idempotent; never waits.

        Args:
            reason: for the application, the log and the metrics.
            abort: send no CLOSE packet, because the browser left or asked for the end.
            code, shown: WebSocket close code, and the reason for the browser.
            hard: drop the socket now with the kernel's buffer, because it accepts nothing.
        """
        if self.closed:
            return
        self.advance(SessionState.CLOSING)
        self.reason, self.shown = reason, shown
        self.ready = False
        self.heartbeat.stop()
        wire, self.wire = self.wire, None
        probe, self.probe = self.probe, None
        final_frames = [] if abort else [*self.queue.take(ALL_BYTES), _CLOSE]
        if wire is None:
            _end_polling(self, final_frames)
        elif hard:
            wire.lose(reason, hard=True)
        else:
            wire.close(code, shown, b"".join([frame.wire for frame in final_frames]))
        if self.polls is not None:
            self.polls.resume()  # also for a POST from before the upgrade that waited for room
        if probe is not None:
            probe.wire.close()
        self.queue.clear()
        if self.awaits_drain:
            for owner in self.owners:
                owner.drained()
        if self.inbox is None or self.inbox.at_rest:
            spawn(self.forget)
        elif not abort:
            self.inbox.discard()

    def forget(self) -> None:
        """Notify the application of the end, after it has handled every message. May wait."""
        self.advance(SessionState.CLOSED)
        self.inbox = self.polls = None  # they refer to the session
        self.server.ended(self.sid, self.reason or Reason.TRANSPORT_CLOSE)


def cut(session: Session) -> None:
    """End the session of a client that reads too slowly."""
    session.end(Reason.SLOW_CONSUMER, abort=True, code=POLICY, shown="slow consumer: the client queue is full")


def _end_polling(session: Session, final_frames: list[Frame]) -> None:
    """Answer the waiting poll, or store the final frames for the next one, which may be on its way already."""
    if session.reason == Reason.CLIENT_DISCONNECT:
        final_frames = [_NOOP]
    if session.polls is not None and session.polls.end(final_frames):
        return
    if session.reason in (Reason.CLIENT_DISCONNECT, Reason.SERVER_DISCONNECT):
        session.server.final_frames.store(session.sid, final_frames)
    elif session.shown:
        session.server.final_frames.store(session.sid, session.shown)
