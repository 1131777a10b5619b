"""A session from its beginning to its end, and the table of its states. Upgrades: test_upgrade.py; polls: test_long_poll.py."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import gevent.event
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.events.wire.frames import Frame
from headgate.runtime.machine import IllegalStep, Machine
from headgate.transport import session as session_module
from headgate.transport.inbox import FULL_MESSAGES
from headgate.transport.session_state import MACHINE, MOVED, OVER, SessionState
from tests.support.session_browser import Browser
from tests.support.session_clock import Clock, controlled_clock, fill, read_all, turn, until
from tests.support.websocket_codec import BINARY, CLOSE, TEXT, close_told, masked

CLOSED_1000 = (CLOSE, b"\x03\xe8")

clock = pytest.fixture(controlled_clock)


@pytest.fixture
def browser(clock: Clock) -> Iterator[Browser]:
    """A browser with a session that the application has not let in yet."""
    made = Browser(clock)
    yield made
    made.over()


class TestBeginning:
    """HANDSHAKE, and the states after it."""

    def test_frames_of_the_connect_handler_wait_for_the_beginning(self, browser: Browser) -> None:
        """The application may emit before the session is let in."""
        assert browser.session.offer(Frame(b"4early"))
        browser.connect()

        assert browser.received() == [(TEXT, b"4early")]
        assert browser.state() is SessionState.OPEN

    def test_a_websocket_for_a_session_that_ended_meanwhile_is_closed(self, browser: Browser) -> None:
        """While the handshake's answer was written; no descriptor is left."""
        browser.session.end("server disconnect")
        browser.connect()
        turn()

        assert browser.socks[-1].recv(1) == b""
        assert (browser.session.wire, browser.server.ends) == (None, ["server disconnect"])

    @pytest.mark.parametrize("joined", [True, False])
    def test_a_session_that_joins_nothing_is_ended_at_the_handshake_deadline(self, browser: Browser, joined: bool) -> None:
        browser.connect()
        browser.session.joined = joined
        browser.clock.advance(10)

        told = [close_told(payload) for opcode, payload in browser.received() if opcode == CLOSE]
        assert told == ([] if joined else [(1008, "no CONNECT within 10 s")])

    def test_a_session_whose_connect_waits_for_the_application_is_not_ended_for_it(self, browser: Browser) -> None:
        """As when all clients come back at once. It has another deadline once nothing of it waits any more."""
        handled = gevent.event.Event()
        browser.server.delivering = handled.wait
        browser.connect()
        browser.send("40/room,{}")
        browser.clock.advance(10)
        assert not browser.session.closed

        handled.set()
        turn()
        browser.clock.advance(10)
        assert browser.session.closed
        assert browser.session.reason == "handshake deadline"


class TestHeartbeat:
    """The heartbeat, wired to a real socket. Its rules alone: test_heartbeat.py."""

    @pytest.fixture
    def pinged(self, browser: Browser) -> Browser:
        """A browser on WebSocket that was pinged a moment ago and has read nothing yet."""
        browser.connect().session.joined = True
        browser.clock.advance(25)
        return browser

    def test_a_browser_that_answers_lives_and_a_silent_one_is_told_that_it_is_over(self, pinged: Browser) -> None:
        """Ping, pong, ping, and CLOSE with 1000."""
        pinged.clock.advance(19)
        pinged.send("3")
        pinged.clock.advance(25)
        assert pinged.received() == [(TEXT, b"2"), (TEXT, b"2")]
        pinged.clock.advance(20)

        assert pinged.received() == [(TEXT, b"1"), CLOSED_1000]
        assert pinged.session.reason == "ping timeout"

    def test_a_pong_that_waited_while_we_did_not_read_is_waited_for(self, pinged: Browser) -> None:
        """Reading goes on just before the deadline, with the browser's answer still in our socket."""
        for _ in range(FULL_MESSAGES):
            pinged.session.received("4slow")
        assert pinged.session.pong_blocked
        until(lambda: len(pinged.server.delivered) == FULL_MESSAGES)
        self.is_silent_after_grace(pinged)

    def test_a_slow_reader_that_has_caught_up_just_now_may_still_answer(self, browser: Browser) -> None:
        """The ping waited after data that it has taken only now."""
        browser.connect().session.joined = True
        wire = browser.wire
        fill(wire.send)
        wire.finish_frame(b"the rest")
        browser.clock.advance(25)
        read_all(browser.socks[-1])
        wire.flush()
        assert not wire.writing
        self.is_silent_after_grace(browser)

    def is_silent_after_grace(self, browser: Browser) -> None:
        browser.clock.advance(20)
        assert browser.session.reason is None
        browser.clock.advance(20)
        assert browser.session.reason == "ping timeout"

    def test_a_reader_that_accepts_nothing_for_the_ping_timeout_is_silent(self, browser: Browser) -> None:
        """Though the write deadline, which is longer, has not passed."""
        browser.connect().session.joined = True
        fill(browser.wire.send)
        browser.clock.advance(24)
        browser.wire.finish_frame(b"the rest")
        browser.clock.advance(1 + 20)

        assert browser.session.reason == "ping timeout"

    def test_an_idle_session_keeps_no_inbox(self, pinged: Browser) -> None:
        """Nor bucket, because most of ten thousand sessions answer pings and nothing else."""
        pinged.send("3")

        assert pinged.session.inbox is None
        assert not pinged.session.heartbeat.awaits_pong

    def test_a_polling_browser_is_pinged_by_its_poll_and_told_when_it_is_over(self, browser: Browser) -> None:
        """The poll that waits carries the ping; the next one, when no pong came, CLOSE."""
        browser.begin_polling().session.joined = True
        first = browser.poll()
        browser.clock.advance(25)
        assert first.answer == [b"2"]
        second = browser.poll()
        browser.clock.advance(20)

        assert (second.answer, browser.session.reason) == ([b"1"], "ping timeout")
        assert not browser.session.alive()

    def test_a_pong_over_polling_that_came_in_a_stall_of_the_process_counts(self, browser: Browser) -> None:
        """Its request is answered, and ends nothing, although the deadline has passed."""
        browser.begin_polling().session.joined = True
        browser.clock.advance(25)
        browser.clock.now_s += 60
        assert browser.session.alive()
        browser.session.received("3")
        browser.clock.advance(0)
        assert browser.session.alive()


