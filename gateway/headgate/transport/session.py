"""One Engine.IO session: a connected browser, over long-polling, WebSocket, or on its way from one to the other.

In: frames from clients and from the Socket.IO layer (`offer`, `offer_control`), messages from the wire or from POST bodies.
Out: to the wire (websocket.py) or to the waiting poll (long_poll.py); to the application (`SessionServer.deliver`, in order,
through the inbox); `SessionServer.ended`, once, behind the last message.

Fan-out writes to `wire.send` directly while `ready` is true, and only then: nothing pending, WebSocket open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.protocol.frames import Frame
from headgate.runtime.loop import in_hub_after, spawn
from headgate.runtime.token_bucket import TokenBucket

from .final_frames import LastWords
from .frame_parser import NORMAL, POLICY, PROTOCOL_ERROR
from .inbox import Inbox
from .long_poll import LongPoll
from .send_queue import LOW_WATER, ClientQueue, Sender
from .timers import Deadlines, monotonic
from .upgrade import Prober
from .websocket import JOIN_BYTES, Wire

CONNECT_HEAD_START_S = 0.005

PING_TIMEOUT = "ping timeout"
TRANSPORT_CLOSE = "transport close"
TRANSPORT_ERROR = "transport error"
CLIENT_DISCONNECT = "client disconnect"
SERVER_DISCONNECT = "server disconnect"

_CLOSE, _PING, _NOOP = Frame(b"1"), Frame(b"2"), Frame(b"6")
# More than any queue holds.
_ALL_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """What one session may use. Units are in the names; docs/settings.md explains each."""

    queue_frames: int = 256
    queue_bytes: int = 1024 * 1024
    send_buffer_bytes: int = 65536
    write_deadline_s: float = 10.0
    ping_interval_s: float = 25.0
    ping_timeout_s: float = 20.0
    handshake_deadline_s: float = 10.0
    max_message_bytes: int = 1_000_000
    inbound_per_s: float = 50.0
    inbound_burst: int = 100


class SessionServer(Protocol):
    """What a session needs of its server."""

    deadlines: Deadlines
    limits: TransportLimits
    last_words: LastWords

    def deliver(self, sid: str, message: str | bytes) -> None:
        """One message for the application; called in order, in the session's own greenlet; may wait."""

    def ended(self, sid: str, reason: str) -> None:
        """The session is over; called once, in a greenlet, when no message is being delivered any more."""


class QueueOwner(Sender, Protocol):
    """A client on this connection that wants to know when its queue has room again."""

    direct: int
    offered: int

    def drained(self) -> None:
        """The queue has drained to LOW_WATER after `awaits_drain` was set."""


