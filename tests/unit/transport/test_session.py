"""A session from its beginning to its end, on a clock that the test moves, over socket pairs: no process, no network."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gevent
import gevent.event
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.protocol.frames import Frame
from headgate.transport import session as session_module
from headgate.transport.heartbeat import Pulse
from headgate.transport.inbox import FULL_MESSAGES
from headgate.transport.limits import TransportLimits
from headgate.transport.long_poll import SessionClosed
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.session import Session
from headgate.transport.session_state import IllegalStep, SessionState, SessionStep, following
from headgate.transport.websocket import WebSocket
from tests.support.session_clock import Clock, SessionServer, controlled_clock, fill, read_all, turn
from tests.support.websocket_codec import BINARY, CLOSE, TEXT, close_told, frame_at, masked

LIMITS = TransportLimits(
    ping_interval_s=25, ping_timeout_s=20, write_deadline_s=60, handshake_deadline_s=10, inbound_burst=10_000, queue_frames=8
)
CLOSED_1000 = (CLOSE, b"\x03\xe8")

clock = pytest.fixture(controlled_clock)


class Browser:
    """A session, and the browser's end of it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.server = SessionServer(clock, LIMITS)
        self.session = Session(self.server, "sid")
        self.socks: list[socket.socket] = []
        self._unparsed = b""

    def connect(self) -> Browser:
        """Begin on WebSocket."""
        self.session.start_websocket(self._dial())
        return self

    def begin_polling(self) -> Browser:
        """Begin on polling."""
        self.session.start_polling()
        return self

    def probe(self) -> None:
        """Open a WebSocket to move to."""
        self.session.probe(self._dial())

    def send(self, *messages: str | bytes) -> None:
        """Send messages over the last WebSocket, in one segment."""
        self.socks[-1].sendall(b"".join(masked(BINARY if isinstance(each, bytes) else TEXT, each) for each in messages))
        turn()

    def received(self) -> list[tuple[int, bytes]]:
        """Return the frames that have come over the last WebSocket."""
        turn()
        self._unparsed += read_all(self.socks[-1])
        at, frames = 0, []
        while (frame := frame_at(self._unparsed, at)) is not None:
            frames.append((frame.opcode, self._unparsed[frame.start : frame.end]))
            at = frame.end
        self._unparsed = self._unparsed[at:]
        return frames

    def poll(self) -> Any:
        """Begin a poll; its `value` is the packets, or the reason why there are none."""
        greenlet = gevent.spawn(self._ask)
        turn()
        return greenlet

    def close(self) -> None:
        """Drop every connection."""
        for sock in self.socks:
            sock.close()
        turn()

    def _dial(self) -> NativeSocket:
        ours, theirs = socket.socketpair()
        self.socks.append(theirs)
        return NativeSocket(fileno=ours.detach())

    def _ask(self) -> list[bytes] | str:
        try:
            return [frame.packet for frame in self.session.long_poll.poll(45, _Request())]
        except SessionClosed as error:
            return str(error)


class _Request:
    """A poll's request that nobody gives up."""

    aborted = False

    def start(self, wake: Callable[[], object]) -> None:
        """Nothing to watch."""

    def stop(self) -> None:
        """Nothing to stop."""


@pytest.fixture
def browser(clock: Clock) -> Iterator[Browser]:
    """A browser whose session the application has not let in yet."""
    made = Browser(clock)
    yield made
    made.session.end("the test is over", hard=True)
    made.close()


def state_of(browser: Browser) -> SessionState:
    """Return the session's state now (mypy takes an attribute that it has seen for unchanged)."""
    return browser.session.state


