"""Long-polling: the HTTP side of one session, until it moves to WebSocket.

In: GET requests (`poll`, which waits for frames) and the packets of POST bodies (`posted`, which waits while the session's
inbox is full). Out: frames from the session's queue; packets to the session. At most one of each at a time: a second GET or a
second POST has no place in the order and ends the session, as in the reference server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from headgate.protocol.frames import Frame
from headgate.runtime.loop import Signal

from .session_state import CLIENT_DISCONNECT, MOVED, PING_TIMEOUT, TRANSPORT_CLOSE, TRANSPORT_ERROR
from .timers import monotonic

if TYPE_CHECKING:
    from .session import Session

_NOOP = Frame(b"6")


class SessionClosed(Exception):
    """The session is over, or its state does not allow the request; the HTTP layer answers 400."""


class RequestWatch(Protocol):
    """Notices that the browser gave up an HTTP request while it is waiting for its answer."""

    aborted: bool

    def start(self, wake: Callable[[], object]) -> None:
        """Watch; set `aborted` and call `wake` (in the hub) when the request is given up, or has been already."""

    def stop(self) -> None:
        """Stop watching. Idempotent."""


class LongPoll:
    """The requests of one session."""

    __slots__ = ("_final_frames", "_posting", "_room", "_session", "_wake")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wake: Signal | None = None
        self._room: Signal | None = None
        self._posting = False
        self._final_frames: list[Frame] = []

    # -- out ------------------------------------------------------------------------------------------------------

    def poll(self, wait_s: float, request: RequestWatch) -> list[Frame]:
        """Wait for frames and return them; a NOOP while an upgrade is under way. Switches greenlets.

        Args:
            wait_s: longest wait.
            request: watches the HTTP request that waits, so that frames are not taken for a browser that gave it up.

        Raises:
            SessionClosed: the session ended and has nothing left to say, or another poll is waiting (both are then over).
        """
        session = self._session
        if self._wake is not None:
            session.end(TRANSPORT_ERROR)
            raise SessionClosed("another poll of this session is waiting")
        deadline_s = monotonic() + wait_s
        self._wake = signal = Signal()
        request.start(signal.set)
        try:
            while not (request.aborted or session.closed or session.state in MOVED or session.has_frames()):
                left_s = deadline_s - monotonic()
                if left_s <= 0 or not signal.wait(left_s):
                    session.end(PING_TIMEOUT)  # a poll waits as long as a heartbeat can take
                    break
                signal.clear()
        finally:
            request.stop()
            self._wake = None
        if request.aborted:
            session.end(TRANSPORT_CLOSE, abort=True)  # what the poll would have carried is in doubt
            raise SessionClosed("the browser gave the poll up")
        if session.closed:
            if not self._final_frames:
                raise SessionClosed("this session is over")
            return self._final_frames
        if session.state in MOVED:
            return [_NOOP]
        return session.take_frames() or [_NOOP]

    def wake(self) -> None:
        """Let a waiting poll look again."""
        if self._wake is not None:
            self._wake.set()

    def end(self, final_frames: list[Frame]) -> bool:
        """The session is over: let the requests that wait go. Returns whether a poll takes the final frames."""
        self.resume()
        if self._wake is None:
            return False
        self._final_frames = final_frames
        self._wake.set()
        return True

    # -- in -------------------------------------------------------------------------------------------------------

    @contextmanager
    def posting(self) -> Iterator[None]:
        """Surrounds a POST from the first look at its body to its answer.

        Raises:
            SessionClosed: another one is under way (both are then over).
        """
        if self._posting:
            self._session.end(TRANSPORT_ERROR)
            raise SessionClosed("another request of this session is sending")
        self._posting = True
        try:
            yield
        finally:
            self._posting = False

    def posted(self, packets: list[str | bytes]) -> None:
        """Take the packets of a body, in order; wait while the inbox is full, so that the next body comes later.

        Raises:
            SessionClosed: not all of them were taken; the session is over.
        """
        session = self._session
        for packet in packets:
            session.received(packet)
            if session.closed and session.reason != CLIENT_DISCONNECT:
                raise SessionClosed("a packet was not taken")
        if self._room is not None:
            self._room.wait()

    def pause(self) -> None:
        """The session's inbox is full: delay the answer of the POST that filled it."""
        self._room = Signal()

    def resume(self) -> None:
        """There is room again. Idempotent."""
        room, self._room = self._room, None
        if room is not None:
            room.set()
