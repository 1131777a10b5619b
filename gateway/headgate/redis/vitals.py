"""Vitals in Redis: whether a console watches, and meanwhile the last word of each gateway process.

In: each second, or every three without a console, a look of every process (node/vitals_watch.py). Out: the wish of a console;
while there is one, what all processes say. A hint for people: nothing else is decided by it.

In Redis: the string VITALS_WATCHED, which a console's process renews and which ends WATCHED_S after the last time; the hash
VITALS with a field for each process, which ends LEASE_S after the last word of all. A process that stops takes its field out;
that of one that was killed goes when a reader has seen no news of it for a while (`forget`), or with the hash.
"""

from __future__ import annotations

from collections.abc import Iterable

from .client import Client, call, call_all
from .connections import Command
from .keys import VITALS, VITALS_WATCHED

WATCHED_S = 5
LEASE_S = 10


def is_watched(client: Client) -> bool:
    """Return whether a console watches. One round trip.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    return bool(call(client, "EXISTS", VITALS_WATCHED))


def watch(client: Client) -> None:
    """Ask all processes for their vitals. One round trip. Raises as `is_watched`."""
    call(client, "SET", VITALS_WATCHED, "1", "EX", WATCHED_S)


def tell(client: Client, process: str, said: bytes, *, read: bool) -> dict[str, bytes]:
    """Say how this process is; with `read`, return the words of all, by process. One round trip. Raises as `is_watched`."""
    commands: list[Command] = [("HSET", VITALS, process, said), ("EXPIRE", VITALS, LEASE_S)]
    if read:
        commands.append(("HGETALL", VITALS))
    replies = call_all(client, commands)
    if not read:
        return {}
    return {name.decode("utf-8", "replace"): said for name, said in replies[2].items()}


def forget(client: Client, processes: Iterable[str]) -> None:
    """Take processes out. One round trip, none where there are none. Raises as `is_watched`."""
    if gone := list(processes):
        call(client, "HDEL", VITALS, *gone)
