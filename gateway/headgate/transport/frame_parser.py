"""WebSocket messages from the bytes of a browser. No I/O.

The `websockets` package parses frames. The limit of a message's size, over all its fragments, is checked by the frame's header,
before any payload is buffered. The number of fragments is bounded, too. Text must be UTF-8.

A read that is one whole text frame, as most are, needs no object (`whole_text`). Another one needs an `Inbound`, until that is
`at_rest`. So an idle client is small.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode
from websockets.streams import StreamReader

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

__all__ = ["MAX_FRAGMENTS", "Inbound", "Opcode", "ProtocolViolation", "whole_text"]

# Browsers send one piece.
MAX_FRAGMENTS = 1024

# Each piece has its cost: so many count as one message more.
FRAGMENTS_PER_MESSAGE = 16

# The bit of a frame's first byte that tells control from data (RFC 6455 section 5.2).
CONTROL = 0x08
# The first byte of a text frame with a whole message, the mask bit of the second byte (set by clients), and the size for which
# two more bytes of size follow (section 5.2).
_FINAL_TEXT, _MASKED, _SIZE_FOLLOWS = 0x81, 0x80, 126
# RFC 6455 section 7.4.1.
NORMAL, PROTOCOL_ERROR, INVALID_DATA, POLICY, TOO_BIG = 1000, 1002, 1007, 1008, 1009
_VALID_CLOSE = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014}


class ProtocolViolation(Exception):
    """The client broke the protocol. Attributes: the close code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


def whole_text(data: bytes, max_bytes: int) -> str | None:
    """Return the message if `data` is one whole, valid text frame; None leaves everything else to `Inbound`."""
    if len(data) < 6 or data[0] != _FINAL_TEXT:
        return None
    size, start = data[1] - _MASKED, 6
    if size == _SIZE_FOLLOWS:
        size, start = data[2] << 8 | data[3], 8
        if size < _SIZE_FOLLOWS:
            return None
    elif size > _SIZE_FOLLOWS:
        return None
    if size > max_bytes or len(data) != start + size:
        return None
    try:
        return apply_mask(data[start:], data[start - 4 : start]).decode()
    except UnicodeDecodeError:
        return None


class Inbound:
    """Assembles the messages of one WebSocket connection."""

    __slots__ = ("_max_bytes", "_opcode", "_parser", "_pieces", "_reader", "_size")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        self._reader = StreamReader()
        self._parser: Generator[None, None, WebSocketFrame] | None = None
        self._opcode: Opcode | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def at_rest(self) -> bool:
        """Whether nothing is half received, so that a new object can take its place."""
        return self._opcode is None and self._parser is None and not self._reader.buffer

    def feed(self, data: bytes) -> Iterator[tuple[Opcode, bytes]]:
        """Yield what `data` completes, in order: (TEXT or BINARY, message), (PING, PONG or CLOSE, payload), and (CONT, b"") for
        every FRAGMENTS_PER_MESSAGE pieces of an unfinished message.

        Parses on demand: what comes before a fault is delivered, and what comes after the end costs nothing.

        Raises:
            ProtocolViolation: too big (1009), malformed (1002), not UTF-8 (1007), too many fragments (1008).
        """
        try:
            self._reader.feed_data(data)
            while (frame := self._next_frame()) is not None:
                if (message := self._accept(frame)) is not None:
                    yield message
        except PayloadTooBig as error:
            raise ProtocolViolation(TOO_BIG, f"message too big: at most {self._max_bytes} bytes") from error
        except ProtocolError as error:
            raise ProtocolViolation(PROTOCOL_ERROR, str(error)) from error
        except UnicodeDecodeError as error:
            raise ProtocolViolation(INVALID_DATA, f"text is not UTF-8 at byte {error.start}") from error

    def _next_frame(self) -> WebSocketFrame | None:
        if self._parser is None:
            if not self._reader.buffer:
                return None
            # A control frame, of 125 bytes at most, may interrupt a message that has used up its limit.
            size = 0 if self._reader.buffer[0] & CONTROL else self._size
            self._parser = WebSocketFrame.parse(self._reader.read_exact, mask=True, max_size=self._max_bytes - size)
        try:
            next(self._parser)
        except StopIteration as stop:
            self._parser = None
            frame: WebSocketFrame = stop.value
            return frame
        return None

    def _accept(self, frame: WebSocketFrame) -> tuple[Opcode, bytes] | None:
        opcode, data = frame.opcode, bytes(frame.data)
        if opcode in (Opcode.PING, Opcode.PONG):
            return opcode, data
        if opcode is Opcode.CLOSE:
            _check_close(data)
            return opcode, data
        if (opcode is Opcode.CONT) != (self._opcode is not None):
            raise ProtocolError("continuation frame expected" if self._opcode else "unexpected continuation frame")
        if self._opcode is None:
            if frame.fin:
                return _checked(opcode, data)
            self._opcode = opcode
        self._pieces.append(data)
        self._size += len(data)
        if len(self._pieces) > MAX_FRAGMENTS:
            raise ProtocolViolation(POLICY, f"too many fragments: at most {MAX_FRAGMENTS}")
        if not frame.fin:
            return None if len(self._pieces) % FRAGMENTS_PER_MESSAGE else (Opcode.CONT, b"")
        opcode, data = self._opcode, b"".join(self._pieces)
        self._opcode, self._size = None, 0
        self._pieces.clear()
        return _checked(opcode, data)


def _checked(opcode: Opcode, data: bytes) -> tuple[Opcode, bytes]:
    if opcode is Opcode.TEXT:
        data.decode()
    return opcode, data


def _check_close(data: bytes) -> None:
    if not data:
        return
    if len(data) == 1:
        raise ProtocolError("close frame with half a code")
    (code,) = struct.unpack("!H", data[:2])
    if code not in _VALID_CLOSE and not 3000 <= code < 5000:
        raise ProtocolError("invalid close code")
    data[2:].decode()
