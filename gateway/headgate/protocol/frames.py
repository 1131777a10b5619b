"""WebSocket frames from server to client, and the unit that fan-out shares between clients. No I/O.

A server frame is a header and the payload as it is (RFC 6455 section 5.2: no mask), so an event is framed once and the
same bytes go to everyone. Several frames back to back are a valid stream, so frames can be joined by concatenation.
"""

from __future__ import annotations

import struct

_new_frame = object.__new__
_FIN_TEXT, _FIN_BINARY, _FIN_CLOSE, _FIN_PONG = 0x81, 0x82, 0x88, 0x8A
MAX_CLOSE_REASON_BYTES = 123
_pack_medium = struct.Struct("!BBH").pack


class Frame:
    """One Engine.IO packet, framed for WebSocket once; shared by every client that gets it.

    Attributes:
        wire: the WebSocket frame, header included.
        skip: bytes of header, so that `wire[skip:]` is the packet as long-polling carries it.
        attachment: whether it belongs to the packet in the frame before it; nothing may come between the two.
        topic, offset, payload_bytes: of the event inside (offset None for a plain PUBLISH); topic None for anything else.
    """

    __slots__ = ("attachment", "binary", "offset", "payload_bytes", "skip", "topic", "wire")

    def __init__(
        self,
        packet: bytes,
        *,
        binary: bool = False,
        attachment: bool = False,
        topic: str | None = None,
        offset: int | None = None,
        payload_bytes: int = 0,
    ) -> None:
        head = _header(_FIN_BINARY if binary else _FIN_TEXT, len(packet))
        self.wire = head + packet
        self.skip = len(head)
        self.binary = binary
        self.attachment = attachment
        self.topic = topic
        self.offset = offset
        self.payload_bytes = payload_bytes

    @property
    def packet(self) -> bytes:
        """The Engine.IO packet (text as UTF-8, or a raw binary message)."""
        return self.wire[self.skip :]


def message_frame(packet: bytes, *, topic: str | None = None, offset: int | None = None, payload_bytes: int = 0) -> Frame:
    """Return the frame of an Engine.IO message (`4`) that carries a Socket.IO text packet."""
    head = _header(_FIN_TEXT, len(packet) + 1)
    # Once for each event: without `__init__`, which joins the packet first and takes arguments that are the same for all.
    frame = _new_frame(Frame)
    frame.wire = head + b"4" + packet
    frame.skip = len(head)
    frame.binary = frame.attachment = False
    frame.topic = topic
    frame.offset = offset
    frame.payload_bytes = payload_bytes
    return frame


def pong_frame(payload: bytes) -> bytes:
    """Return the WebSocket pong that answers a ping with this payload (at most 125 bytes, RFC 6455 section 5.5)."""
    return _header(_FIN_PONG, len(payload)) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame; the reason is cut to what a control frame can carry."""
    text = reason.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore").encode()
    return _header(_FIN_CLOSE, 2 + len(text)) + struct.pack("!H", code) + text


def _header(first: int, size: int) -> bytes:
    if size < 126:
        return bytes((first, size))
    if size < 65536:
        return _pack_medium(first, 126, size)
    return struct.pack("!BBQ", first, 127, size)
