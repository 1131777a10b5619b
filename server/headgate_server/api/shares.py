"""Limits each caller's share of the running searches of the log, and of the bytes of bodies being received. No I/O.

In: a caller, and the amount that it is about to use. Out: permission for the time of a block, or LimitReached. A search holds a
connection until it ends, and a body may take any time at the least rate, while its received part stays in memory. Without these
limits, one caller with a thousand connections would use a gigabyte, or keep Redis fully busy. A caller that uses up its share
does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import LimitReached

# Fewer than the connections for reads (services.py), so that other reads always have one.
MAX_SEARCHES = 3
# The number of largest bodies in transit, per caller and in all.
PER_CALLER, IN_ALL = 8, 64
# A body that arrives in one read with its head, or in the next one, is not counted.
AT_ONCE_BYTES = 8192
RETRY_S = 1


class Shares:
    """See the module. `name` is the limit's. `per_caller` and `in_all` are the amounts."""

    def __init__(self, name: str, per_caller: int, in_all: int) -> None:
        self._name, self._per_caller, self._in_all = name, per_caller, in_all
        self._taken_by: dict[str, int] = {}
        self._taken = 0

    @contextmanager
    def lend(self, caller: str, amount: int = 1) -> Iterator[None]:
        """Count an amount for a caller for the time of the block. Raises LimitReached without counting."""
        before = self._taken_by.get(caller, 0)
        if before + amount > self._per_caller:
            raise LimitReached(self._name, self._per_caller, RETRY_S)
        if self._taken + amount > self._in_all:
            raise LimitReached(self._name, self._in_all, RETRY_S)
        self._taken_by[caller] = before + amount
        self._taken += amount
        try:
            yield
        finally:
            self._taken -= amount
            left = self._taken_by[caller] = self._taken_by[caller] - amount
            if not left:
                del self._taken_by[caller]
