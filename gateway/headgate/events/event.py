"""The event, and its form on the Redis channel. No I/O.

In: what the function library publishes (log.lua writes the same header), or the plain JSON of an outside
publisher. Out: an `Event` whose payload bytes are exactly those that the publisher sent; nobody re-encodes them.

A message on a channel is `hg1 <epoch> <offset> <time_ms> <id>[ <traceparent or ->[ <sender>]]\n<payload>`. A message that does
not start with `hg1 ` (no JSON text does) is a plain PUBLISH: the whole message is the payload, without offset, live only, at most
once. An ephemeral event is one too, with an id and perhaps a sender: `hg0 <id> <sender or ->\n<payload>`.

Everything here is checked in the order size, header, UTF-8, JSON, so that a hostile message costs what its size check
costs. A bad one raises; the bus counts it and sets it aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from headgate.build import is_pure
from headgate.errors import InvalidEvent, NotSerializable, PayloadTooLarge
from headgate.events.sender import SHOWN, read_sender
from headgate.events.traceparent import LENGTH as TRACEPARENT_LENGTH
from headgate.events.traceparent import read_traceparent

HEADER_TAG = b"hg1 "
EPHEMERAL_TAG = b"hg0 "
# epoch 16 + offset 16 + time 16 + id 128 + traceparent 55 + sender 128 and separators: no honest header is longer.
MAX_HEADER_BYTES = 384
MAX_ID_LENGTH = 128
ID_CHARACTERS = "[A-Za-z0-9_.:~-]"
# For how long an id makes a second publish a duplicate, and how every text says it (docs/guarantees.md, "How long an id counts").
ID_COUNTS_S = 300
ID_RULE = f"{ID_COUNTS_S} s (less at a high rate)"
# JSON nesting that every consumer of ours and every browser can walk; msgspec itself stops at the interpreter's limit.
MAX_DEPTH = 64

_ID = re.compile(rf"{ID_CHARACTERS}{{1,{MAX_ID_LENGTH}}}", re.ASCII)
_HEADER = re.compile(rb"hg1 ([0-9a-f]{16}) ([1-9][0-9]{0,15}) ([0-9]{1,16}) ([A-Za-z0-9_.:~-]{1,128})")
_ID_BYTES = re.compile(rb"[A-Za-z0-9_.:~-]{1,128}")
_TAG_BYTES, _ZERO = len(HEADER_TAG), ord("0")
# Epochs that are known to be valid. A log is in one, and in another now and then.
_MAX_EPOCHS = 64
_epochs: dict[bytes, str] = {}
# Where msgspec has found a fault, and words of JavaScript and Python that are numbers there.
_BYTE = re.compile(r"\(byte (\d+)\)")
_NO_NUMBER = re.compile(rb"-?(?:NaN|Infinity)\b")
_decode_json = msgspec.json.Decoder().decode
_skip_json = msgspec.json.Decoder(msgspec.Raw).decode
# Below, to make the values takes less time than to skip them and look for numbers that are too large.
_FEW_BYTES = 200
# With digits as zeros and what may follow a number as a comma, these are the numbers that may be too large. With a digit
# less before the point and in the exponent none is: 10^199 * 10^99 is below the largest double, 1.8 * 10^308.
_NUMBERS = bytes.maketrans(b"123456789E]} \t\n\r", b"000000000e,,,,,,")
_MANY_DIGITS = b"0" * 200
_LONG_EXPONENT = re.compile(rb"0e[+-]?000+(?:,|$)")
_encode_json = msgspec.json.Encoder().encode


# A Struct is made in a tenth of the time of a frozen dataclass. No container is in it, so it needs no garbage collection.
class Event(msgspec.Struct, frozen=True, gc=False):
    """One published event. `data` is JSON text as bytes; `offset` and `epoch` are None for an event that is in no log.

    Of these an ephemeral event has an `id`, and a plain PUBLISH has none.

    `time_ms` is the time at which Redis appended it (milliseconds since 1970), or the gateway's own for a plain one.
    `traceparent`: of the span that published it; None for most. `by`: the user who published it, where clients may know.
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
    """JSON text that `compact_json` has made; it needs no further check."""

    __slots__ = ()


