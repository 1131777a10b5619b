"""The client for commands to Redis has a small pool of connections, and its calls raise this project's errors.

Threads and greenlets may share a client, because each command borrows a connection. Give each role (log reader, fence,
publisher) its own client, so that no role stalls another. Run commands through `call` and `call_many`. There are no hidden
retries, so nothing is written twice without the caller's knowledge. Never kill a greenlet inside a call.

Error messages have host, port, path and the answer of Redis, never the password of a URL. An error of connecting has a note
(PEP 678) with the remedy.
This file does not import gevent. In a patched process its sockets are cooperative; in others they block.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from functools import lru_cache, partial
from typing import Any

import redis

from headgate.errors import BusRefused, HeadgateError
from headgate.runtime.tls_files import load_authorities, load_certificate
from headgate.settings.addresses.redis_url import RedisKind, read_url

from . import connections
from .bounded import NewestReceipts
from .budget import answered
from .cluster import shown_command, slot_of
from .cluster_client import ClusterClient
from .connections import Command, address_of, exchange, open_server, redacted_address, run, shown_address
from .faults import CURES, NAME_SENTINELS, NEEDED, NO_MEMORY, NO_PERMISSION, refused, translate

Client = redis.Redis | ClusterClient

MAX_CONNECTIONS = 16
# The most replicas of one primary to read the version of.
MAX_REPLICAS = 16


def open_client(
    url: str,
    *,
    timeout_s: float = 5.0,
    max_connections: int = MAX_CONNECTIONS,
    newest: NewestReceipts | None = None,
    wait_s: float | None = None,
) -> Client:
    """Return a client for commands. It connects at its first command. Raises BusRefused for a wrong `url` or TLS file.

    Args:
        url: see settings/addresses/redis_url.py.
        timeout_s: limit on connecting, on each command, and on waiting for a free connection of the pool (unless `wait_s` is it).
        max_connections: bound of the pool (of each node's in a Cluster). Further commands wait.
        newest: the receipts that each new connection reports to Redis.
    """
    address = read_url(url if isinstance(url, str) else "")
    if address.tls:
        _check_tls_files(address.options)
    open_one = partial(open_server, timeout_s=timeout_s, max_connections=max_connections, newest=newest, wait_s=wait_s)
    return ClusterClient(address, open_one) if address.kind is RedisKind.CLUSTER else open_one(address)


@lru_cache
def _check_tls_files(given: tuple[tuple[str, Any], ...]) -> None:
    """Load the files here, once, because a fault while redis-py loads them would look like the server's."""
    options = dict(given)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if certfile := options.get("ssl_certfile"):
            load_certificate(context, "ssl_", certfile, options.get("ssl_keyfile"), options.get("ssl_password"))
        if ca_certs := options.get("ssl_ca_certs"):
            load_authorities(context, "ssl_", ca_certs)
    except ValueError as error:
        raise BusRefused(f"the Redis URL cannot be used: {error}") from error.__cause__


def call(client: Client, *command: str | bytes | int) -> Any:
    """Run one command and return its reply as redis-py shapes it (a dict for INFO and HGETALL, pairs for XRANGE), text as bytes.

    In a Cluster it runs on the owner of its key. `call_at` is for commands without a key.

    Raises:
        BusUnavailable: no answer or a broken one, so that it is unknown whether the command ran; or Redis says to try later.
        BusRefused: Redis refused.
        HeadgateError: log.lua refused. It names the class of errors.py.
    """
    return client.run(*command) if isinstance(client, ClusterClient) else run(client, *command)


def call_at(client: Client, key: str | bytes, *command: str | bytes | int) -> Any:
    """Run a command without a key (TIME, INFO, SCAN) on the server of `key`. Raises as `call`."""
    return client.run(*command, key=key) if isinstance(client, ClusterClient) else run(client, *command)


def time_at(client: Client, key: str | bytes) -> int:
    """Return the time of the server of `key`, in seconds since 1970; the nodes of a Cluster may differ. Raises as `call`."""
    return int(call_at(client, key, "TIME")[0])


def call_many(client: Client, commands: Iterable[Command], *, shaped: bool = True) -> list[Any]:
    """Run commands in one round trip, without a transaction; return a reply, or the HeadgateError, for each in order.

    In a Cluster that is one round trip for each owner of the keys. Without `shaped`, replies are lists and bytes as Redis sends
    them, because redis-py's shapes cost as much as reading an entry of the log. Raises BusUnavailable if the connection breaks.
    It is then unknown which commands ran.
    """
    if isinstance(client, ClusterClient):
        return client.run_many(commands, shaped=shaped)
    asked = list(commands)
    replies = exchange(client, asked, shaped=shaped)
    where = shown_address(client.connection_pool)
    return [
        translate(reply, where, shown_command(command)) if isinstance(reply, Exception) else reply
        for command, reply in zip(asked, replies, strict=True)
    ]


def call_all(client: Client, commands: Iterable[Command]) -> list[Any]:
    """Run commands in one round trip, without a transaction; return the replies in order. All run, even after a failed one.

    Raises HeadgateError for the first error among the replies, or as `call_many`.
    """
    replies = call_many(client, commands)
    for reply in replies:
        if isinstance(reply, HeadgateError):
            raise reply
    return replies


def deliveries(client: Client, key: str, group: str, entry_id: str) -> int:
    """Return how often a reader of a group got a stream entry without acknowledging it; 0 if it is not pending.

    Raises as `call`, and BusRefused if there is no such group.
    """
    pending = run(at(client, key), "XPENDING", key, group, entry_id, entry_id, 1, parse_detail=True)
    return int(pending[0]["times_delivered"]) if pending else 0


def at(client: Client, key: str | bytes) -> redis.Redis:
    """Return the client of a key's server, which is `client` itself outside a Cluster.

    A Cluster's client does not learn from errors there, but `call_at` and `call` look up the slot again. Raises BusUnavailable
    or BusRefused if the Cluster does not report the owner.
    """
    return client.node_of(key) if isinstance(client, ClusterClient) else client


def primaries(client: Client) -> list[redis.Redis]:
    """Return the client of every server with keys, which is the client itself outside a Cluster.

    Raises BusUnavailable or BusRefused if the Cluster does not report them.
    """
    return client.primaries() if isinstance(client, ClusterClient) else [client]


def database(client: Client) -> str:
    """Return the database of a client, such as `localhost:6379/0`, without user and password."""
    return f"{client.address if isinstance(client, ClusterClient) else address_of(client)}/{database_number(client)}"


def database_number(client: Client) -> int:
    """Return the number of the database that a client uses."""
    return 0 if isinstance(client, ClusterClient) else int(client.connection_pool.connection_kwargs.get("db") or 0)


def place_of(client: Client, key: str | bytes) -> str:
    """Return the name of a key's server in errors, which has the slot in a Cluster. Never waits."""
    return f"slot {slot_of(key)} of {client.address}" if isinstance(client, ClusterClient) else address_of(client)


def server_of(client: Client, key: str | bytes) -> str:
    """Return the known address of a key's server. Raises as `Topology.owner` in a Cluster."""
    return address_of(client.node_of(key) if isinstance(client, ClusterClient) else client)


def has_answered(url: str, key: str | bytes) -> None:
    """Close the circuit breaker of a key's server, because it has answered. Never waits."""
    address = read_url(url)
    answered(f"slot {slot_of(key)} of {address}" if address.kind is RedisKind.CLUSTER else str(address))


def publish_at(client: Client, key: str | bytes, channel: str, message: bytes) -> int:
    """Publish a message at the server of `key`; return how many of its connections receive it. Raises as `call`.

    In a Cluster it asks for the owner first, because every node accepts a PUBLISH and counts only its own connections.
    """
    doubt_owner(client)
    return int(call_at(client, key, "PUBLISH", channel, message))


def doubt_owner(client: Client) -> None:
    """In a Cluster, ask again for the owner of the next key, because a former owner answers a command without a key."""
    if isinstance(client, ClusterClient):
        client.topology.doubt()


def drop_idle(client: Client) -> None:
    """Close idle connections, which may be broken after a fault. A Cluster's client also reads its topology again."""
    if isinstance(client, ClusterClient):
        client.drop_idle()
    else:
        connections.drop_idle(client)


def check_primary(client: Client) -> None:
    """Ask where the address leads, if it is time, for threads that may be busy.

    Closes connections to a former server. Does nothing in a Cluster. Raises BusUnavailable or BusRefused without a connection.
    """
    if not isinstance(client, ClusterClient):
        connections.check_primary(client)


def is_forbidden(error: BusRefused) -> bool:
    """Return whether Redis refused for lack of a right, so that a retry does not help."""
    return error.redis_code == NO_PERMISSION


def is_full(error: BusRefused) -> bool:
    """Return whether Redis refused because it is at its `maxmemory`."""
    return error.redis_code == NO_MEMORY


def check_server(client: Client) -> tuple[str, str]:
    """Return (name, version), such as ("Redis", "7.0.15") or ("Valkey", "9.1.2"), of the server, or of a Cluster's oldest.

    Raises:
        BusRefused: it is too old, not Redis, a Sentinel, a replica, or a Cluster's node at a plain URL, or the password is
            wrong. One line names the fault and the requirement.
        BusUnavailable: nothing answers there.
    """
    servers = [_checked(server, in_cluster=isinstance(client, ClusterClient)) for server in primaries(client)]
    return min(servers, key=lambda each: [int(part) for part in re.findall(r"\d+", each[1])])


def versions(client: Client) -> dict[str, str]:
    """Return the version of every primary and reachable replica by its address.

    Raises BusUnavailable or BusRefused if a primary does not report it.
    """
    versions_by_server: dict[str, str] = {}
    for primary in primaries(client):
        info = run(primary, "INFO")
        versions_by_server[address_of(primary)] = _version(info)
        replicas = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name) and isinstance(value, dict)]
        for replica in replicas[:MAX_REPLICAS]:
            beside = connections.open_beside(primary, str(replica.get("ip")), int(replica.get("port", 0)))
            with suppress(HeadgateError), closing(beside):
                versions_by_server[address_of(beside)] = _version(run(beside, "INFO", "server"))
    return versions_by_server


