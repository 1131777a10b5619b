"""Checks Socket.IO packets of an application and its clients before python-socketio sends or dispatches them.

A fault becomes the reason for disconnecting the client. python-socketio itself accepts malformed packets or fails while it
handles them. It also writes NaN and the infinities, which are not JSON (RFC 8259 section 6), so a browser cannot parse the
packet and disconnects.
"""

from __future__ import annotations

import re

from socketio.packet import ACK, BINARY_ACK, BINARY_EVENT, CONNECT, DISCONNECT, EVENT, Packet

from headgate.transport import socketio_packet

# For one binary event. python-socketio would accept as many as the packet announces.
MAX_ATTACHMENTS = 1024
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
    is_binary = kind in (BINARY_EVENT, BINARY_ACK)
    if not in_namespace and kind in (EVENT, ACK, BINARY_EVENT, BINARY_ACK):
        return "packet before CONNECT"
    # A name may be a number, as in the reference implementation.
    fault = socketio_packet.fault_of(kind - BINARY_EVENT + EVENT if is_binary else kind, id_, data, may_name_numbers=True)
    if fault is not None or kind in (CONNECT, DISCONNECT):
        return fault
    if not is_binary:
        return "attachments on a text packet" if packet.attachment_count else None
    if not has_attachments:
        return "packet with attachments, of which this server's packets have none"
    if not 0 < packet.attachment_count <= MAX_ATTACHMENTS:
        return f"number of attachments not between 1 and {MAX_ATTACHMENTS}"
    return None


def refuse_not_json(text: str, namespace: str = "/") -> None:
    """Refuse JSON, or the JSON of a packet after its namespace, with NaN or an infinity. Mostly costs two substring searches.

    Raises ValueError, with values to send instead.
    """
    if "NaN" not in text and "Infinity" not in text:
        return
    if re.search("NaN|Infinity", _STRING.sub("", text if namespace == "/" else text.partition(",")[2])):
        raise ValueError("NaN and infinities are not JSON, and a browser disconnects at them: send null, or a text")
