"""The upgrade, in which a polling session tries a WebSocket (Engine.IO packets `2probe`, `3probe`, `5`).

The session polls until it has moved. Anything unexpected closes only that WebSocket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame

from .frame_parser import POLICY, PROTOCOL_ERROR
from .peer_socket import ClientSocket
from .session_state import SessionState
from .websocket import WebSocket

if TYPE_CHECKING:
    from .session import Session

# For pings and the like during the upgrade. The session's rate limit counts only packets of its current transport.
MAX_CONTROLS = 16
# The longest upgrade where sessions have no handshake deadline.
UPGRADE_S = 10.0
_PONG_PROBE = Frame(b"3probe")
_EXPECTED = "upgrade: expected 2probe, then 5"


def begin_upgrade(session: Session, sock: ClientSocket, already_received: bytes = b"", unsent: bytes = b"") -> None:
    """Try this WebSocket, after writing the `unsent` answer to its request. Closes it if the session has or tries another one."""
    probe = UpgradeProbe(session, sock)
    if session.state is not SessionState.POLLING:
        probe.wire.open(b"", unsent)
        probe.wire.close(POLICY, "this session has its WebSocket already")
        return
    session.advance(SessionState.PROBING)
    session.probe = probe
    session.server.deadlines.after(session.server.limits.handshake_deadline_s or UPGRADE_S, probe.expire)
    probe.wire.open(already_received, unsent)
    probe.wire.flush()


class UpgradeProbe:
    """The owner of a WebSocket during the upgrade."""

    __slots__ = ("_answer", "_controls", "_session", "wire")

    def __init__(self, session: Session, sock: ClientSocket) -> None:
        self._session: Session | None = session
        self._answer: Frame | None = None
        self._controls = 0
        self.wire = WebSocket(sock, self, session.server.deadlines, session.server.limits)

    def received(self, message: str | bytes) -> None:
        """Take `2probe`, then `5`."""
        if (session := self._session) is None:
            return
        if message == "2probe" and session.state is SessionState.PROBING:
            session.advance(SessionState.UPGRADING)
            if session.polls is not None:
                session.polls.wake()
            self._answer = _PONG_PROBE
            self.wire.flush()
        elif message == "5" and session.state is SessionState.UPGRADING:
            self._move(session)
        else:
            self.wire.close(PROTOCOL_ERROR, _EXPECTED)

    def control_received(self) -> bool:
        """Count a ping and the like. An upgrade needs only a few."""
        self._controls += 1
        if self._controls > MAX_CONTROLS:
            self.wire.close(POLICY, _EXPECTED)
        return self._controls <= MAX_CONTROLS

    def next_chunk(self) -> bytes | None:
        frame, self._answer = self._answer, None
        return frame.wire if frame is not None else None

    def all_written(self) -> None:
        pass

    def websocket_lost(self, reason: str) -> None:
        session, self._session = self._session, None
        if session is not None and session.probe is self:
            session.advance(SessionState.POLLING)
            session.probe = None

    def expire(self) -> None:
        if self._session is not None:
            self.wire.close(POLICY, "upgrade not finished in time")

    def _move(self, session: Session) -> None:
        """Give the WebSocket to the session, which then sends everything over it, starting with queued frames."""
        session.advance(SessionState.OPEN)
        self._session = session.probe = None
        session.wire = self.wire
        self.wire.owner = session
        if session.polls is not None:
            session.polls.wake()
        if session.inbox is not None and session.inbox.paused:
            self.wire.pause_reading()  # the POST that filled the inbox keeps waiting
        else:
            session.polls = None
        session.flush()
