"""The final frames of polling sessions: stored once, for a moment, within bounds."""

from __future__ import annotations

from typing import cast

import pytest

from headgate.events.wire.frames import Frame
from headgate.transport.long_poll import ENTRY_BYTES, MAX_BYTES, STORED_S, FinalFrames
from headgate.transport.timers import Deadlines
from tests.support.session_clock import Clock, controlled_clock

clock = pytest.fixture(controlled_clock)


@pytest.fixture
def final_frames(clock: Clock) -> FinalFrames:
    return FinalFrames(cast(Deadlines, clock))


def test_they_are_taken_once(final_frames: FinalFrames) -> None:
    """The poll after that is of an unknown session."""
    frames = [Frame(b"4final"), Frame(b"1")]
    final_frames.store("sid", frames)

    assert final_frames.take("another") is None
    assert final_frames.take("sid") == frames
    assert final_frames.take("sid") is None


def test_they_are_dropped_when_no_poll_comes(final_frames: FinalFrames, clock: Clock) -> None:
    """A living browser's next poll is on its way already."""
    final_frames.store("sid", [Frame(b"1")])
    clock.advance(STORED_S)

    assert final_frames.take("sid") is None
    assert final_frames._bytes == 0


def test_the_first_frames_of_a_session_stay(final_frames: FinalFrames) -> None:
    """A session ends once."""
    first, second = [Frame(b"1")], [Frame(b"6")]
    final_frames.store("sid", first)
    final_frames.store("sid", second)

    assert final_frames.take("sid") is first


@pytest.mark.parametrize("size", [0, 100_000])
def test_they_are_bounded_in_bytes_however_many_sessions_end(final_frames: FinalFrames, size: int) -> None:
    """Frames that find no room are not stored; those of empty goodbyes cost something too. Taken ones make room."""
    frame = Frame(b"x" * size)
    each = ENTRY_BYTES + len(frame.wire)
    for number in range(MAX_BYTES // each + 2):
        final_frames.store(str(number), [frame])
    stored = sum(final_frames.take(str(number)) is not None for number in range(MAX_BYTES // each + 2))
    final_frames.store("later", [frame])

    assert stored == MAX_BYTES // each
    assert final_frames.take("later") == [frame]


def test_the_reason_of_an_end_without_a_goodbye_is_for_any_request(final_frames: FinalFrames) -> None:
    """Frames are for a poll alone."""
    final_frames.store("told", "handshake deadline")
    final_frames.store("frames", [Frame(b"1")])

    assert final_frames.take("told", by_poll=False) == "handshake deadline"
    assert final_frames.take("frames", by_poll=False) is None
    assert final_frames.take("frames") is not None
