"""A look at a message of another process, before it is decoded: does anybody here care? No I/O.

python-socketio's processes, and emitters outside of them, publish every event on one channel, and each process hears all of them,
its own included. Most are for rooms that have no member here. They are JSON, written by Python's `json` in the order in which
python-socketio has the keys: event and data first, then `namespace`, `room`, `skip_sid`, `callback`, `host_id`. So their end
tells whom they are for, whatever the size of the data.

The look is exact. Behind `"namespace"` the pattern allows no bracket but those of flat lists, up to the brace that ends the
message, so these are keys of the message itself; and JSON's last key of a name wins. A message of any other form, as from another
JSON library, or with more than TAIL_BYTES there, says nothing: it is decoded, as it always was.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

# Rooms and ids are short; a message of which the end is longer is decoded.
TAIL_BYTES = 1024
_BEGINS = b'{"method": "emit", '
_STRING = rb'"(?:[^"\\]|\\.)*"'
_ITEM = rb"(?:" + _STRING + rb"|[-\w.]+)"
_FLAT_LIST = rb"\[(?:" + _ITEM + rb"(?:, " + _ITEM + rb")*)?\]"
_ENDS = re.compile(
    rb'"namespace": (' + _STRING + rb'), "room": (null|' + _STRING + rb'), "skip_sid": (?:null|' + _STRING + rb"|" + _FLAT_LIST
    + rb'), "callback": (?:null|' + _FLAT_LIST + rb'), "host_id": (' + _STRING + rb")\}"
)  # fmt: skip


class Destination(NamedTuple):
    """Whom an event of another process is for.

    Attributes:
        namespace: with its slash.
        room: None for everybody in the namespace.
        host_id: the process that published it.
    """

    namespace: str
    room: str | None
    host_id: str


def destination_of(message: object) -> Destination | None:
    """Return whom an emitted event is for; None when its end does not say."""
    if isinstance(message, str):
        message = (message[: len(_BEGINS)] + message[len(_BEGINS) :][-TAIL_BYTES:]).encode(errors="surrogatepass")
    if not isinstance(message, bytes) or not message.startswith(_BEGINS):
        return None
    tail = message[-TAIL_BYTES:]
    found = _ENDS.fullmatch(tail, max(0, tail.rfind(b'"namespace": ')))
    if found is None:
        return None
    namespace, room, host_id = found.groups()
    try:
        return Destination(_decoded(namespace), None if room == b"null" else _decoded(room), _decoded(host_id))
    except ValueError:
        return None  # no JSON after all: as python-socketio takes it


def _decoded(text: bytes) -> str:
    if b"\\" in text:
        decoded: str = json.loads(text)
        return decoded
    return text[1:-1].decode()
