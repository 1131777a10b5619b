"""The answers of a namespace's log: its head, and the entries of a page. No I/O; log.py reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.event import Event

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


class Extent(NamedTuple):
    """What a log and its ids take, and how far they reach back, as of some seconds ago.

    `size_bytes` is that of the events, and `oldest_ms` when the oldest came, by the log's own clock (0: there is none).
    An id counts for `id_hold_s` at the present rate. All ids together may take `most_id_bytes` (0: no library of ours says so).
    """

    size_bytes: int
    oldest_ms: int
    id_hold_s: float
    most_id_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of the log: `event`, or the `error` that keeps it from being delivered."""

    offset: int
    event: Event | None
    error: HeadgateError | None = None
