"""The HTTP side of a session: polls that wait, bodies that wait, and never two of either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import gevent
import pytest

from headgate.protocol.frames import Frame
from headgate.transport.long_poll import LongPoll, SessionClosed
from headgate.transport.session import Session as RealSession
from tests.support.session_clock import Clock, controlled_clock, turn

clock = pytest.fixture(controlled_clock)
WAIT_S = 45.0


class Session:
    """A session whose frames and end are the test's."""

    def __init__(self) -> None:
        self.closed = self.moved = False
        self.frames: list[Frame] = []
        self.packets: list[str | bytes] = []
        self.reason: tuple[str, bool] | None = None
        self.long_poll = LongPoll(cast(RealSession, self))
        self.on_packet: Callable[[], None] = lambda: None

    def has_frames(self) -> bool:
        """Whether the test has put any in."""
        return bool(self.frames)

    def take_frames(self) -> list[Frame]:
        """Take them."""
        frames, self.frames = self.frames, []
        return frames

    def packet_received(self, packet: str | bytes) -> bool:
        """Take a packet unless the session is over."""
        if not self.closed:
            self.packets.append(packet)
            self.on_packet()
        return not self.closed

    def end(self, reason: str, *, abort: bool = False) -> None:
        """As the real one: with what is queued, and CLOSE unless it is an abort."""
        if not self.closed:
            self.closed, self.reason = True, (reason, abort)
            self.long_poll.end([] if abort else [*self.take_frames(), Frame(b"1")])


class Request:
    """The HTTP request of a poll, which the test can give up."""

    def __init__(self) -> None:
        self.aborted = self.watched = False
        self._wake: Callable[[], object] = lambda: None

    def start(self, wake: Callable[[], object]) -> None:
        """Be watched."""
        self.watched, self._wake = True, wake

    def stop(self) -> None:
        """Be watched no more."""
        self.watched = False

    def abort(self) -> None:
        """The browser gives it up."""
        self.aborted = True
        self._wake()


class Poll:
    """A poll in a greenlet of its own, as a request has it."""

    def __init__(self, session: Session) -> None:
        self.request = Request()
        self._greenlet: Any = gevent.spawn(self._ask, session)
        turn()

    def _ask(self, session: Session) -> list[bytes] | str:
        try:
            return [frame.packet for frame in session.long_poll.poll(WAIT_S, self.request)]
        except SessionClosed as error:
            return str(error)

    @property
    def answer(self) -> list[bytes] | str | None:
        """The packets, or why there are none; None while it waits."""
        turn()
        answer: list[bytes] | str | None = self._greenlet.value
        assert self.request.watched is (answer is None)
        return answer


@pytest.fixture
def session(clock: Clock) -> Iterator[Session]:
    """A polling session."""
    made = Session()
    yield made
    made.end("the test is over")
    turn()


def test_a_poll_takes_the_frames_that_are_there(session: Session) -> None:
    """Without waiting."""
    session.frames = [Frame(b"4a"), Frame(b"4b")]

    assert Poll(session).answer == [b"4a", b"4b"]
    assert session.frames == []


def test_a_poll_waits_for_frames(session: Session) -> None:
    """And goes on waiting when it was woken for nothing: another has taken them, or they are corked."""
    poll = Poll(session)
    assert poll.answer is None
    session.long_poll.wake()
    assert poll.answer is None
    session.frames = [Frame(b"4a")]
    session.long_poll.wake()

    assert poll.answer == [b"4a"]


def test_a_poll_is_answered_with_a_noop_while_an_upgrade_is_under_way(session: Session) -> None:
    """One that waits, and one that comes; the frames go over the WebSocket."""
    waiting = Poll(session)
    session.moved = True
    session.frames = [Frame(b"4a")]
    session.long_poll.wake()

    assert waiting.answer == [b"6"]
    assert Poll(session).answer == [b"6"]
    assert len(session.frames) == 1


def test_a_waiting_poll_carries_the_final_frames_of_a_session(session: Session) -> None:
    """They were sent before the end."""
    poll = Poll(session)
    session.frames = [Frame(b"4final")]
    session.end("server disconnect")

    assert poll.answer == [b"4final", b"1"]


def test_a_poll_of_a_session_that_is_over_is_refused(session: Session) -> None:
    """It has nothing left to say."""
    session.end("transport close", abort=True)

    assert Poll(session).answer == "this session is over"


def test_a_second_poll_ends_the_session(session: Session) -> None:
    """Two have no order: the first is told CLOSE, the second is refused."""
    first, second = Poll(session), Poll(session)

    assert first.answer == [b"1"]
    assert isinstance(second._greenlet.value, str)
    assert session.reason == ("transport error", False)


def test_a_poll_that_the_browser_gives_up_takes_no_frames(session: Session) -> None:
    """They would be lost; the session ends, so that the browser knows that something may be missing."""
    poll = Poll(session)
    session.frames = [Frame(b"4for nobody")]
    poll.request.abort()

    assert poll.answer == "the browser gave the poll up"
    assert len(session.frames) == 1
    assert session.reason == ("transport close", True)


def test_a_poll_waits_no_longer_than_a_heartbeat_can_take(session: Session, clock: Clock) -> None:
    """Then the session ends, and the poll is told so."""
    poll = Poll(session)
    clock.now_s += WAIT_S
    session.long_poll.wake()  # for nothing: it looks at the clock before it waits on

    assert poll.answer == [b"1"]
    assert session.reason == ("ping timeout", False)


def test_packets_of_a_body_are_taken_in_order(session: Session) -> None:
    """Text and binary."""
    with session.long_poll.posting():
        session.long_poll.posted(["4a", b"\x01", "4b"])

    assert session.packets == ["4a", b"\x01", "4b"]


def test_a_body_of_which_not_all_was_taken_is_not_answered_ok(session: Session) -> None:
    """The browser must not believe that the rest was."""
    session.on_packet = lambda: session.end("inbound flood")
    with pytest.raises(SessionClosed, match="a packet was not taken"), session.long_poll.posting():
        session.long_poll.posted(["4a", "4b"])

    assert session.packets == ["4a"]


def test_a_second_body_while_one_is_under_way_ends_the_session(session: Session) -> None:
    """Two bodies have no order. A later one, when the first is done, is welcome."""
    with session.long_poll.posting():
        pass
    with (
        session.long_poll.posting(),
        pytest.raises(SessionClosed, match="another request of this session is sending"),
        session.long_poll.posting(),
    ):
        pass

    assert session.reason == ("transport error", False)


@pytest.mark.parametrize("resume", ["there is room", "the session ends"])
def test_the_answer_of_a_body_that_fills_the_inbox_is_delayed(session: Session, resume: str) -> None:
    """So that the next one comes later; until there is room, or the session is over."""
    answered: list[bool] = []

    def post() -> None:
        with session.long_poll.posting():
            session.long_poll.posted(["4a"])
        answered.append(True)

    session.on_packet = session.long_poll.pause
    gevent.spawn(post)
    turn()
    assert (session.packets, answered) == (["4a"], [])
    if resume == "there is room":
        session.long_poll.resume()
    else:
        session.end("ping timeout")
    turn()

    assert answered == [True]
