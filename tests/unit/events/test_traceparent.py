"""The traceparent of an event: valid ones, by W3C Trace Context level 2, and that a malformed one is dropped and counted."""

import pytest

from headgate.events.event import HEADER_TAG, MAX_HEADER_BYTES, decode_message, read_offset
from headgate.events.traceparent import DROPPED, MAX_LENGTH, ids_of, is_sampled, read_traceparent
from headgate.events.wire.frames import event_frame
from headgate.redis.log import read_entry

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
EPOCH = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (PARENT, PARENT),
        (f"00-{TRACE}-{SPAN}-03", f"00-{TRACE}-{SPAN}-03"),
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-03"),
        (f"cc-{TRACE}-{SPAN}-00-what-the-future-says", f"00-{TRACE}-{SPAN}-00"),
        (f"cc-{TRACE}-{SPAN}-01", PARENT),
    ],
)
def test_a_traceparent_is_passed_on_in_version_00(text: str, read: str) -> None:
    """With the flags of level 2; of a later version the known parts."""
    assert read_traceparent(text, "http") == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        7,
        PARENT.upper(),
        f" {PARENT}",
        f"{PARENT}\n",
        f"{PARENT}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * MAX_LENGTH,
        f"00-{TRACE[:-1]}\N{FULLWIDTH DIGIT ONE}-{SPAN}-01",
    ],
)
def test_a_malformed_one_is_dropped_and_counted(text: object) -> None:
    """By where it came from. None is none, and no fault."""
    before = DROPPED["http"]
    assert read_traceparent(text, "http") is None
    assert DROPPED["http"] == before + 1
    assert read_traceparent(None, "http") is None
    assert DROPPED["http"] == before + 1


def test_its_parts_are_numbers() -> None:
    assert ids_of(PARENT) == (int(TRACE, 16), int(SPAN, 16), 1)
    assert [is_sampled(f"00-{TRACE}-{SPAN}-0{flags}") for flags in range(4)] == [False, True, False, True]


def test_a_message_with_one_is_the_same_event() -> None:
    """It changes nothing else; a malformed one is left out."""
    head = HEADER_TAG + f"{EPOCH} 5 1700000000000 id".encode()
    event = decode_message("a", head + b" " + PARENT.encode() + b'\n{"n":1}', 65536, 0)
    assert (event.id, event.offset, event.epoch, event.data, event.traceparent) == ("id", 5, EPOCH, b'{"n":1}', PARENT)
    before = DROPPED["bus"]
    bare = decode_message("a", head + b" " + b"z" * 55 + b"\n" + b'{"n":1}', 65536, 0)
    assert bare == decode_message("a", head + b'\n{"n":1}', 65536, 0)
    assert DROPPED["bus"] == before + 1
    assert f'"offset":5,"traceparent":"{PARENT}"}}]'.encode() in event_frame(b"n", event).wire
    assert b"traceparent" not in event_frame(b"n", bare).wire
    assert read_offset(head + b" " + PARENT.encode() + b"\nrubbish") == (EPOCH, 5)
    longest = f"hg1 {EPOCH} {'9' * 16} {'9' * 16} {'x' * 128} {PARENT}"
    assert len(longest) < MAX_HEADER_BYTES
    assert decode_message("a", longest.encode() + b"\n1", 65536, 0).traceparent == PARENT


def test_an_entry_with_one_is_the_same_event() -> None:
    fields = {b"topic": b"a", b"id": b"id", b"time": b"1", b"data": b"{}", b"traceparent": PARENT.encode()}
    event = read_entry(5, fields, 65536).event
    assert event is not None
    assert event.traceparent == PARENT
    assert event_frame(b"n", event, replayed=True).wire.endswith(b'"replayed":true,"traceparent":"%b"}]' % PARENT.encode())
    bare = read_entry(5, fields | {b"traceparent": b"\xff"}, 65536).event
    assert bare is not None
    assert (bare.traceparent, bare.id) == (None, "id")
