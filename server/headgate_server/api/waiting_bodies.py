"""The bodies of requests to publish that are being received: bytes per caller, and in all. No I/O.

In: the size of a body before it is read. Out: permission to read it, or LimitReached. A body may take any time at the least
rate, and its received part stays in memory. Without this limit, one caller with the thousand connections of an address would
use a gigabyte. Each caller has its own share, so using all of it takes nothing from the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import LimitReached

# The number of largest bodies in transit, per caller and in all.
PER_CALLER, IN_ALL = 8, 64
# A body that arrives in one read with its head, or in the next one, is not counted.
AT_ONCE_BYTES = 8192
RETRY_S = 1


class WaitingBodies:
    """See the module. `largest_bytes`: the greatest size of a body."""

    def __init__(self, largest_bytes: int) -> None:
        self._per_caller_bytes, self._in_all_bytes = PER_CALLER * largest_bytes, IN_ALL * largest_bytes
        self._bytes_of: dict[str, int] = {}
        self._bytes = 0

    @contextmanager
    def coming(self, caller: str, size_bytes: int) -> Iterator[None]:
        """Count a body of a caller for the time of the block. Raises LimitReached: `publish_body_bytes`; read nothing."""
        before = self._bytes_of.get(caller, 0)
        if before + size_bytes > self._per_caller_bytes:
            raise LimitReached("publish_body_bytes", self._per_caller_bytes, RETRY_S)
        if self._bytes + size_bytes > self._in_all_bytes:
            raise LimitReached("publish_body_bytes", self._in_all_bytes, RETRY_S)
        self._bytes_of[caller] = before + size_bytes
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._bytes -= size_bytes
            left = self._bytes_of[caller] = self._bytes_of[caller] - size_bytes
            if not left:
                del self._bytes_of[caller]
