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
# The characters of an id, which are all that a header holds beside its spaces.
_HEADER_CHARACTERS = b" ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:~-"
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


# A Struct is made in a tenth of the time of a frozen dataclass. No container is in it, so it needs no garbage collection.
class Event(msgspec.Struct, frozen=True, gc=False):
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


def decode_message(topic: str, message: bytes, max_payload_bytes: int, now_ms: int, start: int = 0) -> Event:
    """Return the event in a channel message.

    Args:
        topic: from the channel's name, or from the line before the message, already checked.
        message: the whole channel message.
        max_payload_bytes: the limit on the payload, compared before anything is parsed.
        now_ms: the time given to a plain PUBLISH, which carries none.
        start: the index in `message` at which header or payload begins.

    Raises:
        PayloadTooLarge: above the limit, where = `bus`.
        InvalidEvent: truncated or malformed header.
        NotSerializable: not UTF-8, not JSON, or nested deeper than MAX_DEPTH.
    """
    if not message.startswith(HEADER_TAG, start):
        if len(message) - start > max_payload_bytes:
            raise PayloadTooLarge(len(message) - start, max_payload_bytes, "bus")
        data = message[start:]
        check_json(data)
        return Event(topic, data, None, now_ms)
    end = message.find(b"\n", start, start + MAX_HEADER_BYTES)
    header = message[start:end] if end > 0 else b""
    parts = () if header.translate(None, _HEADER_CHARACTERS) else header.decode().split(" ")
    # By hand, part by part: half the time of a regular expression with four groups.
    if len(parts) != 5:
        raise _malformed_header()
    _, epoch, offset, time_ms, event_id = parts
    if (
        len(epoch) != 16
        or epoch.strip("0123456789abcdef")
        or not offset.isdigit()
        or len(offset) > 16
        or offset[0] == "0"
        or not time_ms.isdigit()
        or len(time_ms) > 16
        or not 0 < len(event_id) <= MAX_ID_LENGTH
    ):
        raise _malformed_header()
    size = len(message) - end - 1
    if size > max_payload_bytes:
        raise PayloadTooLarge(size, max_payload_bytes, "bus")
    data = message[end + 1 :]
    check_json(data)
    return Event(topic, data, event_id, int(time_ms), epoch, int(offset))


def _malformed_header() -> InvalidEvent:
    return InvalidEvent("header", "truncated or malformed")


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
        if not data.isascii():
            data.decode()  # msgspec skips over strings without looking at their encoding
        _decode_json(data)
    except UnicodeDecodeError as error:
        raise NotSerializable(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels") from error
    except msgspec.DecodeError as error:
        raise NotSerializable(str(error)) from error
    _check_depth(data)


class JsonText(bytes):
    """JSON text that `compact_json` has made; nobody needs to check it again."""

    __slots__ = ()


def compact_json(text: bytes | bytearray | memoryview | msgspec.Raw) -> JsonText:
    """Return JSON text as it is published: checked as `check_json` does, without blanks.

    Raises:
        NotSerializable: with the reason.
    """
    try:
        data = JsonText(_encode_json(_decode_json(text)))
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NotSerializable(str(error)) from error
    _check_depth(data)
    return data


def _check_depth(data: bytes) -> None:
    # Cheap bound first: only data with that many openers can be too deep.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_too_deep(data):
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")


_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_OPENER = ord("[")
# The nesting of usual data. Each level costs one look at all that is left; beyond, each bracket is looked at once.
_USUAL_DEPTH = 8


def _is_too_deep(data: bytes) -> bool:
    """Return whether valid JSON is nested deeper than MAX_DEPTH. Linear in its size."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # from the left, as the escapes of a string are read
    brackets = data.translate(_AS_LISTS, _NOT_STRUCTURE).replace(b'""', b"")
    if b'"' in brackets:  # some string holds a bracket
        brackets = b"".join(brackets.split(b'"')[::2])
    # Take away the innermost level, and again: lists side by side, however many, go at once.
    for _ in range(_USUAL_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket == _OPENER else -1
        if depth > MAX_DEPTH - _USUAL_DEPTH:
            return True
    return False
