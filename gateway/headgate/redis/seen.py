"""Seen: which events the browsers of a user have shown, for programs that would otherwise notify the user by other means.

In: event ids from a client, by the gateway. Out: a sorted set for each user with the newest MAX_SEEN ids by the time of their
report, for redis/user_facts.py. It is a hint, not a receipt, because any client that may join as the user may report anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time

from .client import Client, call_all
from .keys import seen_key

# Per user, about 100 KB in Redis at most.
MAX_SEEN = 1000
SEEN_S = 86400


def mark_seen(client: Client, namespace: str, user: str, ids: Sequence[str]) -> None:
    """Record that a browser of this user has shown these events. Waits for Redis, one round trip.

    Kept for SEEN_S after the last report. Beyond MAX_SEEN the newest replace the oldest.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`. Call again: it is idempotent.
    """
    key, now_s = seen_key(namespace, user), int(time())
    scored = [part for event_id in ids for part in (now_s, event_id)]
    commands = [("ZADD", key, *scored), ("ZREMRANGEBYRANK", key, 0, -MAX_SEEN - 1), ("EXPIRE", key, SEEN_S)]
    call_all(client, commands)
