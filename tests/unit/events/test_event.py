"""The event on the channel: reading, refusals, and the order of the checks."""

import json
import re
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, InvalidEvent, NotSerializable, PayloadTooLarge
from headgate.events.event import (
    MAX_DEPTH,
    Event,
    check_event_id,
    check_json,
    check_json_in_python,
    compact_json,
    decode_message,
    encode_ephemeral,
    read_offset,
)
from headgate.events.sender import read_sender, sender_word
from headgate.installation import build_in_use, native

is_surely_json = native("is_surely_json")
built = pytest.mark.skipif(build_in_use() == "python", reason="the walker in C is not built here, or not wanted")
# With the walker in C, if it was built, and without.
each_way = pytest.mark.parametrize("check", [check_json, check_json_in_python])

EPOCH = "0123456789abcdef"
EVENT = Event("orders.42", b'{"a":1}', "x:1", 1_700_000_000_000, EPOCH, 7)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def encode_message(event: Event) -> bytes:
    """Return the channel form of an event as log.lua writes it."""
    if event.offset is None:
        return event.data
    return b"hg1 %b %d %d %b\n%b" % (
        (event.epoch or "").encode(), event.offset, event.time_ms, (event.id or "").encode(), event.data,
    )  # fmt: skip


def decode(message: bytes, limit: int = 65536) -> Event:
    return decode_message("orders.42", message, limit, 99)


@given(
    JSON,
    st.from_regex(r"[A-Za-z0-9_.:~-]{1,128}", fullmatch=True),
    st.integers(0, 10**15),
    st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    st.integers(1, 10**15),
)
def test_an_encoded_event_is_decoded_unchanged(value: Any, event_id: str, time_ms: int, epoch: str, offset: int) -> None:
    payload = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    event = Event("orders.42", payload, event_id, time_ms, epoch, offset)

    decoded = decode(encode_message(event))

    assert decoded == event
    assert decoded.value() == value


def test_a_message_without_header_is_a_plain_event() -> None:
    """A plain PUBLISH has no offset, no epoch, no id, and the receiver's time."""
    event = decode(b'{"a": 1}')

    assert event == Event("orders.42", b'{"a": 1}', None, 99, None, None)
    assert encode_message(event) == b'{"a": 1}'


@pytest.mark.parametrize(
    "header",
    [
        b"hg1 ",
        b"hg1 0123",
        b"hg1 0123456789abcdef",
        b"hg1 0123456789abcdef 7 1700000000000 x",
        b"hg1 0123456789abcdef 7 1700000000000 \n1",
        b"hg1 0123456789ABCDEF 7 1700000000000 x\n1",
        b"hg1 0123456789abcde 7 1700000000000 x\n1",
        b"hg1 0123456789abcdef 0 1700000000000 x\n1",
        b"hg1 0123456789abcdef 07 1700000000000 x\n1",
        b"hg1 0123456789abcdef -7 1700000000000 x\n1",
        b"hg1 0123456789abcdef 7 now x\n1",
        b"hg1 0123456789abcdef 7 1700000000000 a b\n1",
        b"hg1 0123456789abcdef 7 1700000000000 " + b"x" * 129 + b"\n1",
        b"hg1 0123456789abcdef 7 1700000000000 \xff\n1",
        b"hg1 " + b"\xd9\xa1" * 8 + b" 7 1700000000000 x\n1",
        b"hg1 0123456789abcdef 7  1700000000000 x\n1",
        b"hg1 0123456789abcdef 7 1700000000000 x\r\n1",
        b"hg1 " + b"0" * 100_000,
        b"hg0 ",
        b"hg0 a -",
        b"hg0 a\n1",
        b"hg0 a ana\n1",
        b"hg0 a =\n1",
        b"hg0 a - -\n1",
        b"hg0 \xe9 -\n1",
        b"hg0 " + b"a" * 129 + b" -\n1",
    ],
)
def test_a_broken_header_is_refused(header: bytes) -> None:
    """Truncated or malformed, it never passes for a payload."""
    with pytest.raises(InvalidEvent):
        decode(header)


