"""Checks Socket.IO packets of an application and its clients before python-socketio sends or dispatches them.

A fault becomes the reason for disconnecting the client. python-socketio itself accepts malformed packets or fails while it
handles them. It also writes NaN and the infinities, which are not JSON (RFC 8259 section 6), so a browser cannot parse the
packet and disconnects.
"""

from __future__ import annotations

import re

from socketio.packet import ACK, BINARY_ACK, BINARY_EVENT, CONNECT, DISCONNECT, EVENT, Packet

# For one binary event. python-socketio would accept as many as the packet announces.
MAX_ATTACHMENTS = 1024
# python-socketio inserts attachments by recursion.
MAX_BINARY_DEPTH = 100
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')


def fault_of(packet: Packet, *, has_attachments: bool, in_namespace: bool) -> str | None:
    """Return the fault of a client's packet, or None. Among packet classes, only the standard one checks types.

    Args:
        has_attachments: whether bytes follow a text packet as attachments. Otherwise every message is a packet.
    """
    kind, data, id_ = packet.packet_type, packet.data, packet.id
    if packet.namespace is not None and not isinstance(packet.namespace, str):
        return "namespace that is no text"
    if id_ is not None and not (isinstance(id_, int) and id_ >= 0):
        return "id that is no whole number"
    if kind == CONNECT:
        return None  # its data is the application's to judge
    if kind == DISCONNECT:
        return None if data is None else "DISCONNECT with data"
    if kind not in (EVENT, ACK, BINARY_EVENT, BINARY_ACK):
        return "unknown packet type"
    if not in_namespace:
        return "packet before CONNECT"
    if not isinstance(data, list):
        return "packet without an argument list"
    if kind in (EVENT, BINARY_EVENT):
        # A name may be a number, as in the reference implementation.
        if not data or not (isinstance(data[0], str) or type(data[0]) in (int, float)):
            return "event without a valid name"
    elif not id_:
        return "acknowledgement without the id of an event"
    if kind in (BINARY_EVENT, BINARY_ACK):
        if not has_attachments:
            return "packet with attachments, of which this server's packets have none"
        if not 0 < packet.attachment_count <= MAX_ATTACHMENTS:
            return f"number of attachments not between 1 and {MAX_ATTACHMENTS}"
        if not _placeholders_valid(data, packet.attachment_count):
            return "placeholder without an attachment"
    elif packet.attachment_count:
        return "attachments on a text packet"
    return None


def refuse_not_json(text: str, namespace: str = "/") -> None:
    """Refuse JSON, or the JSON of a packet after its namespace, with NaN or an infinity. Mostly costs two substring searches.

    Raises ValueError, with values to send instead.
    """
    if "NaN" not in text and "Infinity" not in text:
        return
    if re.search("NaN|Infinity", _STRING.sub("", text if namespace == "/" else text.partition(",")[2])):
        raise ValueError("NaN and infinities are not JSON, and a browser disconnects at them: send null, or a text")


def _placeholders_valid(data: object, attachments: int) -> bool:
    """Return whether every placeholder names an attachment. python-socketio checks this only after the last attachment."""
    level: list[object] = [data]
    inner: list[object] = []
    for _ in range(MAX_BINARY_DEPTH):
        for value in level:
            if isinstance(value, list):
                inner += value
            elif isinstance(value, dict):
                if value.get("_placeholder") and "num" in value:
                    number = value["num"]
                    if type(number) is not int or not 0 <= number < attachments:
                        return False
                else:
                    inner += value.values()
        if not inner:
            return True
        level, inner = inner, []
    return False