def mixed(by_server: Mapping[str, str]) -> str | None:
    """Return a line about servers of several versions; None if all have the same."""
    by_version: dict[str, list[str]] = {}
    for where, version in by_server.items():
        by_version.setdefault(version, []).append(where)
    if len(by_version) < 2:
        return None
    shown = "; ".join(f"{version} at {', '.join(places)}" for version, places in sorted(by_version.items()))
    return f"servers of several versions ({shown}): after a failover another one counts, so bring them to one version"


def _version(info: Any) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version')}"


def _checked(client: redis.Redis, *, in_cluster: bool) -> tuple[str, str]:
    reply = run(client, "INFO")
    where = address_of(client)
    if not isinstance(reply, dict) or "redis_version" not in reply:
        raise refused(f"what answers at {where} is not Redis; needed: {NEEDED}")
    mode = reply.get("redis_mode") or reply.get("server_mode")
    if mode == "cluster" and not in_cluster:
        raise refused(f"{where} is a node of a Cluster: begin the URL with redis+cluster:// (or rediss+cluster:// for TLS)")
    if mode == "sentinel":
        raise refused(f"{where} is a Sentinel: {NAME_SENTINELS}")
    name, version = _version(reply).split(" ", 1)
    if not is_new_enough(name, version):
        raise refused(f"Redis {version} at {where} is too old; needed: {NEEDED}")
    if reply.get("role") == "slave" and not in_cluster:
        primary = f"{reply.get('master_host')}:{reply.get('master_port')}"
        replica = refused(f"{where} is a replica of {primary}; gateways and publishers need the primary", "READONLY")
        replica.add_note(CURES["READONLY"])
        raise replica
    return name, version


def describe_server(url: str) -> str:
    """Describe the server at a URL, as in `Redis 7.0.15 at localhost:6379`, with a warning about mixed versions.

    Raises as `check_server`, and BusRefused if `url` is not a Redis URL.
    """
    with open_client(url, max_connections=1) as client:
        name, version = check_server(client)
        warning = mixed(versions(client))
    return f"{name} {version} at {redacted_address(url)}" + (f"; {warning}" if warning else "")


def is_new_enough(name: str, version: str) -> bool:
    """Return whether a server such as ("Redis", "7.0.15") has what Headgate needs (functions: 7.0, and any Valkey)."""
    major = re.match(r"\d+", version)
    return name == "Valkey" or (major is not None and int(major[0]) >= 7)
