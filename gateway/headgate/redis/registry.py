"""The registry in Redis: which gateways serve which namespaces, and when each was last seen.

In: a gateway's registration every few seconds (shared_table.py). Out: for a publisher, whether any gateway has served its
namespace; for a gateway that stops, whether another one can take its clients; for `headgate check`, both; for a question to all
gateway processes (questions.py), the names of the live ones.

In Redis: for each namespace the sorted set `gateways_key(N)` of gateway ids (`<name>:<random>`), each with the time of its last
registration as score, in seconds since 1970 by Redis' clock. An id counts as live for LEASE_S. A gateway that stops removes its
id and leaves the time under LEFT, so that the set records when the last gateway left. The set NAMESPACES does the same for the
names of all namespaces. Everything ends KEPT_S after the last registration.

This is a hint for people and for a faster stop, not a lock. After a flush it is empty until the gateways register again.

The instances of a consumer are the processes that run it, each with the Redis server of its last heartbeat, every few seconds
(consumers/work/runner.py): in the hash of the consumer's group, a field `at:<name>` for each: `<token of the server> <time of
Redis, s>`. After a failover the new primary has the heartbeats that all instances sent to the old one, and those that followed
send new ones. The field of a killed instance counts for LEFT_S, and goes when the next instance ends.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from headgate.errors import BusRefused, HeadgateError, NamespaceNotServed

from .client import Client, call, call_all, call_many, database, is_forbidden, place_of, time_at
from .connections import Command
from .faults import reading
from .functions import server_token, write_all
from .keys import NAMESPACES, gateways_key, group_key, head_key, log_key
from .loads import LEFT_S
from .time_watch import WATCH_EVERY_S

# A gateway without a registration for this long is gone. Gateways register three times as often (shared_table.py).
LEASE_S = 15
# The id of a killed process goes after this time.
FORGOTTEN_S = 4 * LEASE_S
KEPT_S = 30 * 86400
MAX_NAMESPACES = 1000
# Most names in one answer; of namespaces, those seen last.
MAX_NAMED = 20
# Most namespaces in a list of gateways, and most gateways of each.
MAX_LISTED, MAX_LIVING = 100, 1000
# The field for the time at which the last gateway stopped; never a gateway's id.
LEFT = "left"
# Namespaces of one database that a process remembers to have asked about. Beyond that it forgets them all.
MAX_REMEMBERED = 1000
MAX_DATABASES = 100


@dataclass(frozen=True, slots=True)
class Served:
    """How a namespace is served: the live gateways, and the time since one was last seen (None: never).

    `silent` counts the gateways that neither stopped in an orderly way nor registered again within LEASE_S.
    """

    live: int
    seen_s_ago: int | None
    silent: int = 0


def registering(now_s: int, gateway_id: str, namespaces: Sequence[str], *, tidy: bool) -> list[Command]:
    """Return the commands that register a gateway for these namespaces now, by Redis' clock.

    `tidy`: also register the namespaces themselves, remove gateways of long ago or of the future, and keep the rest for longer.
    """
    keys = [gateways_key(namespace) for namespace in namespaces]
    commands: list[Command] = [("ZADD", key, now_s, gateway_id) for key in keys]
    if tidy:
        commands.append(("ZADD", NAMESPACES, *(part for namespace in namespaces for part in (now_s, namespace))))
        for key in keys:
            commands += [
                ("ZREMRANGEBYSCORE", key, "-inf", now_s - FORGOTTEN_S),
                ("ZREMRANGEBYSCORE", key, now_s + LEASE_S, "+inf"),  # from before Redis' clock was set back
                ("EXPIRE", key, KEPT_S),
            ]
        commands += [
            ("ZREMRANGEBYSCORE", NAMESPACES, "-inf", now_s - KEPT_S),
            ("ZREMRANGEBYRANK", NAMESPACES, 0, -MAX_NAMESPACES - 1),
            ("EXPIRE", NAMESPACES, KEPT_S),
        ]
    return commands


def leave(client: Client, gateway_id: str, namespaces: Sequence[str]) -> bool:
    """Remove a gateway. Return whether it was known and no other live one serves any of its namespaces. Two round trips.

    If two leave at once, at least one gets True. Raises as `redis.client.call`. Its id then ends with the lease.
    """
    now_s = time_at(client, NAMESPACES)
    commands: list[tuple[str | int, ...]] = []
    for key in map(gateways_key, namespaces):
        commands += [
            ("ZSCORE", key, gateway_id),
            ("ZREM", key, gateway_id),
            ("ZADD", key, now_s, LEFT),
            ("ZRANGE", key, now_s - LEASE_S, "+inf", "BYSCORE", "LIMIT", 0, 2),  # LEFT, and another gateway if there is one
            ("EXPIRE", key, KEPT_S),
        ]
    replies = write_all(client, commands)
    fresh = all(score is not None and float(score) >= now_s - LEASE_S for score in replies[::5])
    return fresh and all(set(live) <= {LEFT.encode()} for live in replies[3::5])


def has_been_served(client: Client, namespace: str) -> tuple[bool, list[str]]:
    """Return whether any gateway has served a namespace, and the names of at most MAX_NAMED served ones. One round trip.

    Returns no names if this user may not read them. Raises as `redis.client.call`; the answer is unknown.
    """
    count, names = call_many(client, [("ZCARD", gateways_key(namespace)), _named()])
    if isinstance(count, HeadgateError):
        raise count
    return int(count) > 0, [] if isinstance(names, HeadgateError) else _texts(names)


def need_known(client: Client, namespace: str) -> None:
    """Raise for an unknown namespace, so that the caller does not mistake an empty answer for a good one.

    Raises:
        NamespaceNotServed: no gateway has served it, and it has no log.
        BusUnavailable, BusRefused: as `redis.client.call`. Does nothing for a user without the right to read.
    """
    try:
        is_served, known = has_been_served(client, namespace)
        is_known = is_served or bool(call(client, "EXISTS", head_key(namespace)))
    except BusRefused as error:
        if is_forbidden(error):
            return
        raise
    if not is_known:
        raise NamespaceNotServed(namespace, known)


def read_served(client: Client) -> dict[str, Served]:
    """Return how each of at most MAX_NAMED namespaces is served. Two round trips."""
    named, time = call_all(client, [_named(), ("TIME",)])
    now_s, names = int(time[0]), sorted(_texts(named))
    commands: list[tuple[str | int, ...]] = []
    for key in map(gateways_key, names):
        commands += [
            ("ZCOUNT", key, now_s - LEASE_S, "+inf"),
            ("ZSCORE", key, LEFT),
            ("ZRANGE", key, 0, 0, "REV", "WITHSCORES"),
            ("ZCARD", key),
        ]
    replies = call_all(client, commands) if commands else []
    served = {}
    for at, name in enumerate(names):
        with reading(place_of(client, gateways_key(name)), gateways_key(name)):
            served[name] = _served(now_s, *replies[4 * at : 4 * at + 4])
    return served


def known_namespaces(client: Client) -> list[str]:
    """Return the names of the namespaces that gateways have served within KEPT_S, at most MAX_NAMESPACES. One round trip."""
    return _texts(call(client, "ZRANGE", NAMESPACES, 0, MAX_NAMESPACES - 1, "REV"))


def living(client: Client) -> set[str]:
    """Return the ids of the live gateways of at most MAX_LISTED namespaces. Two round trips."""
    named, time = call_all(client, [("ZRANGE", NAMESPACES, 0, MAX_LISTED - 1, "REV"), ("TIME",)])
    oldest_s = int(time[0]) - LEASE_S
    names = _texts(named)
    commands = [("ZRANGE", gateways_key(name), oldest_s, "+inf", "BYSCORE", "LIMIT", 0, MAX_LIVING + 1) for name in names]
    replies = call_all(client, commands) if commands else []
    return {each for ids in replies for each in _texts(ids)} - {LEFT}


def name_of(gateway_id: str) -> str:
    """Return the name of a process, for people, from its id."""
    return gateway_id.rpartition(":")[0] or gateway_id


def asked_about(client: Client) -> dict[str, bool]:
    """Return the namespaces of a client's database that publishers of this process have asked about, for `note_served`.

    True: a gateway has served it, or this process may not find out. Threads may share it.
    """
    return _asked_about(database(client))


@lru_cache(maxsize=MAX_DATABASES)
def _asked_about(database: str) -> dict[str, bool]:
    return {}


def note_served(asked: dict[str, bool], namespace: str, *, is_served: bool) -> None:
    """Note an answer. Forgets all others beyond MAX_REMEMBERED."""
    if len(asked) >= MAX_REMEMBERED and namespace not in asked:
        asked.clear()
    asked[namespace] = is_served


def _served(now_s: int, live: int, left: bytes | None, newest: list[tuple[bytes, float]] | list[bytes], known: int) -> Served:
    if not newest:
        return Served(0, None)
    # LEFT is not a gateway, though its time may be as recent.
    stopped = left is not None and float(left) >= now_s - LEASE_S
    seen_s = float(newest[0][1] if isinstance(newest[0], list | tuple) else newest[1])
    at_work = int(live) - stopped
    return Served(at_work, max(0, now_s - int(seen_s)), int(known) - (left is not None) - at_work)


def _named() -> tuple[str | int, ...]:
    return ("ZRANGE", NAMESPACES, 0, MAX_NAMED - 1, "REV")


def _texts(names: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in names]


# An instance on the new server sends a heartbeat within WATCH_EVERY_S.
MISSED_S = 3 * WATCH_EVERY_S
_FIELD = "at:"


def give_word(client: Client, group: str, name: str) -> None:
    """Record that an instance is at this server. `group` is the key of the group's existing hash. Three round trips.

    Does nothing if this user lacks the right. Raises BusUnavailable as `redis.client.call`.
    """
    with suppress(BusRefused):
        if server := server_token(client, group):
            write_all(client, [("HSET", group, f"{_FIELD}{name}", f"{server} {time_at(client, group)}")])


def take_out(client: Client, group: str, name: str) -> None:
    """Remove an instance that ends, and those killed longer than LEFT_S ago. Raises as `redis.client.call`."""
    call(client, "HDEL", group, f"{_FIELD}{name}")
    now_s = time_at(client, group)
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
        now_s = time_at(client, group)
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
