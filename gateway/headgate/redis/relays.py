"""Relays in Redis: the internal address of each gateway process that relays, under a lease.

In: a process's own name and address, every few seconds (relay/directory.py). Out: those of all that live.

In Redis: the sorted set RELAYS of `<name> <host>:<port>`, each with the time of its last word as score, in seconds since 1970 by
Redis' clock. An entry counts for LEASE_S. Whoever may write this set may have gateways open connections to an address; they send
nothing but a nonce there until the other end has proven that it knows the key of the site (relay/handshake.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .client import Client, call_all, call_at
from .keys import RELAYS

LEASE_S = 15
# Read at most.
MAX_RELAYS = 1000


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int


def look(client: Client, name: str, address: Address) -> dict[str, Address]:
    """Renew the lease of a process; return the addresses of all, by name. Two round trips.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    now_s = int(call_at(client, RELAYS, "TIME")[0])
    commands: list[tuple[str | int, ...]] = [
        ("ZADD", RELAYS, now_s, _member(name, address)),
        ("ZREMRANGEBYSCORE", RELAYS, "-inf", now_s - LEASE_S),
        ("EXPIRE", RELAYS, LEASE_S),
        ("ZRANGE", RELAYS, 0, MAX_RELAYS - 1),
    ]
    return _read(call_all(client, commands)[3])


def leave(client: Client, name: str, address: Address) -> None:
    """Take a process out. One round trip.

    Raises:
        BusUnavailable, BusRefused: as `redis.client.call`; it ends with its lease then.
    """
    call_all(client, [("ZREM", RELAYS, _member(name, address))])


def _member(name: str, address: Address) -> str:
    return f"{name} {address.host}:{address.port}"


def _read(members: Iterable[bytes]) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for member in members:
        name, _, place = member.decode("utf-8", "replace").partition(" ")
        host, _, port = place.rpartition(":")
        if host and port.isdecimal() and 0 < int(port) < 65536:
            found[name] = Address(host, int(port))
    return found
