"""The requests of one HTTP connection and their bodies.

It feeds the parser (http_parser.py) from the channel (http_channel.py). A connection is closed unless the last body was read to
its end, because the start of the next request is unknown.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.runtime.loop import sleep

from .http_channel import TURN_BYTES, Channel
from .http_limits import Part
from .http_parser import END, Bad, ParserState, Request, RequestParser

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_BYTES = 8192
# The most bytes of a body to read after the answer, so that the connection can be reused.
MAX_DISCARD_BYTES = 65536
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BadBody(OSError):
    """The body is not valid HTTP. The text names the fault."""


class Incoming:
    """See the module."""

    __slots__ = ("_chunked_bytes", "_client_waits", "_is_chunked", "_max_chunked_bytes", "channel", "parser")

    def __init__(self, channel: Channel, parser: RequestParser, max_chunked_bytes: int) -> None:
        self.channel, self.parser, self._max_chunked_bytes = channel, parser, max_chunked_bytes
        self._is_chunked = self._client_waits = False
        self._chunked_bytes = 0

    def request(self) -> Request | Bad | None:
        """Return the next request; None at the end of the connection. Switches greenlets. Raises as `Channel.receive`."""
        parser, channel = self.parser, self.channel
        is_first, waits = channel.part is Part.HEADERS, channel.waits
        event = parser.next_event() if parser.held else None
        while event is None:
            if channel.part is Part.IDLE and parser.held:
                channel.begin(Part.HEADERS)
            if not (data := channel.receive(READ_BYTES)):
                return parser.end()
            parser.feed(data)
            event = parser.next_event()
        if waits == channel.waits and not is_first:
            sleep()  # it had already arrived, and the next one may have, too
        assert isinstance(event, Request | Bad)
        return event

    def begin(self, request: Request) -> None:
        """Start to read the body of this request."""
        self._is_chunked, self._client_waits = request.is_chunked, request.expects_continue
        self._chunked_bytes = 0

    def next_piece(self) -> bytes:
        """Return the next piece of the body; empty at its end. Switches greenlets. Raises OSError, BadBody among them."""
        parser, channel = self.parser, self.channel
        while (event := parser.next_event()) is None:
            if parser.state is ParserState.OVER:
                raise ConnectionResetError(errno.ECONNRESET, "this body could not be read")
            if self._client_waits:
                self._client_waits, sent_bytes = False, channel.sent_bytes
                channel.send(CONTINUE)
                channel.sent_bytes = sent_bytes
            if channel.part is Part.ANSWER:
                channel.begin(Part.BODY)
            read_bytes = READ_BYTES if self._is_chunked else TURN_BYTES
            data = channel.receive(read_bytes, read_bytes)
            if self._is_chunked:
                self._chunked_bytes += len(data)
            if not data or self._chunked_bytes > self._max_chunked_bytes:
                channel.broken = True
                reason = "a chunked body that does not end" if data else "the body ended too early"
                raise ConnectionResetError(errno.ECONNRESET, reason)
            parser.feed(data)
        if isinstance(event, Bad):
            channel.broken = True
            raise BadBody(errno.EBADMSG, event.reason)
        return b"" if event is END else event  # type: ignore[return-value]

    def read_body(self) -> bytes:
        """Return the rest of the body. Switches greenlets. Raises as `next_piece`."""
        if (whole := self.parser.whole_body()) is not None:
            return whole
        return b"".join(iter(self.next_piece, b""))

    @property
    def must_end(self) -> bool:
        """Whether the connection cannot be reused, because too much is unread or the client waits for 100 Continue."""
        left_bytes = self.parser.left_bytes
        if self.channel.broken or (left_bytes is not None and left_bytes > MAX_DISCARD_BYTES):
            return True
        return self._client_waits and left_bytes != 0

    def finish(self) -> bool:
        """Read the rest of an answered request; return whether the connection can be reused. Switches greenlets."""
        parser, channel = self.parser, self.channel
        if parser.whole_body() is not None:
            return not channel.broken
        if channel.broken or parser.state is ParserState.OVER or self._client_waits:
            return False
        try:
            left_bytes, piece = MAX_DISCARD_BYTES, b""
            if (parser.left_bytes or 0) <= left_bytes:
                while left_bytes >= 0 and (piece := self.next_piece()):
                    left_bytes -= len(piece)
                if not piece:
                    return True
            if channel.part is Part.ANSWER:
                channel.begin(Part.BODY)
            channel.linger()
        except OSError:
            pass
        return False


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