class TestBeginning:
    """HANDSHAKE, and what follows it."""

    def test_frames_of_the_connect_handler_wait_for_the_beginning(self, browser: Browser) -> None:
        """The application may emit before the session is let in."""
        assert browser.session.offer(Frame(b"4early"))
        browser.connect()

        assert browser.received() == [(TEXT, b"4early")]
        assert state_of(browser) is SessionState.OPEN

    def test_a_session_takes_no_requests_before_it_is_let_in(self, browser: Browser) -> None:
        """Its id is not known to anybody yet."""
        assert not browser.session.alive()
        assert state_of(browser) is SessionState.HANDSHAKE
        browser.begin_polling()
        assert browser.session.alive()

    def test_a_session_begins_once(self, browser: Browser) -> None:
        """Anything else is a bug of the server, and raises."""
        browser.begin_polling()
        with pytest.raises(IllegalStep):
            browser.session.start_polling()

    def test_a_websocket_for_a_session_that_ended_meanwhile_is_closed(self, browser: Browser) -> None:
        """While the handshake's answer was written: no descriptor stays behind."""
        browser.session.end("server disconnect")
        browser.connect()

        turn()

        assert browser.socks[-1].recv(1) == b""
        assert browser.session.wire is None
        assert browser.server.ends == ["server disconnect"]

    @pytest.mark.parametrize("joined", [True, False])
    def test_a_session_that_joins_nothing_is_ended_at_the_handshake_deadline(self, browser: Browser, joined: bool) -> None:
        """With a reason that says so."""
        browser.connect()
        browser.session.joined = joined
        browser.clock.advance(10)

        told = [close_told(payload) for opcode, payload in browser.received() if opcode == CLOSE]
        assert told == ([] if joined else [(1008, "no CONNECT within 10 s")])

    def test_a_session_whose_connect_waits_for_the_application_is_not_ended_for_it(self, browser: Browser) -> None:
        """As when everybody comes back at once. It has another deadline once nothing of it waits any more."""
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


