"""The limits of an application's session, and the policies for a full queue. No I/O.

The gateway's defaults (transport/limits.py) are for clients that can catch up from a log. These suit any application, with room
for a burst, no rate limit on a client's messages, and no deadline for joining a namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headgate.transport import limits


@dataclass(frozen=True, slots=True)
class TransportLimits(limits.TransportLimits):
    """The limits of a session. 0 disables `handshake_deadline_s` and `inbound_per_s`."""

    queue_frames: int = 16_384
    queue_bytes: int = 8 * 1024 * 1024
    handshake_deadline_s: float = 0
    inbound_per_s: float = 0


class Overflow(Enum):
    """The policy for a broadcast to a client with a full queue. Events to one client always wait."""

    WAIT = "wait"
    """`emit` waits until every client has room or is disconnected, so the slowest client sets the pace."""
    DROP = "drop"
    """The client misses the event, and `Server.dropped` counts it."""
    DISCONNECT = "disconnect"
    """The client is disconnected with the reason `slow consumer`."""
