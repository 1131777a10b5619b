"""The answers of a namespace's log: its head, and the entries of a page. No I/O; log.py reads them."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate.events.event import ID_COUNTS_S, Event

from .lineage import Lineage


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log stands. `first` is the oldest offset still there (offset + 1 when it is empty).

    `library` is the version of the function library that said so. `lineage` is there when the log was configured, or when the
    caller has named another epoch. `server` is the token of the Redis process that has this head. `replica` says that it is no
    primary, as far as this user may know. A library before version 5 has no lineage and an empty token. `database` is the number
    on whose channels appended events are published; None: none are, until a gateway has configured the log.
    """

    epoch: str
    offset: int
    first: int
    library: int = 0
    lineage: Lineage | None = None
    server: str = ""
    replica: bool = False
    database: int | None = 0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a log holds, and how much it may hold.

    Attributes:
        bytes: of its events, as `max_bytes` counts them; as of some seconds ago, as is `first_ms`.
        first_ms: when its oldest event came, by the log's own clock.
        offset: of its newest event.
        event_bytes: of an event, on average over those that it holds; 0: there is none.
        max_events, max_age_s, max_bytes: its bounds; 0: no gateway has set them.
        id_hold_s: for how long an id counts at the present rate.
        most_id_bytes: of all ids together; 0: no library of ours says so.
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
        """Return how long an event stays in the log, while events like those that it holds come at a rate."""
        if not events_per_s > 0:
            return float(self.max_age_s)
        events = min(self.max_events, self.max_bytes / self.event_bytes) if self.event_bytes else self.max_events
        return min(self.max_age_s, events / events_per_s)


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of the log: `event`, or the `error` that keeps it from being delivered."""

    offset: int
    event: Event | None
    error: HeadgateError | None = None
