"""Reads the topics of a log's newest events, without their data, for the console's list of topics by traffic.

In: the last seen offset. Out: the newest events above it, at most MAX_EVENTS, each with its offset, topic and bytes. A script
extracts these inside Redis, PART events per call, so no data crosses the network and no call blocks Redis for long.
"""

from __future__ import annotations

from typing import Any

from headgate.errors import InvalidRequest
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key

MAX_EVENTS = 500
PART = 100
_SCRIPT = """\
local rows = {}
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  local topic, size = '', 0
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'topic' then topic = entry[2][at + 1] end
    if entry[2][at] == 'data' then size = #entry[2][at + 1] end
  end
  rows[#rows + 1] = {entry[1], topic, size}
end
return rows
"""


def newest_topics(client: Client, namespace: str, after: str) -> dict[str, Any]:
    """Return `{events: [[offset, topic, bytes]…]}`, newest first. Waits for at most MAX_EVENTS / PART calls of Redis.

    Raises:
        InvalidRequest: `after` is not an offset.
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    if after and not (after.isascii() and after.isdigit() and len(after) < 17):
        raise InvalidRequest("after: expected an offset")
    oldest, newest = f"({after}-0" if after else "-", "+"
    topics: list[tuple[int, str, int]] = []
    while len(topics) < MAX_EVENTS:
        part = call(client, "EVAL_RO", _SCRIPT, 1, log_key(namespace), newest, oldest, PART)
        topics += [(int(entry.partition(b"-")[0]), topic.decode("utf-8", "replace"), int(size)) for entry, topic, size in part]
        if len(part) < PART:
            break
        newest = f"({topics[-1][0]}-0"
    return {"events": topics}
