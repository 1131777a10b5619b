"""Who is silent and who is not: pongs of one session, on a clock that the test moves, over a socket pair."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import gevent
import pytest

from headgate.transport import heartbeat as heartbeat_module
from headgate.transport import session as session_module
from headgate.transport import websocket as websocket_module
from headgate.transport.final_frames import FinalFrames
from headgate.transport.heartbeat import Pulse
from headgate.transport.inbox import FULL_MESSAGES
from headgate.transport.limits import TransportLimits
from headgate.transport.session import Session
from headgate.transport.timers import Deadlines

LIMITS = TransportLimits(
    ping_interval_s=25, ping_timeout_s=20, write_deadline_s=60, handshake_deadline_s=1e6, inbound_burst=10_000
)


class Wheel:
    """Stands for the timer wheel and for the clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.asked: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def after(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Record what is asked for."""
        self.asked.append((self.now_s + delay_s, callback, args))

    def advance(self, seconds: float) -> None:
        """Let time pass, and call who is due."""
        self.now_s += seconds
        due = [entry for entry in self.asked if entry[0] <= self.now_s]
        self.asked = [entry for entry in self.asked if entry[0] > self.now_s]
        for _, callback, args in due:
            callback(*args)


class Server:
    """What a session needs of its server; delivers to nobody."""

    def __init__(self) -> None:
        self.limits = LIMITS
        self.wheel = Wheel()
        self.deadlines = cast(Deadlines, self.wheel)
        self.final_frames = FinalFrames(self.deadlines)

    def deliver(self, sid: str, message: str | bytes) -> None:
        """Not looked at."""

    def ended(self, sid: str, reason: str) -> None:
        """The session keeps its reason."""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Session, Wheel, socket.socket]]:
    """A session on WebSocket that was pinged a moment ago, its clock, and the browser's end, which has read nothing yet."""
    server = Server()
    for module in (heartbeat_module, session_module, websocket_module):
        monkeypatch.setattr(module, "monotonic", lambda: server.wheel.now_s)
    ours, theirs = socket.socketpair()
    connection = Session(server, "sid")
    connection.start_websocket(ours.detach())
    yield connection, server.wheel, theirs
    connection.end("the test is over", hard=True)
    gevent.sleep(0)
    theirs.close()


def test_silence_after_a_ping_ends_the_session(session: tuple[Session, Wheel, socket.socket]) -> None:
    """With nothing in the way of an answer, the ping timeout is all there is."""
    connection, wheel, _ = session
    wheel.advance(25)
    wheel.advance(20)

    assert connection.reason == "ping timeout"


def test_a_pong_that_waited_while_we_did_not_read_is_waited_for(session: tuple[Session, Wheel, socket.socket]) -> None:
    """Reading goes on just before the ping's deadline: what the browser answered long ago is still in our socket."""
    connection, wheel, _ = session
    wheel.advance(25)
    for _ in range(FULL_MESSAGES):
        connection.text_received("4slow")
    assert connection._receiver is not None
    assert connection._receiver.paused
    while not connection._receiver.at_rest:  # in more turns than one where it takes longer than a slice
        gevent.sleep(0)
    wheel.advance(20)
    assert connection.reason is None
    wheel.advance(20)

    assert connection.reason == "ping timeout"


def test_who_has_caught_up_just_now_may_still_answer(session: tuple[Session, Wheel, socket.socket]) -> None:
    """The ping waited behind data that a slow reader has taken only now."""
    connection, wheel, theirs = session
    wire = connection.wire
    assert wire is not None
    with contextlib.suppress(BlockingIOError):
        while True:
            wire.send(b"x" * 65536)
    wire.finish_frame(b"the rest")
    assert wire.writing
    wheel.advance(25)
    theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            theirs.recv(65536)
    wire.flush()
    assert not wire.writing
    wheel.advance(20)
    assert connection.reason is None
    wheel.advance(20)

    assert connection.reason == "ping timeout"


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("pinged", [False, True])
def test_the_timer_forgets_a_session_that_is_over(
    session: tuple[Session, Wheel, socket.socket], pinged: bool, behind: bool, hard: bool
) -> None:
    """Whatever it was waiting for: what is asked of the timer for it is not asked for again."""
    connection, wheel, _ = session
    wire = connection.wire
    assert wire is not None
    if behind:
        with contextlib.suppress(BlockingIOError):
            while True:
                wire.send(b"x" * 65536)
        wire.finish_frame(b"the rest")
    wheel.advance(25 if pinged else 0)
    assert (connection._heartbeat.pulse is not Pulse.RESTING) is pinged
    connection.end("over", hard=hard)
    gevent.sleep(0)
    for _ in range(3):
        wheel.advance(2e6)
    assert wheel.asked == []
    assert connection.wire is None
