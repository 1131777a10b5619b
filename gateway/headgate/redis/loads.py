"""The rows of the shared table, one for each gateway process of a database, and an operator's request for a balance.

In: the row of each process (shared_table.py), and the request of `headgate rebalance`. Out: the rows of all live processes, and
that request. `headgate status` and `headgate doctor` list the processes from them.

In Redis, the hash LOADS has a field for each process, and one for the request. A process is gone if it has written nothing for
LEASE_S, and the others remove its field. After a failover the new primary has the fields of the old one. A field with another
server stays for LEFT_S, to name processes that are still there. The hash expires LEFT_S after the last write.

Raises (all functions): BusUnavailable, BusRefused: as `redis.client.call`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from headgate.errors import InvalidRequest
from headgate.events.numbers import is_number

from .client import Client, call, call_at, time_at
from .functions import write_all
from .keys import LOADS

LEASE_S, LEFT_S = 15, 300
# No process has this id.
_REQUEST = "rebalance"
# How long a request counts. A gateway reads it even after a short outage, but not if it starts tomorrow.
REQUEST_S = 300
MAX_PER_S = 1000


class Load(msgspec.Struct, frozen=True, array_like=True):
    """One process, with its sessions, its start by Redis' clock (0 in its first row), its namespaces, and the row's time.

    A draining process serves no namespaces. An older gateway leaves out the rest, which are `name` (machine and process id),
    `version`, `max_files` (its limit of descriptors), `skew_ms` (by how much its clock is ahead of Redis', within the round
    trip), `server` (the token of the Redis process that its events come from, several joined by commas, "" if unknown or in a
    Cluster), and the `versions` of its hashes in the shared table.
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
    versions: dict[str, int] = {}

    def is_at(self, server: str) -> bool:
        """Return whether its events come from this Redis process. True if either is unknown."""
        return not server or self.server in ("", server)


class LoadTable(NamedTuple):
    """The contents of the hash at a time by Redis' clock.

    It has the valid loads by process id, and the operator's request for a balance, if any (its time, and the clients per second
    for each process). `left` are the last rows of processes now at another server, unless they have ended. `living` are the
    rows of all live processes, including draining ones. `gone` are fields to remove. `fields` are all fields.
    """

    now_s: int
    loads: dict[str, Load]
    request: tuple[int, float] | None
    left: dict[str, Load]
    living: dict[str, Load]
    gone: list[str]
    fields: dict[str, bytes]


def process_name() -> str:
    """Return the display name of this process, from its machine and its process id."""
    return f"{socket.gethostname()}/{os.getpid()}"


def clock(client: Client, wall_s: Callable[[], float] = time.time) -> tuple[float, float]:
    """Return Redis' time, and by how many seconds this machine's clock is ahead of it. One round trip."""
    began_s = wall_s()
    seconds, microseconds = call_at(client, LOADS, "TIME")
    ended_s = wall_s()
    redis_s = int(seconds) + int(microseconds) / 1e6
    return redis_s, (began_s + ended_s) / 2 - redis_s


def read(client: Client, server: str = "") -> LoadTable:
    """Return the loads. Two round trips.

    `server` is the token of the Redis process that has them. Without it, none are `left`.
    """
    return read_rows(time_at(client, LOADS), call(client, "HGETALL", LOADS), server)


def request(client: Client, per_s: float) -> None:
    """Ask all gateways to balance, with `per_s` clients per second for each process that takes some. A later call wins.

    Raises:
        InvalidRequest: `per_s` is out of range.
        BusUnavailable, BusRefused: as `redis.client.call`. Call again: it is idempotent.
    """
    if not (is_number(per_s, 0, MAX_PER_S) and per_s):
        raise InvalidRequest(f"per second: expected a number above 0 and up to {MAX_PER_S}")
    value = msgspec.json.encode([time_at(client, LOADS), per_s]).decode()
    write_all(client, [("HSET", LOADS, _REQUEST, value), ("EXPIRE", LOADS, LEFT_S)])


def read_rows(now: int, fields: Mapping[bytes, bytes], server: str) -> LoadTable:
    """Return the rows in the hash of a server at a time by its clock. An unreadable field counts as gone."""
    rows = LoadTable(now, {}, None, {}, {}, [], {field.decode("utf-8", "replace"): value for field, value in fields.items()})
    request = None
    for name, value in rows.fields.items():
        try:
            if name == _REQUEST:
                request = msgspec.json.decode(value, type=tuple[int, float])
                continue
            load = msgspec.json.decode(value, type=Load)
        except (msgspec.DecodeError, UnicodeDecodeError):
            rows.gone.append(name)
            continue
        if now - LEASE_S < load.at_s < now + LEASE_S:
            rows.living[name] = load
            if load.serves:
                rows.loads[name] = load
        elif now - LEFT_S < load.at_s <= now and not load.is_at(server):
            rows.left[name] = load
        else:
            rows.gone.append(name)
    return rows._replace(request=request if request is not None and request[0] > now - REQUEST_S else None)