class TestEnd:
    """CLOSING, CLOSED."""

    def test_queued_frames_go_out_before_the_goodbye(self, browser: Browser) -> None:
        """Then CLOSE, then the close frame."""
        browser.connect().session.cork()
        browser.session.offer(Frame(b"4final"))
        browser.session.end("server disconnect")

        assert browser.received() == [(TEXT, b"4final"), (TEXT, b"1"), CLOSED_1000]
        assert (browser.state(), browser.server.ends) == (SessionState.CLOSED, ["server disconnect"])

    def test_a_waiting_poll_takes_what_is_queued_and_the_goodbye(self, browser: Browser) -> None:
        """The same over HTTP."""
        poll = browser.begin_polling().poll()
        browser.session.cork()
        browser.session.offer(Frame(b"4final"))
        browser.session.end("server disconnect")

        assert (poll.answer, browser.server.final_frames.take("sid")) == ([b"4final", b"1"], None)

    def test_messages_before_the_browsers_end_are_delivered_before_the_application_is_told(self, browser: Browser) -> None:
        """The session is CLOSING until then."""
        told: list[int] = []
        browser.server.delivering = lambda: told.append(len(browser.server.ends))
        browser.connect().send("4a", "4b", "1")
        until(lambda: browser.server.ends)

        assert (browser.server.delivered, told) == (["a", "b"], [0, 0])
        assert browser.server.ends == ["client disconnect"]

    def test_a_session_that_is_over_takes_nothing_and_owes_nothing(self, browser: Browser) -> None:
        """Neither frames nor messages, and its queue is empty."""
        browser.connect().session.end("server disconnect")
        session = browser.session
        assert session.offer(Frame(b"4a"))
        session.offer_control(Frame(b"2"))
        session.received("4a")
        session.flush()
        session.end("another reason")
        turn()

        assert not session.queue
        assert (session.closed, session.ready, session.idle, session.wire) == (True, False, False, None)
        assert (session.reason, browser.server.ends, browser.server.delivered) == ("server disconnect", ["server disconnect"], [])

    @pytest.mark.parametrize("hard", [True, False])
    @pytest.mark.parametrize("behind", [False, True])
    @pytest.mark.parametrize("pinged", [False, True])
    def test_the_timer_forgets_a_session_that_is_over(self, browser: Browser, pinged: bool, behind: bool, hard: bool) -> None:
        """It asks for nothing again, whatever it waited for."""
        browser.connect().session.joined = True
        if behind:
            fill(browser.wire.send)
            browser.wire.finish_frame(b"the rest")
        browser.clock.advance(25 if pinged else 0)
        browser.session.end("over", hard=hard)
        turn()
        browser.clock.advance(2e6)

        assert browser.clock.asked == []


