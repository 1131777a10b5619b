"""Walks a reader through the log: from a position on, each event, or a gap in its place. No I/O.

In: heads of the log, and pages of entries after the position. Out: items in log order: an event, or a Gap for events that will
not come. The events yielded, the entries that the reader does not want and the gaps together cover the whole log.

A position is (epoch, offset): the walk has handled everything up to it. lineage.py defines whether a position is on the line of
a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.events.wire.requests import Position

from .lineage import Entry, Head, alone


class Gap(msgspec.Struct, frozen=True, gc=False):
    """A run of events that will not come, in its place in the order, as sent to a page (docs/protocol.md, `gap`).

    Attributes:
        reason: `trimmed` (the log no longer holds them), `quarantined` (not deliverable), `rolled_back` (Redis has lost the end
            of its log; they may have come before), or `log_lost` (the log is another one: what follows is all that it holds).
        first, last: the offsets, both inclusive; None if unknown.
        count: the positions of the log in the range, of all topics; None if unknown.
        epoch: after `rolled_back` and `log_lost`, the epoch in which the log continues ("": there is no log).
        why: of `quarantined`, what is wrong with the entry.
    """

    reason: GapReason
    first: int | None = None
    last: int | None = None
    epoch: str | None = None
    why: str | None = None

    @property
    def count(self) -> int | None:
        """See the class."""
        return None if self.first is None or self.last is None else self.last - self.first + 1


Item = Event | Gap


class LogWalk:
    """A walk through a log.

    Attributes:
        at: the position reached.
        had: the newest offset of `at.epoch` that Redis has reported to this process.
    """

    def __init__(self, at: Position, head: Head) -> None:
        """Begin at a position of any epoch. The head has its lineage."""
        self.at, self.had = at, 0
        self._line = (head.lineage if at.epoch == head.epoch else None) or alone(at.epoch)

    def follow(self, head: Head) -> Gap | None:
        """Bring the position onto the line of a head. Return the gaps that this causes.

        A later head of this epoch may be below the known offset, if it comes from a lagging replica, or from a restored Redis
        before its first write. There is nothing to read then; the next head decides.
        """
        at = self.at
        if head.epoch == at.epoch:
            is_first, self.had = not self.had, max(self.had, head.offset)
            return self._roll_back(head, head.offset) if is_first else None
        if not at.epoch:  # there was no log yet
            self._line = head.lineage or alone(head.epoch)
            self._go_on(head, 0)
            return None
        self._line = line = (head.lineage or alone(head.epoch)).following(self._line)
        end = line.end_of(at.epoch, head.offset) if head.epoch else None
        if end is None:
            self._go_on(head, 0)
            return Gap(GapReason.LOG_LOST, epoch=head.epoch)
        return self._roll_back(head, end)

    def take(self, entries: Sequence[Entry], last: int) -> list[tuple[int, Item]]:
        """Advance to `last` over the log's entries up to there. Return the items, each with its last offset."""
        items: list[tuple[int, Item]] = []
        for entry in entries:
            self._miss(items, entry.offset - 1)
            self.at = Position(self.at.epoch, entry.offset)
            if entry.error is not None:
                gap = Gap(GapReason.QUARANTINED, entry.offset, entry.offset, why=entry.error.message)
                items.append((entry.offset, gap))
            elif entry.event is not None:
                items.append((entry.offset, msgspec.structs.replace(entry.event, epoch=self._line.epoch_at(entry.offset))))
        self._miss(items, last)
        return items

    def _miss(self, items: list[tuple[int, Item]], last: int) -> None:
        """Advance to an offset, over offsets that the log does not hold."""
        if last > self.at.offset:
            items.append((last, Gap(GapReason.TRIMMED, self.at.offset + 1, last)))
            self.at = Position(self.at.epoch, last)

    def _roll_back(self, head: Head, end: int) -> Gap | None:
        """Continue in the epoch of a head, at the end of the part that it shares with the position."""
        last = self.at.offset
        self._go_on(head, min(end, last))
        return Gap(GapReason.ROLLED_BACK, end + 1, last, head.epoch) if end < last else None

    def _go_on(self, head: Head, offset: int) -> None:
        self.at, self.had = Position(head.epoch, offset), head.offset
