"""The HTTP side of one session, which uses long-polling until it moves to WebSocket.

`poll`, for a GET, waits for frames of the session's queue. `post` gives the packets of a body to the session. A concurrent second
GET or POST would have no defined order and ends the session, as in the reference server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame
from headgate.runtime.loop import Signal

from .session_state import MOVED, Reason
from .timers import Deadlines

if TYPE_CHECKING:
    from .detach import PollWatch
    from .session import Session

_NOOP = Frame(b"6")
STORED_S = 5.0
MAX_BYTES = 4 * 1024 * 1024
# The approximate overhead of an entry, so that entries without frames are bounded too.
ENTRY_BYTES = 512

# Frames, or the reason of a session that ended without them.
LastWords = list[Frame] | str


class SessionClosed(Exception):
    """The session is over, or its state does not allow the request. The answer is 400."""


class LongPoll:
    """The requests of one session."""

    __slots__ = ("_final_frames", "_posting", "_room", "_session", "_wake")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wake: Signal | None = None
        self._room: Signal | None = None
        self._posting = False
        self._final_frames: list[Frame] = []

    def poll(self, request: PollWatch) -> list[Frame]:
        """Wait for frames, at most until the next ping, and return them. Returns a NOOP during an upgrade. Switches greenlets.

        Raises SessionClosed if the session ended without final frames, the browser aborted the poll (`request`), or another one
        waits. The last two end the session.
        """
        session = self._session
        if self._wake is not None:
            session.end(Reason.TRANSPORT_ERROR)
            raise SessionClosed("another poll of this session is waiting")
        self._wake = signal = Signal()
        request.start(signal.set)
        try:
            while not (request.aborted or session.closed or session.state in MOVED or session.has_frames()):
                signal.wait()
                signal.clear()
        finally:
            request.stop()
            self._wake = None
        if request.aborted:
            session.end(Reason.TRANSPORT_CLOSE, abort=True)  # whether the browser got the poll's frames is unknown
            raise SessionClosed("the browser gave the poll up")
        if session.closed:
            if not self._final_frames:
                raise SessionClosed("this session is over")
            return self._final_frames
        if session.state in MOVED:
            return [_NOOP]
        return session.take_frames() or [_NOOP]

    def wake(self) -> None:
        """Make a waiting poll check the session again."""
        if self._wake is not None:
            self._wake.set()

    def end(self, final_frames: list[Frame]) -> bool:
        """Answer the waiting requests of an ended session. Returns whether a poll takes the final frames."""
        self.resume()
        if self._wake is None:
            return False
        self._final_frames = final_frames
        self._wake.set()
        return True

    def post(self, read: Callable[[], list[str | bytes]]) -> None:
        """Take the packets of a body. Waits while the inbox is full, so that the next body comes later. Switches greenlets.

        Raises SessionClosed if one of them ended the session, or another body is under way, which ends it.
        """
        session = self._session
        if self._posting:
            session.end(Reason.TRANSPORT_ERROR)
            raise SessionClosed("another request of this session is sending")
        self._posting = True
        try:
            for packet in read():
                session.received(packet)
                if session.closed and session.reason != Reason.CLIENT_DISCONNECT:
                    raise SessionClosed("a packet was not taken")
            if self._room is not None:
                self._room.wait()
        finally:
            self._posting = False

    def pause(self) -> None:
        """Delay the answer of the POST whose packets filled the inbox."""
        self._room = Signal()

    def resume(self) -> None:
        """Answer the delayed POST. Idempotent."""
        room, self._room = self._room, None
        if room is not None:
            room.set()


class FinalFrames:
    """The last words of ended polling sessions, stored for a poll that was on its way at the end.

    If that poll got 400 instead, the frames before the end would be lost, and socket.io-client would reconnect after a goodbye.
    The store is bounded in time and in bytes. Without room for its words, a session is unknown to its next poll.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._words: dict[str, LastWords] = {}
        self._bytes = 0

    def store(self, sid: str, words: LastWords) -> None:
        """Store the last words of a session, if there is room."""
        size = _size(words)
        if self._bytes + size <= MAX_BYTES and sid not in self._words:
            self._words[sid] = words
            self._bytes += size
            self._deadlines.after(STORED_S, self.take, sid)

    def take(self, sid: str, *, by_poll: bool = True) -> LastWords | None:
        """Remove and return the last words of a session, if any. Only a poll gets frames."""
        words = self._words.get(sid)
        if words is None or not (by_poll or isinstance(words, str)):
            return None
        self._bytes -= _size(words)
        return self._words.pop(sid)


def _size(words: LastWords) -> int:
    return ENTRY_BYTES + (0 if isinstance(words, str) else sum(len(frame.wire) for frame in words))
