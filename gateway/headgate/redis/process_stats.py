"""Vitals in Redis: while a console watches, the last word of each gateway process.

In: what each process says each second, as long as the process of a console's page sends a notice (questions.py) that it is
watched. Out: what all processes say. A hint for people: nothing else is decided by it.

In Redis: the hash VITALS with a field for each process, which ends LEASE_S after the last word of all. A process that stops takes
its field out; that of one that was killed goes when a reader has seen no news of it for a while (`forget`), or with the hash.
"""

from __future__ import annotations

from collections.abc import Iterable

from .client import Client, call, call_all
from .connections import Command
from .keys import VITALS

# The notice that a console watches.
KIND = "vitals"
LEASE_S = 10


def tell(client: Client, process: str, said: bytes, *, read: bool) -> dict[str, bytes]:
    """Say how this process is; with `read`, return the words of all, by process. One round trip.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    commands: list[Command] = [("HSET", VITALS, process, said), ("EXPIRE", VITALS, LEASE_S)]
    if read:
        commands.append(("HGETALL", VITALS))
    replies = call_all(client, commands)
    if not read:
        return {}
    return {name.decode("utf-8", "replace"): said for name, said in replies[2].items()}


def forget(client: Client, processes: Iterable[str]) -> None:
    """Take processes out. One round trip, none where there are none. Raises as `tell`."""
    if gone := list(processes):
        call(client, "HDEL", VITALS, *gone)
