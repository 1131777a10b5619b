"""Running searches of the log: one per caller, MAX_SEARCHES in all. No I/O.

In: the account of a caller. Out: permission to search, or LimitReached. A search holds a connection until it ends. Without this
limit, one caller with a hundred parallel searches would take all connections and keep Redis fully busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import LimitReached

# Fewer than the connections for reads (services.py), so that other reads always have one.
MAX_SEARCHES = 3
RETRY_S = 1


class Searches:
    def __init__(self) -> None:
        self._accounts: set[str] = set()

    @contextmanager
    def one(self, account: str) -> Iterator[None]:
        """Count a caller's search for the time of the block.

        Raises LimitReached: `searches`: this caller has one running, or MAX_SEARCHES run in all.
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