class Connection:
    """The session. Attributes that python-engineio reads keep its names: sid, session, connected, upgraded, closed."""

    __slots__ = (
        "_alive_until_s",
        "_bucket",
        "_corked",
        "_excused",
        "_held",
        "_inbox",
        "_pings",
        "_polling",
        "_pong_due",
        "_probe",
        "_server",
        "_session",
        "awaits_drain",
        "closed",
        "closing",
        "connected",
        "joined",
        "owners",
        "queue",
        "ready",
        "reason",
        "sid",
        "upgraded",
        "upgrading",
        "wire",
    )

    def __init__(self, server: SessionServer, sid: str) -> None:
        limits = server.limits
        self._server = server
        self.sid = sid
        self.wire: Wire | None = None
        self.queue = ClientQueue(limits.queue_frames, limits.queue_bytes)
        self.ready = False
        self.awaits_drain = False
        self.joined = False
        self.connected = False
        self.upgraded = False
        self.upgrading = False
        self.closing = False
        self.closed = False
        self.reason: str | None = None
        self.owners: tuple[QueueOwner, ...] = ()
        self._session: dict[str, Any] | None = None
        self._bucket: TokenBucket | None = None
        self._inbox: Inbox | None = None
        self._polling: LongPoll | None = None
        self._probe: Wire | None = None
        self._pong_due = False
        self._excused = False
        self._pings = 0
        self._corked = 0
        self._held = 0
        self._alive_until_s = 0.0

    # -- life -----------------------------------------------------------------------------------------------------

    @property
    def session(self) -> dict[str, Any]:
        """The application's own data for this session (python-socketio keeps it here)."""
        if self._session is None:
            self._session = {}
        return self._session

    @session.setter
    def session(self, value: dict[str, Any]) -> None:
        self._session = value

    @property
    def idle(self) -> bool:
        """Whether nothing waits to go out."""
        return not self.closed and not self.queue and not self.awaits_drain and (self.wire is None or not self.wire.writing)

    def start(self) -> None:
        """Begin the life of the session: its ping schedule and its handshake deadline."""
        self.connected = True
        limits = self._server.limits
        self._expect_life()
        self._server.deadlines.after(limits.ping_interval_s, self._send_ping)
        self._server.deadlines.after(limits.handshake_deadline_s, self._check_joined)

    def attach(self, fd: int, already_received: bytes = b"") -> None:
        """Run the session over this WebSocket from now on."""
        wire = self.wire = self._wire(fd, self)
        self.upgraded = True
        wire.open(already_received)
        self.flush()

    def close(self, wait: bool = True, abort: bool = False, reason: str | None = None) -> None:
        """End the session: CLOSE packet unless `abort`, close frame, `ended` once. Idempotent, never waits."""
        self.end(reason or SERVER_DISCONNECT, abort=abort)

    def end(self, reason: str, *, abort: bool = False, code: int = NORMAL, told: str = "", hard: bool = False) -> None:
        """End the session.

        Args:
            reason: for the application, the log and the metrics.
            abort: send no CLOSE packet (the browser left, or asked for it).
            code, told: WebSocket close code and the reason that the browser is told.
            hard: the socket accepts nothing: drop it now, with what the kernel still holds.
        """
        if self.closed:
            return
        self.closed = self.closing = True
        self.connected = self.ready = False
        self.reason = reason
        wire, self.wire = self.wire, None
        probe, self._probe = self._probe, None
        last_words = [] if abort else [*self.queue.take(_ALL_BYTES), _CLOSE]
        if wire is not None:
            if hard:
                wire.lose(reason, hard=True)
            else:
                wire.close(code, told, b"".join([frame.wire for frame in last_words]))
            if self._polling is not None:
                self._polling.resume()  # a POST from before the upgrade, which waited for room
        else:
            self._end_polling(last_words)
        if probe is not None:
            probe.close()
        self.queue.clear()
        if self._inbox is None:
            spawn(self._server.ended, self.sid, reason)
        elif not abort:
            # What the browser sent before it left is still delivered; what it sent before we threw it out is not.
            self._inbox.discard()

    def _end_polling(self, last_words: list[Frame]) -> None:
        """Answer the poll that waits; without one, the poll that follows a goodbye, which may be on its way already."""
        if self.reason == CLIENT_DISCONNECT:
            last_words = [_NOOP]
        answered = self._polling is not None and self._polling.end(last_words)
        if not answered and self.reason in (CLIENT_DISCONNECT, SERVER_DISCONNECT):
            self._server.last_words.keep(self.sid, last_words)

    # -- out ------------------------------------------------------------------------------------------------------

    def send(self, packet: Any) -> None:
        """Send an engineio packet: the application's messages by the data lane, anything else by the control lane.

        An application that uses this transport without Headgate's clients has nobody to tell of a gap, so for it a full
        queue ends the session, as the one honest thing left.
        """
        if self.closed:
            return
        frame = frame_of(packet)
        if packet.packet_type != 4:
            self.offer_control(frame)
        elif not self.offer(frame):
            self.end("slow consumer", code=POLICY, told="slow consumer: the client queue is full", hard=True)

    def offer(self, frame: Frame, owner: Sender | None = None) -> bool:
        """Send an event frame, or queue it behind others; False when the queue is full (nothing was taken)."""
        if self.closed:
            return True  # nobody is owed anything any more
        if not self.queue.offer(frame, owner):
            return False
        self.flush()
        return True

    def offer_control(self, frame: Frame, *, flush: bool = True) -> None:
        """Send a control frame ahead of all data; a client that lets the control lane fill up is ended."""
        if self.closed:
            return
        if self.queue.offer_control(frame):
            if flush:
                self.flush()
        else:
            self.end("control lane full", hard=True)

    def cork(self) -> None:
        """Hold data back until `uncork`: the CONNECT packet (control) must come before what a connect handler emits."""
        self._corked += 1
        self.ready = False

    def uncork(self) -> None:
        """Let data go out again. What waited follows CONNECT by a moment rather than in the same segment: scripts that
        take one message per turn (the official protocol suite is one) would miss it. Counted, as `cork` is."""
        if self.queue.frames:
            in_hub_after(CONNECT_HEAD_START_S, self._uncorked)
        else:
            self._uncorked()

    def _uncorked(self) -> None:
        self._corked -= 1
        self.flush()

    def flush(self) -> None:
        """Let what is queued go out: to the wire unless it is waiting for room, or to the waiting poll."""
        if self.wire is not None:
            if not self.wire.writing:
                self.wire.flush()
        elif self._polling is not None:
            self._polling.wake()

    def written_in_part(self, frames: Sequence[Frame], sent: int) -> int:
        """A direct write of joined frames was cut after `sent` bytes: finish the frame that it hit, before anything else.

        Returns how many frames are accounted for: those sent whole, and the one being finished.
        """
        self.ready = False
        if self.wire is None:
            return len(frames)
        for index, frame in enumerate(frames):
            size = len(frame.wire)
            if sent >= size:
                sent -= size
            elif sent:
                self.wire.keep(frame.wire[sent:])
                return index + 1
            else:
                self.wire.await_room()
                return index
        return len(frames)

    def stream(self, frames: Sequence[Frame], owner: QueueOwner) -> int:
        """Send consecutive frames of the log in one write, or queue what the socket does not take at once.

        Returns how many were accepted; the others found no room.
        """
        if self.closed:
            return len(frames)
        accepted = 0
        wire = self.wire
        if wire is not None and not wire.writing and not self.queue and not self._corked:
            data = b"".join([frame.wire for frame in frames])
            try:
                sent = wire.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.lost(error)
                return len(frames)
            accepted = len(frames) if sent == len(data) else self.written_in_part(frames, sent)
            owner.direct += accepted
        for frame in frames[accepted:]:
            if not self.queue.offer(frame, owner):
                break
            accepted += 1
            owner.offered += 1
        if self.queue:
            self.flush()
        return accepted

    def hold_direct(self) -> None:
        """No direct writes until as many `release_direct`: a client on this connection reads the log."""
        self._held += 1
        self.ready = False

    def release_direct(self) -> None:
        """Take one `hold_direct` back."""
        self._held -= 1
        if not self._held and not self.closed:
            self.flush()

    def lost(self, error: OSError) -> None:
        """Fan-out's direct send failed: the connection is over."""
        if self.wire is not None:
            self.wire.lose(f"{TRANSPORT_ERROR}: {error.strerror}")

    # -- the wire's owner -----------------------------------------------------------------------------------------

    def next_chunk(self) -> bytes | None:
        """Hand over the next joined frames."""
        self.ready = False
        frames = self.queue.take(JOIN_BYTES, data=not self._corked)
        self._relieve()
        if not frames:
            return None
        return frames[0].wire if len(frames) == 1 else b"".join([frame.wire for frame in frames])

    def wire_idle(self) -> None:
        """Everything is out: fan-out may write directly again."""
        if self.wire is not None and not self.queue and not self.wire.writing and not self._corked and not self._held:
            self.ready = True

    def text_received(self, text: str) -> None:
        """One Engine.IO packet from the browser."""
        if not self._may_send():
            return
        kind = text[:1]
        if kind == "4":
            self._accept(text[1:])
        elif kind == "3":
            self._ponged()
        elif kind == "1":
            self.end(CLIENT_DISCONNECT, abort=True)
        elif kind == "2":
            self.offer_control(Frame(b"3" + text[1:].encode()))
        elif kind != "6":
            self.end(TRANSPORT_ERROR, abort=True, code=PROTOCOL_ERROR, told="invalid packet")

    def binary_received(self, data: bytes) -> None:
        """One binary message (an attachment) from the browser."""
        if self._may_send():
            self._accept(data)

    def control_received(self) -> bool:
        """A WebSocket ping, pong or piece of a message: counted like any message."""
        return self._may_send()

    def wire_lost(self, reason: str) -> None:
        """The socket is gone."""
        self.end(reason, abort=True)

    # -- the polled session ---------------------------------------------------------------------------------------

    @property
    def polling(self) -> LongPoll:
        """The session's HTTP side."""
        if self._polling is None:
            self._polling = LongPoll(self)
        return self._polling

    def has_frames(self) -> bool:
        """Whether anything may go out."""
        return self.queue.has(data=not self._corked)

    def take_frames(self) -> list[Frame]:
        """Remove and return what goes out next."""
        frames = self.queue.take(JOIN_BYTES, data=not self._corked)
        self._relieve()
        return frames

    def packet_received(self, packet: str | bytes) -> bool:
        """Take one packet of a POST body; False when it was not taken, and the session is over."""
        if isinstance(packet, bytes):
            self.binary_received(packet)
        elif packet[:1] in ("1", "2", "3", "4", "6"):
            self.text_received(packet)
        else:
            self.end(TRANSPORT_ERROR)
        return not self.closed or self.reason == CLIENT_DISCONNECT

    def poll_expired(self) -> None:
        """A poll waited longer than a heartbeat can take."""
        self.end(PING_TIMEOUT)

    def poll_aborted(self) -> None:
        """The browser gave a poll up: what it would have carried is in doubt."""
        self.end(TRANSPORT_CLOSE, abort=True)

    def overlapped(self) -> None:
        """Two requests where one is allowed."""
        self.end(TRANSPORT_ERROR)

    # -- upgrade --------------------------------------------------------------------------------------------------

    def probe(self, fd: int, already_received: bytes = b"") -> None:
        """Start the upgrade of a polling session to this WebSocket (Engine.IO: 2probe, 3probe, 5)."""
        prober = Prober(self)
        wire = prober.wire = self._wire(fd, prober)
        if self.upgraded or self._probe is not None or self.closed:
            wire.close(POLICY, "this session has its WebSocket already")
            return
        self._probe = wire
        self._server.deadlines.after(self._server.limits.handshake_deadline_s, prober.expire)
        wire.open(already_received)

    def probed(self) -> None:
        """The browser reached us over the WebSocket: release the poll that is waiting."""
        self.upgrading = True
        if self._polling is not None:
            self._polling.wake()

    def upgrade(self, wire: Wire) -> None:
        """The browser moved: everything goes over the WebSocket from here on, starting with what is queued."""
        self._probe = None
        self.wire = wire
        self.upgraded, self.upgrading = True, False
        wire.adopt(self)
        if self._polling is not None:
            self._polling.wake()
        if self._inbox is not None and self._inbox.paused:
            wire.pause_reading()
        else:
            self._polling = None
        self.flush()

    def probe_failed(self, wire: Wire) -> None:
        """The WebSocket did not work out: polling goes on."""
        if self._probe is wire:
            self._probe = None
            self.upgrading = False

    def _wire(self, fd: int, owner: Connection | Prober) -> Wire:
        limits = self._server.limits
        return Wire(
            fd, owner, self._server.deadlines, limits.max_message_bytes, limits.send_buffer_bytes, limits.write_deadline_s
        )

    # -- in -------------------------------------------------------------------------------------------------------

    def _may_send(self) -> bool:
        if self.closed:
            return False
        limits = self._server.limits
        now = monotonic()
        if self._bucket is None:
            self._bucket = TokenBucket(limits.inbound_per_s, limits.inbound_burst, now)
        if self._bucket.spend(now):
            return True
        self.end(
            "inbound flood",
            abort=True,
            code=POLICY,
            told=f"limit_reached: rate (at most {limits.inbound_per_s:g}/s, burst {limits.inbound_burst})",
        )
        return False

    def _accept(self, message: str | bytes) -> None:
        if self._inbox is None:
            self._inbox = Inbox(self)
        self._inbox.put(message)

    def deliver(self, message: str | bytes) -> None:
        """One message is next."""
        self._server.deliver(self.sid, message)

    def pause(self) -> None:
        """Too much waits for the application: read nothing more from the browser."""
        if self.wire is not None:
            self.wire.pause_reading()
        else:
            self.polling.pause()

    def resume(self) -> None:
        """Read on. The browser could not be heard meanwhile: its time begins anew."""
        if self.closed:
            return
        self._expect_life()
        self._excused = True
        if self.wire is not None:
            self.wire.resume_reading()
        if self._polling is not None:
            self._polling.resume()

    def drained(self) -> None:
        """Nothing waits for the application: an idle session has no inbox, and one that is over can end."""
        self._inbox = None
        if self.closed:
            self._server.ended(self.sid, self.reason or TRANSPORT_CLOSE)

    # -- deadlines ------------------------------------------------------------------------------------------------

    def _send_ping(self) -> None:
        if self.closed:
            return
        self._pong_due = True
        self._pings += 1
        self.offer_control(_PING)
        self._excused = self._deaf
        self._server.deadlines.after(self._server.limits.ping_timeout_s, self._check_pong, self._pings)

    def _ponged(self) -> None:
        if self._pong_due:
            self._pong_due = False
            self._expect_life()
            self._bucket = None if self._inbox is None else self._bucket  # an idle client keeps no bucket
            self._server.deadlines.after(self._server.limits.ping_interval_s, self._send_ping)

    def alive(self) -> bool:
        """Whether the session is still within its deadline; ends it when not (a request may come between two ticks)."""
        if not self.closed and monotonic() > self._alive_until_s and not self._deaf:
            self.end(PING_TIMEOUT)
        return not self.closed

    @property
    def _deaf(self) -> bool:
        """Whether the browser's silence proves nothing: we do not read, or our ping may be behind data in its buffers."""
        return (self._inbox is not None and self._inbox.paused) or (self.wire is not None and self.wire.writing)

    def _expect_life(self) -> None:
        limits = self._server.limits
        self._alive_until_s = monotonic() + limits.ping_interval_s + limits.ping_timeout_s

    def _check_pong(self, ping: int) -> None:
        if self.closed or not self._pong_due or ping != self._pings:
            return
        timeout_s = self._server.limits.ping_timeout_s
        # A slow reader is alive while it accepts bytes; and who could not answer until a moment ago has not been silent since.
        accepts = self.wire is None or not self.wire.writing or monotonic() - self.wire.progress_s < timeout_s
        if (self._excused or self._deaf) and accepts:
            self._excused = self._deaf
            self._server.deadlines.after(timeout_s, self._check_pong, ping)
        else:
            self.end(PING_TIMEOUT)

    def _check_joined(self) -> None:
        if not self.closed and not self.joined:
            limit = self._server.limits.handshake_deadline_s
            self.end("handshake deadline", code=POLICY, told=f"no CONNECT within {limit:g} s")

    def _relieve(self) -> None:
        if self.awaits_drain and self.queue.level <= LOW_WATER:
            self.awaits_drain = False
            for owner in self.owners:
                owner.drained()


def frame_of(packet: Any, attachment: bool = False) -> Frame:
    """Return the frame of an engineio packet, encoded once and kept on the packet, which a broadcast shares."""
    frame: Frame | None = getattr(packet, "headgate_frame", None)
    if frame is None:
        encoded = packet.encode()
        if isinstance(encoded, str):
            frame = Frame(encoded.encode())
        else:
            frame = Frame(bytes(encoded), binary=True, attachment=attachment)
        packet.headgate_frame = frame
    return frame
