"""The text of a stream: its events, its notices, and above all its cursor."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InvalidRequest
from headgate.events.event import Event
from headgate.events.wire.frames import Frame, event_frame, message_frame
from headgate.events.wire.packets import notice_packet
from headgate.events.wire.requests import Position
from headgate.events.wire.stream_text import StreamText, event_text, is_notice, read_cursor
from tests.support.stream_reader import StreamReader

OLD, NEW, OTHER = "a" * 16, "b" * 16, "c" * 16


def event(offset: int | None, topic: str = "orders.1", data: bytes = b"1") -> Frame:
    return event_frame(b"n", Event(topic, data, "id", 7, OLD if offset else None, offset))


def notice(name: str, **body: Any) -> Frame:
    return message_frame(notice_packet("n", name, body))


def welcome(epoch: str, offset: int, start: tuple[str, int] | None = None) -> Frame:
    """Return the frame of a welcome; `start`: from where it goes on."""
    point = None if start is None else {"epoch": start[0], "offset": start[1]}
    return notice("welcome", epoch=epoch, offset=offset, **{"from": point})


def gap(reason: str, first: int | None, last: int | None, **more: Any) -> Frame:
    return notice("gap", reason=reason, to=last, **{"from": first}, **more)


def read(text: StreamText, *frames: Frame) -> StreamReader:
    reader = StreamReader()
    reader.feed(text.events(frames))
    return reader


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)
    ),
    st.sampled_from([None, "\t", "\r\n ", 2]),
)
def test_an_event_is_one_line_with_its_data_unchanged(data: Any, indent: Any) -> None:
    """Lines end only between two tokens of JSON, so any white space there is the same data."""
    written = json.dumps(data, indent=2 if isinstance(indent, int) else None).replace("\n", "\r\n").encode()
    text = event_text(event(5, "orders.1", written))
    assert b"\n" not in text
    assert b"\r" not in text
    assert json.loads(text) == {"topic": "orders.1", "data": data, "id": "id", "time": 7, "offset": 5}


def test_the_text_of_an_event_is_made_once() -> None:
    """All streams share it."""
    frame = event(5)
    assert event_text(frame) is event_text(frame)


def test_the_cursor_follows_events_and_never_goes_back_to_an_older_one() -> None:
    """A kept `latest` may come after newer events; a plain publish has no place."""
    reader = read(text := StreamText(), welcome(OLD, 4), event(5), event(9), event(7), event(None))
    assert [each.get("offset") for each in reader.events] == [5, 9, 7, None]
    assert reader.cursor == text.cursor == f"{OLD}:9"


def test_the_cursor_is_where_a_new_stream_begins() -> None:
    assert read(StreamText(), welcome(OLD, 4)).cursor == f"{OLD}:4"


@pytest.mark.parametrize(
    ("frames", "cursors"),
    [
        ([welcome(NEW, 30, (NEW, 20))], [f"{NEW}:20"]),  # all of it is in the newer epoch
        ([welcome(NEW, 30, (NEW, 12)), gap("rolled_back", 13, 20, epoch=NEW)], [f"{OLD}:20", f"{NEW}:12"]),
        ([welcome(OTHER, 3), gap("log_lost", None, None)], [f"{OLD}:20", f"{OTHER}:3"]),
        ([welcome(OLD, 50, (OLD, 20)), gap("trimmed", 21, 40)], [f"{OLD}:20", f"{OLD}:40"]),
        ([welcome(OLD, 50, (OLD, 20)), gap("overflow", 21, 40)], [f"{OLD}:20", f"{OLD}:20"]),
        ([welcome(OLD, 50, (OLD, 20)), notice("cursor", epoch=NEW, offset=10)], [f"{OLD}:20", f"{NEW}:20"]),
        ([welcome(OLD, 50, (OLD, 20)), gap("log_lost", None, None), notice("cursor", epoch=OTHER, offset=2)],
         [f"{OLD}:20", f"{OLD}:20", f"{OTHER}:2"]),
    ],
)  # fmt: skip
def test_a_stream_that_is_cut_anywhere_goes_on_without_losing_a_gap(frames: list[Frame], cursors: list[str]) -> None:
    """The cursor moves past a loss with the gap that reports it, not with the welcome before."""
    text = StreamText(Position(OLD, 20))
    seen = []
    for frame in frames:
        text.events([frame])
        seen.append(text.cursor)
    assert seen == cursors


def test_an_answer_holds_events_and_notices_with_their_places() -> None:
    body = json.loads(StreamText(Position(OLD, 4)).answer(
        [welcome(OLD, 9, (OLD, 4)), event(5), gap("trimmed", 6, 7), event(8)], welcomes=False
    ))  # fmt: skip
    assert body["cursor"] == f"{OLD}:8"
    assert [each["offset"] for each in body["events"]] == [5, 8]
    assert [(each["type"], each["before"]) for each in body["notices"]] == [("gap", 1)]


def test_a_welcome_is_in_an_answer_where_it_is_wanted() -> None:
    """It reports its limits to a new client."""
    frames = [welcome(OLD, 9)]
    assert [each["type"] for each in json.loads(StreamText().answer(frames, welcomes=True))["notices"]] == ["welcome"]
    assert is_notice(frames[0], "welcome")
    assert not is_notice(event(1), "welcome")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        OLD,
        f"{OLD}:",
        f"{OLD}:x",
        f"{OLD}:-1",
        f"{OLD}:²",
        "A" * 16 + ":1",
        ":1",
        f"{OLD}:" + "9" * 40,
        f"{OLD}:" + "0" * 17 + "20",
    ],
)
def test_anything_else_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_cursor(text)


def test_a_cursor_is_read_as_it_was_written() -> None:
    assert read_cursor(f"{OLD}:20") == Position(OLD, 20)