@given(st.from_regex(r"[A-Za-z0-9_.:~-]{1,128}", fullmatch=True), st.text(min_size=1, max_size=140), st.booleans())
def test_an_ephemeral_event_is_read_as_it_was_sent(event_id: str, user: str, shown: bool) -> None:
    """It has no place in the log, the time of the gateway, and the sender only where allowed."""
    word = sender_word(user, shown=shown)
    event = decode(encode_ephemeral(event_id, word, b"[1]"))
    assert event == Event("orders.42", b"[1]", event_id, 99, by=read_sender(word))


@pytest.mark.parametrize("message", [encode_message(EVENT), EVENT.data, encode_ephemeral("x:1", "", EVENT.data)])
def test_the_payload_limit_is_exact_and_says_where(message: bytes) -> None:
    """At the limit accepted, below it refused with the payload's size; the header does not count."""
    decode(message, 7)

    with pytest.raises(PayloadTooLarge) as caught:
        decode(message, 6)

    assert caught.value.parts == {"size": 7, "limit": 6, "where": "bus"}


def test_size_is_looked_at_before_content() -> None:
    """A huge message of another format than JSON is too large, and is not parsed to find out more."""
    with pytest.raises(PayloadTooLarge):
        decode(b"[" * 40_000_000)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"nope", b'{"a":1', b"[1] x", b"NaN", b"-Infinity", b"01", b"'a'", b'{"a":1,}', b'"a\nb"', b'"\xff"', b'"\xc0\xaf"',
        b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b"{1:2}",
    ],
)  # fmt: skip
def test_a_payload_that_is_not_strict_json_is_refused(payload: bytes) -> None:
    """Invalid JSON would break the packet of every client that gets it."""
    with pytest.raises(NotSerializable):
        decode(payload)
    for message in (encode_message(EVENT), encode_ephemeral("x:1", "", EVENT.data)):
        with pytest.raises(NotSerializable):
            decode(message[: -len(EVENT.data)] + payload)
    with pytest.raises(NotSerializable):
        compact_json(payload)


@given(JSON, st.sampled_from((None, 1)))
def test_compact_json_is_the_same_value_without_blanks_and_needs_no_further_check(value: Any, indent: int | None) -> None:
    """A reader finds the same, and `check_json` nothing."""
    text = json.dumps(value, indent=indent, ensure_ascii=indent is None).encode()

    compact = compact_json(text)

    check_json(compact)
    assert json.loads(compact) == value
    assert compact == compact_json(compact)
    assert len(compact) <= len(json.dumps(value, separators=(",", ":")).encode())


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_limited_exactly(opening: bytes, closing: bytes) -> None:
    """MAX_DEPTH levels pass, one more does not, a hundred thousand do not crash."""
    check_json(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH)

    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(NotSerializable, match="nested deeper"):
            check_json(opening * depth + b"1" + closing * depth)
        with pytest.raises(NotSerializable):
            compact_json(opening * depth + b"1" + closing * depth)


def nesting(value: object) -> int:
    """Return how many lists and objects are around the innermost value: the plain definition."""
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(nesting, value if isinstance(value, list) else value.values()), default=0)


def is_taken(data: bytes) -> bool:
    """Return the verdict on a payload by the plain definition. Every value is made, and every level counted."""
    try:
        data.decode()
        return nesting(msgspec.json.decode(data)) <= MAX_DEPTH
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return False


_PIECES = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"1", b"-", b".", b"e", b"E+", b"0", b"999", b"\\", b"u", b" ", b"true", b"null"),
    *(b"\\ud83d", b"\\uDE00", b"\\n", b"\n", b"\0", b"\x80", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
)


@each_way
@given(parts=st.lists(st.sampled_from(_PIECES), max_size=12), value=JSON, at=st.integers(0, 200), in_ascii=st.booleans())
def test_each_way_has_the_verdict_of_the_decoder(
    check: Callable[[bytes], None], parts: list[bytes], value: Any, at: int, in_ascii: bool
) -> None:
    """A payload that one build of the gateway refuses must not get past another, nor the other way."""
    whole = json.dumps(value, ensure_ascii=in_ascii).encode("utf-8", "surrogatepass")
    for data in (whole, b"".join(parts), whole[:at] + b"".join(parts) + whole[at:], whole[:at] + whole[at + 1 :]):
        if is_taken(data):
            check(data)
        else:
            with pytest.raises(NotSerializable):
                check(data)


