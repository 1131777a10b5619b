"""Searches the newest part of a log for events by their id.

In: an id. Out: the offsets of its events, newest first. An id belongs to its topic and its user (decision 13), so there may be
several. If the topic is known, the index that log.lua keeps against duplicates has the ids of the last minutes. Otherwise a
script compares the ids inside Redis, PART_EVENTS or PART_BYTES per call, so no payload crosses the network and no call blocks
Redis for long. A client that reads the ids of a full log of large events itself would read 256 MB.

`SentEvents` determines which events without an answer are in the log, for a program that continues after a kill.

All functions raise BusUnavailable and BusRefused as `redis.client.call`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from .client import Client, call, call_all, place_of
from .faults import reading
from .keys import head_key, ids_key, log_key
from .lineage import Lineage, alone
from .log import EventLog

# The work of one call, slightly exceeded at times. Takes about 1 ms of Redis.
PART_EVENTS, PART_BYTES = 500, 1024 * 1024
_SCRIPT = """\
local last, looked, size = ARGV[2], 0, 0
while looked < tonumber(ARGV[3]) and size < tonumber(ARGV[4]) do
  local page = redis.call('XREVRANGE', KEYS[1], last, '-', 'COUNT', 20)
  for _, entry in ipairs(page) do
    looked, last = looked + 1, '(' .. entry[1]
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'id' and entry[2][at + 1] == ARGV[1] then return {looked, size, last, 1} end
      size = size + #entry[2][at + 1]
    end
  end
  if #page < 20 then return {looked, size, '', 0} end
end
return {looked, size, last, 0}
"""


def is_offset(text: str) -> bool:
    """Return whether the name of an event may be its offset."""
    return text.isascii() and text.isdigit() and len(text) <= 15


_RECEIPT = re.compile(rb"([0-9a-f]+)-(\d+)-\d+")


def read_receipt(text: bytes) -> tuple[str, int] | None:
    """Return the epoch and offset in an index value; None if it has none."""
    match = _RECEIPT.fullmatch(text)
    return (match[1].decode(), int(match[2])) if match else None


def recent_offsets(client: Client, namespace: str, topic: str, event_id: str, by: str) -> list[int]:
    """Return the indexed offsets of an id in a topic, newest first, for events of services and of `by`.

    `by` is an `id_owner`. The log may have trimmed the event since. Two round trips for any size of the log.
    """
    fields = f"{topic}:{event_id}", f"{topic}:{by}/{event_id}"
    newest = int(call(client, "HGET", head_key(namespace), "ids") or 0)
    # Redis saves the head every few seconds, so the newest hash may be the next one.
    hashes = [ids_key(namespace, number) for number in (newest + 1, newest, newest - 1)]
    receipts = [each for values in call_all(client, [("HMGET", key, *fields) for key in hashes]) for each in values if each]
    return sorted({position[1] for each in receipts if (position := read_receipt(each))}, reverse=True)


# How long the second newest hash of ids exists: 300 s (log.lua), less the delay of the saved clock.
WHOLE_MS = 290_000

Position = tuple[str, int]
"""An epoch and an offset."""


class LogState(msgspec.Struct, frozen=True):
    """A state of a log, with its epoch ("" for none) and newest offset, and the number of its newest hash of ids."""

    epoch: str
    offset: int
    ids: int


class SentEvents:
    """Events to one namespace's log without an answer. Methods wait for Redis."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._log = EventLog(namespace, client)

    def state(self) -> LogState:
        """Return the state of the log, for `find`. Call it before sending the events."""
        epoch, offset, ids = call(self._client, "HMGET", head_key(self._namespace), "epoch", "offset", "ids")
        with reading(place_of(self._client, head_key(self._namespace)), head_key(self._namespace)):
            return LogState((epoch or b"").decode(), int(offset or 0), int(ids or 0))

    def line(self, epochs: Collection[str]) -> tuple[Lineage, int]:
        """Return the lineage of the log as far as it covers these epochs, and the newest offset."""
        head = self._log.head()
        if not set(epochs) <= {head.epoch}:
            head = self._log.head("")  # with earlier epochs, which requires another right
        return head.lineage or alone(head.epoch), head.offset

    def find(self, events: Sequence[tuple[str, str]], before: LogState) -> list[Position | None] | None:
        """Return the position of each event, or None for one outside the log; None instead of the list if undecidable.

        Args:
            events: topic and id of each, sent to this log without `by`.
            before: the state of the log before they were sent.
        """
        fields = [f"{topic}:{event_id}" for topic, event_id in events]
        # The index first, then the head, which shows whether the index was complete.
        hashes = [ids_key(self._namespace, number) for number in range(before.ids, before.ids + 3)]
        *receipts, (newest_hash, began_ms, now_ms) = call_all(
            self._client,
            [*(("HMGET", key, *fields) for key in hashes), ("HMGET", head_key(self._namespace), "ids", "ids_time", "clock")],
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

    def _in_log(self, events: Sequence[tuple[str, str]], after: int, line: Lineage, newest: int) -> list[Position | None] | None:
        """Search the log itself, if it still has everything since `before`."""
        positions: dict[tuple[str, str], Position] = {}
        reached = after
        while reached < newest:
            page = self._log.page(reached, newest)
            if not page or page[0].offset != reached + 1:
                return None
            for entry in page:
                if entry.event is not None:
                    positions.setdefault((entry.event.topic, entry.event.id or ""), (line.epoch, entry.offset))
            reached = page[-1].offset
        return [positions.get(event) for event in events]


def _is_on(line: Lineage, newest: int, position: Position) -> bool:
    epoch, offset = position
    end = line.end_of(epoch, newest)
    return end is not None and offset <= end


class IdSearch:
    """One search. `looked` counts the events compared so far. `at_end` is set once it has covered the whole log."""

    def __init__(
        self, client: Client, namespace: str, event_id: str, charge: Callable[[int], None] = lambda looked: None
    ) -> None:
        """`event_id` may be any text. `charge` is called after each part, with its number of events.

        Raises UnicodeEncodeError: it is not valid Unicode.
        """
        self._charge = charge
        self._client, self._key, self._wanted = client, log_key(namespace), event_id.encode()
        self.looked = 0
        self.at_end = False

    def offsets(
        self, most_events: int, most_bytes: float = float("inf"), late: Callable[[], bool] = lambda: False
    ) -> Iterator[int]:
        """Yield offsets until the search has read that many events or bytes, or `late` returns true. Waits for Redis."""
        last, size = "+", 0
        while self.looked < most_events and size < most_bytes:
            part = min(PART_EVENTS, most_events - self.looked)
            looked, read, at, is_complete = call(
                self._client, "EVAL_RO", _SCRIPT, 1, self._key, self._wanted, last, part, PART_BYTES
            )  # fmt: skip
            self.looked, size, last = self.looked + int(looked), size + int(read), at.decode()
            self._charge(int(looked))
            if is_complete:
                yield int(last[1:].partition("-")[0])
            elif not last:
                self.at_end = True
                return
            if late():
                return
