"""The limits of a session of an application, and the policies of a full queue. No I/O.

The gateway's defaults (transport/limits.py) are for clients with a log to catch up from. These are for any application: room
for a burst, no limit on messages of a client, and no deadline for joining a namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headgate.transport import limits


@dataclass(frozen=True, slots=True)
class TransportLimits(limits.TransportLimits):
    """The limits of a session. With 0, `handshake_deadline_s` and `inbound_per_s` are no limits. Units are in the names."""

    queue_frames: int = 16_384
    queue_bytes: int = 8 * 1024 * 1024
    handshake_deadline_s: float = 0
    inbound_per_s: float = 0


class Overflow(Enum):
    """What happens to a broadcast for a client with a full queue. Events to one client always wait."""

    WAIT = "wait"
    """`emit` waits until every client has room, or is disconnected, so the slowest client sets the pace."""
    DROP = "drop"
    """The client misses the event. `Server.dropped` counts."""
    DISCONNECT = "disconnect"
    """The client is disconnected with the reason `slow consumer`."""
