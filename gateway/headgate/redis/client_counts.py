"""Client counts in Redis: how many clients each process of a database has of each user, under a lease.

In: a process's own counts, every few seconds and soon after a join (node/access). Out: how many clients the others
have of some users. In Redis (leased.py): the hash `client_counts_key(id)` of the counts of each process by user.
"""

from __future__ import annotations

from collections.abc import Sequence

from .client import Client, call_all
from .keys import client_counts_key


def read_others(client: Client, processes: Sequence[str], asked: Sequence[str]) -> dict[str, int]:
    """Return how many clients of each asked user these processes have together. One round trip if there is something to ask.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    others = dict.fromkeys(asked, 0)
    if asked and processes:
        for counts in call_all(client, [("HMGET", client_counts_key(each), *asked) for each in processes]):
            for user, count in zip(asked, counts, strict=True):
                others[user] += int(count or 0)
    return others
