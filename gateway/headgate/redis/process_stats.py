"""Vitals in Redis: the last report of each gateway process, while a console watches.

In: a report of each process each second, as long as the process that serves a console's page sends a notice (questions.py).
Out: the reports of all processes. They are for people; nothing else depends on them.

In Redis: the hash VITALS with a field for each process. The hash ends LEASE_S after the last report of any process. A process
that stops removes its field. The field of a killed process goes when a reader has seen no news of it for a while (`forget`), or
with the hash.
"""

from __future__ import annotations

from collections.abc import Iterable

from .client import Client, call, call_all
from .connections import Command
from .keys import VITALS

# The notice of a watching console.
KIND = "vitals"
LEASE_S = 10


def exchange(client: Client, process: str, report: bytes, *, read: bool) -> dict[str, bytes]:
    """Report the vitals of this process. With `read`, return the reports of all, by process. One round trip.

    Raises as `redis.client.call`.
    """
    commands: list[Command] = [("HSET", VITALS, process, report), ("EXPIRE", VITALS, LEASE_S)]
    if read:
        commands.append(("HGETALL", VITALS))
    replies = call_all(client, commands)
    if not read:
        return {}
    return {name.decode("utf-8", "replace"): report for name, report in replies[2].items()}


def forget(client: Client, processes: Iterable[str]) -> None:
    """Remove processes. One round trip, or none without processes. Raises as `exchange`."""
    if gone := list(processes):
        call(client, "HDEL", VITALS, *gone)
