"""Searches the newest part of a log for events by their id.

In: an id. Out: the offsets of its events, newest first. An id belongs to its topic and its user (decision 13), so there may be
several. If the topic is known, the index that log.lua keeps against duplicates has the ids of the last minutes. Otherwise a
script compares the ids inside Redis, PART_EVENTS or PART_BYTES per call, so no payload crosses the network and no call blocks
Redis for long. A client that reads the ids of a full log of large events itself would read 256 MB.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .client import Client, call, call_all
from .keys import head_key, ids_key, log_key

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
    found = _RECEIPT.fullmatch(text)
    return (found[1].decode(), int(found[2])) if found else None


def recent_offsets(client: Client, namespace: str, topic: str, event_id: str, by: str) -> list[int]:
    """Return the indexed offsets of an id in a topic, newest first, for events of services and of `by`.

    `by` is an `id_owner`. The log may have trimmed the event since. Two round trips, whatever the size of the log.
    """
    fields = f"{topic}:{event_id}", f"{topic}:{by}/{event_id}"
    newest = int(call(client, "HGET", head_key(namespace), "ids") or 0)
    # Redis saves the head every few seconds, so the newest hash may be the next one.
    hashes = [ids_key(namespace, number) for number in (newest + 1, newest, newest - 1)]
    receipts = [each for found in call_all(client, [("HMGET", key, *fields) for key in hashes]) for each in found if each]
    return sorted({position[1] for each in receipts if (position := read_receipt(each))}, reverse=True)


class IdSearch:
    """One search. `looked` counts the events compared so far; `at_end` is set once it has covered the whole log."""

    def __init__(
        self, client: Client, namespace: str, event_id: str, charge: Callable[[int], None] = lambda looked: None
    ) -> None:
        """`event_id` may be any text. `charge` is called after each part, with its number of events.

        Raises:
            UnicodeEncodeError: it is not valid Unicode.
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
            looked, read, at, is_found = call(
                self._client, "EVAL_RO", _SCRIPT, 1, self._key, self._wanted, last, part, PART_BYTES
            )  # fmt: skip
            self.looked, size, last = self.looked + int(looked), size + int(read), at.decode()
            self._charge(int(looked))
            if is_found:
                yield int(last[1:].partition("-")[0])
            elif not last:
                self.at_end = True
                return
            if late():
                return
