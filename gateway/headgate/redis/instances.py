"""The instances of a consumer: the processes that run it, each with the Redis server of its last heartbeat.

In: a heartbeat of each instance every few seconds (consumers/work/runner.py). Out: the running instances connected to another
server. After a failover the new primary has the heartbeats that all instances sent to the old one. The instances that followed
send new ones.

In Redis: in the hash of the consumer's group, a field `at:<name>` for each instance: `<token of the server> <time of Redis,
s>`. The field of a killed instance counts for LEFT_S, and goes when the next instance ends.
"""

from __future__ import annotations

from contextlib import suppress

from headgate.errors import BusRefused

from .client import Client, call, call_at
from .functions import server_token
from .keys import group_key, log_key
from .loads import LEFT_S
from .time_watch import WATCH_EVERY_S

# An instance on the new server sends a heartbeat within WATCH_EVERY_S.
MISSED_S = 3 * WATCH_EVERY_S
# Most names in one answer.
MAX_NAMED = 20
_FIELD = "at:"


def give_word(client: Client, group: str, name: str) -> None:
    """Record that an instance is at this server. `group` is the key of the group's existing hash. Three round trips.

    Does nothing if this user lacks the right. Raises BusUnavailable as `redis.client.call`.
    """
    with suppress(BusRefused):
        if server := server_token(client, group):
            call(client, "HSET", group, f"{_FIELD}{name}", f"{server} {_now_s(client, group)}")


def take_out(client: Client, group: str, name: str) -> None:
    """Remove an instance that ends, and those killed longer than LEFT_S ago. Raises as `redis.client.call`."""
    call(client, "HDEL", group, f"{_FIELD}{name}")
    now_s = _now_s(client, group)
    if old := [each for each, _, at_s in _words(client, group) if now_s - at_s > LEFT_S]:
        call(client, "HDEL", group, *(f"{_FIELD}{each}" for each in old))


def read_elsewhere(client: Client, group: str) -> tuple[str, ...]:
    """Return the names, at most MAX_NAMED, of instances with a last heartbeat to another server within LEFT_S.

    Empty if this user may not ask. One round trip, and three more if there are instances. Raises BusUnavailable.
    """
    try:
        words = _words(client, group)
        if not words or not (here := server_token(client, group)):
            return ()
        now_s = _now_s(client, group)
    except BusRefused:
        return ()
    names = sorted(name for name, server, at_s in words if server != here and MISSED_S <= now_s - at_s <= LEFT_S)
    return tuple(names[:MAX_NAMED])


def read_groups(client: Client, namespace: str) -> set[str]:
    """Return the names of the consumers with a group on the log (named by consumer and epoch). One round trip."""
    try:
        groups = call(client, "XINFO", "GROUPS", log_key(namespace))
    except BusRefused:
        return set()  # there is no log yet
    pairs = (each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True)) for each in groups)
    return {each[b"name"].decode("utf-8", "replace").partition("@")[0] for each in pairs}


def count_elsewhere(client: Client, namespace: str) -> int:
    """Return how many instances of a namespace's consumers are elsewhere. Several round trips for each consumer."""
    return sum(len(read_elsewhere(client, group_key(namespace, name))) for name in read_groups(client, namespace))


def _words(client: Client, group: str) -> list[tuple[str, str, int]]:
    """Return the name, the server and the time of each instance. Skips unreadable fields. One or two round trips."""
    fields = [field for field in call(client, "HKEYS", group) if field.startswith(_FIELD.encode())]
    instances: list[tuple[str, str, int]] = []
    for field, value in zip(fields, call(client, "HMGET", group, *fields) if fields else (), strict=True):
        server, _, at_s = (value or b"").decode("ascii", "replace").partition(" ")
        if at_s.isdecimal():
            instances.append((field.decode("utf-8", "replace").removeprefix(_FIELD), server, int(at_s)))
    return instances


def _now_s(client: Client, group: str) -> int:
    return int(call_at(client, group, "TIME")[0])
