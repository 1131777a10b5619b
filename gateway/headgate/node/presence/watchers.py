"""The watchers of a room: pages that receive each difference and start over after missing one. No I/O.

In: frames, each with the difference between two versions. Out: the same frame to the connection of each page that keeps up.
Nothing is queued for a lagging page. It receives one `reset` once its connection has room, and then reads the room again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from headgate.events.wire.frames import Frame

# Bytes of notices that may wait for a page. The control lane holds four times as many before the gateway closes the connection.
MAX_WAITING_BYTES = 65536
# Pages between two yields to the loop.
_STRIDE = 32


class Connection(Protocol):
    """The connection of a page, as watchers see it."""

    closed: bool

    @property
    def queue(self) -> Any:
        """The send queue, with `control_bytes` of notices."""

    def offer_control(self, frame: Frame) -> None:
        """Send a notice ahead of events."""


class Watchers:
    """See the module."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._behind: dict[str, None] = {}  # sessions that need a reset

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, session: object) -> bool:
        return session in self._connections

    @property
    def any_behind(self) -> bool:
        """Whether a page needs a reset."""
        return bool(self._behind)

    def add(self, session: str, connection: Connection) -> None:
        """Add a page with the current version, or one that reads the room from its beginning."""
        self.remove(session)
        self._connections[session] = connection

    def remove(self, session: str) -> bool:
        """Remove a page; return whether it was watching."""
        self._behind.pop(session, None)
        return self._connections.pop(session, None) is not None

    def send(self, frame: Frame) -> Iterator[None]:
        """Send a difference to every page that keeps up; yields where the loop may run."""
        for count, (session, connection) in enumerate(list(self._connections.items()), 1):
            # Skip a page added during the iteration, because it has read a later version.
            if self._connections.get(session) is connection and session not in self._behind:
                if _has_room(connection):
                    connection.offer_control(frame)
                else:
                    self._behind[session] = None
            if not count % _STRIDE:
                yield

    def send_reset(self, frame: Frame) -> int:
        """Send a reset to lagging pages with room again; return their number."""
        chosen = [session for session in self._behind if _has_room(self._connections[session])]
        for session in chosen:
            del self._behind[session]
            self._connections[session].offer_control(frame)
        return len(chosen)


def _has_room(connection: Connection) -> bool:
    return not connection.closed and connection.queue.control_bytes < MAX_WAITING_BYTES
