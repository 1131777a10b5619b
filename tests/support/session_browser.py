"""A session over socket pairs, and the browser's end of it, on a clock that the test moves, without a process or network."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, cast

import gevent

from headgate.transport.detach import PollWatch
from headgate.transport.limits import TransportLimits
from headgate.transport.long_poll import SessionClosed
from headgate.transport.peer_socket import NativeSocket
from headgate.transport.session import Session
from headgate.transport.session_state import SessionState
from headgate.transport.upgrade import begin_upgrade
from headgate.transport.websocket import WebSocket
from tests.support.session_clock import Clock, SessionServer, native_pair, read_all, turn
from tests.support.websocket_codec import BINARY, TEXT, frames_in, masked

LIMITS = TransportLimits(
    ping_interval_s=25, ping_timeout_s=20, write_deadline_s=60, handshake_deadline_s=10, inbound_burst=10_000, queue_frames=8
)


class Browser:
    """A session that the application has not let in yet, and the browser's end. `socks`: its WebSockets, the last in use."""

    def __init__(self, clock: Clock, limits: TransportLimits = LIMITS) -> None:
        self.clock = clock
        self.server = SessionServer(clock, limits)
        self.session = Session(self.server, "sid")
        self.socks: list[socket.socket] = []
        self.unparsed = b""

    def connect(self) -> Browser:
        self.session.start_websocket(self.dial())
        return self

    def begin_polling(self) -> Browser:
        self.session.start_polling()
        return self

    def probe(self) -> None:
        """Open a WebSocket to move to."""
        begin_upgrade(self.session, self.dial())

    def dial(self) -> NativeSocket:
        ours, theirs = native_pair()
        self.socks.append(theirs)
        return ours

    def state(self) -> SessionState:
        """Return the session's state now (mypy takes an attribute that it has seen for unchanged)."""
        return self.session.state

    @property
    def wire(self) -> WebSocket:
        assert self.session.wire is not None
        return self.session.wire

    def send(self, *messages: str | bytes) -> None:
        self.socks[-1].sendall(b"".join(masked(BINARY if isinstance(each, bytes) else TEXT, each) for each in messages))
        turn()

    def received(self, skip: int = 0) -> list[tuple[int, bytes]]:
        """Return the frames of the last WebSocket, after so many other bytes."""
        turn()
        while more := read_all(self.socks[-1]):
            self.unparsed += more
            turn()
        frames, self.unparsed = frames_in(self.unparsed[skip:])
        return frames

    def poll(self) -> Poll:
        return Poll(self.session)

    def close(self) -> None:
        for sock in self.socks:
            sock.close()
        turn()

    def over(self) -> None:
        """End the session, and drop every connection."""
        self.session.end("the test is over", hard=True)
        self.close()


class Poll:
    """A poll in a separate greenlet, as a request has it. It stands for its own PollWatch."""

    def __init__(self, session: Session) -> None:
        self.aborted = self._is_watched = False
        self._wake: Callable[[], object] = lambda: None
        self._greenlet: Any = gevent.spawn(self._ask, session)
        turn()

    def start(self, wake: Callable[[], object]) -> None:
        self._is_watched, self._wake = True, wake

    def stop(self) -> None:
        self._is_watched = False

    def abort(self) -> None:
        self.aborted = True
        self._wake()

    @property
    def answer(self) -> list[bytes] | str | None:
        """The packets, or why there are none; None while it waits."""
        turn()
        answer: list[bytes] | str | None = self._greenlet.value
        assert self._is_watched is (answer is None)
        return answer

    def _ask(self, session: Session) -> list[bytes] | str:
        try:
            return [frame.packet for frame in session.long_poll.poll(cast(PollWatch, self))]
        except SessionClosed as error:
            return str(error)
