"""The limits of one session, with their defaults. docs/settings.md explains each to an operator. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """The resources that one session may use. Units are in the names."""

    queue_frames: int = 256
    queue_bytes: int = 1024 * 1024
    send_buffer_bytes: int = 65536
    write_deadline_s: float = 10.0
    ping_interval_s: float = 25.0
    ping_timeout_s: float = 20.0
    handshake_deadline_s: float = 10.0
    max_message_bytes: int = 1_000_000
    inbound_per_s: float = 50.0
    inbound_burst: int = 100
