"""The watchers of a room: pages that are told each difference, and start over when they have missed one. No I/O.

In: frames, each the difference between two versions. Out: the same frame to the connection of each page that keeps up. Nothing
is queued for a page that does not: it is BEHIND, and gets one `reset` once its connection has room again, so that it reads the
room anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Protocol

from headgate.protocol.frames import Frame

# Bytes of notices that may wait for a page. The control lane takes four times as many before the gateway ends the connection.
MAX_WAITING_BYTES = 65536
# Others have a turn after so many pages.
_STRIDE = 32


class Connection(Protocol):
    """The connection of a page, as watchers need it."""

    closed: bool

    @property
    def queue(self) -> Any:
        """What waits to be sent, with `control_bytes` of it notices."""

    def offer_control(self, frame: Frame) -> None:
        """Send a notice ahead of events."""


class Standing(Enum):
    """Where a page stands."""

    LEVEL = "level"
    BEHIND = "behind"


class Watchers:
    """See the module."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._standing: dict[str, Standing] = {}
        self._behind = 0

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, session: object) -> bool:
        return session in self._connections

    @property
    def any_behind(self) -> bool:
        """Whether some page is to be told that it has missed something."""
        return self._behind > 0

    def add(self, session: str, connection: Connection) -> None:
        """A page has the version that is told next, or reads from its beginning."""
        self.remove(session)
        self._connections[session], self._standing[session] = connection, Standing.LEVEL

    def remove(self, session: str) -> bool:
        """A page watches no longer; return whether it did."""
        if self._connections.pop(session, None) is None:
            return False
        self._behind -= self._standing.pop(session) is Standing.BEHIND
        return True

    def tell(self, frame: Frame) -> Iterator[None]:
        """Pass a difference on to every page that keeps up. Let the loop run wherever this yields."""
        for count, (session, connection) in enumerate(list(self._connections.items()), 1):
            # Not one that has come meanwhile: it has read the version after.
            if self._connections.get(session) is connection and self._standing[session] is Standing.LEVEL:
                if _has_room(connection):
                    connection.offer_control(frame)
                else:
                    self._standing[session] = Standing.BEHIND
                    self._behind += 1
            if not count % _STRIDE:
                yield

    def tell_reset(self, frame: Frame) -> int:
        """Tell those that are behind, and have room again, to read anew; return how many that were."""
        if not self._behind:
            return 0
        told = [
            session
            for session, connection in self._connections.items()
            if self._standing[session] is Standing.BEHIND and _has_room(connection)
        ]
        for session in told:
            self._standing[session] = Standing.LEVEL
            self._behind -= 1
            self._connections[session].offer_control(frame)
        return len(told)


def _has_room(connection: Connection) -> bool:
    return not connection.closed and connection.queue.control_bytes < MAX_WAITING_BYTES
