"""Reads, checks and writes Socket.IO 5 packets for the gateway's own clients. No I/O.

The protocol is https://socket.io/docs/v4/socket-io-protocol/. Payloads are JSON, so binary packets and attachments are refused.
msgspec reads and writes JSON. The standard library handles the rest, such as half a surrogate pair.
"""

from __future__ import annotations

import json
import re

import msgspec

CONNECT, DISCONNECT, EVENT, ACK, CONNECT_ERROR = range(5)
_BINARY = (5, 6)
# Type, number of attachments, namespace, id, data.
_PACKET = re.compile(r"([0-9])(?:([0-9]{1,10})-)?(?:(/[^,]*)(?:,|\Z))?([0-9]{1,100}(?![0-9]))?(.*)", re.ASCII | re.DOTALL)
_to_json = msgspec.json.encode
_from_json = msgspec.json.decode


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A packet of a client. The `data` of an EVENT is a list that begins with a name, and of an ACK a list."""

    kind: int
    path: str
    id: int | None = None
    data: object = None


def read_packet(text: str) -> Packet:
    """Parse a packet. Raises ValueError, with the reason for the close frame, if a client must not send it."""
    if text[:2] == "0/":  # a CONNECT in its usual form, `0/<name>,{…}`
        path, _, rest = text[1:].partition(",")
        if rest[:1] == "{" and "?" not in path:
            return Packet(CONNECT, path, None, _read_json(rest))
    if (parts := _PACKET.fullmatch(text)) is None:
        raise ValueError("malformed packet")
    kind, path = int(parts[1]), (parts[3] or "/").partition("?")[0]
    packet_id = None if parts[4] is None else int(parts[4])
    data = _read_json(parts[5]) if parts[5] else None
    fault = "binary packets are not accepted" if kind in _BINARY else fault_of(kind, packet_id, data)
    if fault is None and kind in (EVENT, ACK) and int(parts[2] or 0):
        fault = "attachments on a text packet"
    if fault is not None:
        raise ValueError(fault)
    return Packet(kind, path, packet_id, data)


def write_packet(kind: int, path: bytes, data: object, packet_id: int | None = None) -> bytes:
    """Return a packet as text. `path` is a namespace with its slash."""
    place = b"" if path == b"/" else b"%b," % path
    number = b"" if packet_id is None else b"%d" % packet_id
    try:
        text = _to_json(data)
    except (TypeError, ValueError, OverflowError):
        text = json.dumps(data, separators=(",", ":")).encode()
    return b"%d%b%b%b" % (kind, place, number, text)


def _read_json(text: str) -> object:
    try:
        return _from_json(text)
    except (ValueError, RecursionError):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("malformed packet: its data is no JSON") from error


def fault_of(kind: int, packet_id: int | None, data: object, *, may_name_numbers: bool = False) -> str | None:
    """Return the fault of a text packet with these parts, if any. The name of an event is a text, or a number if it may be."""
    if kind == CONNECT:
        return None  # its data is the application's to judge
    if kind == DISCONNECT:
        return None if data is None else "DISCONNECT with data"
    if kind not in (EVENT, ACK):
        return "unknown packet type"
    if not isinstance(data, list):
        return "packet without an argument list"
    if kind == ACK:
        return None if packet_id else "acknowledgement without the id of an event"
    name = data[0] if data else None
    is_named = isinstance(name, str) or (may_name_numbers and type(name) in (int, float))
    return None if is_named else "event without a valid name"
