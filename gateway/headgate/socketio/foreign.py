"""Reads the destination of another process's message before decoding it. No I/O.

python-socketio's processes and external emitters publish every event on one channel, and each process gets all of them. Most
are for rooms without a member here. They are JSON in python-socketio's order of keys, which is event and data, then
`namespace`, `room`, `skip_sid`, `callback`, `host_id`. So the destination is at the end, whatever the size of the data.

After `"namespace"` the pattern allows only brackets of flat lists before the last brace, so these keys belong to the message
itself, and in JSON the last of equal keys wins. A message of any other form, or with more than TAIL_BYTES there, is decoded.
"""

from __future__ import annotations

import json
import re

# Rooms and ids are short.
TAIL_BYTES = 1024
_BEGINS = b'{"method": "emit", '
_STRING = rb'"(?:[^"\\]|\\.)*"'
_ITEM = rb"(?:" + _STRING + rb"|[-\w.]+)"
_FLAT_LIST = rb"\[(?:" + _ITEM + rb"(?:, " + _ITEM + rb")*)?\]"
_ENDS = re.compile(
    rb'"namespace": (' + _STRING + rb'), "room": (null|' + _STRING + rb'), "skip_sid": (?:null|' + _STRING + rb"|" + _FLAT_LIST
    + rb'), "callback": (?:null|' + _FLAT_LIST + rb'), "host_id": (' + _STRING + rb")\}"
)  # fmt: skip


def destination_of(message: object) -> tuple[str, str | None, str] | None:
    """Return the namespace (with its slash) and the room of an emitted event, and the id of the publishing process.

    The room None means all clients of the namespace. Returns None if the message must be decoded.
    """
    if isinstance(message, str):
        message = (message[: len(_BEGINS)] + message[len(_BEGINS) :][-TAIL_BYTES:]).encode(errors="surrogatepass")
    if not isinstance(message, bytes) or not message.startswith(_BEGINS):
        return None
    tail = message[-TAIL_BYTES:]
    if (match := _ENDS.fullmatch(tail, max(0, tail.rfind(b'"namespace": ')))) is None:
        return None
    namespace, room, host_id = match.groups()
    try:
        return _decoded(namespace), None if room == b"null" else _decoded(room), _decoded(host_id)
    except ValueError:
        return None  # not JSON, so python-socketio decides


def _decoded(text: bytes) -> str:
    return json.loads(text) if b"\\" in text else text[1:-1].decode()
