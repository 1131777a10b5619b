"""What each process of a database tells the others of itself, under a lease: hashes of each, and the set of those that live.

In: fields of this process that have changed. Out: the ids of the others that live. In Redis: the set PROCESSES, with the time of
the last word of each process as score, and the hashes. All end LEASE_S after the last word; so does what one that died has told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .client import Client, call_all, call_at
from .keys import PROCESSES

LEASE_S = 15
# Read at most; more processes than that on one Redis count as so many.
MAX_PROCESSES = 1000
# Fields in one command.
_STRIDE = 500


class Told(NamedTuple):
    """The other processes that live; and whether Redis still had this one's lease: if not, what it told before is lost."""

    others: list[str]
    known: bool


def tell(client: Client, process_id: str, told: Mapping[str, Mapping[str, str | int | None]], *, anew: bool) -> Told:
    """Tell fields (None: it is gone) of hashes, by their keys, and renew the lease. Two round trips.

    `anew`: these are all that there are, in place of what Redis has.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; it may be told in part. Tell all anew.
    """
    now_s = int(call_at(client, PROCESSES, "TIME")[0])
    commands: list[tuple[str | int, ...]] = [
        ("ZADD", PROCESSES, now_s, process_id),
        ("ZREMRANGEBYSCORE", PROCESSES, "-inf", now_s - LEASE_S),
        ("EXPIRE", PROCESSES, LEASE_S),
        ("ZRANGE", PROCESSES, 0, MAX_PROCESSES - 1),
    ]
    for key, fields in told.items():
        if anew:
            commands.append(("UNLINK", key))
        there = [(name, value) for name, value in fields.items() if value is not None]
        gone = [name for name, value in fields.items() if value is None]
        for first in range(0, len(there), _STRIDE):
            commands.append(("HSET", key, *(part for pair in there[first : first + _STRIDE] for part in pair)))
        for first in range(0, len(gone), _STRIDE):
            commands.append(("HDEL", key, *gone[first : first + _STRIDE]))
        commands.append(("EXPIRE", key, LEASE_S))
    replies = call_all(client, commands)
    others = sorted({each.decode("utf-8", "replace") for each in replies[3]} - {process_id})
    return Told(others, known=not replies[0])


def leave(client: Client, process_id: str, keys: Iterable[str]) -> None:
    """Take a process out, with its hashes.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; it ends with the lease then.
    """
    call_all(client, [("ZREM", PROCESSES, process_id), *(("UNLINK", key) for key in keys)])
