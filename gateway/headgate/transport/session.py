"""One Engine.IO session: a connected browser, over long-polling, WebSocket, or on its way from one to the other.

A session is an outbox (outbox.py) with a life. Its state changes by the table of session_state.py alone, and each transition
here sees to the things that belong to the state: the WebSocket, the waiting poll, the heartbeat. Packets of the browser go
through inbox.py to the application (`SessionServer.deliver`, in order); `SessionServer.ended` is called once, after the
last message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.protocol.frames import Frame
from headgate.runtime.loop import Together, spawn

from .final_frames import FinalFrames
from .frame_parser import NORMAL, POLICY
from .heartbeat import Heartbeat
from .inbox import Inbox
from .limits import TransportLimits
from .long_poll import LongPoll
from .outbox import Outbox
from .peer_socket import NativeSocket
from .send_queue import ClientQueue
from .session_state import (
    CLIENT_DISCONNECT,
    MACHINE,
    MOVED,
    OVER,
    PING_TIMEOUT,
    SERVER_DISCONNECT,
    TRANSPORT_CLOSE,
    TRANSPORT_ERROR,
    SessionState,
    SessionStep,
)
from .timers import Deadlines, monotonic
from .upgrade import UPGRADE_S, UpgradeProbe
from .websocket import WebSocket

_CLOSE, _NOOP = Frame(b"1"), Frame(b"6")
# More than any queue holds.
_ALL_BYTES = 1 << 62


class SessionServer(Protocol):
    """The server of a session, as the session needs it."""

    deadlines: Deadlines
    limits: TransportLimits
    final_frames: FinalFrames
    writes: Together

    def start(self, work: Callable[[], None], /) -> object:
        """Run a function in a greenlet, starting in the next turn of the loop."""

    def deliver(self, session: Session, message: str | bytes, /) -> None:
        """One message for the application; called in order, in the session's own greenlet; may wait."""

    def ended(self, sid: str, reason: str) -> None:
        """The session is over; called once, in a greenlet, when no message is being delivered any more."""


