"""The move of a session from polling to a WebSocket: `2probe`, `3probe`, `5`, and everything else."""

from collections.abc import Iterator

import pytest

from headgate.events.wire.frames import Frame
from headgate.transport.session_state import SessionState
from headgate.transport.upgrade import MAX_CONTROLS
from tests.support.session_browser import Browser
from tests.support.session_clock import Clock, controlled_clock
from tests.support.websocket_codec import CLOSE, PING, PONG, TEXT, close_told, masked

clock = pytest.fixture(controlled_clock)


@pytest.fixture
def browser(clock: Clock) -> Iterator[Browser]:
    """A browser that polls, and has joined."""
    made = Browser(clock).begin_polling()
    made.session.joined = True
    yield made
    made.over()


def closed(browser: Browser) -> list[tuple[int, str]]:
    """Return code and reason of the close frames that have come."""
    return [close_told(payload) for opcode, payload in browser.received() if opcode == CLOSE]


def test_a_session_moves_with_what_is_queued(browser: Browser) -> None:
    """Each state in turn; the frames that no poll has taken go first, and the deadline means nothing after the move."""
    browser.probe()
    assert browser.state() is SessionState.PROBING
    browser.send("2probe")
    assert browser.state() is SessionState.UPGRADING
    assert browser.session.offer(Frame(b"4queued"))
    probe = browser.session.probe
    browser.send("5", "4hello")
    browser.clock.advance(10)
    assert probe is not None
    probe.websocket_lost("too late to matter")

    assert browser.received() == [(TEXT, b"3probe"), (TEXT, b"4queued")]
    assert (browser.state(), browser.session.upgraded) == (SessionState.OPEN, True)
    assert browser.server.delivered == ["hello"]


@pytest.mark.parametrize("probed", [True, False])
def test_a_probe_that_breaks_off_leaves_the_session_polling(browser: Browser, probed: bool) -> None:
    """A later one is welcome."""
    browser.probe()
    if probed:
        browser.send("2probe")
    browser.close()
    assert browser.state() is SessionState.POLLING
    browser.probe()
    browser.send("2probe", "5")

    assert browser.state() is SessionState.OPEN


@pytest.mark.parametrize("state", [SessionState.PROBING, SessionState.UPGRADING, SessionState.OPEN])
def test_a_second_websocket_is_closed_and_the_first_goes_on(browser: Browser, state: SessionState) -> None:
    """A session has one WebSocket, or one in a probe."""
    browser.probe()
    browser.send(*{SessionState.UPGRADING: ["2probe"], SessionState.OPEN: ["2probe", "5"]}.get(state, []))
    browser.received()
    browser.probe()

    assert closed(browser) == [(1008, "this session has its WebSocket already")]
    assert browser.state() is state


@pytest.mark.parametrize("packets", [["4hello"], ["5"], ["2"], ["1"], [""], ["2probe!"], [b"\x01"], ["2probe", "2probe"]])
def test_a_browser_that_says_something_else_is_disconnected_and_polls_on(browser: Browser, packets: list[str | bytes]) -> None:
    """Its WebSocket has done nothing but to be tried out."""
    browser.probe()
    browser.send(*packets)

    assert closed(browser) == [(1002, "upgrade: expected 2probe, then 5")]
    assert (browser.state(), browser.server.delivered) == (SessionState.POLLING, [])


def test_an_upgrade_that_is_not_finished_in_time_is_closed_and_the_session_polls_on(browser: Browser) -> None:
    """The probe has the handshake's deadline."""
    browser.probe()
    browser.send("2probe")
    browser.clock.advance(10)

    assert closed(browser) == [(1008, "upgrade not finished in time")]
    assert browser.state() is SessionState.POLLING


def test_an_end_closes_the_probe_too(browser: Browser) -> None:
    """Its WebSocket has no owner any more."""
    browser.probe()
    browser.send("2probe")
    browser.session.end("server disconnect")

    assert browser.received() == [(TEXT, b"3probe"), (CLOSE, b"\x03\xe8")]
    assert browser.state() is SessionState.CLOSED


@pytest.mark.parametrize("opcode", [PING, PONG])
def test_control_frames_during_an_upgrade_are_bounded(browser: Browser, opcode: int) -> None:
    """A few are taken, and a ping is answered; more are a flood."""
    browser.probe()
    browser.socks[-1].sendall(masked(opcode, b"x") * MAX_CONTROLS)
    answers = browser.received()
    assert set(answers) == ({(PONG, b"x")} if opcode == PING else set())
    assert browser.state() is SessionState.PROBING
    browser.socks[-1].sendall(masked(opcode, b"x"))

    assert [code for code, _ in closed(browser)] == [1008]
    assert browser.state() is SessionState.POLLING
