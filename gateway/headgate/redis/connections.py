"""Makes connections to Redis from a URL, without the retries and options that redis-py would add.

In: a RedisUrl. Out: a pool of connections for one_server.py and subscriber_link.py. For a URL that names nodes of a Cluster:
its topology, which asks a node over a separate connection.

A connection never retries by itself, runs no health checks, and speaks RESP2 in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import redis
import redis.connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.settings.addresses.origins import is_loopback
from headgate.settings.addresses.redis_url import Kind, RedisUrl, read_url, shown_node

from . import cluster
from .bounded import Connection, SocketConnection, TlsConnection
from .cluster import Topology
from .faults import advised, shown_cause, translate
from .newest import NewestReceipts
from .pool import Pool
from .primary_switch import switch_of
from .sentinel import Discovery, SentinelConnection, SentinelTlsConnection

Command = Sequence[str | bytes | int]

# Without CLIENT SETINFO a connection sends two commands less and needs one right less. Before redis-py 8 the option has another
# name.
_ANONYMOUS_DRIVER: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in signature(redis.connection.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)


def connection_pool(
    url: RedisUrl,
    timeout_s: float,
    newest: NewestReceipts | None = None,
    **options: Any,
) -> Pool:
    """Return a pool of connections to a server, or to the primary that Sentinels name. Each connection reports `newest`."""
    return Pool(
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


def _place(url: RedisUrl) -> dict[str, Any]:
    """Return the address and the class of the connections of a pool."""
    if url.kind is Kind.SOCKET:
        return {"connection_class": SocketConnection, "path": url.path}
    if url.kind is Kind.SENTINELS:
        return {"connection_class": SentinelTlsConnection if url.tls else SentinelConnection, "discovery": Discovery(url)}
    ((host, port),) = url.hosts
    return {"connection_class": TlsConnection if url.tls else Connection, "host": host, "port": port}


def cluster_topology(address: RedisUrl) -> Topology:
    """Return the topology of a Cluster. It is read at its first use."""
    return Topology(address, lambda node: _ask_slots(address.at(node), shown_node(node)))


def _ask_slots(url: RedisUrl, where: str) -> Any:
    """Return one node's reply to CLUSTER SLOTS. Raises BusUnavailable, BusRefused: the node does not answer, or refuses."""
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
    """Return the address in a Redis URL without user, password and options, for logs and errors."""
    return str(read_url(url))


def is_open(url: str) -> bool:
    """Return whether a Redis URL leads to another machine without a password, so that anyone who reaches it has every right."""
    address = read_url(url)
    if address.kind is Kind.SOCKET or all(is_loopback(host) for host, _ in address.hosts):
        return False
    # A client certificate (mutual TLS) identifies us without a password.
    return not (address.password or "ssl_certfile" in dict(address.options))
