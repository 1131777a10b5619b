"""The heartbeat of a session (Engine.IO 4). It sends a ping per interval and ends the session without a pong within the timeout.

While the session does not read, the pong waits in our socket. While it writes, the ping may wait after data in the browser's
socket. In both cases the pong gets one more timeout (grace), repeatedly if the browser keeps accepting bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame

from .session_state import Reason

if TYPE_CHECKING:
    from .session import Session, SessionServer

_PING = Frame(b"2")


class Heartbeat:
    """See the module. A pong is due if it `awaits_pong`, and gets one more timeout if it `has_grace`.

    It refers to its session only between `start` and `stop`, so that an ended session is freed at once.
    """

    __slots__ = ("_pings", "_server", "_session", "awaits_pong", "has_grace")

    def __init__(self, server: SessionServer) -> None:
        self._server = server
        self._session: Session | None = None
        self._pings = 0
        self.awaits_pong = self.has_grace = False

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
        self.awaits_pong, self.has_grace = True, session.pong_blocked
        self._server.deadlines.after(self._server.limits.ping_timeout_s, self._check_pong, self._pings)

    def pong(self) -> bool:
        """Take a pong; return whether one was due. A pong without a ping proves nothing."""
        if not self.awaits_pong:
            return False
        self.awaits_pong = False
        self._server.deadlines.after(self._server.limits.ping_interval_s, self.ping)
        return True

    def _check_pong(self, ping: int) -> None:
        session = self._session
        if session is None or not self.awaits_pong or ping != self._pings:
            return
        timeout_s = self._server.limits.ping_timeout_s
        blocked = session.pong_blocked
        if (blocked or self.has_grace) and session.stalled_s < timeout_s:
            self.has_grace = blocked
            self._server.deadlines.after(timeout_s, self._check_pong, ping)
        else:
            session.end(Reason.PING_TIMEOUT)
