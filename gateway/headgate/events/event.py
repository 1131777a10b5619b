"""An event, and its form on the Redis channel. No I/O.

In: messages of the function library (log.lua writes the same header), or plain JSON from an outside publisher. Out: an `Event`
with exactly the payload bytes that the publisher sent, never re-encoded.

A message on a channel is `hg1 <epoch> <offset> <time_ms> <id>[ <traceparent or ->[ <sender>]]\n<payload>`. A message that does
not start with `hg1 ` (no JSON text does) is a plain PUBLISH. The whole message is the payload, without an offset, live only,
and delivered at most once. So is an ephemeral event, with an id and perhaps a sender, `hg0 <id> <sender or ->\n<payload>`.

Checks run in the order size, header, UTF-8, JSON, so a hostile message costs no more than its size check. A bad message raises,
and the bus counts it and sets it aside.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from headgate.errors import InvalidEvent, NotSerializable, PayloadTooLarge
from headgate.events.sender import SHOWN, read_sender
from headgate.events.traceparent import LENGTH as TRACEPARENT_LENGTH
from headgate.events.traceparent import read_traceparent
from headgate.installation import native

HEADER_TAG = b"hg1 "
EPHEMERAL_TAG = b"hg0 "
# epoch 16 + offset 16 + time 16 + id 128 + traceparent 55 + sender 128 and separators. No honest header is longer.
MAX_HEADER_BYTES = 384
MAX_ID_LENGTH = 128
ID_CHARACTERS = "[A-Za-z0-9_.:~-]"
# How long an id makes a second publish a duplicate, and the wording in every text (docs/guarantees.md, "How long an id
# counts").
ID_COUNTS_S = 300
ID_RULE = f"{ID_COUNTS_S} s (less at a high rate)"
# A JSON nesting that all our consumers and all browsers can walk. msgspec stops only at the interpreter's limit.
MAX_DEPTH = 64

_ID = re.compile(rf"{ID_CHARACTERS}{{1,{MAX_ID_LENGTH}}}", re.ASCII)
_HEADER = re.compile(rb"hg1 ([0-9a-f]{16}) ([1-9][0-9]{0,15}) ([0-9]{1,16}) ([A-Za-z0-9_.:~-]{1,128})")
_ID_BYTES = re.compile(rb"[A-Za-z0-9_.:~-]{1,128}")
_TAG_BYTES, _ZERO = len(HEADER_TAG), ord("0")
# The position of a fault in msgspec's message, and words for numbers in JavaScript and Python.
_BYTE = re.compile(r"\(byte (\d+)\)")
_NO_NUMBER = re.compile(rb"-?(?:NaN|Infinity)\b")
_decode_json = msgspec.json.Decoder().decode
_skip_json = msgspec.json.Decoder(msgspec.Raw).decode
# Below this size, creating the values is faster than skipping them and searching for numbers that are too large.
_FEW_BYTES = 200
# Numbers that may be too large, with digits as zeros and any character that may follow a number as a comma. With a digit less
# before the point and in the exponent, none is too large, because 10^199 * 10^99 is below the largest double, 1.8 * 10^308.
_NUMBERS = bytes.maketrans(b"123456789E]} \t\n\r", b"000000000e,,,,,,")
_MANY_DIGITS = b"0" * 200
_LONG_EXPONENT = re.compile(rb"0e[+-]?000+(?:,|$)")
_encode_json = msgspec.json.Encoder().encode


# A Struct takes a tenth of the time of a frozen dataclass to create. It has no container, so it needs no garbage collection.
class Event(msgspec.Struct, frozen=True, gc=False):
    """One published event. `data` is JSON text as bytes; `offset` and `epoch` are None for an event outside the log.

    Outside the log, an ephemeral event has an `id`, and a plain PUBLISH has none.

    `time_ms` is when Redis appended it (milliseconds since 1970), or when the gateway got a plain one. `traceparent` is of the
    publishing span, and None for most. `by` is the publishing user, if clients may know.
    """

    topic: str
    data: bytes
    id: str | None
    time_ms: int
    epoch: str | None = None
    offset: int | None = None
    traceparent: str | None = None
    by: str | None = None

    def value(self) -> Any:
        """Return the data decoded into Python objects (not used on the hot path)."""
        return _decode_json(self.data)


class JsonText(bytes):
    """JSON text from `compact_json`, which needs no further check."""

    __slots__ = ()


_is_surely_json: Final[Callable[[bytes], bool] | None] = native("is_surely_json")


def check_event_id(event_id: object) -> str:
    """Return `event_id` if it is 1 to 128 characters of `A-Z a-z 0-9 _ . : ~ -`. Raises InvalidEvent otherwise."""
    if not isinstance(event_id, str) or not _ID.fullmatch(event_id):
        got = reprlib.repr(event_id)
        raise InvalidEvent("id", f"expected 1 to {MAX_ID_LENGTH} characters of A-Z a-z 0-9 _ . : ~ -, got {got}")
    return event_id


def decode_message(topic: str, message: bytes, max_payload_bytes: int, now_ms: int) -> Event:
    """Return the event in a channel message.

    Args:
        topic: already checked, from the channel's name or from the line before the message.
        message: the channel message with header and payload.
        max_payload_bytes: the limit on the payload, checked before parsing.
        now_ms: the time for a plain PUBLISH, which carries none.

    Raises:
        PayloadTooLarge: above the limit, where = `bus`.
        InvalidEvent: truncated or malformed header.
        NotSerializable: not UTF-8, not JSON, or nested deeper than MAX_DEPTH.
    """
    if message[:_TAG_BYTES] == EPHEMERAL_TAG:
        return _decode_ephemeral(topic, message, max_payload_bytes, now_ms)
    if message[:_TAG_BYTES] != HEADER_TAG:
        if len(message) > max_payload_bytes:
            raise PayloadTooLarge(len(message), max_payload_bytes, "bus")
        check_json(message)
        return Event(topic, message, None, now_ms)
    header, newline, data = message.partition(b"\n")
    # Parsed by hand in two thirds of the time of a regular expression with four groups.
    parts = header.split(b" ") if newline and len(header) < MAX_HEADER_BYTES else []
    traceparent = by = None
    if len(parts) != 5:
        traceparent, by = _read_origin(parts[5:])
        del parts[5:]
    _, epoch, offset, time_ms, event_id = parts
    if (
        not offset.isdigit()
        or len(offset) > 16
        or offset[0] == _ZERO
        or not time_ms.isdigit()
        or len(time_ms) > 16
        or len(event_id) > MAX_ID_LENGTH
        # Redis's own ids, and most others, have only letters, digits and `-`. This takes a third of the time of checking each
        # character.
        or not (event_id.replace(b"-", b"0").isalnum() or _ID_BYTES.fullmatch(event_id))
    ):
        raise _malformed_header()
    text = _read_epoch(epoch)
    if len(data) > max_payload_bytes:
        raise PayloadTooLarge(len(data), max_payload_bytes, "bus")
    check_json(data)
    return Event(topic, data, event_id.decode(), int(time_ms), text, int(offset), traceparent, by)


def encode_ephemeral(event_id: str, sender: str, data: bytes) -> bytes:
    """Return the channel message of an ephemeral event. `sender` is a word of sender.py, sent only if clients may see it."""
    return b"%b%b %b\n%b" % (EPHEMERAL_TAG, event_id.encode(), sender.encode() if sender.startswith(SHOWN) else b"-", data)


def _decode_ephemeral(topic: str, message: bytes, max_payload_bytes: int, now_ms: int) -> Event:
    header, newline, data = message.partition(b"\n")
    parts = header[_TAG_BYTES:].split(b" ") if newline and len(header) < MAX_HEADER_BYTES else []
    if len(parts) != 2 or not _ID_BYTES.fullmatch(parts[0]):
        raise _malformed_header()
    by = read_sender(parts[1].decode("ascii", "replace"))
    if by is None and parts[1] != b"-":
        raise _malformed_header()
    if len(data) > max_payload_bytes:
        raise PayloadTooLarge(len(data), max_payload_bytes, "bus")
    check_json(data)
    return Event(topic, data, parts[0].decode(), now_ms, by=by)


def _read_origin(parts: list[bytes]) -> tuple[str | None, str | None]:
    """Return the traceparent and the sender at the end of a header. The traceparent may be `-` before a sender."""
    texts = [part.decode("ascii", "replace") for part in parts]
    by = read_sender(texts[1]) if len(texts) == 2 else None
    if len(texts) != 1 and by is None:
        raise _malformed_header()
    if by is not None and texts[0] == "-":
        return None, by
    if len(texts[0]) != TRACEPARENT_LENGTH:
        raise _malformed_header()
    return read_traceparent(texts[0], "bus"), by


@lru_cache(maxsize=64)  # a log rarely moves to another epoch
def _read_epoch(epoch: bytes) -> str:
    """Check an epoch. All of its events share one str."""
    if len(epoch) != 16 or epoch.strip(b"0123456789abcdef"):
        raise _malformed_header()
    return epoch.decode()


def _malformed_header() -> InvalidEvent:
    return InvalidEvent("header", "truncated or malformed")


def read_offset(message: bytes) -> tuple[str, int] | None:
    """Return (epoch, offset) of a message with a possibly bad payload, or None, for the gap of a quarantined event."""
    header = _HEADER.match(message, 0, MAX_HEADER_BYTES)
    return (header[1].decode(), int(header[2])) if header else None


def check_json(data: bytes) -> None:
    """Check that `data` is one strict JSON text in UTF-8, nested at most MAX_DEPTH deep.

    Raises NotSerializable with the reason.
    """
    if _is_surely_json is None or not _is_surely_json(data):
        check_json_in_python(data)


def check_json_in_python(data: bytes) -> None:
    """Check as `check_json`, for texts that the walker in C leaves, and for all if it is not built.

    Raises NotSerializable with the reason.
    """
    # JSON without a second opening bracket is not deep. Searching for one takes a third of the time of counting.
    is_flat = not data.rpartition(b"{")[0] and not data.rpartition(b"[")[0]
    try:
        if not data.isascii():
            data.decode()  # msgspec skips strings without checking their encoding
        if is_flat or len(data) < _FEW_BYTES:
            _decode_json(data)
        else:
            _check_syntax(data)
    except UnicodeDecodeError as error:
        raise NotSerializable(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels") from error
    except msgspec.DecodeError as error:
        raise NotSerializable(json_reason(error, data)) from error
    if not is_flat:
        _check_depth(data)


def _check_syntax(data: bytes) -> None:
    """Raise as the decoder does. The decoder creates every value, which takes ten times as long as skipping them."""
    try:
        _skip_json(data)
    except msgspec.DecodeError:
        _decode_json(data)  # its reasons are better
        raise
    numbers = data.translate(_NUMBERS)  # it accepts numbers of any size
    if _MANY_DIGITS in numbers or _LONG_EXPONENT.search(numbers):
        _decode_json(data)


def compact_json(text: bytes | bytearray | memoryview | msgspec.Raw) -> JsonText:
    """Check JSON text as `check_json`, and return it in its published form without white space.

    Raises NotSerializable with the reason.
    """
    try:
        data = JsonText(_encode_json(_decode_json(text)))
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NotSerializable(json_reason(error, bytes(text))) from error
    _check_depth(data)
    return data


def json_reason(error: Exception, text: bytes) -> str:
    """Return why a text is not JSON. Names the non-JSON forms of other encoders."""
    reason = str(error) if text.strip() else "it is empty"
    if place := _BYTE.search(reason):
        if word := _NO_NUMBER.match(text, int(place[1])):
            return f"{word[0].decode()} at byte {place[1]} is not a JSON number; write null or a string"
    elif b"\\ud" in text[-16:].lower():  # msgspec expects the other half and reaches the end
        return f"{reason}, or it ends in a lone surrogate (\\ud800 to \\udfff)"
    return reason


def _check_depth(data: bytes) -> None:
    # A cheap check first, because only data with that many opening brackets can be too deep.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_too_deep(data):
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")


_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_OPENER = ord("[")
# The nesting of usual data. Each level costs a pass over the remaining text. Beyond it, each bracket is visited once.
_USUAL_DEPTH = 8


def _is_too_deep(data: bytes) -> bool:
    """Return whether valid JSON is nested deeper than MAX_DEPTH. Linear in its size."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # from the left, in the order of string escapes
    brackets = data.translate(_AS_LISTS, _NOT_STRUCTURE).replace(b'""', b"")
    if b'"' in brackets:  # a string holds a bracket
        brackets = b"".join(brackets.split(b'"')[::2])
    # Remove the innermost level repeatedly. One pass removes any number of adjacent lists.
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
