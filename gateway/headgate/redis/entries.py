"""What a namespace's log returns: its head, and the entries of a page. No I/O; log.py does the reading."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import BusUnavailable, HeadgateError
from headgate.events.event import ID_COUNTS_S, Event

from .lineage import Lineage


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


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of the log: its `event`, or the `error` that prevents its delivery."""

    offset: int
    event: Event | None
    error: HeadgateError | None = None
