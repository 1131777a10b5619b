"""Places in Redis: how many clients each process of a database has of each user, under a lease.

In: a process's own counts, every few seconds and soon after a join (node/places_watch.py). Out: how many processes live, and
how many clients the others have of some users.

In Redis: the sorted set PROCESSES of process ids, each with the time of its last word as score, and for each process the hash
`places_key(id)` of its counts by user. Both end LEASE_S after the last word, and so do the places of a process that has died.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headgate.errors import HeadgateError

from .client import Client, call_at, call_many
from .keys import PROCESSES, places_key

LEASE_S = 15
# Read at most; more processes than that on one Redis count as so many.
MAX_PROCESSES = 1000
# Users in one command.
_STRIDE = 500


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
    now_s = int(call_at(client, PROCESSES, "TIME")[0])
    own = places_key(process_id)
    commands: list[tuple[str | int, ...]] = [
        ("ZADD", PROCESSES, now_s, process_id),
        ("ZREMRANGEBYSCORE", PROCESSES, "-inf", now_s - LEASE_S),
        ("EXPIRE", PROCESSES, LEASE_S),
        ("ZRANGE", PROCESSES, 0, MAX_PROCESSES - 1),
    ]
    if anew:
        commands.append(("UNLINK", own))
    there, gone = [user for user in told if told[user]], [user for user in told if not told[user]]
    for first in range(0, len(there), _STRIDE):
        commands.append(("HSET", own, *(part for user in there[first : first + _STRIDE] for part in (user, told[user]))))
    for first in range(0, len(gone), _STRIDE):
        commands.append(("HDEL", own, *gone[first : first + _STRIDE]))
    commands.append(("EXPIRE", own, LEASE_S))
    replies = _replies(client, commands)
    processes = {each.decode("utf-8", "replace") for each in replies[3]} | {process_id}
    others = dict.fromkeys(asked, 0)
    elsewhere = sorted(processes - {process_id})
    if asked and elsewhere:
        for counts in _replies(client, [("HMGET", places_key(each), *asked) for each in elsewhere]):
            for user, count in zip(asked, counts, strict=True):
                others[user] += int(count or 0)
    return Look(len(processes), others, known=not replies[0])


def leave(client: Client, process_id: str) -> None:
    """Give all places of a process back.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; they end with the lease then.
    """
    _replies(client, [("ZREM", PROCESSES, process_id), ("UNLINK", places_key(process_id))])


def _replies(client: Client, commands: list[tuple[str | int, ...]]) -> list[Any]:
    replies = call_many(client, commands)
    for reply in replies:
        if isinstance(reply, HeadgateError):
            raise reply
    return replies
