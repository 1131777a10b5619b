"""The receiving half of a session: packets from the browser, on their way to the application.

In: Engine.IO packets, off the WebSocket or out of POST bodies. First the rate limit, then the packet's type. Out: messages
through the inbox (inbox.py), in order, to the session's `deliver`; everything else straight to the session.

A receiver exists only while the browser has sent something lately: an idle session has none, which keeps it small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.protocol.frames import Frame
from headgate.runtime.token_bucket import TokenBucket

from .frame_parser import NORMAL, POLICY, PROTOCOL_ERROR
from .inbox import Inbox
from .limits import TransportLimits
from .session_state import CLIENT_DISCONNECT, TRANSPORT_ERROR
from .timers import monotonic


class ReceivingSession(Protocol):
    """The session that the packets are for."""

    closed: bool

    @property
    def limits(self) -> TransportLimits:
        """The rate limit is in them."""

    def end(self, reason: str, *, abort: bool = False, code: int = NORMAL, told: str = "") -> None:
        """End the session."""

    def offer_control(self, frame: Frame) -> None:
        """Send a frame ahead of all data."""

    def pong_received(self) -> None:
        """The browser answered a ping."""

    def start(self, work: Callable[[], None]) -> None:
        """Run this in a greenlet, starting in the next turn of the loop."""

    def deliver(self, message: str | bytes) -> None:
        """Hand one message to the application. May wait."""

    def pause_reading(self) -> None:
        """Too much waits for the application: read nothing more from the browser."""

    def resume_reading(self) -> None:
        """Read on."""

    def all_delivered(self) -> None:
        """Nothing waits for the application any more."""


class Receiver:
    """See the module. Owns the session's inbox."""

    __slots__ = ("_bucket", "_inbox", "_session")

    def __init__(self, session: ReceivingSession) -> None:
        self._session = session
        limits = session.limits
        self._bucket = TokenBucket(limits.inbound_per_s, limits.inbound_burst, monotonic()) if limits.inbound_per_s else None
        self._inbox: Inbox | None = None

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits for the application."""
        return self._inbox is None

    @property
    def paused(self) -> bool:
        """Whether so much waits that nothing more is read."""
        return self._inbox is not None and self._inbox.paused

    def text(self, packet: str) -> None:
        """Take one Engine.IO packet."""
        if not self.admit():
            return
        session, kind = self._session, packet[:1]
        if kind == "4":
            self._put(packet[1:])
        elif kind == "3":
            session.pong_received()
        elif kind == "1":
            session.end(CLIENT_DISCONNECT, abort=True)
        elif kind == "2":
            session.offer_control(Frame(b"3" + packet[1:].encode()))
        elif kind != "6":
            session.end(TRANSPORT_ERROR, abort=True, code=PROTOCOL_ERROR, told="invalid packet")

    def binary(self, data: bytes) -> None:
        """Take one binary message (an attachment)."""
        if self.admit():
            self._put(data)

    def admit(self) -> bool:
        """Count something that the browser sent; False when that was too much, and the session is over."""
        session = self._session
        if session.closed:
            return False
        if self._bucket is None or self._bucket.spend(monotonic()):
            return True
        limits = session.limits
        session.end(
            "inbound flood",
            abort=True,
            code=POLICY,
            told=f"limit_reached: rate (at most {limits.inbound_per_s:g}/s, burst {limits.inbound_burst})",
        )
        return False

    def discard(self) -> None:
        """Forget the messages that wait: we have ended the session. Messages of a browser that left are delivered."""
        if self._inbox is not None:
            self._inbox.discard()

    # -- what the inbox asks ------------------------------------------------------------------------------------------

    def start(self, work: Callable[[], None]) -> None:
        """Messages wait: deliver them."""
        self._session.start(work)

    def deliver(self, message: str | bytes) -> None:
        """One message is next."""
        self._session.deliver(message)

    def pause(self) -> None:
        """The inbox is full."""
        self._session.pause_reading()

    def resume(self) -> None:
        """The inbox has room again."""
        self._session.resume_reading()

    def emptied(self) -> None:
        """The inbox has done its work."""
        self._inbox = None
        self._session.all_delivered()

    def _put(self, message: str | bytes) -> None:
        if self._inbox is None:
            self._inbox = Inbox(self)
        self._inbox.put(message)
