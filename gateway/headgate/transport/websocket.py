"""One WebSocket after its handshake. It has a non-blocking socket and watchers, and no greenlet.

In: joined frames from the fan-out (`send`) or from the owner's queue (`flush`), and bytes from the browser. Out: whole messages
and the end, for the owner (`WebSocketOwner`), which is a session or the probe of an upgrade.

Callbacks run in the hub and must not switch greenlets. The inbound limit bounds a read, JOIN_BYTES a write, and LINGER_S and
LINGER_BYTES a closing socket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from headgate.events.wire.frames import close_frame, pong_frame
from headgate.runtime.loop import READ, WRITE, Watcher, io_watcher

from .frame_parser import NORMAL, Inbound, Opcode, ProtocolViolation, whole_text
from .limits import TransportLimits
from .peer_socket import ClientSocket, NativeSocket, close_hard, set_options
from .session_state import Reason
from .timers import Deadlines, monotonic

# One recv. It bounds the parsing for one client before the turn of the next.
READ_BYTES = 65536
# The most bytes joined into one write, about the size of a socket buffer. More gains nothing in benchmarks.
JOIN_BYTES = 65536
# How long, and how many bytes, we read after our close frame. Closing with bytes unread would reset the connection, and the
# browser would lose the frame. Before that, the write deadline covers the whole goodbye.
LINGER_S, LINGER_BYTES = 1.0, 1024 * 1024


class WebSocketOwner(Protocol):
    """The owner of a WebSocket."""

    def received(self, message: str | bytes) -> None:
        """Take one text or binary message, in order."""

    def next_chunk(self) -> bytes | None:
        """Return the next whole frames, at most JOIN_BYTES unless one is larger; None if there are none."""

    def control_received(self) -> bool:
        """Count a ping, a pong or fragments of a message. Returns False beyond the limit, which closes the socket."""

    def all_written(self) -> None:
        """Called when the kernel has accepted everything, so that direct sends may resume."""

    def websocket_lost(self, reason: str) -> None:
        """Called once, when the goodbye begins or the socket breaks. Nothing is delivered or accepted after that."""


class WebSocket:
    """See the module. `send` is the socket's method, which the hot path calls directly, except over TLS."""

    __slots__ = (
        *("_deadlines", "_flushing", "_inbound", "_limits", "_lingered", "_pong", "_reader", "_sock", "_timing"),
        *("_unsent", "_writer", "closed", "closing", "owner", "progress_s", "send", "writing"),
    )

    def __init__(self, sock: ClientSocket, owner: WebSocketOwner, deadlines: Deadlines, limits: TransportLimits) -> None:
        self._sock, self._deadlines, self._limits = sock, deadlines, limits
        set_options(sock, limits.send_buffer_bytes)
        self.send: Callable[[bytes | memoryview], int] = sock.send if isinstance(sock, NativeSocket) else _send_later
        self.owner: WebSocketOwner | None = owner
        self._inbound: Inbound | None = None
        self._unsent: memoryview | None = None
        self._pong: bytes | None = None
        self._reader: Watcher = io_watcher(sock.fileno(), READ)
        self._writer: Watcher | None = None
        self._timing = self._flushing = self.writing = self.closing = self.closed = False
        self._lingered, self.progress_s = 0, 0.0

    def open(self, already_received: bytes = b"", unsent: bytes = b"") -> None:
        """Start reading. The caller must call `flush` soon to write `unsent`, the answer to the handshake request."""
        if unsent:
            self._unsent = memoryview(unsent)
            self.writing = True  # so that the fan-out does not write before it
            self.progress_s = monotonic()
        self._reader.start(self._readable)
        if already_received:
            self._feed(already_received)

    def pause_reading(self) -> None:
        """Stop taking messages, so that data backs up into the browser's socket."""
        if not self.closing:
            self._reader.stop()

    def resume_reading(self) -> None:
        """Take messages again. Idempotent."""
        if not self.closing:
            self._reader.start(self._readable)

    def finish_frame(self, rest: bytes | memoryview) -> None:
        """Take the rest of a frame that `send` accepted in part, and write it before anything else."""
        self._unsent = memoryview(rest)
        self.flush()

    @property
    def is_clear(self) -> bool:
        """Whether no bytes of this object wait before the owner's frames, and no flush is running."""
        return self._unsent is None and self._pong is None and not (self._flushing or self.closing or self.closed)

    def flush(self) -> None:
        """Write pending bytes until the kernel refuses, then wait for room. May call the owner's `all_written`.

        A nested flush, from the owner's `next_chunk`, does nothing, because newer frames would overtake that chunk. They go out
        in the same pass.
        """
        if self.closed or self._flushing:
            return
        self._flushing = True
        try:
            while True:
                # Pending bytes, or a pong, else the owner's frames, and last the goodbye.
                if (unsent := self._unsent) is None and self._pong is not None:
                    unsent, self._pong = memoryview(self._pong), None
                elif unsent is None and self.owner is not None:
                    frames = self.owner.next_chunk()
                    # The owner may have ended the connection there. Only the goodbye is left then.
                    unsent = self._unsent if frames is None or self.closing else memoryview(frames)
                if unsent is None:
                    break
                self._unsent = unsent
                sent = self._sock.send(unsent)
                if not self.closing:
                    self.progress_s = monotonic()
                self._unsent = unsent[sent:] if sent < len(unsent) else None
        except BlockingIOError:
            self.await_room()
            return
        except OSError as error:
            self.lose(error)
            return
        finally:
            self._flushing = False
        if self._writer is not None:
            self._writer.close()
            self._writer = None  # frees memory, because most clients never back up again
        self.writing = False
        if not self.closing:
            if self.owner is not None:
                self.owner.all_written()
            return
        try:  # shut down our side, and read the browser's remaining bytes
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.lose(error)
        else:
            self._deadlines.after(LINGER_S, self.lose, "closed")

    def close(self, code: int = NORMAL, reason: str = "", last: bytes = b"", *, why: str = Reason.TRANSPORT_ERROR) -> None:
        """Write the rest of a frame, `last` (whole frames) and the close frame; linger, and close. Idempotent.

        The owner gets `why` before this returns, as nothing may follow a close frame (RFC 6455 section 5.5.1).
        """
        if self.closing or self.closed:
            return
        self.resume_reading()  # closing with bytes unread would reset the connection
        self.closing = True
        self._pong = None
        self._unsent = memoryview(bytes(self._unsent or b"") + last + close_frame(code, reason))
        self.progress_s = monotonic()  # the write deadline covers the whole goodbye, even if bytes trickle
        owner, self.owner = self.owner, None
        self.flush()
        if owner is not None:
            owner.websocket_lost(why)

    def lose(self, reason: str | OSError, *, hard: bool = False) -> None:
        """Close the socket now and notify the owner. Idempotent.

        `hard` also discards the kernel's buffer, which it would keep for minutes if the peer accepts nothing.
        """
        if self.closed:
            return
        self.closed = self.closing = True
        owner, self.owner = self.owner, None
        self._reader.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._unsent = self._inbound = self._pong = None
        self.writing = False
        if hard:
            close_hard(self._sock.fileno())
        self._sock.close()
        if owner is not None:
            if isinstance(reason, OSError):
                reason = f"{Reason.TRANSPORT_ERROR}: {reason.strerror or type(reason).__name__}"
            owner.websocket_lost(reason)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(error)
            return
        if not data:
            self.lose(Reason.TRANSPORT_CLOSE)
        elif self.closing:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self.lose("closed")
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        limit_bytes, inbound = self._limits.max_message_bytes, self._inbound
        if inbound is None:
            if (text := whole_text(data, limit_bytes)) is not None:
                if self.owner is not None:
                    self.owner.received(text)
                return
            inbound = Inbound(limit_bytes)
        try:
            for opcode, payload in inbound.feed(data):
                if (owner := self.owner) is None:
                    return
                if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
                    owner.received(payload)
                elif opcode is Opcode.CLOSE:
                    self.close(NORMAL, why=Reason.TRANSPORT_CLOSE)
                elif owner.control_received() and opcode is Opcode.PING:  # pongs and fragments count too, as they cost parsing
                    # Only the answer to the latest ping waits for room (RFC 6455 section 5.5.3), so a flood of pings does not
                    # queue.
                    self._pong = pong_frame(payload)
                    if not self.writing:
                        self.flush()
        except ProtocolViolation as violation:
            self.close(violation.code, violation.reason)
            return
        self._inbound = None if inbound.at_rest else inbound

    def await_room(self) -> None:
        """Call `flush` when the kernel takes bytes again. Idempotent."""
        if self._writer is not None or self.closed:
            return
        self.writing = True
        self.progress_s = monotonic()
        self._writer = io_watcher(self._sock.fileno(), WRITE)
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
            self.lose(Reason.WRITE_DEADLINE, hard=True)
        else:
            self._timing = True
            self._deadlines.after(left_s, self._check_progress)


def _send_later(data: bytes | memoryview) -> int:
    """Leave the bytes to `flush`, which repeats the same bytes until a TLS socket has taken them."""
    raise BlockingIOError
