"""The heartbeat of a session (Engine.IO 4). It sends a ping per interval and ends the session without a pong within the timeout.

    RESTING ── ping ──► PONG_DUE ── timeout ──► the session ends
       ▲                  │   ▲
       └────── pong ──────┤   │ timeout; the path is free again
                          ▼   │
                       PONG_GRACE ── timeout; the path is still blocked ──► PONG_GRACE

While the session does not read, the pong waits in our socket. While it writes, the ping may wait after data in the browser's
socket. In both cases the pong gets one more timeout, repeatedly if the browser keeps accepting bytes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame

from .session_state import PING_TIMEOUT

if TYPE_CHECKING:
    from .session import Session, SessionServer

_PING = Frame(b"2")


class Pulse(Enum):
    """The state of the heartbeat, by the event that it waits for."""

    RESTING = "resting"
    """The next ping."""
    PONG_DUE = "pong due"
    """A pong, within the timeout."""
    PONG_GRACE = "pong grace"
    """A pong with a blocked path, for one more timeout."""


class Heartbeat:
    """See the module. It refers to its session only between `start` and `stop`, so that an ended session is freed at once."""

    __slots__ = ("_pings", "_server", "_session", "pulse")

    def __init__(self, server: SessionServer) -> None:
        self._server = server
        self._session: Session | None = None
        self._pings = 0
        self.pulse = Pulse.RESTING

    def start(self, session: Session) -> None:
        """Start. The first ping goes out after one interval."""
        self._session = session
        self._server.deadlines.after(self._server.limits.ping_interval_s, self.ping)

    def stop(self) -> None:
        """Stop pinging. Idempotent."""
        self._session = None

    def ping(self) -> None:
        """Send a ping and wait for its pong."""
        if (session := self._session) is None:
            return
        self._pings += 1
        session.offer_control(_PING)
        self.pulse = Pulse.PONG_GRACE if session.pong_blocked else Pulse.PONG_DUE
        self._server.deadlines.after(self._server.limits.ping_timeout_s, self._check_pong, self._pings)

    def pong(self) -> bool:
        """Take a pong; return whether one was due. A pong without a ping proves nothing."""
        if self.pulse is Pulse.RESTING:
            return False
        self.pulse = Pulse.RESTING
        self._server.deadlines.after(self._server.limits.ping_interval_s, self.ping)
        return True

    def give_grace(self) -> None:
        """Give a due pong one more timeout, because the session reads again."""
        if self.pulse is Pulse.PONG_DUE:
            self.pulse = Pulse.PONG_GRACE

    def _check_pong(self, ping: int) -> None:
        session = self._session
        if session is None or self.pulse is Pulse.RESTING or ping != self._pings:
            return
        timeout_s = self._server.limits.ping_timeout_s
        blocked = session.pong_blocked
        if (blocked or self.pulse is Pulse.PONG_GRACE) and session.stalled_s < timeout_s:
            self.pulse = Pulse.PONG_GRACE if blocked else Pulse.PONG_DUE
            self._server.deadlines.after(timeout_s, self._check_pong, ping)
        else:
            session.end(PING_TIMEOUT)