class TestUpgrade:
    """POLLING, PROBING, UPGRADING, OPEN."""

    def test_a_session_moves_with_what_is_queued(self, browser: Browser) -> None:
        """Each state in turn; the frames that no poll has taken go first."""
        browser.begin_polling()
        browser.probe()
        assert state_of(browser) is SessionState.PROBING
        browser.send("2probe")
        assert state_of(browser) is SessionState.UPGRADING
        assert browser.session.offer(Frame(b"4queued"))
        browser.send("5", "4hello")

        assert browser.received() == [(TEXT, b"3probe"), (TEXT, b"4queued")]
        assert (state_of(browser), browser.session.upgraded) == (SessionState.OPEN, True)
        assert browser.server.delivered == ["hello"]

    def test_the_waiting_poll_is_released_with_a_noop_when_the_probe_is_answered(self, browser: Browser) -> None:
        """So that the browser can stop polling before it moves; not earlier."""
        poll = browser.begin_polling().poll()
        browser.probe()
        assert poll.value is None
        browser.send("2probe")

        assert poll.value == [b"6"]

    def test_frames_go_to_polls_until_the_browser_has_reached_us(self, browser: Browser) -> None:
        """A WebSocket that is merely open may lead nowhere."""
        poll = browser.begin_polling().poll()
        browser.probe()
        browser.session.offer(Frame(b"4a"))
        turn()

        assert poll.value == [b"4a"]

    @pytest.mark.parametrize("probed", [True, False])
    def test_a_probe_that_breaks_off_leaves_the_session_polling(self, browser: Browser, probed: bool) -> None:
        """A later one is welcome."""
        browser.begin_polling()
        browser.probe()
        if probed:
            browser.send("2probe")
        browser.close()
        assert state_of(browser) is SessionState.POLLING
        browser.probe()
        browser.send("2probe", "5")

        assert state_of(browser) is SessionState.OPEN

    @pytest.mark.parametrize("state", [SessionState.PROBING, SessionState.UPGRADING, SessionState.OPEN])
    def test_a_second_websocket_is_closed_and_the_first_goes_on(self, browser: Browser, state: SessionState) -> None:
        """A session has one WebSocket, or one that is tried out."""
        if state is SessionState.OPEN:
            browser.connect()
        else:
            browser.begin_polling()
            browser.probe()
            if state is SessionState.UPGRADING:
                browser.send("2probe")
        browser.received()
        browser.probe()

        ((opcode, payload),) = browser.received()
        assert (opcode, close_told(payload)) == (CLOSE, (1008, "this session has its WebSocket already"))
        assert state_of(browser) is state

    def test_an_upgrade_that_is_not_finished_in_time_is_closed_and_the_session_polls_on(self, browser: Browser) -> None:
        """The probe has the handshake's deadline."""
        browser.begin_polling().session.joined = True
        browser.probe()
        browser.send("2probe")
        browser.clock.advance(10)

        told = [close_told(payload) for opcode, payload in browser.received() if opcode == CLOSE]
        assert told == [(1008, "upgrade not finished in time")]
        assert state_of(browser) is SessionState.POLLING

    def test_an_inbox_that_is_full_keeps_a_session_from_reading_when_it_has_moved(self, browser: Browser) -> None:
        """And the POST that filled it waits until there is room, or the session ends."""
        go_on = gevent.event.Event()
        browser.server.delivering = lambda: go_on.wait() and None
        browser.begin_polling()

        def post() -> str:
            with browser.session.long_poll.posting():
                browser.session.long_poll.posted(["4x"] * (FULL_MESSAGES + 1))
            return "ok"

        posted = gevent.spawn(post)
        turn()
        browser.probe()
        browser.send("2probe", "5", "4behind")
        assert (state_of(browser), posted.value) == (SessionState.OPEN, None)
        go_on.set()
        while len(browser.server.delivered) < FULL_MESSAGES + 2:
            turn()

        assert posted.value == "ok"
        assert browser.server.delivered[-1] == "behind"

    def test_a_post_that_waits_ends_with_a_session_that_has_moved(self, browser: Browser) -> None:
        """There will be no room any more."""
        go_on = gevent.event.Event()
        browser.server.delivering = lambda: go_on.wait() and None
        browser.begin_polling()
        browser.session.packet_received("4x")
        for _ in range(FULL_MESSAGES):
            browser.session.packet_received("4x")
        waiting = gevent.spawn(browser.session.long_poll.posted, [])
        turn()
        browser.probe()
        browser.send("2probe", "5")
        assert not waiting.ready()
        browser.session.end("server disconnect")
        turn()

        assert waiting.ready()
        assert browser.server.ends == []
        go_on.set()
        turn()
        assert browser.server.ends == ["server disconnect"]


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
        """Reading goes on just before the deadline: the browser's answer is still in our socket."""
        for _ in range(FULL_MESSAGES):
            pinged.session.text_received("4slow")
        assert pinged.session.pong_blocked
        while len(pinged.server.delivered) < FULL_MESSAGES:
            turn()
        pinged.clock.advance(20)
        assert pinged.session.reason is None
        pinged.clock.advance(20)

        assert pinged.session.reason == "ping timeout"

    def test_a_slow_reader_that_has_caught_up_just_now_may_still_answer(self, browser: Browser) -> None:
        """The ping waited behind data that it has taken only now."""
        browser.connect().session.joined = True
        wire = websocket_of(browser)
        fill(wire.send)
        wire.finish_frame(b"the rest")
        browser.clock.advance(25)
        read_all(browser.socks[-1])
        wire.flush()
        assert not wire.writing
        browser.clock.advance(20)
        assert browser.session.reason is None
        browser.clock.advance(20)

        assert browser.session.reason == "ping timeout"

    def test_a_reader_that_accepts_nothing_for_the_ping_timeout_is_silent(self, browser: Browser) -> None:
        """Though the write deadline, which is longer, has not passed."""
        browser.connect().session.joined = True
        wire = websocket_of(browser)
        fill(wire.send)
        browser.clock.advance(24)
        wire.finish_frame(b"the rest")
        browser.clock.advance(1 + 20)

        assert browser.session.reason == "ping timeout"

    def test_an_idle_session_keeps_no_inbox(self, pinged: Browser) -> None:
        """Nor bucket: most of ten thousand sessions answer pings and nothing else."""
        pinged.send("3")

        assert pinged.session._inbox is None
        assert pinged.session._heartbeat.pulse is Pulse.RESTING

    def test_a_polling_browser_is_pinged_by_its_poll_and_told_when_it_is_over(self, browser: Browser) -> None:
        """The poll that waits carries the ping; the next one, when no pong came, CLOSE."""
        browser.begin_polling().session.joined = True
        first = browser.poll()
        browser.clock.advance(25)
        turn()
        assert first.value == [b"2"]
        second = browser.poll()
        browser.clock.advance(20)
        turn()

        assert (second.value, browser.session.reason) == ([b"1"], "ping timeout")
        assert not browser.session.alive()

    def test_a_polling_session_that_never_polls_is_ended(self, browser: Browser) -> None:
        """The ping that nobody fetched counts as unanswered; a request between two ticks finds the session gone."""
        browser.begin_polling().session.joined = True
        browser.clock.asked.clear()  # as if the timer were late
        browser.clock.now_s += 45
        assert browser.session.alive()
        browser.clock.now_s += 1
        assert not browser.session.alive()
        assert browser.session.reason == "ping timeout"


