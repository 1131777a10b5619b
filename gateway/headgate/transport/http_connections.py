"""The open HTTP connections, with their addresses, in the order in which they began to wait for their peers. No I/O.

When there is one too many, the one that has waited longest for its peer is ended. A connection waits until the head of its
request is complete, between two requests, and from the first time that its peer keeps us waiting with a body or with reading an
answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class HttpConnections(Generic[C]):
    """See the module. Every method ignores a connection that is not open."""

    def __init__(self) -> None:
        self._address_of: dict[C, str | None] = {}
        # A dict is slow to find its first key after many removals.
        self._waiting: OrderedDict[C, None] = OrderedDict()
        # In that order, too, and with those that do not wait.
        self._at: dict[str, OrderedDict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def open(self, connection: C, address: str | None) -> None:
        """Take in a connection, which waits for its peer. With `address` None it counts for no address."""
        self._address_of[connection] = None
        self.wait(connection)
        self.attribute(connection, address)

    def attribute(self, connection: C, address: str | None) -> None:
        """Count a connection for another address. After a proxy each request may be another client's."""
        before = self._address_of.get(connection, address)
        if before == address:
            return
        if before is not None:
            at = self._at[before]
            del at[connection]
            if not at:
                del self._at[before]
        self._address_of[connection] = address
        if address is not None:
            self._at.setdefault(address, OrderedDict())[connection] = None

    def wait(self, connection: C) -> None:
        """Called when it begins to wait for its peer, or does already."""
        if connection in self._address_of and connection not in self._waiting:
            self._waiting[connection] = None
            address = self._address_of[connection]
            if address is not None:
                self._at[address].move_to_end(connection)

    def work(self, connection: C) -> None:
        """Called when the application begins to work for it."""
        self._waiting.pop(connection, None)

    def close(self, connection: C) -> None:
        """Called when it is over. Idempotent."""
        if connection in self._address_of:
            self.attribute(connection, None)
            self._waiting.pop(connection, None)
            del self._address_of[connection]

    def count_at(self, address: str) -> int:
        """Return the number of connections of an address."""
        return len(self._at.get(address, ()))

    def longest_waiting(self, address: str | None = None) -> C | None:
        """Return the connection (of an address) that has waited longest; None when none waits."""
        if address is None:
            return next(iter(self._waiting), None)
        return next((connection for connection in self._at.get(address, ()) if connection in self._waiting), None)
