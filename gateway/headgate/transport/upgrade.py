"""The upgrade: a WebSocket that a polling session is trying out (Engine.IO: `2probe`, `3probe`, `5`).

In: the probing wire's messages. Out: to the session (`Upgradable`), that the browser has reached us, has moved, or has not.
The session goes on polling until it has moved; anything unexpected closes the probing wire and nothing else.
"""

from __future__ import annotations

from typing import Protocol

from headgate.protocol.frames import Frame

from .frame_parser import POLICY, PROTOCOL_ERROR
from .websocket import Wire

# The session's own rate limit counts what comes over its own wire only.
MAX_CONTROLS = 16
_PONG_PROBE = Frame(b"3probe")
_EXPECTED = "upgrade: expected 2probe, then 5"


class Upgradable(Protocol):
    """A polling session."""

    def probed(self) -> None:
        """The browser reached us over the WebSocket; it will move when its last poll has been answered."""

    def upgrade(self, wire: Wire) -> None:
        """The browser has moved: the wire is the session's."""

    def probe_failed(self, wire: Wire) -> None:
        """The WebSocket did not work out."""


class Prober:
    """Owner of a probing wire."""

    __slots__ = ("_answer", "_controls", "_probed", "_session", "wire")

    def __init__(self, session: Upgradable) -> None:
        self._session: Upgradable | None = session
        self._answer: Frame | None = None
        self._probed = False
        self._controls = 0
        self.wire: Wire | None = None

    def text_received(self, text: str) -> None:
        """`2probe`, then `5`."""
        session, wire = self._session, self.wire
        if session is None or wire is None:
            return
        if text == "2probe" and not self._probed:
            self._probed = True
            self._answer = _PONG_PROBE
            session.probed()
            wire.flush()
        elif text == "5" and self._probed:
            self._session = None
            session.upgrade(wire)
        else:
            wire.close(PROTOCOL_ERROR, _EXPECTED)

    def binary_received(self, data: bytes) -> None:
        """Nothing binary belongs here."""
        if self.wire is not None:
            self.wire.close(PROTOCOL_ERROR, _EXPECTED)

    def control_received(self) -> bool:
        """Pings and the like: more than a few are not what an upgrade is for."""
        self._controls += 1
        if self._controls > MAX_CONTROLS and self.wire is not None:
            self.wire.close(POLICY, _EXPECTED)
        return self._controls <= MAX_CONTROLS

    def next_chunk(self) -> bytes | None:
        """The answer to the probe."""
        frame, self._answer = self._answer, None
        return frame.wire if frame is not None else None

    def wire_idle(self) -> None:
        """Nothing waits for room."""

    def wire_lost(self, reason: str) -> None:
        """The WebSocket is gone, or going."""
        session, self._session = self._session, None
        if session is not None and self.wire is not None:
            session.probe_failed(self.wire)

    def expire(self) -> None:
        """The browser opened a WebSocket for an upgrade and went no further."""
        if self._session is not None and self.wire is not None:
            self.wire.close(POLICY, "upgrade not finished in time")
