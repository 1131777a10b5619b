"""The lineage of a log: the epochs that followed one another on the line that leads to its head. No I/O.

An epoch is written by one Redis process. The process that appends next, after a restart or a failover, begins another epoch, and
offsets go on (log.lua). If Redis has lost the end of its log in between, the new epoch begins below offsets that were in use.

A position (epoch, offset) is that of the event at `offset` on the line that leads to `epoch`. It is on the line of a later head
if and only if `offset` is not above the end of its epoch there: the offset before the first epoch behind it begins.
Decision 18 (docs/decisions) has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Lineage:
    """The epochs before the one that `epoch` names, each with its end on this line: the newest offset that it shares with it."""

    epoch: str
    ends: Mapping[str, int]

    def end_of(self, epoch: str, head: int) -> int | None:
        """Return the newest offset at which a position of an epoch is on this line; None: the line has no such epoch.

        Args:
            epoch: that of the position.
            head: the newest offset of the log. It is the end of the epoch that is still written.
        """
        return head if epoch == self.epoch else self.ends.get(epoch)

    def fork(self, other: Lineage, head: int) -> int | None:
        """Return the newest offset that this line shares with another one; None: they have no epoch in common.

        The line of an old server that comes back does not know the epochs of the one that stood in for it, but their ancestors.

        Args:
            other: the line of a head.
            head: the offset of that head.
        """
        end = other.end_of(self.epoch, head)
        if end is not None:
            return end
        shared = [(own, other.end_of(epoch, head)) for epoch, own in self.ends.items()]
        return max((min(own, theirs) for own, theirs in shared if theirs is not None), default=None)


def alone(epoch: str) -> Lineage:
    """Return the lineage of an epoch that no other is known to have come before."""
    return Lineage(epoch, MappingProxyType({}))


def read_lineage(epoch: str, epochs: Iterable[tuple[str, int, int]]) -> Lineage:
    """Return the lineage of `epoch`.

    Args:
        epoch: the newest.
        epochs: each with its first offset and its number on the line, in any order.
    """
    ends: dict[str, int] = {}
    least: int | None = None
    for name, first, _ in sorted(epochs, key=lambda each: each[2], reverse=True):
        if least is not None and name != epoch:
            ends[name] = least - 1
        least = first if least is None else min(least, first)
    return Lineage(epoch, MappingProxyType(ends))
