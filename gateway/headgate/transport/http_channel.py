"""The bytes of bodies and answers on one HTTP connection.

It feeds the parser (http_parser.py). The peer may delay a body or an answer for a grace in all, and progress gives time back, a
second for every `min_bytes_per_s`. So a silent peer is cut off after the grace, a peer slower than the rate a little later, and a
peer at the rate never. If the peer never delays it, the channel still lets other greenlets run now and then. A connection is
closed unless the last body was read to its end, because the start of the next request is unknown. Most methods switch greenlets.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from headgate.runtime.loop import READ, WRITE, sleep
from headgate.runtime.metrics import HTTP_ENDED

from .http_answers import Answer, http_error, last_answer, too_large
from .http_limits import HttpLimits
from .http_parser import BadRequest, ParserState, Request, RequestParser
from .peer_socket import PeerSocket, close_hard, is_readable, say_last

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_BYTES = 8192
# Other greenlets have a turn after this many bytes of a message.
TURN_BYTES = 65536
# The most bytes read from an unwanted body. Closing with bytes unread resets the connection, so a client still sending would
# get the reset instead of our answer (RFC 9112 section 9.6).
MAX_LINGER_BYTES = 1024 * 1024
# A client that sends more after its last request has this long to read the answer and close.
LINGER_S = 2.0
# The most bytes of a body to read after the answer, so that the connection can be reused.
MAX_DISCARD_BYTES = 65536
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# The most bytes of a chunked body on the wire, as a multiple of the data and beside it. Chunks of one byte take six bytes each.
MAX_FRAMING, FRAMING_BYTES = 16, 65536
_BAD_BODY = last_answer("400 Bad Request", http_error("bad_request", "the body is not valid HTTP"))


class BadBody(OSError):
    """The body is not valid HTTP, or too large. Has the answer that reports the fault."""

    def __init__(self, reason: str, answer: Answer) -> None:
        super().__init__(errno.EBADMSG, reason)
        self.answer = answer


class Part(Enum):
    """The part of an HTTP exchange after the head. The value appears in errors and as the metric's label."""

    BODY = "body"
    ANSWER = "answer"
    LAST = "bytes after the last answer"


