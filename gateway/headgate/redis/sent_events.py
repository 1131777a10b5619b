"""Finds out which events that got no answer are in the log, for a program that continues after it was killed.

In: the state of the log before they were sent, and their topics and ids. Out: their positions, or None if the log and the index
of ids have both forgotten too much to decide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

from .client import Client, call, call_all
from .event_ids import read_receipt
from .keys import head_key, ids_key
from .lineage import Lineage, alone
from .log import EventLog

# How long the second newest hash of ids exists: 300 s (log.lua), less the delay of the saved clock.
WHOLE_MS = 290_000

Position = tuple[str, int]
"""An epoch and an offset."""


class Standing(msgspec.Struct, frozen=True):
    """A state of a log: its epoch ("": there was none) and newest offset, and the number of its newest hash of ids."""

    epoch: str
    offset: int
    ids: int


class SentEvent(NamedTuple):
    """An event that may be in the log."""

    topic: str
    id: str


class SentEvents:
    """The events of one namespace's log. Methods wait for Redis.

    Raises (all): BusUnavailable, BusRefused: as `redis.client.call`.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._log = EventLog(namespace, client, HARD_MAX_PAYLOAD_BYTES)

    def standing(self) -> Standing:
        """Return the state of the log. Call it before the events are sent, so that `find` can find them."""
        epoch, offset, ids = call(self._client, "HMGET", head_key(self._namespace), "epoch", "offset", "ids")
        return Standing((epoch or b"").decode(), int(offset or 0), int(ids or 0))

    def line(self, epochs: Collection[str]) -> tuple[Lineage, int]:
        """Return the lineage of the log as far as it covers these epochs, and the newest offset."""
        head = self._log.head()
        if not set(epochs) <= {head.epoch}:
            head = self._log.head("")  # with earlier epochs, which need one more right
        return head.lineage or alone(head.epoch), head.offset

    def find(self, events: Sequence[SentEvent], before: Standing) -> list[Position | None] | None:
        """Return the position of each event, or None for one outside the log. Return None in place of the list if that cannot
        be decided.

        Args:
            events: sent to this log, without `by`.
            before: the state of the log before they were sent.
        """
        fields = [f"{event.topic}:{event.id}" for event in events]
        # The index first, then the head, which shows whether the index was complete.
        hashes = [ids_key(self._namespace, number) for number in range(before.ids, before.ids + 3)]
        *receipts, (newest_hash, began_ms, now_ms) = call_all(
            self._client,
            [
                *(("HMGET", key, *fields) for key in hashes),
                ("HMGET", head_key(self._namespace), "ids", "ids_time", "clock"),
            ],
        )
        indexed = [[read_receipt(each) for each in of_event if each] for of_event in zip(*receipts, strict=True)]
        line, newest = self.line({before.epoch, *(each[0] for of_event in indexed for each in of_event if each)})
        end = 0 if before.epoch == "" else line.end_of(before.epoch, newest)
        if not line.epoch or end is None:
            return [None] * len(events)  # another log
        turns, age_ms = int(newest_hash or 0) - before.ids, int(now_ms or 0) - int(began_ms or 0)
        if turns == 0 or (turns == 1 and age_ms < WHOLE_MS):
            return [next((each for each in of_event if each and _is_on(line, newest, each)), None) for of_event in indexed]
        return self._in_log(events, min(before.offset, end), line, newest)

    def _in_log(self, events: Sequence[SentEvent], after: int, line: Lineage, newest: int) -> list[Position | None] | None:
        """Search the log itself, if it still has everything since `before`."""
        found: dict[SentEvent, Position] = {}
        reached = after
        while reached < newest:
            page = self._log.page(reached, newest)
            if not page or page[0].offset != reached + 1:
                return None
            for entry in page:
                if entry.event is not None:
                    found.setdefault(SentEvent(entry.event.topic, entry.event.id or ""), (line.epoch, entry.offset))
            reached = page[-1].offset
        return [found.get(event) for event in events]


def _is_on(line: Lineage, newest: int, position: Position) -> bool:
    epoch, offset = position
    end = line.end_of(epoch, newest)
    return end is not None and offset <= end
