"""The states of a session, the steps that each allows, and the next state for each step. No I/O.

    HANDSHAKE ──► POLLING ◄──► PROBING ──► UPGRADING ──► OPEN
        │            ▲                        │           ▲
        │            └──── the probe failed ──┘           │
        └──────────── a WebSocket from the start ─────────┘

    every state above ── END ──► CLOSING ── FORGET ──► CLOSED

A session stays in CLOSING until the application has handled all messages from before the end. A step outside the table raises
IllegalStep and is a bug, because the callers of `Session.advance` check the state first.
"""

from __future__ import annotations

from enum import Enum

from headgate.runtime.machine import Machine

PING_TIMEOUT = "ping timeout"
TRANSPORT_CLOSE = "transport close"
TRANSPORT_ERROR = "transport error"
CLIENT_DISCONNECT = "client disconnect"
SERVER_DISCONNECT = "server disconnect"


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


class SessionStep(Enum):
    """An event in the life of a session."""

    __hash__ = object.__hash__

    START_POLLING = "start polling"
    START_WEBSOCKET = "start websocket"
    PROBE = "probe"
    ANSWER_PROBE = "answer probe"
    DROP_PROBE = "drop probe"
    MOVE = "move"
    END = "end"
    FORGET = "forget"


OVER = frozenset({SessionState.CLOSING, SessionState.CLOSED})
MACHINE = Machine(
    "session",
    {
        (SessionState.HANDSHAKE, SessionStep.START_POLLING): SessionState.POLLING,
        (SessionState.HANDSHAKE, SessionStep.START_WEBSOCKET): SessionState.OPEN,
        (SessionState.POLLING, SessionStep.PROBE): SessionState.PROBING,
        (SessionState.PROBING, SessionStep.ANSWER_PROBE): SessionState.UPGRADING,
        (SessionState.PROBING, SessionStep.DROP_PROBE): SessionState.POLLING,
        (SessionState.UPGRADING, SessionStep.MOVE): SessionState.OPEN,
        (SessionState.UPGRADING, SessionStep.DROP_PROBE): SessionState.POLLING,
        (SessionState.CLOSING, SessionStep.FORGET): SessionState.CLOSED,
    }
    | {(state, SessionStep.END): SessionState.CLOSING for state in SessionState if state not in OVER},
)

# The WebSocket carries the session, or soon will, so a poll has nothing to wait for.
MOVED = frozenset({SessionState.UPGRADING, SessionState.OPEN})