class Channel:
    """See the module. If it is `broken`, no further request can be read."""

    __slots__ = (
        *("_body_bytes", "_chunked_bytes", "_client_waits", "_is_chunked", "_turn_bytes", "broken", "left_s", "limits", "parser"),
        *("part", "peer", "sent_bytes"),
    )

    def __init__(self, peer: PeerSocket, parser: RequestParser, limits: HttpLimits) -> None:
        self.peer, self.parser, self.limits = peer, parser, limits
        self.part = Part.ANSWER
        # How long the peer may still delay this part; None until it has.
        self.left_s: float | None = None
        self._turn_bytes = self._body_bytes = self._chunked_bytes = self.sent_bytes = 0
        self.broken = self._is_chunked = self._client_waits = False

    def begin_part(self, part: Part) -> None:
        """Begin another part of the exchange, for which the peer has its whole time."""
        self.part, self.left_s = part, None

    def waits(self) -> None:
        """Called before each wait for the peer."""

    def receive(self, size: int, turn_bytes: int = TURN_BYTES) -> bytes:
        """Return the next bytes; empty at the end. Switches greenlets. Raises OSError, and TimeoutError after too long a wait."""
        data: bytes = self._in_time(READ, self.peer.recv, size)
        self._moved(len(data), turn_bytes if self.part is Part.BODY else None)
        return data

    def send(self, data: bytes) -> None:
        """Write a piece of the answer. Switches greenlets. Raises as `receive`."""
        left, at = len(data), 0
        while left:
            sent: int = self._in_time(WRITE, self.peer.send, memoryview(data)[at:] if at else data)
            left, at = left - sent, at + sent
            self.sent_bytes += sent
            self._moved(sent, TURN_BYTES)

    # -- bodies ---------------------------------------------------------------------------------------------------------

    def begin_body(self, request: Request) -> None:
        """Begin to read the body of this request."""
        self.begin_part(Part.BODY)
        self._is_chunked, self._client_waits = request.is_chunked, request.expects_continue
        self._body_bytes = self._chunked_bytes = 0

    def next_piece(self) -> bytes:
        """Return the next piece of the body; empty at its end. Switches greenlets. Raises OSError, BadBody among them."""
        parser = self.parser
        while (event := parser.next_event()) is None:
            if parser.state is ParserState.OVER:
                raise ConnectionResetError(errno.ECONNRESET, "this body could not be read")
            if self._client_waits:
                self._client_waits, sent_bytes = False, self.sent_bytes
                self.send(CONTINUE)
                self.sent_bytes = sent_bytes
            if self.part is Part.ANSWER:
                self.begin_part(Part.BODY)
            read_bytes = READ_BYTES if self._is_chunked else TURN_BYTES
            data = self.receive(read_bytes, read_bytes)
            if self._is_chunked:
                self._chunked_bytes += len(data)
            if not data or self._chunked_bytes > MAX_FRAMING * self._body_bytes + FRAMING_BYTES:
                self.broken = True
                reason = "a chunked body that does not end" if data else "the body ended too early"
                raise ConnectionResetError(errno.ECONNRESET, reason)
            parser.feed(data)
        if isinstance(event, BadRequest):
            self.broken = True
            raise BadBody(event.reason, _BAD_BODY)
        assert isinstance(event, bytes)
        self._body_bytes += len(event)
        if (limit := self.limits.max_body_bytes) is not None and self._body_bytes > limit:
            raise BadBody("too large", too_large(self._body_bytes, limit))
        return event

    def read_body(self) -> bytes:
        """Return the rest of the body. Switches greenlets. Raises as `next_piece`."""
        if (whole := self.parser.whole_body()) is not None:
            return whole
        return b"".join(iter(self.next_piece, b""))

    @property
    def must_end(self) -> bool:
        """Whether the connection cannot be reused, because too much is unread or the client waits for 100 Continue."""
        left_bytes = self.parser.left_bytes
        if self.broken or (left_bytes is not None and left_bytes > MAX_DISCARD_BYTES):
            return True
        return self._client_waits and left_bytes != 0

    def finish(self) -> bool:
        """Read the rest of an answered request; return whether the connection can be reused. Switches greenlets."""
        parser = self.parser
        if parser.whole_body() is not None:
            return not self.broken
        if self.broken or parser.state is ParserState.OVER or self._client_waits:
            return False
        try:
            left_bytes, piece = MAX_DISCARD_BYTES, b""
            if (parser.left_bytes or 0) <= left_bytes:
                while left_bytes >= 0 and (piece := self.next_piece()):
                    left_bytes -= len(piece)
                if not piece:
                    return True
            if self.part is Part.ANSWER:
                self.begin_part(Part.BODY)
            self.linger()
        except OSError:
            pass
        return False

    def linger(self) -> None:
        """Close our side, then read and drop the peer's bytes. Switches greenlets; raises as `receive`."""
        say_last(self.peer.fileno())
        left_bytes = MAX_LINGER_BYTES
        while left_bytes > 0 and (data := self.receive(TURN_BYTES)):
            left_bytes -= len(data)
            sleep()

    def linger_if_unread(self) -> None:
        """Linger if bytes are unread, as closing would reset the connection. Switches greenlets; raises as `receive`."""
        if not self.broken and is_readable(self.peer.fileno()):
            self.begin_part(Part.LAST)
            self.linger()

    def _in_time(self, events: int, move: Callable[[Any], Any], argument: object) -> Any:
        """Move bytes, as soon as the socket is ready. Raises TimeoutError if it is not ready in time."""
        waited_s: float | None = 0.0
        while True:
            try:
                return move(argument)  # also after the time, because after a stall of the process timers run before sockets
            except BlockingIOError:
                if waited_s is None:
                    break
            except OSError:
                self.broken = True
                raise
            if events == WRITE and self.part is not Part.ANSWER:
                # 100 Continue, and an answer that ignores the body, are sent before the body was read.
                self.begin_part(Part.ANSWER)
            left_s = self._grace_s if self.left_s is None else self.left_s
            self.waits()
            waited_s = self.peer.wait(events, left_s) if left_s > 0 else None
            self.left_s = left_s - (waited_s or 0.0)
        self.broken = True
        if self.part is not Part.LAST:
            HTTP_ENDED.labels(f"{self.part.value} deadline").inc()
        if self.part is Part.ANSWER:
            close_hard(self.peer.fileno())
        raise TimeoutError(errno.ECONNRESET, f"the {self.part.value} took too long")

    @property
    def _grace_s(self) -> float:
        if self.part is Part.LAST:
            return LINGER_S
        return self.limits.body_deadline_s if self.part is Part.BODY else self.limits.write_deadline_s

    def _moved(self, size_bytes: int, turn_bytes: int | None) -> None:
        """Count bytes. Others have a turn after each `turn_bytes`."""
        if self.left_s is not None and self.part is not Part.LAST:
            self.left_s = min(self._grace_s, self.left_s + size_bytes / self.limits.min_bytes_per_s)
        if turn_bytes is not None:
            self._turn_bytes += size_bytes
            if self._turn_bytes >= turn_bytes:
                self._turn_bytes = 0
                sleep()


class RequestBody(io.RawIOBase):
    """The body of a request as a raw file."""

    def __init__(self, next_piece: Callable[[], bytes]) -> None:
        """`next_piece` returns an empty piece at the end. It may switch greenlets and raise OSError."""
        self._next_piece, self._piece, self._is_over = next_piece, memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read some bytes; none at the end. Switches greenlets; raises as `next_piece`."""
        if not self._piece and not self._is_over:
            self._piece = memoryview(self._next_piece())
            self._is_over = not self._piece
        room = memoryview(buffer).cast("B")
        part, self._piece = self._piece[: len(room)], self._piece[len(room) :]
        room[: len(part)] = part
        return len(part)


def wsgi_input(next_piece: Callable[[], bytes]) -> io.BufferedReader:
    """Return `wsgi.input` (PEP 3333). Its buffer is small, because it lives as long as the environment."""
    return io.BufferedReader(RequestBody(next_piece), buffer_size=512)
