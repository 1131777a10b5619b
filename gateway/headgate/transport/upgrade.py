"""The upgrade: a WebSocket that a polling session is trying out (Engine.IO: `2probe`, `3probe`, `5`).

In: the messages of that WebSocket. Out: to the session, that the browser has reached us, has moved, or has not.
The session goes on polling until it has moved; anything unexpected closes that WebSocket and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.protocol.frames import Frame

from .frame_parser import POLICY, PROTOCOL_ERROR
from .websocket import WebSocket

if TYPE_CHECKING:
    from .session import Session

# The session's own rate limit counts packets of the transport that it is on; these come before it has moved.
MAX_CONTROLS = 16
# How long an upgrade may take where sessions have no handshake deadline.
UPGRADE_S = 10.0
_PONG_PROBE = Frame(b"3probe")
_EXPECTED = "upgrade: expected 2probe, then 5"


class UpgradeProbe:
    """Owner of the WebSocket while it is tried out."""

    __slots__ = ("_answer", "_controls", "_probed", "_session", "socket")

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session
        self._answer: Frame | None = None
        self._probed = False
        self._controls = 0
        self.socket: WebSocket | None = None

    def text_received(self, text: str) -> None:
        """`2probe`, then `5`."""
        session, socket = self._session, self.socket
        if session is None or socket is None:
            return
        if text == "2probe" and not self._probed:
            self._probed = True
            self._answer = _PONG_PROBE
            session.probed()
            socket.flush()
        elif text == "5" and self._probed:
            self._session = None
            session.upgrade(socket)
        else:
            socket.close(PROTOCOL_ERROR, _EXPECTED)

    def binary_received(self, data: bytes) -> None:
        """Nothing binary belongs here."""
        if self.socket is not None:
            self.socket.close(PROTOCOL_ERROR, _EXPECTED)

    def control_received(self) -> bool:
        """Pings and the like: an upgrade needs no more than a few."""
        self._controls += 1
        if self._controls > MAX_CONTROLS and self.socket is not None:
            self.socket.close(POLICY, _EXPECTED)
        return self._controls <= MAX_CONTROLS

    def next_chunk(self) -> bytes | None:
        """The answer to the probe."""
        frame, self._answer = self._answer, None
        return frame.wire if frame is not None else None

    def all_written(self) -> None:
        """Nothing waits for room."""

    def websocket_lost(self, reason: str) -> None:
        """The WebSocket is gone, or going."""
        session, self._session = self._session, None
        if session is not None and self.socket is not None:
            session.probe_failed(self.socket)

    def expire(self) -> None:
        """The browser opened a WebSocket for an upgrade and went no further."""
        if self._session is not None and self.socket is not None:
            self.socket.close(POLICY, "upgrade not finished in time")
