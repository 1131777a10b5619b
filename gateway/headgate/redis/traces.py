"""What each gateway did with single events, in Redis, for `headgate trace`. A hint for people: nothing else is decided by it.

In: from each gateway, every second, the counts that have changed (delivery/tally.py). Out: the counts of one event by gateway. In
Redis: hashes of the events of PART consecutive offsets each, with a field `<epoch>:<offset>:<gateway>` for each of them. They end
KEPT_S after the last word, so there are so many as events are traced in that time, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.errors import HeadgateError

from .client import Client, call, call_many
from .connections import Command
from .keys import trace_key

PART = 256
KEPT_S = 3600
# A name of a gateway is no longer than this.
MAX_NAME = 80


def write(client: Client, namespace: str, gateway: str, counts: Iterable[tuple[str, int, Sequence[int]]]) -> None:
    """Tell the counts of events by epoch and offset, in place of those told before. Waits for Redis, one round trip.

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
        commands += [("HSET", key, *words), ("EXPIRE", key, KEPT_S)]
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
