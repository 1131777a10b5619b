"""The receiving half of a session. It takes packets from the browser to the application.

In: Engine.IO packets, counted by the rate limit. Out: messages for the server's `deliver`, one at a time, in a greenlet that
exists only while messages wait. Other packets go straight to the session. When too many messages wait, the session stops
reading, and data backs up into the browser's socket.

A session creates its inbox for a packet and drops it with the next pong, so an idle session is small.
"""

from __future__ import annotations

from collections import deque
from time import monotonic as turn_clock
from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame
from headgate.runtime.loop import sleep
from headgate.runtime.rates import TokenBucket

from .frame_parser import POLICY, PROTOCOL_ERROR
from .session_state import Reason
from .timers import monotonic

if TYPE_CHECKING:
    from .session import Session

# The session stops reading when this many messages wait, and resumes at the lower level.
FULL_MESSAGES, LOW_MESSAGES = 64, 16
FULL_BYTES, LOW_BYTES = 1024 * 1024, 256 * 1024
# Time slice of one session: 64 costly joins take 100 ms.
SLICE_S = 0.005


class Inbox:
    """See the module. `paused` is True while nothing more is read."""

    __slots__ = ("_bucket", "_bytes", "_messages", "_session", "paused")

    def __init__(self, session: Session) -> None:
        self._session = session
        limits = session.server.limits
        self._bucket = TokenBucket(limits.inbound_per_s, limits.inbound_burst, monotonic()) if limits.inbound_per_s else None
        self._messages: deque[str | bytes] | None = None  # None while no greenlet runs
        self._bytes = 0
        self.paused = False

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits for the application."""
        return self._messages is None

    def take(self, packet: str | bytes) -> None:
        """Take one Engine.IO packet, or a binary message (an attachment)."""
        if not self.admit():
            return
        session = self._session
        if isinstance(packet, bytes):
            self._put(packet)
            return
        kind = packet[:1]
        if kind == "4":
            self._put(packet[1:])
        elif kind == "3":
            if session.heartbeat.pong() and self.at_rest:
                session.inbox = None  # not needed until the browser sends anything else
        elif kind == "1":
            session.end(Reason.CLIENT_DISCONNECT, abort=True)
        elif kind == "2":
            session.offer_control(Frame(b"3" + packet[1:].encode()))
        elif kind != "6":
            session.end(Reason.TRANSPORT_ERROR, abort=True, code=PROTOCOL_ERROR, shown="invalid packet")

    def admit(self) -> bool:
        """Count a packet. Returns False if the session is over. A packet beyond the limit ends it."""
        session = self._session
        if session.closed:
            return False
        if self._bucket is None or self._bucket.spend(monotonic()):
            return True
        limits = session.server.limits
        shown = f"limit_reached: rate (at most {limits.inbound_per_s:g}/s, burst {limits.inbound_burst})"
        session.end(Reason.INBOUND_FLOOD, abort=True, code=POLICY, shown=shown)
        return False

    def discard(self) -> None:
        """Drop the waiting messages. Called when we end a session. Messages of a browser that left are still delivered."""
        if self._messages is not None:
            self._messages.clear()
            self._bytes = 0

    def _put(self, message: str | bytes) -> None:
        if (messages := self._messages) is None:
            messages = self._messages = deque()
            self._session.server.start(self._work)
        messages.append(message)
        self._bytes += len(message)
        if not self.paused and (len(messages) >= FULL_MESSAGES or self._bytes >= FULL_BYTES):
            self.paused, session = True, self._session
            if session.wire is not None:
                session.wire.pause_reading()
            else:
                session.long_poll.pause()

    def _work(self) -> None:
        session, messages, since_s = self._session, self._messages, turn_clock()
        try:
            while messages:
                message = messages.popleft()
                self._bytes -= len(message)
                if self.paused and len(messages) <= LOW_MESSAGES and self._bytes <= LOW_BYTES:
                    self._resume()
                session.server.deliver(session, message)
                if messages and turn_clock() - since_s > SLICE_S:
                    sleep()
                    since_s = turn_clock()
        finally:
            self._messages, self._bytes, self.paused = None, 0, False
            if session.closed:
                session.forget()

    def _resume(self) -> None:
        self.paused = False
        session = self._session
        if session.closed:
            return
        session.heartbeat.has_grace = True  # its pong may have waited here
        if session.wire is not None:
            session.wire.resume_reading()
        if session.polls is not None:
            session.polls.resume()