BROWSER = ("probe", "2probe", "5", "4message", "3", "1", "9", "b", "cut", "poll", "post")
GATEWAY = ("emit", "control", "fill", "tick", "cork", "uncork", "hold", "release", "joined", "end", "abort", "turn")
ACTIONS = st.sampled_from([*BROWSER, *GATEWAY])


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(ACTIONS, max_size=25))
def test_no_interleaving_asks_for_a_step_that_the_table_does_not_have(websocket: bool, actions: list[str]) -> None:
    """Browser, application, clock and network act in any order; each session ends once, with nothing left."""
    patch, illegal = pytest.MonkeyPatch(), list[str]()

    class Recorded(Machine[SessionState, SessionState]):
        def __missing__(self, place: tuple[SessionState, SessionState]) -> SessionState:
            try:
                return super().__missing__(place)
            except IllegalStep as error:
                illegal.append(str(error))
                raise

    patch.setattr(session_module, "MACHINE", Recorded(MACHINE.name, MACHINE))
    browser = Browser(next(controlled_clock(patch)))
    try:
        browser.connect() if websocket else browser.begin_polling()
        for action in actions:
            do(browser, action)
            assert browser.session.closed is (browser.state() in (SessionState.CLOSING, SessionState.CLOSED))
            assert (browser.session.wire is not None) is (browser.state() is SessionState.OPEN)
            assert not browser.session.ready or browser.session.wire is not None
        browser.session.end("the end")
        turn()
        assert len(browser.server.ends) == 1
        assert browser.state() is SessionState.CLOSED
        assert not browser.session.queue
    finally:
        browser.over()
        patch.undo()
    assert illegal == []


def do(browser: Browser, action: str) -> None:
    """Let one thing happen."""
    session = browser.session
    deeds: dict[str, Callable[[], object]] = {
        "probe": browser.probe,
        "cut": lambda: browser.socks[-1].close() if browser.socks else None,
        "poll": lambda: session.alive() and not session.upgraded and browser.poll(),
        "post": lambda: session.received("4posted") if session.alive() and not session.upgraded else None,
        "emit": lambda: session.offer(Frame(b"4event")),
        "control": lambda: session.offer_control(Frame(b"6")),
        "tick": lambda: browser.clock.advance(9),
        "cork": session.cork,
        "uncork": lambda: session.uncork(at_once=True) if session.corks else None,
        "hold": lambda: session.hold_direct(True),
        "release": lambda: session.hold_direct(False) if session._holds else None,
        "joined": lambda: setattr(session, "joined", True),
        "end": lambda: session.end("end"),
        "abort": lambda: session.end("abort", abort=True),
        "turn": turn,
    }
    if action in deeds:
        deeds[action]()
        return
    with suppress(OSError):  # cut by the browser, or closed by the session
        if action == "fill" and session.wire is not None:
            fill(session.wire.send)
        elif action != "fill" and browser.socks and browser.socks[-1].fileno() >= 0:
            browser.socks[-1].sendall(masked(BINARY, b"x") if action == "b" else masked(TEXT, action))


def test_the_answer_to_the_handshake_goes_first_and_no_event_is_written_past_it(browser: Browser) -> None:
    """It is written in a moment, with those of other handshakes; until then the fan-out has no direct way."""
    session = browser.session
    session.start_websocket(browser.dial(), unsent=b"the answer")
    session.offer(Frame(b"4an event"))
    assert (session.ready, read_all(browser.socks[-1])) == (False, b"")

    turn()

    assert read_all(browser.socks[-1]) == b"the answer" + Frame(b"4an event").wire
    assert (session.ready, browser.state()) == (True, SessionState.OPEN)


def reached_from(first: SessionState) -> set[SessionState]:
    """Return the states that a session can come to, the first one included."""
    reached, left = set[SessionState](), [first]
    while left:
        reached.add(state := left.pop())
        left += [to for (before, _), to in MACHINE.items() if before is state and to not in reached]
    return reached


def test_every_state_can_be_reached_and_left() -> None:
    """But for the last one, which nothing follows."""
    assert reached_from(SessionState.HANDSHAKE) == set(SessionState)
    assert {before for before, _ in MACHINE} == set(SessionState) - {SessionState.CLOSED}
    assert set(SessionState) > MOVED


@pytest.mark.parametrize("state", [state for state in SessionState if state not in OVER], ids=lambda state: state.value)
def test_a_living_session_may_end_in_any_state(state: SessionState) -> None:
    """The browser, the server and the network may each end it at any moment."""
    assert MACHINE[state, SessionState.CLOSING] is SessionState.CLOSING


def test_a_session_ends_once_and_is_forgotten_once() -> None:
    """`ended` is called once, as CLOSING leads only to CLOSED, and nothing out of CLOSED."""
    assert [(before, to) for before, to in MACHINE if before in OVER] == [(SessionState.CLOSING, SessionState.CLOSED)]


def test_a_session_moves_to_a_websocket_only_behind_an_answered_probe_and_never_returns() -> None:
    """Its frames would otherwise go where the browser cannot be reached; Engine.IO has no way back to polling."""
    assert {before for before, to in MACHINE if to is SessionState.OPEN} == {SessionState.HANDSHAKE, SessionState.UPGRADING}
    assert reached_from(SessionState.OPEN) == {SessionState.OPEN} | OVER
