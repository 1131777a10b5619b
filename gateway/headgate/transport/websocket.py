"""One WebSocket after its handshake: a non-blocking socket and its watchers. No greenlet of its own.

In: joined frames from the fan-out (`send`, direct) or from the session's queue (`flush`); bytes from the browser. Out: to the
owning session (`WebSocketOwner`) complete messages, "there is room again", and exactly once "it is over" with a reason.

Callbacks run in the hub: they must not switch greenlets. Everything here is bounded: reads by the inbound limit,
writes by what the owner's queue hands over (at most JOIN_BYTES at a time), a closing socket's linger by time and bytes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Protocol

from headgate.protocol.frames import close_frame, pong_frame
from headgate.runtime.loop import READ, WRITE, Watcher, io_watcher

from .frame_parser import NORMAL, Inbound, Opcode, ProtocolViolation
from .limits import TransportLimits
from .peer_socket import NativeSocket
from .timers import Deadlines, monotonic

# One recv; also what one client may have parsed before another gets its turn.
READ_BYTES = 65536
# At most this much is joined into one write: about what a socket buffer takes (benchmark: more gains nothing).
JOIN_BYTES = 65536
# After a close frame has been written: how long, and how much, we go on reading so that the kernel does not reset the
# connection (and with it our close frame) while the browser is still sending. Until then the write deadline is for all of the
# goodbye: a slow reader gets it whole, and nobody holds a closed connection for longer.
LINGER_S, LINGER_BYTES = 1.0, 1024 * 1024


class WebSocketOwner(Protocol):
    """The session, or the probe of an upgrade, behind a WebSocket."""

    def received(self, message: str | bytes) -> None:
        """Take one message, in order: text, or binary."""

    def next_chunk(self) -> bytes | None:
        """Hand over the next bytes to write (whole frames, at most JOIN_BYTES unless one frame is larger), or None."""

    def control_received(self) -> bool:
        """A ping, a pong or a piece of a message arrived; False when the client may send no more (and is being closed)."""

    def all_written(self) -> None:
        """Everything handed over was accepted by the kernel: direct sends may begin again."""

    def websocket_lost(self, reason: str) -> None:
        """Nothing is delivered or taken any more; called once, when the goodbye begins or the socket breaks."""


class WebSocket:
    """A detached WebSocket. `send` is the socket's own method: the hot path calls it without a frame of ours between."""

    __slots__ = (
        *("_deadlines", "_flushing", "_inbound", "_limits", "_lingered", "_owner", "_pong", "_reader", "_sock", "_timing"),
        *("_unsent", "_writer", "closed", "closing", "progress_s", "send", "writing"),
    )

    def __init__(self, sock: NativeSocket, owner: WebSocketOwner, deadlines: Deadlines, limits: TransportLimits) -> None:
        self._sock, self._deadlines, self._limits = sock, deadlines, limits
        if sock.gettimeout() != 0:
            sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send: Callable[[bytes | memoryview], int] = sock.send
        self._owner: WebSocketOwner | None = owner
        self._inbound: Inbound | None = None
        self._unsent: memoryview | None = None
        self._pong: bytes | None = None
        self._reader: Watcher = io_watcher(sock.fileno(), READ)
        self._writer: Watcher | None = None
        self._timing = self._flushing = self.writing = self.closing = self.closed = False
        self._lingered, self.progress_s = 0, 0.0

    def open(self, already_received: bytes = b"") -> None:
        """Start reading; `already_received` is what came in behind the handshake request."""
        self._reader.start(self._readable)
        if already_received:
            self._feed(already_received)

    def adopt(self, owner: WebSocketOwner) -> None:
        """Work for another owner from now on (the end of an upgrade)."""
        self._owner = owner

    def pause_reading(self) -> None:
        """Stop taking messages: the browser's sends back up into its own socket."""
        if not self.closing:
            self._reader.stop()

    def resume_reading(self) -> None:
        """Take messages again. Idempotent."""
        if not self.closing and not self.closed:
            self._reader.start(self._readable)

    def finish_frame(self, rest: bytes | memoryview) -> None:
        """Take the rest of a frame that `send` accepted in part, and write it before anything else."""
        self._unsent = memoryview(rest)
        self.flush()

    def put_first(self, unsent: bytes) -> None:
        """Take the answer to the handshake, of which nothing is written yet: the caller has `write_first` called in a moment."""
        self._unsent = memoryview(unsent)
        self.writing = True  # so nobody writes past it
        self.progress_s = monotonic()

    def write_first(self) -> None:
        """Write it, and what has come behind it."""
        self.writing = False
        self.flush()

    @property
    def is_clear(self) -> bool:
        """Whether nothing of its own waits in front of the owner's frames, and the owner is not handing over any now."""
        return self._unsent is None and self._pong is None and not (self._flushing or self.closing or self.closed)

    def flush(self) -> None:
        """Write what is pending until the kernel refuses; then wait for room. May call the owner's `all_written`.

        An owner that asks for a flush while it hands over a chunk gets none: its newer frames would overtake that chunk, or
        cut into it. They go out in the same pass.
        """
        if self.closed or self._flushing:
            return
        self._flushing = True
        try:
            while (unsent := self._unsent or self._next_chunk()) is not None:
                self._unsent = unsent
                sent = self.send(unsent)
                self.progress_s = monotonic()
                self._unsent = unsent[sent:] if sent < len(unsent) else None
        except BlockingIOError:
            self.await_room()
            return
        except OSError as error:
            self.lose(_told(error))
            return
        finally:
            self._flushing = False
        self._stop_writing()
        if self.closing:
            self._finish()
        elif self._owner is not None:
            self._owner.all_written()

    def _next_chunk(self) -> memoryview | None:
        """Return what goes out next when nothing is half written: a pong, else the owner's frames, at last the goodbye."""
        if self._pong is not None:
            chunk, self._pong = self._pong, None
            return memoryview(chunk)
        if self._owner is None:
            return None
        frames = self._owner.next_chunk()
        # The owner may have ended the connection meanwhile: its goodbye is then what is left to say.
        if frames is None or self.closing:
            return self._unsent
        return memoryview(frames)

    def close(self, code: int = NORMAL, reason: str = "", last: bytes = b"", *, why: str = "transport error") -> None:
        """Say goodbye and close: what is half written, `last` (whole frames), the close frame, a bounded linger. Idempotent.

        The owner is told `why` before this returns: nothing may be written behind the close frame (RFC 6455 section 5.5.1).
        """
        if self.closing or self.closed:
            return
        self.closing = True
        self._pong = None
        goodbye = last + close_frame(code, reason)
        if self._unsent is not None:
            self._unsent = memoryview(bytes(self._unsent) + goodbye)
        else:
            self._unsent = memoryview(goodbye)
        owner, self._owner = self._owner, None
        self.flush()
        if not self.closed and self._unsent is not None:
            self._deadlines.after(self._limits.write_deadline_s, self._expire_goodbye)
        if owner is not None:
            owner.websocket_lost(why)

    def lose(self, reason: str, *, hard: bool = False) -> None:
        """Close the socket now and tell the owner once. Idempotent.

        `hard` also throws away what the kernel holds for a peer that accepts nothing; it would keep it for many minutes.
        """
        if self.closed:
            return
        self.closed = self.closing = True
        owner, self._owner = self._owner, None
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._writer = None
        self._unsent = self._inbound = self._pong = None
        self.writing = False
        if hard:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()
        if owner is not None:
            owner.websocket_lost(reason)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(_told(error))
            return
        if not data:
            self.lose("transport close")
        elif self.closing:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self.lose("closed")
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        inbound = self._inbound or Inbound(self._limits.max_message_bytes)
        try:
            for opcode, payload in inbound.feed(data):
                self._received(opcode, payload)
                if self.closing:
                    return
        except ProtocolViolation as violation:
            self.close(violation.code, violation.reason)
            return
        self._inbound = None if inbound.at_rest else inbound

    def _received(self, opcode: Opcode, payload: bytes) -> None:
        owner = self._owner
        if owner is None:
            return
        if opcode is Opcode.TEXT:
            owner.received(payload.decode())
        elif opcode is Opcode.BINARY:
            owner.received(payload)
        elif opcode is Opcode.PING:
            # One answer at most waits for room, the latest one's (RFC 6455 section 5.5.3): a flood of pings must not queue.
            if owner.control_received():
                self._pong = pong_frame(payload)
                if not self.writing:
                    self.flush()
        elif opcode is Opcode.CLOSE:
            self.close(NORMAL, why="transport close")
        else:
            owner.control_received()  # a pong, or a message in many pieces: worth nothing to us, but they have to be parsed

    def await_room(self) -> None:
        """Have `flush` called when the kernel takes bytes again. Idempotent."""
        if self.writing or self.closed:
            return
        self.writing = True
        self.progress_s = monotonic()
        self._writer = self._writer or io_watcher(self._sock.fileno(), WRITE)
        self._writer.start(self.flush)
        if not self._timing:
            self._timing = True
            self._deadlines.after(self._limits.write_deadline_s, self._check_progress)

    def _check_progress(self) -> None:
        self._timing = False
        if self.closed or not self.writing:
            return
        left_s = self.progress_s + self._limits.write_deadline_s - monotonic()
        if left_s <= 0:
            self.lose("write deadline", hard=True)
        else:
            self._timing = True
            self._deadlines.after(left_s, self._check_progress)

    def _expire_goodbye(self) -> None:
        if self._unsent is not None:
            self.lose("write deadline", hard=True)

    def _stop_writing(self) -> None:
        if self.writing and self._writer is not None:
            self._writer.stop()
            self._writer.close()
            self._writer = None  # made anew when needed: most clients never back up
        self.writing = False

    def _finish(self) -> None:
        """Everything is written: end our side, and let the linger read what the browser still sends."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.lose(_told(error))
        else:
            self._deadlines.after(LINGER_S, self.lose, "closed")


def _told(error: OSError) -> str:
    return f"transport error: {error.strerror or type(error).__name__}"
