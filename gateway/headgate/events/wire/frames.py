"""WebSocket frames from server to client, and the unit that fan-out shares between clients. No I/O.

A server frame is a header and the plain payload (RFC 6455 section 5.2), so an event is framed once and every client gets the same
bytes. Frames are joined by concatenation.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from headgate.events.event import Event

_FIN_TEXT, _FIN_BINARY, _FIN_CLOSE, _FIN_PONG = 0x81, 0x82, 0x88, 0x8A
MAX_CLOSE_REASON_BYTES = 123
# The packet of an event, without namespace, topic, payload and meta.
_EVENT_BYTES = len('42/,["event","",,{}]')
_to_json = msgspec.json.Encoder().encode
_pack_medium = struct.Struct("!BBH").pack


class Frame:
    """One Engine.IO packet, framed for WebSocket once and shared by all of its clients.

    Attributes:
        wire: the WebSocket frame, header included.
        skip: bytes of header; `wire[skip:]` is the packet, as long-polling carries it.
        attachment: whether it belongs to the packet in the frame before, which it must follow directly.
        topic, offset, payload_bytes, time_ms: of the event (offset None for a plain PUBLISH); None and 0 for anything else.
        tally: counts the event's outcome for each client (delivery/tally.py); usually None.
        is_ephemeral: whether a slow client misses it without a gap.
        text: the event for streams (stream_text.py), set when one needs it.
    """

    __slots__ = ("attachment", "binary", "offset", "payload_bytes", "skip", "tally", "text", "time_ms", "topic", "wire")
    text: bytes
    is_ephemeral = False

    def __init__(
        self,
        packet: bytes,
        *,
        binary: bool = False,
        attachment: bool = False,
        topic: str | None = None,
        offset: int | None = None,
    ) -> None:
        head = _header(_FIN_BINARY if binary else _FIN_TEXT, len(packet))
        self.wire = head + packet
        self.skip = len(head)
        self.binary = binary
        self.attachment = attachment
        self.topic = topic
        self.offset = offset
        self.payload_bytes = self.time_ms = 0
        self.tally: Any = None

    @property
    def packet(self) -> bytes:
        """The Engine.IO packet (text as UTF-8, or a raw binary message)."""
        return self.wire[self.skip :]


class WrittenFrame(Frame):
    """A text frame from a complete wire form, for example by _native.c. Its constructor is faster, because it joins nothing."""

    __slots__ = ()

    def __init__(self, wire: bytes, skip: int, topic: str | None, offset: int | None, payload_bytes: int, time_ms: int) -> None:
        self.wire = wire
        self.skip = skip
        self.binary = False
        self.attachment = False
        self.topic = topic
        self.offset = offset
        self.payload_bytes = payload_bytes
        self.time_ms = time_ms
        self.tally = None


class _EphemeralFrame(WrittenFrame):
    """The frame of an ephemeral event, which may be lost without a gap."""

    __slots__ = ()
    is_ephemeral = True


def message_frame(packet: bytes) -> Frame:
    """Return the frame of an Engine.IO message (`4`) with a Socket.IO text packet other than an event's."""
    size = len(packet) + 1
    head = _pack_medium(_FIN_TEXT, 126, size) if 126 <= size < 65536 else _header(_FIN_TEXT, size)
    return WrittenFrame(b"%b4%b" % (head, packet), len(head), None, None, 0, 0)


def event_frame(namespace: bytes, event: Event, *, replayed: bool = False) -> Frame:
    """Return the frame of a Socket.IO EVENT packet, `2/<namespace>,["event",topic,data,meta]`.

    `meta` is `{id,time,offset?,replayed?,traceparent?,by?}`. The payload is copied once, unchanged.
    """
    topic, data, offset = event.topic.encode(), event.data, event.offset
    if event.id and offset is not None and not replayed:  # the usual event, in half of the time
        meta = b'"id":"%b","time":%d,"offset":%d' % (event.id.encode(), event.time_ms, offset)
    else:
        event_id = b'"%b"' % event.id.encode() if event.id else b"null"
        place = b',"offset":%d' % offset if offset is not None else b""
        mark = b',"replayed":true' if replayed else b""
        meta = b'"id":%b,"time":%d%b%b' % (event_id, event.time_ms, place, mark)
    if event.traceparent is not None:
        meta += b',"traceparent":"%b"' % event.traceparent.encode()
    if event.by is not None:
        meta += b',"by":%b' % _to_json(event.by)
    size = _EVENT_BYTES + len(namespace) + len(topic) + len(data) + len(meta)
    head = _pack_medium(_FIN_TEXT, 126, size) if 126 <= size < 65536 else _header(_FIN_TEXT, size)
    wire = b'%b42/%b,["event","%b",%b,{%b}]' % (head, namespace, topic, data, meta)
    frame = _EphemeralFrame if offset is None and event.id else WrittenFrame
    return frame(wire, len(head), event.topic, offset, len(data), event.time_ms)


def text_frame(packet: bytes) -> bytes:
    """Return an Engine.IO packet as a text frame."""
    return _header(_FIN_TEXT, len(packet)) + packet


def pong_frame(payload: bytes) -> bytes:
    """Return the answer to a WebSocket ping with this payload (at most 125 bytes, RFC 6455 section 5.5)."""
    return _header(_FIN_PONG, len(payload)) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame. The reason is cut to MAX_CLOSE_REASON_BYTES."""
    text = reason.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore").encode()
    return _header(_FIN_CLOSE, 2 + len(text)) + struct.pack("!H", code) + text


def _header(first: int, size: int) -> bytes:
    if size < 126:
        return bytes((first, size))
    if size < 65536:
        return _pack_medium(first, 126, size)
    return struct.pack("!BBQ", first, 127, size)