class TestEnd:
    """CLOSING, CLOSED."""

    def test_queued_frames_go_out_before_the_goodbye(self, browser: Browser) -> None:
        """Then CLOSE, then the close frame."""
        browser.connect().session.cork()
        browser.session.offer(Frame(b"4final"))
        browser.session.end("server disconnect")

        assert browser.received() == [(TEXT, b"4final"), (TEXT, b"1"), CLOSED_1000]
        assert (state_of(browser), browser.server.ends) == (SessionState.CLOSED, ["server disconnect"])

    def test_a_waiting_poll_takes_what_is_queued_and_the_goodbye(self, browser: Browser) -> None:
        """The same over HTTP."""
        poll = browser.begin_polling().poll()
        browser.session.cork()
        browser.session.offer(Frame(b"4final"))
        browser.session.end("server disconnect")
        turn()

        assert poll.value == [b"4final", b"1"]
        assert browser.server.final_frames.take("sid") is None

    def test_the_next_poll_takes_it_when_none_waits(self, browser: Browser) -> None:
        """Once, and only for so long."""
        browser.begin_polling().session.offer(Frame(b"4final"))
        browser.session.end("server disconnect")

        frames = browser.server.final_frames.take("sid")
        assert isinstance(frames, list)
        assert [frame.packet for frame in frames] == [b"4final", b"1"]
        assert browser.server.final_frames.take("sid") is None

    def test_a_browser_that_closes_by_post_gets_a_noop_by_its_poll(self, browser: Browser) -> None:
        """Whichever of the two requests arrives first: the official suite's `6`."""
        poll = browser.begin_polling().poll()
        assert browser.session.packet_received("1")
        turn()
        assert poll.value == [b"6"]

        other = Browser(browser.clock).begin_polling()
        assert other.session.packet_received("1")
        frames = other.server.final_frames.take("sid")
        assert isinstance(frames, list)
        assert [frame.packet for frame in frames] == [b"6"]

    def test_messages_before_the_browsers_end_are_delivered_before_the_application_is_told(self, browser: Browser) -> None:
        """The session is CLOSING until then."""
        told: list[int] = []
        browser.server.delivering = lambda: told.append(len(browser.server.ends))
        browser.connect()
        browser.socks[-1].sendall(masked(TEXT, "4a") + masked(TEXT, "4b") + masked(TEXT, "1"))
        while not browser.server.ends:
            turn()

        assert browser.server.delivered == ["a", "b"]
        assert told == [0, 0]
        assert browser.server.ends == ["client disconnect"]

    def test_messages_that_wait_when_the_server_ends_the_session_are_discarded(self, browser: Browser) -> None:
        """It does not want them any more."""
        browser.connect()
        browser.session.text_received("4never")
        browser.session.end("parse error", code=1002, told="malformed")
        turn()

        assert (browser.server.delivered, browser.server.ends) == ([], ["parse error"])

    def test_an_end_closes_the_probe_too(self, browser: Browser) -> None:
        """Its WebSocket belongs to nobody any more."""
        browser.begin_polling()
        browser.probe()
        browser.send("2probe")
        browser.received()
        browser.session.end("server disconnect")

        assert browser.received() == [CLOSED_1000]
        assert state_of(browser) is SessionState.CLOSED

    def test_a_session_that_is_over_takes_nothing_and_owes_nothing(self, browser: Browser) -> None:
        """Neither frames nor messages, and its queue is empty."""
        browser.connect().session.end("server disconnect")
        session = browser.session
        assert session.offer(Frame(b"4a"))
        session.offer_control(Frame(b"2"))
        session.text_received("4a")
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
        wire = websocket_of(browser)
        if behind:
            fill(wire.send)
            wire.finish_frame(b"the rest")
        browser.clock.advance(25 if pinged else 0)
        browser.session.end("over", hard=hard)
        turn()
        browser.clock.advance(2e6)

        assert browser.clock.asked == []

    def test_a_session_that_is_over_is_freed_without_the_garbage_collector(self, browser: Browser) -> None:
        """No cycle holds it: thousands that leave at once cost no collection."""
        browser.connect().session.joined = True
        browser.send("4hello")
        browser.session.sid = "to be freed"
        browser.session.end("server disconnect", hard=True)
        turn()
        browser.clock.asked.clear()
        gc.disable()
        try:
            browser.session = Session(browser.server, "another")
            turn()
            assert not any(isinstance(thing, Session) and thing.sid == "to be freed" for thing in gc.get_objects())
        finally:
            gc.enable()


