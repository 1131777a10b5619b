"""A clock that a test moves, in place of the transport's timer wheel and monotonic clock, and a server for sessions on it.

    def test_…(clock: Clock): …          # with `clock = pytest.fixture(controlled_clock)` in the test's module

`advance` runs the due calls on the way, in the order of the deadlines, at the time of each.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import gevent

from headgate.runtime.loop import DeferredWrites
from headgate.transport import inbox, session, websocket
from headgate.transport.limits import TransportLimits
from headgate.transport.long_poll import FinalFrames
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.timers import Deadlines

if TYPE_CHECKING:
    import pytest


class Clock:
    """Stands for the timer wheel (`after`) and for the clock (`now_s`)."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.asked: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def after(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        self.asked.append((self.now_s + delay_s, callback, args))

    def advance(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while due := [entry for entry in self.asked if entry[0] <= end_s]:
            first = min(due, key=lambda entry: entry[0])
            self.asked.remove(first)
            self.now_s = max(self.now_s, first[0])
            first[1](*first[2])
        self.now_s = end_s


class SessionServer:
    """The server of a session. Records deliveries and ends; `delivering` may wait, as an application does."""

    def __init__(self, clock: Clock, limits: TransportLimits) -> None:
        self.limits = limits
        self.deadlines = cast(Deadlines, clock)
        self.final_frames = FinalFrames(self.deadlines)
        self.failed_writes = 0
        self.writes = DeferredWrites(self._write_failed)
        self.delivered: list[str | bytes] = []
        self.ends: list[str] = []
        self.delivering: Callable[[], None] = lambda: None

    def start(self, work: Callable[[], None]) -> None:
        """In a separate greenlet."""
        gevent.spawn(work)

    def deliver(self, session: object, message: str | bytes) -> None:
        """Record a message, when the application has handled it."""
        self.delivering()
        self.delivered.append(message)

    def ended(self, sid: str, reason: str) -> None:
        """Record an end."""
        self.ends.append(reason)

    def _write_failed(self) -> None:
        self.failed_writes += 1


def controlled_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Have every module of the transport that reads the time read it from a clock that the test moves."""
    clock = Clock()
    for module in (inbox, session, websocket):
        monkeypatch.setattr(module, "monotonic", lambda: clock.now_s)
    yield clock


def turn() -> None:
    """Let the loop run until nothing is left to do now, with the least priority either: `one_round` comes after sockets."""
    gevent.idle(-2)  # EV_MINPRI of libev


def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds. Raises gevent.Timeout: it does not within 30 s."""
    with gevent.Timeout(30):
        while not condition():
            turn()


def native_pair() -> tuple[NativeSocket, socket.socket]:
    """Return two connected sockets: the server's, and the browser's."""
    ours, theirs = socket.socketpair()
    native = NativeSocket(fileno=ours.detach())
    native.setblocking(False)
    return native, theirs


def read_all(sock: socket.socket | NativeSocket) -> bytes:
    sock.setblocking(False)
    received = b""
    with suppress(BlockingIOError):
        while data := sock.recv(65536):
            received += data
    return received


def fill(send: Callable[[bytes], int]) -> int:
    """Write until the kernel takes no more; return how many bytes it took."""
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += send(b"x" * 65536)
    return sent