class Session(Outbox):
    """See the module.

    Attributes:
        sid: the Engine.IO session id.
        state: where it is in its life.
        reason: why it ended.
        told: the words for the browser about the end, if there are any.
        joined: whether a client of it is, or was, in a namespace; one that never joins is ended at the handshake deadline.
        upgraded: whether it is, or was when it ended, on WebSocket. python-engineio reads it, and `closed`.
    """

    __slots__ = ("_heartbeat", "_inbox", "_probe", "_server", "joined", "reason", "sid", "state", "told", "upgraded")

    def __init__(self, server: SessionServer, sid: str) -> None:
        super().__init__(ClientQueue(server.limits.queue_frames, server.limits.queue_bytes))
        self._server = server
        self.sid = sid
        self.state = SessionState.HANDSHAKE
        self.joined = self.upgraded = False
        self.reason: str | None = None
        self.told = ""
        self._heartbeat = Heartbeat(server)
        self._inbox: Inbox | None = None
        self._probe: WebSocket | None = None

    @property
    def transport(self) -> str:
        """What it is on."""
        return "websocket" if self.upgraded else "polling"

    @property
    def limits(self) -> TransportLimits:
        """The limits of all sessions of the server."""
        return self._server.limits

    def _advance(self, step: SessionStep) -> None:
        """Go to the state behind a step, and keep the plain attributes in line with it.

        Raises:
            IllegalStep: the state does not allow it.
        """
        self.state = MACHINE.after(self.state, step)
        self.closed = self.state in OVER
        if self.state is SessionState.OPEN:
            self.upgraded = True

    # -- the beginning ------------------------------------------------------------------------------------------------

    def start_polling(self) -> None:
        """Begin the life of a session whose browser polls."""
        self._advance(SessionStep.START_POLLING)
        self._start_deadlines()

    def start_websocket(self, sock: NativeSocket, already_received: bytes = b"", unsent: bytes = b"") -> None:
        """Begin the life of a session on this WebSocket; one that ended meanwhile closes it.

        `unsent` is the answer to the handshake: it is written in a moment, before anything else.
        """
        wire = self._websocket(sock, self)
        if self.closed:
            wire.lose(SERVER_DISCONNECT)
            return
        self._advance(SessionStep.START_WEBSOCKET)
        self.wire = wire
        self._start_deadlines()
        if unsent:
            wire.put_first(unsent)
            self._server.writes.add(wire.write_first)
            wire.open(already_received)
        else:
            wire.open(already_received)
            self.flush()

    def _start_deadlines(self) -> None:
        self._heartbeat.start(self)
        if self.limits.handshake_deadline_s:
            self._server.deadlines.after(self.limits.handshake_deadline_s, self._check_joined)

    def _check_joined(self) -> None:
        if not self.closed and not self.joined:
            limit_s = self.limits.handshake_deadline_s
            if self._inbox is not None and not self._inbox.at_rest:
                # A CONNECT that has come and waits for us, as when everybody comes back at once: to end it would be to do all
                # the work of its handshake again.
                self._server.deadlines.after(limit_s, self._check_joined)
                return
            self.end("handshake deadline", code=POLICY, told=f"no CONNECT within {limit_s:g} s")

    # -- the upgrade --------------------------------------------------------------------------------------------------

    def probe(self, sock: NativeSocket, already_received: bytes = b"") -> None:
        """Begin to move to this WebSocket (Engine.IO: 2probe, 3probe, 5). A session has one, or one that is tried, at most."""
        probe = UpgradeProbe(self)
        wire = probe.socket = self._websocket(sock, probe)
        if self.state is not SessionState.POLLING:
            wire.close(POLICY, "this session has its WebSocket already")
            return
        self._advance(SessionStep.PROBE)
        self._probe = wire
        self._server.deadlines.after(self.limits.handshake_deadline_s or UPGRADE_S, probe.expire)
        wire.open(already_received)

    def probed(self) -> None:
        """The browser reached us over the WebSocket: answer the poll that waits."""
        self._advance(SessionStep.ANSWER_PROBE)
        if self._long_poll is not None:
            self._long_poll.wake()

    def upgrade(self, wire: WebSocket) -> None:
        """The browser has moved: everything goes over the WebSocket from here on, starting with what is queued."""
        self._advance(SessionStep.MOVE)
        self._probe, self.wire = None, wire
        wire.adopt(self)
        if self._long_poll is not None:
            self._long_poll.wake()
        if self._inbox is not None and self._inbox.paused:
            wire.pause_reading()  # and the POST that filled the inbox waits on
        else:
            self._long_poll = None
        self.flush()

    def probe_failed(self, wire: WebSocket) -> None:
        """The WebSocket did not work out: polling goes on."""
        if self._probe is wire:
            self._advance(SessionStep.DROP_PROBE)
            self._probe = None

    def _websocket(self, sock: NativeSocket, owner: Session | UpgradeProbe) -> WebSocket:
        return WebSocket(sock, owner, self._server.deadlines, self.limits)

    # -- what the WebSocket and the polls bring -----------------------------------------------------------------------

    @property
    def long_poll(self) -> LongPoll:
        """The session's HTTP side."""
        if self._long_poll is None:
            self._long_poll = LongPoll(self)
        return self._long_poll

    @property
    def moved(self) -> bool:
        """Whether the browser has reached us over a WebSocket, so that polls have nothing more to wait for."""
        return self.state in MOVED

    def text_received(self, text: str) -> None:
        """One Engine.IO packet."""
        self._receiving().text(text)

    def binary_received(self, data: bytes) -> None:
        """One binary message (an attachment)."""
        self._receiving().binary(data)

    def control_received(self) -> bool:
        """A WebSocket ping, pong or piece of a message: counted like any message."""
        return self._receiving().admit()

    def packet_received(self, packet: str | bytes) -> bool:
        """Take one packet of a POST body; False when it was not taken, and the session is over."""
        if isinstance(packet, bytes):
            self.binary_received(packet)
        elif packet[:1] in ("1", "2", "3", "4", "6"):
            self.text_received(packet)
        else:
            self.end(TRANSPORT_ERROR)
        return not self.closed or self.reason == CLIENT_DISCONNECT

    def websocket_lost(self, reason: str) -> None:
        """The socket is gone."""
        self.end(reason, abort=True)

    def _receiving(self) -> Inbox:
        if self._inbox is None:
            self._inbox = Inbox(self)
        return self._inbox

    # -- what the inbox asks ------------------------------------------------------------------------------------------

    def start(self, work: Callable[[], None]) -> None:
        """Messages wait: deliver them."""
        self._server.start(work)

    def deliver(self, message: str | bytes) -> None:
        """One message is next."""
        self._server.deliver(self, message)

    def pong_received(self) -> None:
        """The browser answered a ping; one that sends nothing else needs no inbox."""
        if self._heartbeat.pong() and self._inbox is not None and self._inbox.at_rest:
            self._inbox = None

    def pause_reading(self) -> None:
        """Too much waits for the application."""
        if self.wire is not None:
            self.wire.pause_reading()
        else:
            self.long_poll.pause()

    def resume_reading(self) -> None:
        """There is room again."""
        if self.closed:
            return
        self._heartbeat.give_grace()
        if self.wire is not None:
            self.wire.resume_reading()
        if self._long_poll is not None:
            self._long_poll.resume()

    def all_delivered(self) -> None:
        """Nothing waits for the application: a session that has ended can be forgotten."""
        if self.closed:
            self._forget()

    # -- what the heartbeat asks --------------------------------------------------------------------------------------

    @property
    def pong_blocked(self) -> bool:
        """Whether silence proves nothing: reading is paused, or our ping may be behind data in the browser's buffers."""
        return (self._inbox is not None and self._inbox.paused) or (self.wire is not None and self.wire.writing)

    @property
    def stalled_s(self) -> float:
        """For how long the browser has accepted nothing of what it is sent."""
        return monotonic() - self.wire.progress_s if self.wire is not None and self.wire.writing else 0.0

    def alive(self) -> bool:
        """Whether the session takes requests; ends one that is past its deadline (a request may come between two ticks)."""
        if self._heartbeat.late():
            self.end(PING_TIMEOUT)
        return not self.closed and self.state is not SessionState.HANDSHAKE

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, reason: str, *, abort: bool = False, code: int = NORMAL, told: str = "", hard: bool = False) -> None:
        """End the session: what is queued, CLOSE packet, close frame; then `ended`, once. Idempotent, never waits.

        Args:
            reason: for the application, the log and the metrics.
            abort: send no CLOSE packet (the browser left, or asked for it).
            code, told: WebSocket close code and the reason that the browser is told.
            hard: the socket accepts nothing: drop it now, with what the kernel still holds.
        """
        if self.closed:
            return
        self._advance(SessionStep.END)
        self.reason, self.told = reason, told
        self.ready = False
        self._heartbeat.stop()
        wire, self.wire = self.wire, None
        probe, self._probe = self._probe, None
        final_frames = [] if abort else [*self.queue.take(_ALL_BYTES), _CLOSE]
        if wire is not None:
            if hard:
                wire.lose(reason, hard=True)
            else:
                wire.close(code, told, b"".join([frame.wire for frame in final_frames]))
            if self._long_poll is not None:
                self._long_poll.resume()  # a POST from before the upgrade, which waited for room
        else:
            self._end_polling(final_frames)
        if probe is not None:
            probe.close()
        self.queue.clear()
        self._tell_room()
        if self._inbox is None or self._inbox.at_rest:
            spawn(self._forget)
        elif not abort:
            self._inbox.discard()

    def _end_polling(self, final_frames: list[Frame]) -> None:
        """Answer the poll that waits; without one, the poll that follows a goodbye, which may be on its way already."""
        if self.reason == CLIENT_DISCONNECT:
            final_frames = [_NOOP]
        answered = self._long_poll is not None and self._long_poll.end(final_frames)
        if not answered and self.reason in (CLIENT_DISCONNECT, SERVER_DISCONNECT):
            self._server.final_frames.store(self.sid, final_frames)
        elif not answered and self.told:
            self._server.final_frames.store(self.sid, self.told)

    def _forget(self) -> None:
        self._advance(SessionStep.FORGET)
        self._inbox = self._long_poll = None  # they hold the session
        self._server.ended(self.sid, self.reason or TRANSPORT_CLOSE)
