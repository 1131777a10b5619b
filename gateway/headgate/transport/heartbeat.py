"""The heartbeat of a session (Engine.IO 4): a ping per interval, and the end of a session without a pong within the timeout.

    RESTING ── ping ──► PONG_DUE ── timeout ──► the session ends
       ▲                  │   ▲
       └────── pong ──────┤   │ timeout; the way is free again
                          ▼   │
                       PONG_GRACE ── timeout; the way is still blocked ──► PONG_GRACE

While the session does not read, the pong waits in our socket. While it writes, the ping may wait after data in the browser's.
Then the pong has one more timeout, and again after that, provided that the browser accepts bytes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame

from .session_state import PING_TIMEOUT
from .timers import monotonic

if TYPE_CHECKING:
    from .session import Session, SessionServer

_PING = Frame(b"2")


class Pulse(Enum):
    """What the heartbeat waits for."""

    RESTING = "resting"
    """For the time of the next ping."""
    PONG_DUE = "pong due"
    """For a pong, within the timeout."""
    PONG_GRACE = "pong grace"
    """For a pong whose way was blocked, for one more timeout."""


class Heartbeat:
    """See the module. It refers to its session between `start` and `stop` only, so that an ended session is freed at once."""

    __slots__ = ("_alive_until_s", "_pings", "_server", "_session", "pulse")

    def __init__(self, server: SessionServer) -> None:
        self._server = server
        self._session: Session | None = None
        self._alive_until_s = 0.0
        self._pings = 0
        self.pulse = Pulse.RESTING

    def start(self, session: Session) -> None:
        """Begin; the first ping goes out after one interval."""
        self._session = session
        self._expect_life()
        self._server.deadlines.after(self._server.limits.ping_interval_s, self.ping)

    def stop(self) -> None:
        """Ping no more. Idempotent."""
        self._session = None

    def ping(self) -> None:
        """Send a ping; its pong is due from now on."""
        if (session := self._session) is None:
            return
        self._pings += 1
        session.offer_control(_PING)
        self.pulse = Pulse.PONG_GRACE if session.pong_blocked else Pulse.PONG_DUE
        self._server.deadlines.after(self._server.limits.ping_timeout_s, self._check_pong, self._pings)

    def pong(self) -> bool:
        """Take a pong; return whether one was due. Others prove nothing."""
        if self.pulse is Pulse.RESTING:
            return False
        self.pulse = Pulse.RESTING
        self._expect_life()
        self._server.deadlines.after(self._server.limits.ping_interval_s, self.ping)
        return True

    def give_grace(self) -> None:
        """Restart the browser's time, because the session reads again."""
        self._expect_life()
        if self.pulse is Pulse.PONG_DUE:
            self.pulse = Pulse.PONG_GRACE

    def late(self) -> bool:
        """Return whether the browser has been silent for longer than a heartbeat takes, with nothing in its way."""
        return self._session is not None and monotonic() > self._alive_until_s and not self._session.pong_blocked

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

    def _expect_life(self) -> None:
        limits = self._server.limits
        self._alive_until_s = monotonic() + limits.ping_interval_s + limits.ping_timeout_s
