"""The lineage of a log, which is the line of epochs that leads to its head, and the heads and entries of a log. No I/O.

One Redis process writes an epoch. The process that appends next, after a restart or a failover, begins another epoch, and offsets
continue (log.lua). If Redis has lost the end of its log in between, the new epoch begins below offsets already used.

A position (epoch, offset) belongs to the event at `offset` on the line that leads to `epoch`. It is on the line of a later head
if and only if `offset` is not above the end of its epoch there, which is the offset before the start of the next epoch.
Decision 18 (docs/decisions) has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypedDict

import msgspec

from headgate.errors import BusUnavailable, HeadgateError
from headgate.events.event import ID_COUNTS_S, Event

# How many lost epochs a gateway remembers, to report to clients which events they saw in them.
MAX_LOST = 64


class LogPosition(TypedDict):
    """A position in the log, after everything up to `offset` in `epoch`, as JSON `{"epoch": str, "offset": int}`."""

    epoch: str
    offset: int


class Fate(StrEnum):
    """The fate of a published event, from `Publisher.check`. Each is a str, its name in lower case.

    Attributes:
        IN_LOG: the log has it.
        ROLLED_BACK: Redis has lost it with the end of its log.
        TRIMMED: it is older than the retention of the log.
        UNKNOWN: the log never had this epoch, has lost all of it, or has begun too many since.
    """

    IN_LOG = "in_log"
    ROLLED_BACK = "rolled_back"
    TRIMMED = "trimmed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The line that leads to `epoch`.

    Attributes:
        epoch: the newest.
        ends: the epochs before it, the newest first, each with its newest offset on this line.
        lost: epochs off this line, the newest last, each with a former line of its own.
    """

    epoch: str
    ends: Mapping[str, int]
    lost: Mapping[str, Lineage]

    def end_of(self, epoch: str, head: int) -> int | None:
        """Return the newest offset at which a position of an epoch is on this line, or None for an unknown epoch.

        Args:
            epoch: of the position.
            head: the newest offset of the log, which is the end of the current epoch.
        """
        end = self._end_here(epoch, head)
        before = self.lost.get(epoch) if end is None else None
        fork = before.fork(self, head) if before is not None else None
        return end if before is None or fork is None else min(before.ends.get(epoch, fork), fork)

    def epoch_at(self, offset: int) -> str:
        """Return the epoch in which this line's event at an offset was written."""
        writer = self.epoch
        for epoch, end in self.ends.items():
            if offset > end:
                break
            writer = epoch
        return writer

    def fork(self, other: Lineage, head: int) -> int | None:
        """Return the newest offset that this line's newest epoch shares with another line, or None.

        The other line may lack the newest epochs of this one, because Redis can also lose the beginning of an epoch.

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


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a log. `first` is the oldest offset that the log still holds (offset + 1 if it is empty).

    `library` is the version of the function library that replied. The reply has a `lineage` if the log was configured, or if
    the caller named another epoch. `server` is the token of the Redis process. `replica` means that it is not a primary, as far
    as this user may know. Appended events are published on the channels of `database`; None: on no channel, until a gateway
    configures the log.
    """

    epoch: str
    offset: int
    first: int
    library: int = 0
    lineage: Lineage | None = None
    server: str = ""
    replica: bool = False
    database: int | None = 0

    def check_primary(self) -> None:
        """Raise BusUnavailable for the head of a replica, which may lack events that the log has."""
        if self.replica:
            raise BusUnavailable("the address leads to a replica, not to a primary")


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a log, and its limits.

    Attributes:
        bytes: of its events, as `max_bytes` counts them. Like `first_ms`, some seconds old.
        first_ms: the time of its oldest event, by the log's own clock.
        offset: of its newest event.
        event_bytes: the average size of an event that it holds; 0 if there is none.
        max_events, max_age_s, max_bytes: its limits; 0 if no gateway has set them.
        id_hold_s: how long an id stays known at the present rate.
        most_id_bytes: the limit for all ids together; 0 if the function library does not report it.
    """

    bytes: int
    first_ms: int
    offset: int
    event_bytes: float
    max_events: int
    max_age_s: int
    max_bytes: int
    id_hold_s: float = ID_COUNTS_S
    most_id_bytes: int = 0

    def retention_s(self, events_per_s: float) -> float:
        """Return how long an event stays in the log if events like the present ones arrive at a rate."""
        if not events_per_s > 0:
            return float(self.max_age_s)
        events = min(self.max_events, self.max_bytes / self.event_bytes) if self.event_bytes else self.max_events
        return min(self.max_age_s, events / events_per_s)


# Creating a Struct takes a tenth of the time of a frozen dataclass.
class Entry(msgspec.Struct, frozen=True):
    """One position of the log: its `event`, or the `error` that prevents its delivery. It has neither if no one wants it."""

    offset: int
    event: Event | None
    error: HeadgateError | None = None
