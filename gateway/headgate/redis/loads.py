"""Loads in Redis: how many sessions each gateway process of a database has, and whether an operator wants them balanced.

In: a process's own load, every few seconds (node/population); the request of `headgate rebalance`. Out: the loads of
all processes that live, and that request. `headgate status` and `headgate doctor` read from them which processes there are.

In Redis: the hash LOADS with a field for each process, and one for the request. A process that has said nothing for LEASE_S is
gone; the others take its field out. After a failover the new primary has the fields of all processes that were at the old one: a
field that names another server stays for LEFT_S, to name those that are still there. The hash ends LEFT_S after the last word of
all.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from headgate.errors import InvalidRequest

from .client import Client, call, call_all, call_at
from .keys import LOADS

LEASE_S, LEFT_S = 15, 300
# No process has this id.
_REQUEST = "rebalance"
# A request counts for so long: a gateway that was out of reach for a while hears it, and one that starts tomorrow does not.
REQUEST_S = 300
MAX_PER_S = 1000


class Load(msgspec.Struct, frozen=True, array_like=True):
    """One process: its sessions, when it began (by Redis' clock; 0: with its first word), the namespaces that it serves, and the
    time of this word.

    An older gateway leaves out the rest: `name` (machine and process id), `version`, `max_files` (descriptors that it may have
    open), `skew_ms`, by which its clock is ahead of Redis' (as sure as the round trip was short), and `server`, the token of the
    Redis process that its events come from (several: joined by commas; "": not known, or a Cluster).
    """

    sessions: int
    since_s: int
    serves: str
    at_s: int = 0
    name: str = ""
    version: str = ""
    max_files: int = 0
    skew_ms: int | None = None
    server: str = ""

    def is_at(self, server: str) -> bool:
        """Return whether its events come from this Redis process, as far as both are known."""
        return not server or self.server in ("", server)


class Request(NamedTuple):
    """An operator wants a balance: since when, and how many clients per second a process is to take for it."""

    at_s: int
    per_s: float


class Look(NamedTuple):
    """What was found at a time by Redis' clock.

    The loads that are valid, by process id; the request, if there is one; `left`: last words of processes that were given to
    another server, unless they have ended.
    """

    now_s: int
    loads: dict[str, Load]
    request: Request | None
    left: dict[str, Load] = {}  # noqa: RUF012 - of a tuple, and never changed


def process_name() -> str:
    """Return what people know this process by: its machine and its process id."""
    return f"{socket.gethostname()}/{os.getpid()}"


def now_s(client: Client) -> int:
    """Return the time by the clock that all of these times are of.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    return int(clock(client)[0])


def clock(client: Client, wall_s: Callable[[], float] = time.time) -> tuple[float, float]:
    """Return Redis' time, and by how many seconds this machine's clock is ahead of it. One round trip.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    began_s = wall_s()
    seconds, microseconds = call_at(client, LOADS, "TIME")
    ended_s = wall_s()
    redis_s = int(seconds) + int(microseconds) / 1e6
    return redis_s, (began_s + ended_s) / 2 - redis_s


def look(client: Client, process_id: str, own: Load, wall_s: Callable[[], float] = time.time) -> Look:
    """Tell the load of this process, and return those of all. Two round trips; one more where a process has died.

    `wall_s` is this machine's clock.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`. Look again: it is idempotent.
    """
    redis_s, skew_s = clock(client, wall_s)
    now = int(redis_s)
    told = msgspec.structs.replace(own, since_s=own.since_s or now, at_s=now, skew_ms=round(skew_s * 1000))
    commands: list[tuple[str | int, ...]] = [
        ("HSET", LOADS, process_id, msgspec.json.encode(told).decode()),
        ("EXPIRE", LOADS, LEFT_S),
        ("HGETALL", LOADS),
    ]
    found = _found(now, call_all(client, commands)[2], own.server)
    if found.gone:
        call(client, "HDEL", LOADS, *found.gone)
    return Look(now, {**found.loads, process_id: told}, found.request, found.left)


def read(client: Client, server: str = "") -> Look:
    """Return the loads without telling one. Two round trips. Raises as `look` does.

    `server` is the token of the Redis process that has them; without it, none are `left`.
    """
    now = now_s(client)
    found = _found(now, call(client, "HGETALL", LOADS), server)
    return Look(now, found.loads, found.request, found.left)


def leave(client: Client, process_id: str) -> None:
    """Take a process out. Raises as `look` does; its field ends with the lease then."""
    call(client, "HDEL", LOADS, process_id)


def request(client: Client, per_s: float) -> None:
    """Ask all gateways for a balance, with so many clients per second for each process that takes some. A later call wins.

    Raises:
        InvalidRequest: a rate that cannot be.
        BusUnavailable, BusRefused: as `redis.client.call`. Call again: it is idempotent.
    """
    if not 0 < per_s <= MAX_PER_S:
        raise InvalidRequest(f"per second: expected a number above 0 and up to {MAX_PER_S}")
    value = msgspec.json.encode([now_s(client), per_s]).decode()
    call_all(client, [("HSET", LOADS, _REQUEST, value), ("EXPIRE", LOADS, LEFT_S)])


class _Found(NamedTuple):
    loads: dict[str, Load]
    gone: list[str]
    request: Request | None
    left: dict[str, Load]


def _found(now: int, fields: Any, server: str) -> _Found:
    """Return what the hash of a server says. A field that cannot be read is as good as gone."""
    pairs = fields if isinstance(fields, Mapping) else dict(zip(fields[::2], fields[1::2], strict=True))
    loads: dict[str, Load] = {}
    left: dict[str, Load] = {}
    gone: list[str] = []
    wanted: Request | None = None
    for field, value in pairs.items():
        name = field.decode("utf-8", "replace")
        try:
            if name == _REQUEST:
                asked = Request(*msgspec.json.decode(value, type=tuple[int, float]))
                wanted = asked if asked.at_s > now - REQUEST_S else None
                continue
            load = msgspec.json.decode(value, type=Load)
        except (msgspec.DecodeError, UnicodeDecodeError):
            gone.append(name)
            continue
        if load.at_s > now - LEASE_S:
            loads[name] = load
        elif load.at_s > now - LEFT_S and not load.is_at(server):
            left[name] = load
        else:
            gone.append(name)
    return _Found(loads, gone, wanted, left)
