"""Places in Redis: how many clients each process of a database has of each user, under a lease.

In: a process's own counts, every few seconds and soon after a join (node/places_watch.py). Out: how many processes live, and
how many clients the others have of some users.

In Redis (leased.py): the processes in PROCESSES, and the hash `places_key(id)` of the counts of each by user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .client import Client, call_all
from .keys import PROCESSES, places_key
from .leased import LEASE_S, Leased

__all__ = ["LEASE_S", "Look", "leave", "look"]

_PLACES = Leased(PROCESSES, places_key)


class Look(NamedTuple):
    """What a process has found: how many processes live, itself among them; the clients of the asked users at the others.

    `known`: whether Redis still had this process's lease. If not, what it told before is lost.
    """

    processes: int
    others: dict[str, int]
    known: bool


def look(client: Client, process_id: str, told: Mapping[str, int], asked: Sequence[str], *, anew: bool = False) -> Look:
    """Tell counts (0: none), renew the lease, and ask about users. Two round trips, and one more if there is something to ask.

    `anew`: these are all counts that there are, in place of what Redis has.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; it may be told in part. Tell all anew.
    """
    elsewhere, known = _PLACES.tell(client, process_id, {user: count or None for user, count in told.items()}, anew=anew)
    others = dict.fromkeys(asked, 0)
    if asked and elsewhere:
        for counts in call_all(client, [("HMGET", places_key(each), *asked) for each in elsewhere]):
            for user, count in zip(asked, counts, strict=True):
                others[user] += int(count or 0)
    return Look(len(elsewhere) + 1, others, known)


leave = _PLACES.leave