def _walker() -> Callable[[bytes], bool] | None:
    """Return the walker in C, or None where it was not built or is not wanted."""
    if is_pure():
        return None
    try:
        from headgate._native import is_surely_json
    except ImportError:
        return None
    return is_surely_json


_is_surely_json: Final = _walker()


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
        topic: from the channel's name, or from the line before the message, already checked.
        message: the channel message, header and payload.
        max_payload_bytes: the limit on the payload, compared before it is parsed.
        now_ms: the time given to a plain PUBLISH, which carries none.

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
    # By hand, part by part: two thirds of the time of a regular expression with four groups.
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
        # Redis's own ids, and most others, have letters, digits and `-` alone: a third of the time of looking at each character.
        or not (event_id.replace(b"-", b"0").isalnum() or _ID_BYTES.fullmatch(event_id))
    ):
        raise _malformed_header()
    text = _epochs.get(epoch) or _learn_epoch(epoch)
    if len(data) > max_payload_bytes:
        raise PayloadTooLarge(len(data), max_payload_bytes, "bus")
    check_json(data)
    return Event(topic, data, event_id.decode(), int(time_ms), text, int(offset), traceparent, by)


def encode_ephemeral(event_id: str, sender: str, data: bytes) -> bytes:
    """Return the channel message of an ephemeral event; `sender` is a word of sender.py, and only one to be shown is sent."""
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
    """Return the traceparent and the sender at the end of a header: a traceparent alone, or both, the first perhaps as `-`."""
    texts = [part.decode("ascii", "replace") for part in parts]
    by = read_sender(texts[1]) if len(texts) == 2 else None
    if len(texts) != 1 and by is None:
        raise _malformed_header()
    if by is not None and texts[0] == "-":
        return None, by
    if len(texts[0]) != TRACEPARENT_LENGTH:
        raise _malformed_header()
    return read_traceparent(texts[0], "bus"), by


def _learn_epoch(epoch: bytes) -> str:
    """Check an epoch that is not known, and remember it: all events of an epoch share one text."""
    if len(epoch) != 16 or epoch.strip(b"0123456789abcdef"):
        raise _malformed_header()
    if len(_epochs) >= _MAX_EPOCHS:
        del _epochs[next(iter(_epochs))]
    text = _epochs[epoch] = epoch.decode()
    return text


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
    if _is_surely_json is None or not _is_surely_json(data):
        check_json_in_python(data)


def check_json_in_python(data: bytes) -> None:
    """Check as `check_json` does, with the same verdict: what the walker in C leaves, and everything where that was not built.

    Raises:
        NotSerializable: with the reason.
    """
    # Without a bracket after the first one it is not deep at all: to look for that takes a third of the time of counting.
    is_flat = not data.rpartition(b"{")[0] and not data.rpartition(b"[")[0]
    try:
        if not data.isascii():
            data.decode()  # msgspec skips over strings without looking at their encoding
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
    """Raise as the decoder does. It makes every value, which takes ten times as long as to skip them all."""
    try:
        _skip_json(data)
    except msgspec.DecodeError:
        _decode_json(data)  # which has the better reasons
        raise
    numbers = data.translate(_NUMBERS)  # it skips numbers of any size
    if _MANY_DIGITS in numbers or _LONG_EXPONENT.search(numbers):
        _decode_json(data)


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
        raise NotSerializable(json_reason(error, bytes(text))) from error
    _check_depth(data)
    return data


def json_reason(error: Exception, text: bytes) -> str:
    """Return why a text is no JSON. What other encoders write and JSON does not have is named."""
    reason = str(error)
    if place := _BYTE.search(reason):
        if word := _NO_NUMBER.match(text, int(place[1])):
            return f"{word[0].decode()} at byte {place[1]} is not a JSON number; write null or a string"
    elif b"\\ud" in text[-16:].lower():  # msgspec expects the other half, and meets the end
        return f"{reason}, or it ends in a lone surrogate (\\ud800 to \\udfff)"
    return reason


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
