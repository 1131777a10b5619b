"""Searches of the log that are under way: one for each caller, MAX_SEARCHES in all. No I/O.

In: the account of a caller. Out: leave to search, or LimitReached. A search holds a connection for as long as it takes: without
this, one caller who asks a hundred times at once has all connections, and Redis has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import LimitReached

# Fewer than the connections for reads (services.py), so that one is left for what is no search.
MAX_SEARCHES = 3
RETRY_S = 1


class Searches:
    """See the module."""

    def __init__(self) -> None:
        self._accounts: set[str] = set()

    @contextmanager
    def one(self, account: str) -> Iterator[None]:
        """Count a search of a caller for the time of the block.

        Raises:
            LimitReached: `searches`: this caller has one under way, or all together have MAX_SEARCHES.
        """
        if account in self._accounts:
            raise LimitReached("searches", 1, RETRY_S)
        if len(self._accounts) >= MAX_SEARCHES:
            raise LimitReached("searches", MAX_SEARCHES, RETRY_S)
        self._accounts.add(account)
        try:
            yield
        finally:
            self._accounts.remove(account)
