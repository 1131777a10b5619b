"""What one HTTP message may cost: how long its peer may keep us waiting, how large it may be. No I/O.

In: the limits, and what the connection reports: seconds waited, bytes moved. Out: the seconds that it may go on waiting.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of an HTTP server, with their defaults. `settings.py` says what each means to an operator."""

    header_deadline_s: float = 10.0
    keep_alive_s: float = 10.0
    body_deadline_s: float = 10.0
    write_deadline_s: float = 10.0
    min_bytes_per_s: float = 1024.0
    max_body_bytes: int = 16 * 1024 * 1024
    send_buffer_bytes: int = 65536
    max_connections_per_address: int = 1000
    proxies: int = 0

    @property
    def max_chunked_bytes(self) -> int:
        """How many bytes a chunked body may take on the wire: chunk sizes, extensions and trailers count as well."""
        return 2 * self.max_body_bytes + 65536


class Pace:
    """How much longer a peer may keep us waiting with one message.

    It has `grace_s` in all. Bytes that move give time back, a second for every `min_bytes_per_s` of them, never more than
    there was at first. So a peer that is silent is cut after `grace_s`, one that drips more slowly than the rate a little
    later, and one that keeps to the rate is never cut, however large the message is. Only time spent waiting for the peer
    counts: an application may take as long as it likes between two reads or two writes.
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
