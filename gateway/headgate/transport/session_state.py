"""The states of a session and the next states that each allows, drawn in docs/architecture.md. No I/O.

A session stays in CLOSING until the application has handled all messages from before the end. Any other step raises IllegalStep
and is a bug, because the callers of `Session.advance` check the state first.
"""

from __future__ import annotations

from enum import Enum

from headgate.runtime.machine import between


class Reason:
    """Why a session ended, for disconnect handlers, logs and metrics. The first five are python-socketio's."""

    CLIENT_DISCONNECT = "client disconnect"
    SERVER_DISCONNECT = "server disconnect"
    PING_TIMEOUT = "ping timeout"
    TRANSPORT_CLOSE = "transport close"
    TRANSPORT_ERROR = "transport error"
    SLOW_CONSUMER = "slow consumer"
    WRITE_DEADLINE = "write deadline"
    PARSE_ERROR = "parse error"
    INBOUND_FLOOD = "inbound flood"
    HANDSHAKE_DEADLINE = "handshake deadline"
    PAYLOAD_TOO_LARGE = "payload too large"


class SessionState(Enum):
    """The state of a session."""

    HANDSHAKE = "handshake"
    """The application has not accepted it yet."""
    POLLING = "polling"
    """Polls carry frames out, and POST bodies carry packets in."""
    PROBING = "probing"
    """Polling, with an open WebSocket that has brought nothing yet."""
    UPGRADING = "upgrading"
    """The WebSocket has brought a message. Each poll is answered at once until the browser has moved."""
    OPEN = "open"
    """On WebSocket."""
    CLOSING = "closing"
    """Ended, but the application may still handle earlier messages."""
    CLOSED = "closed"
    """Ended, and the application has been notified."""

    __hash__ = object.__hash__  # Enum's is written in Python and runs twice per step


OVER = frozenset({SessionState.CLOSING, SessionState.CLOSED})
MACHINE = between(
    "session",
    {
        SessionState.HANDSHAKE: (SessionState.POLLING, SessionState.OPEN, SessionState.CLOSING),
        SessionState.POLLING: (SessionState.PROBING, SessionState.CLOSING),
        SessionState.PROBING: (SessionState.UPGRADING, SessionState.POLLING, SessionState.CLOSING),
        SessionState.UPGRADING: (SessionState.OPEN, SessionState.POLLING, SessionState.CLOSING),
        SessionState.OPEN: (SessionState.CLOSING,),
        SessionState.CLOSING: (SessionState.CLOSED,),
    },
)

# The WebSocket carries the session, or soon will, so a poll has nothing to wait for.
MOVED = frozenset({SessionState.UPGRADING, SessionState.OPEN})