DIGITS = (1, 15, 17, 198, 199, 200, 201, 308, 309, 310, 4300, 4301)
RESTS = ("", ".5", "e99", "E+99", "e100", "e-100", "e308", "E+309", "e-999", "e0000000000000000000001")


@each_way
def test_each_way_reads_numbers_as_the_decoder_does(check: Callable[[bytes], None]) -> None:
    """Around the range of a double, and Python's reading of an integer."""
    for sign, digits, rest in product(("", "-"), DIGITS, RESTS):
        for data in (f"[{sign}{'9' * digits}{rest}]".encode(), f"[{sign}0.{'9' * digits}{rest.replace('.5', '')}]".encode()):
            if is_taken(data):
                check(data)
            else:
                with pytest.raises(NotSerializable, match="out of range"):
                    check(data)


@built
@given(JSON, st.booleans(), st.booleans())
def test_usual_json_is_surely_json(value: Any, blanks: bool, in_ascii: bool) -> None:
    """As publishers write it: with blanks or without, and with other characters as they are or as escapes."""
    text = json.dumps(value, ensure_ascii=in_ascii, separators=None if blanks else (",", ":"))
    try:
        data = json.dumps(value, ensure_ascii=False).encode() and text.encode()
    except UnicodeEncodeError:
        return  # half of a surrogate pair
    assert is_surely_json(data) or re.search(r"e[+-]\d{3}", text), data  # exponents of three digits are left to Python


@each_way
def test_a_check_makes_no_values(check: Callable[[bytes], None]) -> None:
    """The check of thousands of values costs as much as reading them, not as making them."""
    rows = [{"id": f"row-{number}", "price": number * 1.1, "tags": ["a", "b"]} for number in range(2000)]
    data = json.dumps(rows, separators=(",", ":")).encode()
    check(data)
    tracemalloc.start()
    try:
        check(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.clear_traces()
        tracemalloc.reset_peak()
        json.loads(data)
        _, of_values_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(data) < of_values_bytes


@given(
    value=st.recursive(
        st.none() | st.text(alphabet='[]{}"\\ na'),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}"\\x'), inner, max_size=3),
        max_leaves=30,
    ),
    around=st.integers(MAX_DEPTH - 20, MAX_DEPTH + 2),
    as_lists=st.booleans(),
    beside=st.integers(0, 70),
)
def test_nesting_is_counted_outside_of_strings(value: object, around: int, as_lists: bool, beside: int) -> None:
    """Whatever the strings and keys hold, and however much stands side by side."""
    for _ in range(around):
        value = [value] if as_lists else {'[{\\"': value}
    payload = json.dumps([value, *([[{}]] * beside)]).encode()

    if nesting(value) + 1 > MAX_DEPTH:
        with pytest.raises(NotSerializable, match="nested deeper"):
            check_json(payload)
    else:
        check_json(payload)


@given(st.binary(max_size=300))
@example(b"hg1 0123456789abcdef 7 1700000000000 x\n")
@example(b"hg1 \n")
def test_no_message_raises_anything_else(message: bytes) -> None:
    """Any bytes are an event or one of our errors, so that the bus can count it and go on."""
    for candidate in (message, b"hg1 " + message, encode_message(EVENT)[:40] + message):
        try:
            decode(candidate)
        except HeadgateError:
            continue


def test_the_offset_of_a_bad_payload_can_still_be_read() -> None:
    """A quarantined message leaves a gap with a position."""
    assert read_offset(encode_message(EVENT)[:-3]) == (EPOCH, 7)
    assert read_offset(b"hg1 0123456789abcdef 7") is None
    assert read_offset(b'{"a":1}') is None


@pytest.mark.parametrize("event_id", ["a", "x" * 128, "a_b.c:d~e-9"])
def test_valid_ids_are_returned(event_id: str) -> None:
    """Ids of other systems (UUIDs, URNs without slashes, counters) fit."""
    assert check_event_id(event_id) == event_id


@pytest.mark.parametrize("event_id", ["", "x" * 129, "a b", "a\n", "ü", "a/b", 7, None, b"a", "١"])
def test_other_ids_are_refused(event_id: object) -> None:
    """An id stands in the header between spaces, so its alphabet is closed."""
    with pytest.raises(InvalidEvent):
        check_event_id(event_id)
