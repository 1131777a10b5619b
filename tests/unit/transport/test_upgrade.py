"""The probe of an upgrade, over a socket pair: `2probe`, `3probe`, `5`, and everything that is not that."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import cast

import pytest

from headgate.transport.limits import TransportLimits
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.session import Session as RealSession
from headgate.transport.timers import Deadlines
from headgate.transport.upgrade import MAX_CONTROLS, UpgradeProbe
from headgate.transport.websocket import WebSocket
from tests.support.session_clock import Clock, controlled_clock, read_all, turn
from tests.support.websocket_codec import CLOSE, PING, PONG, TEXT, close_told, frame_at, masked

clock = pytest.fixture(controlled_clock)


class Session:
    """A polling session: records what it is told of the upgrade."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def probed(self) -> None:
        """The browser has reached us."""
        self.told.append("probed")

    def upgrade(self, socket: WebSocket) -> None:
        """The browser has moved."""
        self.told.append("upgrade")

    def probe_failed(self, socket: WebSocket) -> None:
        """It did not work out."""
        self.told.append("failed")


class Browser:
    """The other end of the WebSocket that is tried out."""

    def __init__(self, clock: Clock) -> None:
        self.session = Session()
        self.probe = UpgradeProbe(cast(RealSession, self.session))
        ours, self.sock = socket.socketpair()
        self.websocket = self.probe.socket = WebSocket(
            NativeSocket(fileno=ours.detach()),
            self.probe,
            cast(Deadlines, clock),
            TransportLimits(max_message_bytes=1000, send_buffer_bytes=65536, write_deadline_s=10.0),
        )
        self.websocket.open()

    def send(self, *frames: bytes) -> list[tuple[int, bytes]]:
        """Send frames in one segment; return the frames that come back."""
        self.sock.sendall(b"".join(frames))
        turn()
        return self.received()

    def received(self) -> list[tuple[int, bytes]]:
        """Return the frames that have come."""
        received, at, frames = read_all(self.sock), 0, []
        while (frame := frame_at(received, at)) is not None:
            frames.append((frame.opcode, received[frame.start : frame.end]))
            at = frame.end
        assert at == len(received)
        return frames


@pytest.fixture
def browser(clock: Clock) -> Iterator[Browser]:
    """A browser that has opened its WebSocket for an upgrade."""
    made = Browser(clock)
    yield made
    made.websocket.lose("the test is over")
    made.sock.close()


def test_a_probe_is_answered_and_the_move_follows(browser: Browser) -> None:
    """The session is told of both, in order."""
    assert browser.send(masked(TEXT, "2probe")) == [(TEXT, b"3probe")]
    assert browser.session.told == ["probed"]
    assert browser.send(masked(TEXT, "5")) == []
    assert browser.session.told == ["probed", "upgrade"]


@pytest.mark.parametrize(
    "frame",
    [masked(TEXT, packet) for packet in ("4hello", "5", "2", "1", "", "2probe!")] + [masked(2, b"\x01")],
    ids=["message", "move without probe", "ping", "close", "empty", "other probe", "binary"],
)
def test_a_browser_that_says_something_else_is_disconnected(browser: Browser, frame: bytes) -> None:
    """With 1002; the session goes on polling."""
    ((opcode, payload),) = browser.send(frame)

    assert (opcode, close_told(payload)) == (CLOSE, (1002, "upgrade: expected 2probe, then 5"))
    assert browser.session.told == ["failed"]


def test_a_second_probe_is_not_expected(browser: Browser) -> None:
    """It has been answered."""
    browser.send(masked(TEXT, "2probe"))
    ((opcode, payload),) = browser.send(masked(TEXT, "2probe"))

    assert (opcode, close_told(payload)[0]) == (CLOSE, 1002)
    assert browser.session.told == ["probed", "failed"]


def test_a_websocket_that_breaks_off_fails_the_probe(browser: Browser) -> None:
    """Between probe and move, too."""
    browser.send(masked(TEXT, "2probe"))
    browser.sock.close()
    turn()

    assert browser.session.told == ["probed", "failed"]


def test_an_upgrade_that_is_not_finished_in_time_is_closed(browser: Browser) -> None:
    """With 1008 and the reason."""
    browser.send(masked(TEXT, "2probe"))
    browser.probe.expire()

    ((opcode, payload),) = browser.received()
    assert (opcode, close_told(payload)) == (CLOSE, (1008, "upgrade not finished in time"))
    assert browser.session.told == ["probed", "failed"]


def test_the_deadline_of_an_upgrade_means_nothing_behind_the_move(browser: Browser) -> None:
    """The WebSocket is the session's."""
    browser.send(masked(TEXT, "2probe"), masked(TEXT, "5"))
    browser.probe.expire()

    assert browser.received() == []
    assert not browser.websocket.closing
    assert browser.session.told == ["probed", "upgrade"]


@pytest.mark.parametrize("opcode", [PING, PONG])
def test_control_frames_during_an_upgrade_are_bounded(browser: Browser, opcode: int) -> None:
    """A few are taken, and a ping is answered; more are a flood."""
    answers = browser.send(*[masked(opcode, b"x")] * MAX_CONTROLS)
    assert browser.session.told == []
    assert all(answer == (PONG, b"x") for answer in answers)
    assert bool(answers) is (opcode == PING)
    ((_, payload),) = [frame for frame in browser.send(masked(opcode, b"x")) if frame[0] == CLOSE]

    assert close_told(payload)[0] == 1008
    assert browser.session.told == ["failed"]
