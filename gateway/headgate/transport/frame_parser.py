"""Parses WebSocket messages from the bytes of a browser. No I/O.

The header of each frame is checked against the message's size limit, over all fragments, before any payload is buffered. The
number of fragments is bounded, too. Text must be UTF-8. The `websockets` package unmasks payloads.

Most reads are one whole text frame and need no object (`whole_text`). Any other read needs an `Inbound` until it is `at_rest`.
So an idle client takes little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from websockets.frames import Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

__all__ = ["MAX_FRAGMENTS", "Inbound", "Opcode", "ProtocolViolation", "whole_text"]

# Browsers do not fragment.
MAX_FRAGMENTS = 1024

# Parsing a fragment has a cost. This many count as one more message.
FRAGMENTS_PER_MESSAGE = 16

# RFC 6455 section 5.2: the bits of a frame's first byte, then of its second. The size 126 means that two bytes with it follow.
_FINAL, _RESERVED, _OPCODE, _CONTROL = 0x80, 0x70, 0x0F, 0x08
_MASKED, _SIZE_FOLLOWS = 0x80, 126
_MAX_CONTROL_BYTES = 125
_OPCODES = {int(opcode): opcode for opcode in Opcode}
# RFC 6455 section 7.4.1.
NORMAL, PROTOCOL_ERROR, INVALID_DATA, POLICY, TOO_BIG = 1000, 1002, 1007, 1008, 1009
_VALID_CLOSE = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014}


class ProtocolViolation(Exception):
    """The client violated the protocol. Has the close code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


def whole_text(data: bytes, max_bytes: int) -> str | None:
    """Return the message if `data` is one whole, valid text frame. Returns None for anything else, which `Inbound` parses."""
    if len(data) < 6 or data[0] != _FINAL | Opcode.TEXT:
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

    __slots__ = ("_held", "_max_bytes", "_opcode", "_pieces", "_size")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        self._held = bytearray()
        self._opcode: Opcode | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def at_rest(self) -> bool:
        """Whether no message is half received, so that this object can be dropped."""
        return self._opcode is None and not self._held

    def feed(self, data: bytes) -> Iterator[tuple[Opcode, Any]]:
        """Yield the messages that `data` completes, in order, as (TEXT, text), (BINARY, bytes) or (PING, PONG or CLOSE, payload),
        and (CONT, b"") for every FRAGMENTS_PER_MESSAGE fragments of an unfinished message.

        Raises ProtocolViolation for a message that is too big (1009), malformed (1002) or not UTF-8 (1007), or has too many
        fragments (1008), after the messages before it.
        """
        self._held += data
        try:
            while (frame := self._next_frame()) is not None:
                if (message := self._accept(*frame)) is not None:
                    yield message
        except UnicodeDecodeError as error:
            raise ProtocolViolation(INVALID_DATA, f"text is not UTF-8 at byte {error.start}") from error

    def _next_frame(self) -> tuple[Opcode, bytes, bool] | None:
        """Return opcode and payload of the next frame, and whether it is the last of a message; None until it is complete."""
        held = self._held
        if len(held) < 2:
            return None
        first, size, start = held[0], held[1] & ~_MASKED, 2
        is_final, is_control = bool(first & _FINAL), bool(first & _CONTROL)
        if first & _OPCODE not in _OPCODES:
            raise _malformed("invalid opcode")
        if not held[1] & _MASKED:
            raise _malformed("incorrect masking")
        if first & _RESERVED:
            raise _malformed("reserved bits must be 0")
        if is_control and (size > _MAX_CONTROL_BYTES or not is_final):
            raise _malformed("control frame too long" if is_final else "fragmented control frame")
        if size >= _SIZE_FOLLOWS:
            start = 4 if size == _SIZE_FOLLOWS else 10
            if len(held) < start:
                return None
            size = int.from_bytes(held[2:start])
        # A control frame may come between fragments and does not count towards the message's limit.
        if size > self._max_bytes - (0 if is_control else self._size):
            raise ProtocolViolation(TOO_BIG, f"message too big: at most {self._max_bytes} bytes")
        payload, end = start + 4, start + 4 + size
        if len(held) < end:
            return None
        data = apply_mask(held[payload:end], held[start:payload])
        del held[:end]
        return _OPCODES[first & _OPCODE], data, is_final

    def _accept(self, opcode: Opcode, data: bytes, is_final: bool) -> tuple[Opcode, str | bytes] | None:
        if opcode in (Opcode.PING, Opcode.PONG):
            return opcode, data
        if opcode is Opcode.CLOSE:
            _check_close(data)
            return opcode, data
        if (opcode is Opcode.CONT) != (self._opcode is not None):
            raise _malformed("continuation frame expected" if self._opcode else "unexpected continuation frame")
        if self._opcode is None:
            if is_final:
                return opcode, data.decode() if opcode is Opcode.TEXT else data
            self._opcode = opcode
        self._pieces.append(data)
        self._size += len(data)
        if len(self._pieces) > MAX_FRAGMENTS:
            raise ProtocolViolation(POLICY, f"too many fragments: at most {MAX_FRAGMENTS}")
        if not is_final:
            return None if len(self._pieces) % FRAGMENTS_PER_MESSAGE else (Opcode.CONT, b"")
        opcode, data = self._opcode, b"".join(self._pieces)
        self._opcode, self._size = None, 0
        self._pieces.clear()
        return opcode, data.decode() if opcode is Opcode.TEXT else data


def _malformed(reason: str) -> ProtocolViolation:
    return ProtocolViolation(PROTOCOL_ERROR, reason)


def _check_close(data: bytes) -> None:
    if not data:
        return
    if len(data) == 1:
        raise _malformed("close frame with half a code")
    code = int.from_bytes(data[:2])
    if code not in _VALID_CLOSE and not 3000 <= code < 5000:
        raise _malformed("invalid close code")
    data[2:].decode()
