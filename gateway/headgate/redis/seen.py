"""Seen: which events the browsers of a user have shown, for whoever would otherwise tell the user by other means.

In: event ids from a client, by the gateway. Out: a sorted set for each user, the newest MAX_SEEN ids by the time at which they
were reported; redis/user_facts.py reads it. It is a hint, not a receipt: whoever may join as the user may say anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time

from .client import Client, call_all
from .keys import seen_key

# For each user, in Redis: some 100 KB at most.
MAX_SEEN = 1000
SEEN_S = 86400


def mark_seen(client: Client, namespace: str, user: str, ids: Sequence[str]) -> None:
    """Remember that a browser of this user has shown these events. Waits for Redis, one round trip.

    Kept for SEEN_S after the last was told; the oldest give way to the newest when there are more than MAX_SEEN.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`. Call again: it is idempotent.
    """
    key, now_s = seen_key(namespace, user), int(time())
    scored = [part for event_id in ids for part in (now_s, event_id)]
    commands = [("ZADD", key, *scored), ("ZREMRANGEBYRANK", key, 0, -MAX_SEEN - 1), ("EXPIRE", key, SEEN_S)]
    call_all(client, commands)
