"""The limits of HTTP for the size of a message and the delay by a peer. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.settings.settings import DEFAULTS, Settings

# Connections that wait to be accepted. All clients may return at once, and one without a place in this queue retries after 1 s,
# 3 s, 7 s and so on. The kernel caps the number at net.core.somaxconn (4,096 by default in Linux).
BACKLOG = 65535


# For an application without MAX_CONTENT_LENGTH.
MAX_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of an HTTP server, named as the settings, except that `header_deadline_s` is `handshake_deadline_s` there.

    `max_body_bytes` None leaves the size of a body to the application, as Flask's MAX_CONTENT_LENGTH does.
    """

    header_deadline_s: float = DEFAULTS.handshake_deadline_s
    keep_alive_s: float = DEFAULTS.keep_alive_s
    body_deadline_s: float = DEFAULTS.body_deadline_s
    write_deadline_s: float = DEFAULTS.write_deadline_s
    min_bytes_per_s: float = 1024.0
    max_body_bytes: int | None = MAX_BODY_BYTES
    send_buffer_bytes: int = DEFAULTS.send_buffer_bytes
    max_connections_per_address: int = DEFAULTS.max_connections_per_address
    proxies: int = DEFAULTS.proxies
    # Of the process; None for as many as its descriptors allow.
    max_connections: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """Return the limits for a gateway's server, whose applications limit their bodies."""
        values = settings.values_for(cls)
        if settings.dev:
            values["max_connections_per_address"] = 0  # all clients are on one machine
        return cls(header_deadline_s=settings.handshake_deadline_s, max_body_bytes=None, **values)
