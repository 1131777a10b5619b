"""The limits of HTTP: how long a peer may keep us waiting with each part of an exchange, how large a message may be. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headgate.runtime.machine import between
from headgate.settings import DEFAULTS, Settings

# Connections that wait to be accepted. All clients of a gateway may come back at once, and one that finds no place in this queue
# tries again after 1 s, 3 s, 7 s and so on. The kernel cuts the number to net.core.somaxconn: in Linux 4,096 unless it is set.
BACKLOG = 65535


# Of a request to an application that sets no MAX_CONTENT_LENGTH.
MAX_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of an HTTP server: the settings of these names; `header_deadline_s` is `handshake_deadline_s` there."""

    header_deadline_s: float = DEFAULTS.handshake_deadline_s
    keep_alive_s: float = DEFAULTS.keep_alive_s
    body_deadline_s: float = DEFAULTS.body_deadline_s
    write_deadline_s: float = DEFAULTS.write_deadline_s
    min_bytes_per_s: float = 1024.0
    max_body_bytes: int = MAX_BODY_BYTES
    send_buffer_bytes: int = DEFAULTS.send_buffer_bytes
    max_connections_per_address: int = DEFAULTS.max_connections_per_address
    proxies: int = DEFAULTS.proxies
    # Of the process, beside what its descriptors allow; None for any number.
    max_connections: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> HttpLimits:
        """Return the limits of the server of a gateway."""
        values = settings.values_for(cls)
        if settings.dev:
            values["max_connections_per_address"] = 0  # one machine: there an address says nothing about who it is
        return cls(header_deadline_s=settings.handshake_deadline_s, **values)

    @property
    def max_chunked_bytes(self) -> int:
        """How many bytes a chunked body may take on the wire: chunk sizes, extensions and trailers count as well."""
        return 2 * self.max_body_bytes + 65536


class Pace:
    """How much longer a peer may keep us waiting with one message: `left_s` of `grace_s` in all.

    Bytes that move give time back, a second for every `bytes_per_s` of them, never more than there was at first. So a silent peer
    is cut after `grace_s`, one that drips more slowly than the rate a little later, and one that keeps to the rate never. Only
    time spent waiting for the peer counts.
    """

    __slots__ = ("_bytes_per_s", "_grace_s", "left_s")

    def __init__(self, grace_s: float, bytes_per_s: float | None = None) -> None:
        """`bytes_per_s` None: bytes give no time back, the grace is a deadline for the whole."""
        self._grace_s = self.left_s = grace_s
        self._bytes_per_s = bytes_per_s

    def waited(self, seconds: float) -> None:
        """Count time that was spent waiting for the peer."""
        self.left_s -= seconds

    def moved(self, size_bytes: int) -> None:
        """Count bytes that the peer sent, or accepted."""
        if self._bytes_per_s is not None:
            self.left_s = min(self._grace_s, self.left_s + size_bytes / self._bytes_per_s)


class Part(Enum):
    """The part of an HTTP exchange that is under way. The value names it in errors and as the metric's label."""

    IDLE = "next request"
    HEADERS = "headers"
    BODY = "body"
    ANSWER = "answer"
    DETACHED = "nothing"

    __hash__ = object.__hash__  # Enum's own is a function of Python

    def pace(self, limits: HttpLimits) -> Pace:
        """Return how long the peer may keep us waiting with this part."""
        if self is Part.IDLE:
            return Pace(limits.keep_alive_s)
        if self is Part.BODY:
            return Pace(limits.body_deadline_s, limits.min_bytes_per_s)
        if self is Part.ANSWER:
            return Pace(limits.write_deadline_s, limits.min_bytes_per_s)
        return Pace(limits.header_deadline_s)


# The parts of a connection's life. A connection that is detached is a WebSocket's, or another process's.
MACHINE = between(
    "HTTP exchange",
    {
        Part.HEADERS: frozenset({Part.BODY, Part.ANSWER, Part.DETACHED}),
        Part.BODY: frozenset({Part.BODY, Part.ANSWER, Part.IDLE, Part.DETACHED}),
        Part.ANSWER: frozenset({Part.BODY, Part.IDLE, Part.DETACHED}),
        Part.IDLE: frozenset({Part.HEADERS, Part.BODY, Part.ANSWER, Part.DETACHED}),
        Part.DETACHED: frozenset(),
    },
)
