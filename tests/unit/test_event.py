"""The event on the channel: what is read, what is refused, and in which order it is looked at."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, InvalidEvent, NotSerializable, PayloadTooLarge
from headgate.event import MAX_DEPTH, Event, check_event_id, check_json, compact_json, decode_message, read_offset

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
    """A round trip changes nothing, the payload's bytes included."""
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
    ],
)
def test_a_broken_header_is_refused(header: bytes) -> None:
    """Truncated or malformed, it never passes for a payload."""
    with pytest.raises(InvalidEvent):
        decode(header)


@pytest.mark.parametrize("message", [encode_message(EVENT), EVENT.data])
def test_the_payload_limit_is_exact_and_says_where(message: bytes) -> None:
    """At the limit accepted, below it refused with the payload's size; the header does not count."""
    decode(message, 7)

    with pytest.raises(PayloadTooLarge) as caught:
        decode(message, 6)

    assert caught.value.parts == {"size": 7, "limit": 6, "where": "bus"}


def test_size_is_looked_at_before_content() -> None:
    """A huge message that is also not JSON is too large: nobody parses it to find out more."""
    with pytest.raises(PayloadTooLarge):
        decode(b"[" * 40_000_000)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nope",
        b'{"a":1',
        b"[1] x",
        b"NaN",
        b"-Infinity",
        b"01",
        b"'a'",
        b'{"a":1,}',
        b'"a\nb"',
        b'"\xff"',
        b'"\xc0\xaf"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b"{1:2}",
    ],
)
def test_a_payload_that_is_not_strict_json_is_refused(payload: bytes) -> None:
    """Invalid JSON would break the packet of every client that gets it."""
    with pytest.raises(NotSerializable):
        decode(payload)
    with pytest.raises(NotSerializable):
        decode(encode_message(EVENT)[: -len(EVENT.data)] + payload)
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


def test_brackets_in_strings_are_no_nesting() -> None:
    """Text about brackets is text."""
    check_json(json.dumps(["[{" * 1000, '\\"[' * 1000]).encode())


def nesting(value: object) -> int:
    """Return how many lists and objects are around the innermost value: the plain definition."""
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(nesting, value if isinstance(value, list) else value.values()), default=0)


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


def test_wide_data_is_not_deep() -> None:
    """Many small lists side by side are within the limit."""
    check_json(b"[" + b",".join([b"[]"] * 10_000) + b"]")


@given(st.binary(max_size=300))
@example(b"hg1 0123456789abcdef 7 1700000000000 x\n")
@example(b"hg1 \n")
def test_no_message_raises_anything_else(message: bytes) -> None:
    """Any bytes are an event or one of our errors: the bus can count it and go on."""
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
