"""Traces: the counts of single events that each gateway reports to Redis for people.

In: every second, the changed counts of each gateway (delivery/tally.py). Out: the counts of one event by gateway, for
`headgate trace`. In Redis: a hash for each PART consecutive offsets, with a field `<epoch>:<offset>:<gateway>` for each event.
A hash ends `kept_s` after its last report, so Redis holds only the events traced in that time.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`. Every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .client import Client, call, call_all
from .connections import Command
from .keys import trace_key

PART = 256
KEPT_S = 3600
# Most fields of events outside the sample (every n-th event). A field takes about 100 bytes, so these are 4 MB per gateway.
MAX_SINGLES = 36_000
# The longest name of a gateway.
MAX_NAME = 80


def kept_s(singles_per_s: float) -> int:
    """Return how long to keep counts, in seconds, if a gateway counts this many events per second outside the sample."""
    return min(KEPT_S, int(MAX_SINGLES / max(singles_per_s, 1.0)))


def write(
    client: Client, namespace: str, gateway: str, counts: Iterable[tuple[str, int, Sequence[int]]], for_s: int = KEPT_S
) -> None:
    """Write the counts of events by epoch and offset, in place of earlier ones, for `for_s` seconds. Waits for Redis."""
    fields: dict[int, list[str]] = {}
    for epoch, offset, numbers in counts:
        part = fields.setdefault(offset // PART, [])
        part += [f"{epoch}:{offset}:{gateway[:MAX_NAME]}", " ".join(map(str, numbers))]
    commands: list[Command] = []
    for number, words in fields.items():
        key = trace_key(namespace, number)
        commands += [("HSET", key, *words), ("EXPIRE", key, for_s)]
    if commands:
        call_all(client, commands)


def read(client: Client, namespace: str, epoch: str, offset: int) -> dict[str, list[int]]:
    """Return the counts of one event by gateway; empty if none were written or they have ended."""
    fields = call(client, "HGETALL", trace_key(namespace, offset // PART))
    prefix = f"{epoch}:{offset}:".encode()
    return {
        name.removeprefix(prefix).decode("utf-8", "replace"): [int(number) for number in numbers.split()]
        for name, numbers in fields.items()
        if name.startswith(prefix)
    }