def websocket_of(browser: Browser) -> WebSocket:
    """Return the session's WebSocket."""
    assert browser.session.wire is not None
    return browser.session.wire


BROWSER = ("probe", "2probe", "5", "4message", "3", "1", "9", "b", "cut", "poll", "post")
GATEWAY = ("emit", "control", "fill", "tick", "cork", "uncork", "hold", "release", "joined", "end", "abort", "turn")
ACTIONS = st.sampled_from([*BROWSER, *GATEWAY])


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(ACTIONS, max_size=25))
def test_no_interleaving_asks_for_a_step_that_the_table_does_not_have(websocket: bool, actions: list[str]) -> None:
    """Browser, application, clock and network act in any order; each session ends once, with nothing left."""
    patch, illegal = pytest.MonkeyPatch(), list[str]()

    def recorded(state: SessionState, step: SessionStep) -> SessionState:
        try:
            return following(state, step)
        except IllegalStep as error:
            illegal.append(str(error))
            raise

    patch.setattr(session_module, "following", recorded)
    clocks = controlled_clock(patch)
    browser = Browser(next(clocks))
    try:
        browser.connect() if websocket else browser.begin_polling()
        for action in actions:
            do(browser, action)
            assert browser.session.closed is (browser.session.state in (SessionState.CLOSING, SessionState.CLOSED))
            assert (browser.session.wire is not None) is (browser.session.state is SessionState.OPEN)
            assert not browser.session.ready or browser.session.wire is not None
        browser.session.end("the end")
        turn()
        assert len(browser.server.ends) == 1
        assert browser.session.state is SessionState.CLOSED
        assert not browser.session.queue
    finally:
        browser.session.end("the test is over", hard=True)
        browser.close()
        patch.undo()
    assert illegal == []


def do(browser: Browser, action: str) -> None:
    """Let one thing happen."""
    session = browser.session
    if action == "probe":
        browser.probe()
    elif action in ("2probe", "5", "4message", "3", "1", "9", "b"):
        if browser.socks and browser.socks[-1].fileno() >= 0:
            with suppress(OSError):  # closed by the session
                browser.socks[-1].sendall(masked(BINARY, b"x") if action == "b" else masked(TEXT, action))
    elif action == "cut" and browser.socks:
        browser.socks[-1].close()
    elif action == "poll" and session.alive() and not session.upgraded:
        browser.poll()
    elif action == "post" and session.alive() and not session.upgraded:
        session.packet_received("4posted")
    elif action == "emit":
        session.offer(Frame(b"4event"))
    elif action == "control":
        session.offer_control(Frame(b"6"))
    elif action == "fill" and session.wire is not None:
        with suppress(OSError):  # cut by the browser
            fill(session.wire.send)
    elif action == "tick":
        browser.clock.advance(9)
    elif action == "cork":
        session.cork()
    elif action == "hold":
        session.hold_direct()
    elif action == "uncork" and session._corks:
        session._uncork()
    elif action == "release" and session._holds:
        session.release_direct()
    elif action == "joined":
        session.joined = True
    elif action in ("end", "abort"):
        session.end(action, abort=action == "abort")
    elif action == "turn":
        turn()


def test_the_answer_to_the_handshake_goes_first_and_no_event_is_written_past_it(clock: Clock) -> None:
    """It is written in a moment, with those of other handshakes; until then the fan-out has no direct way."""
    browser = Browser(clock)
    session = browser.session
    session.start_websocket(browser._dial(), unsent=b"the answer")
    session.offer(Frame(b"4an event"))
    assert (session.ready, read_all(browser.socks[-1])) == (False, b"")

    turn()

    assert read_all(browser.socks[-1]) == b"the answer" + Frame(b"4an event").wire
    assert (session.ready, session.state) == (True, SessionState.OPEN)
    session.end("the test is over")
    browser.close()
