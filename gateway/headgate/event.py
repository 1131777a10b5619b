"""The event, and its form on the Redis channel. No I/O.

In: what the function library publishes (log.lua writes the same header), or the plain JSON of an outside
publisher. Out: an `Event` whose payload bytes are exactly those that the publisher sent; nobody re-encodes them.

A message on a channel is `hg1 <epoch> <offset> <time_ms> <id>\n<payload>`. A message that does not start with `hg1 `
(no JSON text does) is a plain PUBLISH: the whole message is the payload, without offset, live only, at most once.

Everything here is checked in the order size, header, UTF-8, JSON, so that a hostile message costs what its size check
costs. A bad one raises; the bus counts it and sets it aside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from .errors import InvalidEvent, NotSerializable, PayloadTooLarge

HEADER_TAG = b"hg1 "
# epoch 16 + offset 16 + time 16 + id 128 and separators: no honest header is longer.
MAX_HEADER_BYTES = 200
MAX_ID_LENGTH = 128
# JSON nesting that every consumer of ours and every browser can walk; msgspec itself stops at the interpreter's limit.
MAX_DEPTH = 64

_ID = re.compile(r"[A-Za-z0-9_.:~-]{1,128}", re.ASCII)
_HEADER = re.compile(rb"hg1 ([0-9a-f]{16}) ([1-9][0-9]{0,15}) ([0-9]{1,16}) ([A-Za-z0-9_.:~-]{1,128})")
_decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Event:
    """One published event. `data` is JSON text as bytes; `offset` and `epoch` are None for a plain PUBLISH.

    `time_ms` is the time at which Redis appended it (milliseconds since 1970), or the gateway's own for a plain one.
    """

    topic: str
    data: bytes
    id: str | None
    time_ms: int
    epoch: str | None = None
    offset: int | None = None

    def value(self) -> Any:
        """Return the data decoded into Python objects (not used on the hot path)."""
        return _decode_json(self.data)


def check_event_id(event_id: object) -> str:
    """Return `event_id` if it is 1 to 128 characters of `A-Z a-z 0-9 _ . : ~ -`.

    Raises:
        InvalidEvent: it is anything else.
    """
    if not isinstance(event_id, str) or not _ID.fullmatch(event_id):
        raise InvalidEvent("id", f"expected 1 to {MAX_ID_LENGTH} characters of A-Z a-z 0-9 _ . : ~ -")
    return event_id


def decode_message(topic: str, message: bytes, max_payload_bytes: int, now_ms: int) -> Event:
    """Return the event in a channel message.

    Args:
        topic: from the channel's name, already checked.
        message: the whole channel message.
        max_payload_bytes: the limit on the payload, compared before anything is parsed.
        now_ms: the time given to a plain PUBLISH, which carries none.

    Raises:
        PayloadTooLarge: above the limit, where = `bus`.
        InvalidEvent: truncated or malformed header.
        NotSerializable: not UTF-8, not JSON, or nested deeper than MAX_DEPTH.
    """
    if not message.startswith(HEADER_TAG):
        if len(message) > max_payload_bytes:
            raise PayloadTooLarge(len(message), max_payload_bytes, "bus")
        check_json(message)
        return Event(topic, message, None, now_ms)
    end = message.find(b"\n", 0, MAX_HEADER_BYTES)
    header = _HEADER.fullmatch(message, 0, end) if end > 0 else None
    if header is None:
        raise InvalidEvent("header", "truncated or malformed")
    epoch, offset, time_ms, event_id = header.groups()
    size = len(message) - end - 1
    if size > max_payload_bytes:
        raise PayloadTooLarge(size, max_payload_bytes, "bus")
    data = message[end + 1 :]
    check_json(data)
    return Event(topic, data, event_id.decode(), int(time_ms), epoch.decode(), int(offset))


def read_offset(message: bytes) -> tuple[str, int] | None:
    """Return (epoch, offset) of a message whose payload may be bad, or None: what a quarantine tells clients is missing."""
    header = _HEADER.match(message, 0, MAX_HEADER_BYTES)
    return (header[1].decode(), int(header[2])) if header else None


def check_json(data: bytes) -> None:
    """Check that `data` is one strict JSON text in UTF-8, nested at most MAX_DEPTH deep.

    Raises:
        NotSerializable: with the reason.
    """
    try:
        data.decode()  # msgspec skips over strings without looking at their encoding
        _decode_json(data)
    except UnicodeDecodeError as error:
        raise NotSerializable(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels") from error
    except msgspec.DecodeError as error:
        raise NotSerializable(str(error)) from error
    # Cheap bound first: only data with that many openers can be too deep.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")


_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _depth(data: bytes) -> int:
    depth = deepest = 0
    for byte in _STRINGS.sub(b"", data).translate(None, _NOT_BRACKETS):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest
