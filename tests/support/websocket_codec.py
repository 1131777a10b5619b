"""The WebSocket frames of a test's own client, built and read from RFC 6455 directly. Nothing is shared with the code under test.

`masked` and `header` build any frame that a browser could send, and those that none would. `frame_at` reads the frames of a
server, which are neither fragmented nor masked nor compressed, and have their length in its shortest form.
"""

import base64
import os
import struct
from collections.abc import Mapping
from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_FIN, _MASKED = 0x80, 0x80
_KEY = b"\x01\x02\x03\x04"
# Leaves the payload as it is, for a test that sends very many.
NO_KEY = b"\0\0\0\0"


class ServerFrame(NamedTuple):
    """Where a server's frame is in a buffer. Its payload is `buffer[start:end]`, and the next frame begins at `end`."""

    opcode: int
    start: int
    end: int


def frame_at(buffer: bytes | bytearray, at: int = 0) -> ServerFrame | None:
    """Return the server's frame at a position; None when it is not whole yet.

    Raises:
        AssertionError: a server must not send it.
    """
    have = len(buffer) - at
    if have < 2:
        return None
    first, size, start = buffer[at], buffer[at + 1], at + 2
    assert first & 0xF0 == _FIN, f"FIN and no reserved bits expected: {first:#x}"
    assert not size & _MASKED, "a server must not mask"
    if size == 126:
        start = at + 4
        if have < 4:
            return None
        size = int.from_bytes(buffer[at + 2 : start], "big")
        assert size >= 126, "length not in its shortest form"
    elif size == 127:
        start = at + 10
        if have < 10:
            return None
        size = int.from_bytes(buffer[at + 2 : start], "big")
        assert size >= 65536, "length not in its shortest form"
    end = start + size
    return ServerFrame(first & 0x0F, start, end) if end <= len(buffer) else None


def frames_in(buffer: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return opcode and payload of each whole frame of a server, and the bytes after them. Raises as `frame_at`."""
    at, frames = 0, []
    while (frame := frame_at(buffer, at)) is not None:
        frames.append((frame.opcode, buffer[frame.start : frame.end]))
        at = frame.end
    return frames, buffer[at:]


def close_told(payload: bytes) -> tuple[int, str]:
    """Return code and reason of a close frame; 1005 when it has none (RFC 6455 section 7.1.5)."""
    return (struct.unpack("!H", payload[:2])[0] if payload else 1005), payload[2:].decode()


def masked(
    opcode: int, payload: str | bytes = b"", *, fin: bool = True, reserved: int = 0, mask: bool = True, key: bytes = _KEY
) -> bytes:
    """Return a frame as a browser sends it (RFC 6455 section 5.2), or as none would."""
    data = payload.encode() if isinstance(payload, str) else payload
    head = header(opcode, len(data), fin=fin, reserved=reserved, mask=mask)
    if not mask:
        return head + data
    return head + key + (data if key == NO_KEY else _xor(data, key))


def header(opcode: int, size: int, *, fin: bool = True, reserved: int = 0, mask: bool = True) -> bytes:
    first = (_FIN if fin else 0) | reserved << 4 | opcode
    bit = _MASKED if mask else 0
    if size < 126:
        return struct.pack("!BB", first, bit | size)
    if size < 65536:
        return struct.pack("!BBH", first, bit | 126, size)
    return struct.pack("!BBQ", first, bit | 127, size)


def handshake(host: str, target: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the request of a WebSocket handshake (RFC 6455 section 4.1); `headers` add to its own, or replace them."""
    fields = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode()


def _xor(data: bytes, key: bytes) -> bytes:
    size = len(data)
    stream = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")
