"""The answers of a namespace's log: its head, and the entries of a page. No I/O; log.py reads them."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate.event import Event


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log stands. `first` is the oldest offset still there (offset + 1 when it is empty).

    `library` is the version of the function library that said so.
    """

    epoch: str
    offset: int
    first: int
    library: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of the log: `event`, or the `error` that keeps it from being delivered."""

    offset: int
    event: Event | None
    error: HeadgateError | None = None
