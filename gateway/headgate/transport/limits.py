"""The limits of one session, named as the settings in docs/settings.md. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.settings.settings import DEFAULTS


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """The resources that one session may use, and the largest message that it accepts.

    0 disables `handshake_deadline_s` and `inbound_per_s`.
    """

    queue_frames: int = DEFAULTS.queue_frames
    queue_bytes: int = DEFAULTS.queue_bytes
    send_buffer_bytes: int = DEFAULTS.send_buffer_bytes
    write_deadline_s: float = DEFAULTS.write_deadline_s
    ping_interval_s: float = DEFAULTS.ping_interval_s
    ping_timeout_s: float = DEFAULTS.ping_timeout_s
    handshake_deadline_s: float = DEFAULTS.handshake_deadline_s
    max_message_bytes: int = 1_000_000
    inbound_per_s: float = DEFAULTS.inbound_per_s
    inbound_burst: int = DEFAULTS.inbound_burst
