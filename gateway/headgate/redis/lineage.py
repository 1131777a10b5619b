"""The lineage of a log, the line of epochs that leads to its head. No I/O.

One Redis process writes an epoch. The process that appends next, after a restart or a failover, begins another epoch, and offsets
continue (log.lua). If Redis has lost the end of its log in between, the new epoch begins below offsets that were in use.

A position (epoch, offset) is that of the event at `offset` on the line that leads to `epoch`. It is on the line of a later head
if and only if `offset` is not above the end of its epoch there, which is the offset before the next epoch begins.
Decision 18 (docs/decisions) has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypedDict

# Lost epochs that a gateway remembers, to report to clients what they saw in them.
MAX_LOST = 64


class LogPosition(TypedDict):
    """A position in the log as in JSON, everything up to `offset` in `epoch`."""

    epoch: str
    offset: int


class Fate(StrEnum):
    """The fate of a published event, as `Publisher.check` returns it."""

    IN_LOG = "in_log"
    ROLLED_BACK = "rolled_back"  # Redis has lost it with the end of its log
    TRIMMED = "trimmed"  # it is older than the retention of the log
    UNKNOWN = "unknown"  # another log, which never had this epoch, has lost all of it, or has begun too many since


@dataclass(frozen=True, slots=True)
class Lineage:
    """The line that leads to `epoch`.

    Attributes:
        epoch: the newest.
        ends: the epochs before it, the newest first, each with the newest offset that it shares with this line.
        lost: epochs that are not on this line, the newest last, each with a line that it was on.
    """

    epoch: str
    ends: Mapping[str, int]
    lost: Mapping[str, Lineage]

    def end_of(self, epoch: str, head: int) -> int | None:
        """Return the newest offset at which a position of an epoch is on this line, or None for an unknown epoch.

        Args:
            epoch: that of the position.
            head: the newest offset of the log. It is the end of the epoch that is still written.
        """
        end = self._end_here(epoch, head)
        before = self.lost.get(epoch) if end is None else None
        fork = before.fork(self, head) if before is not None else None
        return end if before is None or fork is None else min(before.ends.get(epoch, fork), fork)

    def fork(self, other: Lineage, head: int) -> int | None:
        """Return the newest offset that this line's newest epoch shares with another line, or None.

        The other line may lack the newest epochs of this one: Redis can lose the beginning of an epoch too.

        Args:
            other: the line that Redis is on now.
            head: the newest offset of its log.
        """
        end = other._end_here(self.epoch, head)
        if end is not None:
            return end
        shared = [min(end, there) for epoch, end in self.ends.items() if (there := other._end_here(epoch, head)) is not None]
        return max(shared, default=None)

    def following(self, before: Lineage) -> Lineage:
        """Return this line, with the lost epochs of the line before it."""
        oldest_first = [*reversed(tuple(before.ends)), before.epoch]
        known = {**before.lost, **dict.fromkeys(oldest_first, replace(before, lost=_NOTHING))}
        lost = [(epoch, line) for epoch, line in known.items() if epoch != self.epoch and epoch not in self.ends]
        return replace(self, lost=MappingProxyType(dict(lost[-MAX_LOST:])))

    def _end_here(self, epoch: str, head: int) -> int | None:
        return head if epoch == self.epoch else self.ends.get(epoch)


_NOTHING: Mapping[str, Lineage] = MappingProxyType({})


def alone(epoch: str) -> Lineage:
    """Return the lineage of an epoch without known predecessors."""
    return Lineage(epoch, MappingProxyType({}), _NOTHING)


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
    return Lineage(epoch, MappingProxyType(ends), _NOTHING)
