"""The HTTP connections that are open: how many, whose, and which of them wait for their peer. No I/O.

An honest request is over in milliseconds, so when there is one connection too many, the one that has waited longest for its peer
is missed least. A connection waits until its request's head is complete, again from the first time that the peer keeps us waiting
with a body or with reading an answer, and between two requests. While the application works on an answer it does not wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class HttpConnections(Generic[C]):
    """See the module. A connection that is not open (any more) may be passed to every method, and is ignored."""

    def __init__(self) -> None:
        self._address_of: dict[C, str | None] = {}
        # In the order in which they began to wait. (A dict is slow to find its first key when many before it were removed.)
        self._waiting: OrderedDict[C, None] = OrderedDict()
        # Of each address in that order, too, with those that do not wait among them: a limit bounds how many.
        self._at: dict[str, OrderedDict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def open(self, connection: C, address: str | None) -> None:
        """Take a connection in. It waits for its peer. `address` None: it counts for no address (yet)."""
        self._address_of[connection] = None
        self.wait(connection)
        self.attribute(connection, address)

    def attribute(self, connection: C, address: str | None) -> None:
        """Let a connection count for another address: behind a proxy each request may be another client's."""
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
        """It waits for its peer from now on. One that does already keeps its place."""
        if connection in self._address_of and connection not in self._waiting:
            self._waiting[connection] = None
            address = self._address_of[connection]
            if address is not None:
                self._at[address].move_to_end(connection)

    def work(self, connection: C) -> None:
        """The application works for it from now on."""
        self._waiting.pop(connection, None)

    def close(self, connection: C) -> None:
        """It is over. Idempotent."""
        self.attribute(connection, None)
        self.work(connection)
        self._address_of.pop(connection, None)

    def count_at(self, address: str) -> int:
        """Return how many an address has."""
        return len(self._at.get(address, ()))

    def longest_waiting(self, address: str | None = None) -> C | None:
        """Return the connection (of an address) that has waited longest for its peer; None when none waits."""
        if address is None:
            return next(iter(self._waiting), None)
        return next((connection for connection in self._at.get(address, ()) if connection in self._waiting), None)
