"""Connections to Redis, made our way: from a URL, without the retries and options that redis-py would add; and what a URL tells.

In: a URL (`redis://`, `rediss://`, `unix://`, or one that names Sentinels: sentinel.py). Out: a pool of connections for
one_server.py and subscriber_link.py; the address without its secrets. Of a URL that names nodes of a Cluster (cluster.py): its
topology, which asks a node over a connection of its own.

A connection never retries behind the caller's back, never checks its own health, and speaks RESP2 in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
import redis.connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.errors import BusRefused
from headgate.settings import is_loopback

from . import cluster, sentinel
from .cluster import ClusterAddress, Topology, is_cluster
from .faults import advised, shown_cause, translate
from .followers import follow
from .sentinel import follow_sentinels, is_sentinel

Command = Sequence[str | bytes | int]

# No CLIENT SETINFO: two commands less per connection, and one right less to grant. The option has another name before redis-py 8.
_ANONYMOUS_DRIVER: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(redis.connection.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
# Options that redis-py 7 and newer set for a URL that asks for RESP3, which we do not speak.
_MAINTENANCE = ("maint_notifications_config", "maint_notifications_pool_handler")


def connection_pool(
    url: str, timeout_s: float, kind: type[redis.ConnectionPool] = redis.ConnectionPool, **options: float
) -> redis.ConnectionPool:
    """Return a pool that makes connections our way, whatever options the URL carries."""
    try:
        address = sentinel.read_address(url) if is_sentinel(url) else None
        pool = kind.from_url(url if address is None else address.url, **options)
    except (ValueError, redis.RedisError) as error:
        raise _no_url() from error
    pool.connection_kwargs.update(
        protocol=2,
        decode_responses=False,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        retry_on_timeout=False,
        health_check_interval=0,
        **_ANONYMOUS_DRIVER,
    )
    for name in _MAINTENANCE:
        pool.connection_kwargs.pop(name, None)
    if address is not None:
        follow_sentinels(pool, address)
    follow(url, pool, drop_idle_of)
    return pool


def drop_idle_of(pool: Any) -> None:
    """Close the connections of a pool that wait for a command."""
    waiting = getattr(pool, "pool", None)  # one that hands out connections for good has none that wait
    # Before redis-py 7 its own `disconnect` takes those in use by others too.
    for connection in [] if waiting is None else [idle for idle in waiting.queue if idle is not None]:
        connection.disconnect()


def cluster_address(url: str) -> ClusterAddress:
    """Return what a URL that names nodes of a Cluster says.

    Raises:
        BusRefused: it is not of that form, or names a database.
    """
    try:
        return cluster.read_address(url)
    except ValueError as error:
        raise _no_url() from error


def cluster_topology(address: ClusterAddress) -> Topology:
    """Return the topology of a Cluster; it is asked for when it is first needed."""
    return Topology(address, lambda node: _ask_slots(address.url_of(node), cluster.shown(node)))


def _ask_slots(url: str, where: str) -> Any:
    """Return one node's reply to CLUSTER SLOTS.

    Raises:
        BusUnavailable, BusRefused: it does not say.
    """
    # Untyped: redis-py does not type these methods.
    connection: Any = connection_pool(url, cluster.ASK_TIMEOUT_S).make_connection()
    try:
        connection.connect()
        connection.send_command("CLUSTER", "SLOTS")
        return connection.read_response()
    except (redis.RedisError, OSError) as error:
        tls = isinstance(connection, redis.SSLConnection)
        raise advised(translate(error, where), error, tls=tls) from shown_cause(error)
    finally:
        connection.disconnect()


def redacted_address(url: str) -> str:
    """Return where a Redis URL points to, without user, password and options: what may stand in a log or an error."""
    if is_sentinel(url):
        return str(sentinel.read_address(url))
    if is_cluster(url):
        return str(cluster_address(url))
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def is_open(url: str) -> bool:
    """Return whether a Redis URL leads to another machine and names no password: anybody who reaches it can do everything."""
    if is_sentinel(url):
        address = sentinel.read_address(url)
        return not all(is_loopback(host) for host, _ in address.sentinels) and is_open(address.url)
    if is_cluster(url):
        nodes = cluster_address(url)
        return any(is_open(nodes.url_of(node)) for node in nodes.seeds)
    parts = urlsplit(url)
    if parts.scheme == "unix" or is_loopback(parts.hostname or "localhost"):
        return False
    # With a certificate of our own (mutual TLS) the server knows us without.
    options = parse_qs(parts.query)
    return not (parts.password or "password" in options or "ssl_certfile" in options)


def _no_url() -> BusRefused:
    return BusRefused(
        f"the Redis URL is not of the form redis://host:6379/0, rediss://…, unix:///path, {sentinel.FORM} or {cluster.FORM}"
    )
