"""The HTTP connections that are open: how many, whose, and which of them wait for their peer. No I/O.

In: connections as they open, begin and end to wait, and close. Out: how many an address has, and the one that has waited
longest, which the server ends when there is one too many: an honest request is over in milliseconds, so the oldest that still
waits is the one that is missed least.

A connection waits for its peer from its beginning until its request's headers are complete, again from the first time that
the peer keeps us waiting with a body or with reading an answer, and between two requests. While an application works on its
answer (a long-poll does so for most of its life) it does not.
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
        self._count_at: dict[str, int] = {}
        # The one that has waited longest first. (A dict is slow to find its first key when many before it were removed.)
        self._waiting: OrderedDict[C, None] = OrderedDict()
        self._waiting_at: dict[str, OrderedDict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def open(self, connection: C, address: str | None) -> None:
        """Take a connection in. It waits for its peer. `address` None: it counts for no address (yet)."""
        self._address_of[connection] = address
        self._waiting[connection] = None
        if address is not None:
            self._count_at[address] = self._count_at.get(address, 0) + 1
            self._wait_at(connection, address)

    def attribute(self, connection: C, address: str | None) -> None:
        """Let a connection count for another address: behind a proxy each request may be another client's."""
        if connection not in self._address_of or self._address_of[connection] == address:
            return
        self._forget_address(connection)
        self._address_of[connection] = address
        if address is not None:
            self._count_at[address] = self._count_at.get(address, 0) + 1
            if connection in self._waiting:
                self._wait_at(connection, address)

    def wait(self, connection: C) -> None:
        """It waits for its peer from now on. One that does already keeps its place."""
        if connection in self._address_of and connection not in self._waiting:
            self._waiting[connection] = None
            address = self._address_of[connection]
            if address is not None:
                self._wait_at(connection, address)

    def work(self, connection: C) -> None:
        """An application works for it from now on."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._forget_waiting_at(connection, self._address_of[connection])

    def close(self, connection: C) -> None:
        """It is over. Idempotent."""
        if connection in self._address_of:
            self.work(connection)
            address = self._address_of.pop(connection)
            if address is not None:
                self._count_less(address)

    def count_at(self, address: str) -> int:
        """Return how many an address has."""
        return self._count_at.get(address, 0)

    def address_of(self, connection: C) -> str | None:
        """Return the address for which a connection counts."""
        return self._address_of.get(connection)

    def longest_waiting(self, address: str | None = None) -> C | None:
        """Return the connection (of an address) that has waited longest for its peer; None when none waits."""
        waiting = self._waiting if address is None else self._waiting_at.get(address)
        return next(iter(waiting)) if waiting else None

    def _forget_address(self, connection: C) -> None:
        address = self._address_of[connection]
        if address is not None:
            self._forget_waiting_at(connection, address)
            self._count_less(address)

    def _count_less(self, address: str) -> None:
        count = self._count_at[address] = self._count_at[address] - 1
        if not count:
            del self._count_at[address]

    def _wait_at(self, connection: C, address: str) -> None:
        waiting = self._waiting_at.get(address)
        if waiting is None:
            waiting = self._waiting_at[address] = OrderedDict()
        waiting[connection] = None

    def _forget_waiting_at(self, connection: C, address: str | None) -> None:
        waiting = self._waiting_at.get(address) if address is not None else None
        if waiting is not None and connection in waiting:
            del waiting[connection]
            if not waiting:
                del self._waiting_at[address]  # type: ignore[arg-type]
