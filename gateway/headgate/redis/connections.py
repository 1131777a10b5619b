"""Connections to Redis, made our way: from a URL, without the retries and options that redis-py would add.

In: a RedisUrl. Out: a pool of connections for one_server.py and subscriber_link.py. Of a URL that names nodes of a Cluster: its
topology, which asks a node over a connection of its own.

A connection never retries behind the caller's back, never checks its own health, and speaks RESP2 in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from inspect import signature
from queue import Empty
from typing import Any

import redis
import redis.connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.addresses.origins import is_loopback
from headgate.addresses.redis_url import Kind, RedisUrl, read_url, shown_node

from . import cluster
from .bounded import Connection, SocketConnection, TlsConnection
from .cluster import Topology
from .faults import advised, shown_cause, translate
from .newest import NewestReceipts
from .primary_switch import switch_of
from .sentinel import Discovery, SentinelConnection, SentinelTlsConnection

Command = Sequence[str | bytes | int]

# No CLIENT SETINFO: two commands less per connection, and one right less to grant. The option has another name before redis-py 8.
_ANONYMOUS_DRIVER: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(redis.connection.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)


def connection_pool(
    url: RedisUrl,
    timeout_s: float,
    kind: type[redis.ConnectionPool] = redis.ConnectionPool,
    newest: NewestReceipts | None = None,
    **options: float,
) -> redis.ConnectionPool:
    """Return a pool that makes connections to a server, or to the primary that Sentinels name; each reports `newest`."""
    kinds: Any = kind  # redis-py does not type its constructor
    pool: redis.ConnectionPool = kinds(
        switch=None if url.kind is Kind.NODE else switch_of(url),
        newest=newest,
        db=url.database,
        username=url.username,
        password=url.password,
        protocol=2,
        decode_responses=False,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        retry_on_timeout=False,
        health_check_interval=0,
        **_ANONYMOUS_DRIVER,
        **_place(url),
        **{name: value for name, value in url.options if url.tls or not name.startswith("ssl_")},
        **options,
    )
    return pool


def _place(url: RedisUrl) -> dict[str, Any]:
    """Return where the connections of a pool lead, and their class."""
    if url.kind is Kind.SOCKET:
        return {"connection_class": SocketConnection, "path": url.path}
    if url.kind is Kind.SENTINELS:
        return {"connection_class": SentinelTlsConnection if url.tls else SentinelConnection, "discovery": Discovery(url)}
    ((host, port),) = url.hosts
    return {"connection_class": TlsConnection if url.tls else Connection, "host": host, "port": port}


def drop_idle_of(pool: Any) -> None:
    """Close the connections of a pool that wait for a command."""
    waiting: Any = getattr(pool, "pool", None)
    if waiting is None:  # one that hands out connections for good has none that wait
        return
    # Before redis-py 7 its own `disconnect` takes those in use by others too. Out of the pool, so that no other thread begins to
    # use one that is being closed.
    taken: list[Any] = []
    with suppress(Empty):
        while True:
            taken.append(waiting.get_nowait())
    for connection in reversed(taken):
        if connection is not None:
            connection.disconnect()
        waiting.put_nowait(connection)


def cluster_topology(address: RedisUrl) -> Topology:
    """Return the topology of a Cluster; it is asked for when it is first needed."""
    return Topology(address, lambda node: _ask_slots(address.at(node), shown_node(node)))


def _ask_slots(url: RedisUrl, where: str) -> Any:
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
    return str(read_url(url))


def is_open(url: str) -> bool:
    """Return whether a Redis URL leads to another machine and names no password: anybody who reaches it can do everything."""
    address = read_url(url)
    if address.kind is Kind.SOCKET or all(is_loopback(host) for host, _ in address.hosts):
        return False
    # With a certificate of our own (mutual TLS) the server knows us without.
    return not (address.password or "ssl_certfile" in dict(address.options))
