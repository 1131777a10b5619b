"""The search for events by their id, in the newest part of a log.

In: an id. Out: the offsets of the events that have it, newest first. An id counts for its topic and its user (decision 13), so
there may be several. A script compares the ids inside Redis, PART_EVENTS or PART_BYTES a call: no payload crosses the network,
and no call holds Redis up for long. Read by a client instead, the ids of a full log of large events cost 256 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .client import Client, call
from .keys import log_key

# What one call looks at, and a little more: about 1 ms of Redis.
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


class IdSearch:
    """See the module. One search. `looked` counts the events that it has looked at; `at_end`: these were all of the log."""

    def __init__(self, client: Client, namespace: str, event_id: str) -> None:
        """`event_id` may be any text.

        Raises:
            UnicodeEncodeError: it is no Unicode.
        """
        self._client, self._key, self._wanted = client, log_key(namespace), event_id.encode()
        self.looked = 0
        self.at_end = False

    def offsets(
        self, most_events: int, most_bytes: float = float("inf"), late: Callable[[], bool] = lambda: False
    ) -> Iterator[int]:
        """Yield offsets, until so many events, or bytes, have been looked at, or it is `late`. Waits for Redis.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        last, size = "+", 0
        while self.looked < most_events and size < most_bytes:
            part = min(PART_EVENTS, most_events - self.looked)
            looked, read, at, is_found = call(
                self._client, "EVAL_RO", _SCRIPT, 1, self._key, self._wanted, last, part, PART_BYTES
            )  # fmt: skip
            self.looked, size, last = self.looked + int(looked), size + int(read), at.decode()
            if is_found:
                yield int(last[1:].partition("-")[0])
            elif not last:
                self.at_end = True
                return
            if late():
                return
