"""Frames of entries of the log: the same in C and in Python, for entries as log.lua writes them and for any other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.page_cache import log_frames
from headgate.events.wire.frames import Frame
from headgate.installation import build_in_use, native
from headgate.redis.lineage import Entry
from headgate.redis.log import RawEntry
from tests.support.raw_log import RawLog, raw_entry

page_frames = native("page_frames")
built = pytest.mark.skipif(build_in_use() == "python", reason="the direct writes in C are not built here, or not wanted")
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def seen(entries: list[RawEntry], in_c: Any, limit: int = 100) -> list[tuple[int, object]]:
    """Return the results of entries: each offset with all of its frame, or with the code of its fault."""
    found: list[tuple[int, object]] = []
    log: Any = RawLog(limit)
    for offset, each in log_frames(b"n", entries, log, in_c):
        if isinstance(each, Frame):
            found.append((offset, (each.wire, each.skip, each.topic, each.offset, each.payload_bytes, each.time_ms, each.tally)))
        else:
            assert isinstance(each, Entry)
            assert each.error is not None
            found.append((offset, each.error.code))
    return found


@built
def test_an_entry_as_it_is_usually_written_is_framed_without_python() -> None:
    """Also one with another clock than its time, and the largest payload."""
    entries = [raw_entry(7), raw_entry(8, clock=b"12"), raw_entry(9, data=b'"' + b"x" * 98 + b'"')]
    framed = page_frames(entries, b"n", 100, lambda text: text.decode(), lambda *parts: parts)
    assert [parts[3] for parts in framed] == [7, 8, 9]
    assert framed[0][0].endswith(b'42/n,["event","a.b",{},{"id":"e7","time":1700000000000,"offset":7,"replayed":true}]')


@pytest.mark.parametrize(
    "entry",
    [
        raw_entry(1, topic=b"a..b"),
        raw_entry(1, topic=b"\xc3\xa9"),
        raw_entry(1, topic=b"x" * 256),
        raw_entry(1, id=b"a b"),
        raw_entry(1, id=b""),
        raw_entry(1, id=b"x" * 129),
        raw_entry(1, time=b""),
        raw_entry(1, time=b"007"),
        raw_entry(1, time=b"12\x0034"),
        raw_entry(1, time=b"1" * 17),
        raw_entry(1, data=b"{"),
        raw_entry(1, data=b"[1,\xff]"),
        raw_entry(1, data=b'"\\u00e9"'),
        raw_entry(1, data=b'"' + b"x" * 99 + b'"'),
        raw_entry(1, traceparent=PARENT),
        raw_entry(1, publisher=b"ann"),
        raw_entry(1, publisher=b"=ann"),
        [b"1-0", [b"topic", b"a.b"]],
        [b"1-0", []],
        [b"1-5", raw_entry(1)[1]],
        [b"1-0", list(reversed(raw_entry(1)[1]))],
    ],
    ids=lambda entry: repr(entry)[:60],
)
def test_any_other_entry_is_what_python_says(entry: RawEntry) -> None:
    """Between two usual ones, which are framed all the same."""
    entries = [raw_entry(1), entry, raw_entry(3)]
    assert seen(entries, page_frames) == seen(entries, None)


@given(
    st.lists(
        st.builds(
            lambda name, value: raw_entry(2, **{name: value}),
            st.sampled_from(["topic", "id", "time", "data", "sum", "clock", "publisher"]),
            st.binary(max_size=12) | st.text('ab.01{}[]",:', max_size=12).map(str.encode),
        ),
        max_size=4,
    )
)
def test_whatever_the_fields_hold_both_ways_come_to_the_same(entries: list[RawEntry]) -> None:
    """The C takes no entry that Python refuses, and frames those that it takes as Python does."""
    assert seen(entries, page_frames) == seen(entries, None)


@built
@pytest.mark.parametrize("entry", [None, [], [b"1-0"], [b"1-0", None], [1, []], [b"1-0", [1] * 10]])
def test_no_reply_of_another_shape_brings_it_down(entry: Any) -> None:
    """It is left to Python."""
    assert page_frames([entry], b"n", 100, bytes.decode, lambda *parts: parts) == [None]
    with pytest.raises(TypeError):
        page_frames((entry,), b"n", 100, bytes.decode, lambda *parts: parts)
    with pytest.raises(ValueError, match="negative"):
        page_frames([], b"n", -1, bytes.decode, lambda *parts: parts)


@built
def test_a_fault_of_python_comes_out_of_it() -> None:
    """Of either of the two that it calls."""

    def broken(*parts: object) -> None:
        raise LookupError("planted")

    for topic_of, frame_of in ((broken, lambda *parts: parts), (bytes.decode, broken)):
        with pytest.raises(LookupError):
            page_frames([raw_entry(1)], b"n", 100, topic_of, frame_of)
