"""Clients that mean harm, one at a time, each on its own raw socket: what they send is in the name.

The attack runs in this process while the load generator keeps its schedule, so the others' latency shows the worst stall of
the server. Every attack is bounded in bytes and time: a server that stops reading ends it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

ATTACK_DEADLINE_S = 20.0
_MASK = b"\0\0\0\0"  # masked with zeros: the server has the same work, we have none
_CHUNK_BYTES = 1 << 16
MIB = 1 << 20


def _head(opcode: int, length: int, *, final: bool = True) -> bytes:
    first = (0x80 if final else 0) | opcode
    if length < 126:
        return struct.pack("!BB", first, 0x80 | length) + _MASK
    if length < 65536:
        return struct.pack("!BBH", first, 0xFE, length) + _MASK
    return struct.pack("!BBQ", first, 0xFF, length) + _MASK


def _text(text: bytes) -> bytes:
    return _head(1, len(text)) + text


def _one_frame(size_bytes: int) -> Iterator[bytes]:
    yield _head(1, size_bytes) + b'42/notifications,["x","'
    chunk = b"x" * _CHUNK_BYTES
    for _ in range(size_bytes // _CHUNK_BYTES):
        yield chunk


def _fragments(count: int) -> Iterator[bytes]:
    yield _head(1, 1, final=False) + b"4"
    piece = _head(0, 1, final=False) + b"x"
    for _ in range(count // 1000):
        yield piece * 1000


def _tiny_events(count: int) -> Iterator[bytes]:
    piece = _text(b'42/notifications,["x"]')
    for _ in range(count // 1000):
        yield piece * 1000


ATTACKS: dict[str, Callable[[], Iterator[bytes]]] = {
    "frame-20MB": lambda: _one_frame(20 * MIB),
    "frame-150MB": lambda: _one_frame(150 * MIB),
    "fragments-100k": lambda: _fragments(100_000),
    "events-200k": lambda: _tiny_events(200_000),
}


def attack(name: str, port: int, connect: str) -> dict[str, float | str]:
    """Join as an ordinary client, then attack; return what was sent and how the server ended it.

    Returns:
        `sent_mib`, `attack_s`, and `answer`: the close code, `reset`, or `still open` after the deadline.
    """
    start, sent = time.monotonic(), 0
    with socket.create_connection(("127.0.0.1", port), 5) as wire:
        _join(wire, connect)
        answer = "still open"
        try:
            for piece in ATTACKS[name]():
                wire.settimeout(max(0.01, start + ATTACK_DEADLINE_S - time.monotonic()))
                wire.sendall(piece)
                sent += len(piece)
        except TimeoutError:
            answer = "stopped reading"
        except OSError:
            answer = "reset"
        code = _close_code(wire, start + ATTACK_DEADLINE_S)
        return {"sent_mib": round(sent / MIB, 2), "attack_s": round(time.monotonic() - start, 2), "answer": code or answer}


def _join(wire: socket.socket, connect: str) -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    wire.sendall(
        f"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    got = b""
    while b'"pingInterval"' not in got:
        got += (more := wire.recv(4096))
        if not more:
            raise ConnectionError(f"refused before the attack: {got[:200]!r}")
    wire.sendall(_text(connect.encode()))
    wire.recv(4096)


def _close_code(wire: socket.socket, until: float) -> str:
    """Read to the end of what the server says; return `close <code>` if a close frame is the last thing, else nothing."""
    tail = b""
    with suppress(OSError):
        while (left_s := until - time.monotonic()) > 0:
            wire.settimeout(min(left_s, 2.0))
            more = wire.recv(_CHUNK_BYTES)
            if not more:
                break
            tail = (tail + more)[-256:]
    for size in range(2, min(126, len(tail) - 1)):
        frame = tail[-size - 2 :]
        if frame[0] == 0x88 and frame[1] == size:
            return f"close {struct.unpack('!H', frame[2:4])[0]}"
    return ""
