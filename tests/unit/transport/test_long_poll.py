"""The HTTP side of a session: polls and bodies that wait, and the frames of its last poll. Two polls at once: test_engine.py."""

from collections.abc import Iterator
from typing import cast

import gevent
import pytest
from gevent.event import Event

from headgate.events.wire.frames import Frame
from headgate.transport.inbox import FULL_MESSAGES
from headgate.transport.long_poll import ENTRY_BYTES, MAX_BYTES, STORED_S, FinalFrames, SessionClosed
from headgate.transport.session_state import SessionState
from headgate.transport.timers import Deadlines
from tests.support.session_browser import Browser
from tests.support.session_clock import Clock, controlled_clock, turn, until

clock = pytest.fixture(controlled_clock)


@pytest.fixture
def browser(clock: Clock) -> Iterator[Browser]:
    made = Browser(clock).begin_polling()
    yield made
    made.over()


def test_a_poll_waits_for_frames(browser: Browser) -> None:
    """It waits on when it was woken for nothing, and while a WebSocket is merely open, which may lead nowhere."""
    poll = browser.poll()
    assert poll.answer is None
    browser.session.long_poll.wake()
    browser.probe()
    assert poll.answer is None
    browser.session.offer(Frame(b"4a"))

    assert poll.answer == [b"4a"]


def test_a_poll_is_answered_with_a_noop_once_the_browser_has_reached_us_over_a_websocket(browser: Browser) -> None:
    """One that waits, and one that comes; the frames go over the WebSocket."""
    waiting = browser.poll()
    browser.probe()
    browser.send("2probe")
    assert waiting.answer == [b"6"]
    browser.session.offer(Frame(b"4a"))

    assert browser.poll().answer == [b"6"]
    assert browser.session.queue.frames == 1


def test_a_poll_that_ends_a_wait_for_room_without_frames_is_answered_with_a_noop(browser: Browser) -> None:
    """The queue was emptied in another way, and a browser takes an empty body for a malformed packet."""
    poll = browser.poll()
    browser.session.awaits_drain = True
    browser.session.flush()

    assert (poll.answer, browser.session.awaits_drain) == ([b"6"], False)


def test_a_poll_of_a_session_that_is_over_is_refused(browser: Browser) -> None:
    """It has nothing left to say."""
    browser.session.end("transport close", abort=True)

    assert browser.poll().answer == "this session is over"


def test_a_poll_that_the_browser_gives_up_takes_no_frames(browser: Browser) -> None:
    """They would be lost; the session ends, so that the browser knows that something may be missing."""
    poll = browser.poll()
    browser.session.offer(Frame(b"4for nobody"))
    poll.abort()

    assert poll.answer == "the browser gave the poll up"
    assert browser.session.reason == "transport close"


def test_a_second_body_while_one_is_under_way_ends_the_session(browser: Browser) -> None:
    """Two bodies have no order. A later one, when the first is done, is welcome."""
    long_poll = browser.session.long_poll

    def read() -> list[str | bytes]:
        long_poll.post(list)
        return []

    long_poll.post(list)
    with pytest.raises(SessionClosed, match="another request"):
        long_poll.post(read)

    assert browser.session.reason == "transport error"


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_a_body_that_fills_the_inbox_is_answered_when_there_is_room_or_the_session_ends(
    browser: Browser, moves: bool, ends: bool
) -> None:
    """So that the next one comes later. A session after its move does not read until then."""
    go_on = Event()
    browser.server.delivering = lambda: go_on.wait() and None

    def post() -> None:
        browser.session.long_poll.post(lambda: ["4x"] * (FULL_MESSAGES + 1))

    posted = gevent.spawn(post)
    turn()
    if moves:
        browser.probe()
        browser.send("2probe", "5")
        assert browser.state() is SessionState.OPEN
        browser.send("4behind")
    assert not posted.ready()
    assert len((inbox._messages if (inbox := browser.session.inbox) else None) or ()) == FULL_MESSAGES  # and one in hand
    if ends:
        browser.session.end("server disconnect")
        turn()
        assert (posted.ready(), browser.server.ends) == (True, [])
        go_on.set()
        turn()
        assert browser.server.ends == ["server disconnect"]
    else:
        go_on.set()
        until(lambda: len(browser.server.delivered) == FULL_MESSAGES + 1 + moves)
        assert posted.ready()
        assert browser.server.delivered[-1] == ("behind" if moves else "x")


# Final frames: stored once, for a moment, within bounds ----------------------------------------------------------------


@pytest.fixture
def final_frames(clock: Clock) -> FinalFrames:
    return FinalFrames(cast(Deadlines, clock))


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
