"""What each gateway did with single events, in Redis, for `headgate trace`. A hint for people: nothing else is decided by it.

In: from each gateway, every second, the counts that have changed (delivery/tally.py). Out: the counts of one event by gateway. In
Redis: hashes of the events of PART consecutive offsets each, with a field `<epoch>:<offset>:<gateway>` for each of them. They end
`kept_s` after the last word, so there are so many as events are traced in that time, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.errors import HeadgateError

from .client import Client, call, call_many
from .connections import Command
from .keys import trace_key

PART = 256
KEPT_S = 3600
# Of events that are counted though they are no n-th: a field takes 100 bytes or so, so these are 4 MB for each gateway.
MAX_SINGLES = 36_000
# A name of a gateway is no longer than this.
MAX_NAME = 80


def kept_s(singles_per_s: float) -> int:
    """Return how long counts are kept, in seconds, where a gateway counts so many events a second that are no n-th."""
    return min(KEPT_S, int(MAX_SINGLES / max(singles_per_s, 1.0)))


def write(
    client: Client, namespace: str, gateway: str, counts: Iterable[tuple[str, int, Sequence[int]]], for_s: int = KEPT_S
) -> None:
    """Tell the counts of events by epoch and offset, in place of those told before, for `for_s` s. Waits for Redis.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`. Call again: it is idempotent.
    """
    fields: dict[int, list[str]] = {}
    for epoch, offset, numbers in counts:
        part = fields.setdefault(offset // PART, [])
        part += [f"{epoch}:{offset}:{gateway[:MAX_NAME]}", " ".join(map(str, numbers))]
    commands: list[Command] = []
    for number, words in fields.items():
        key = trace_key(namespace, number)
        commands += [("HSET", key, *words), ("EXPIRE", key, for_s)]
    for reply in call_many(client, commands) if commands else ():
        if isinstance(reply, HeadgateError):
            raise reply


def read(client: Client, namespace: str, epoch: str, offset: int) -> dict[str, list[int]]:
    """Return the counts of one event by gateway; none where nobody has told any (any more).

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    found = call(client, "HGETALL", trace_key(namespace, offset // PART))
    prefix = f"{epoch}:{offset}:".encode()
    return {
        name.removeprefix(prefix).decode("utf-8", "replace"): [int(number) for number in numbers.split()]
        for name, numbers in found.items()
        if name.startswith(prefix)
    }
