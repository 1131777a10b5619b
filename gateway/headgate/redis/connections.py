"""Connections to Redis from a URL, without the retries and options that redis-py would add, and commands to one server.

In: a RedisUrl. Out: a pool of connections, which subscriber_link.py uses too; replies as redis-py shapes them, or errors of our
tree. client.py offers the calls to other files, and cluster_client.py uses them for each node of a Cluster. For a URL that names
nodes of a Cluster: its topology, which asks a node over a separate connection.

A connection never retries by itself, so nothing is written twice without the caller's knowledge. It runs no health checks, and
speaks RESP2 in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import redis
import redis.exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.errors import BusUnavailable, HeadgateError
from headgate.runtime.histogram import Histogram
from headgate.settings.addresses.origins import is_loopback
from headgate.settings.addresses.redis_url import RedisKind, RedisUrl, read_url, shown_node

from . import cluster
from .bounded import Connection, NewestReceipts, SocketConnection, TlsConnection
from .budget import left_s, renew
from .cluster import ASK_TIMEOUT_S, Topology, shown_command
from .faults import FAULTS, shown_cause, translate
from .pool import Pool
from .primary_switch import UNKNOWN, switch_of
from .sentinel import discovery_of

Command = Sequence[str | bytes | int]


def connection_pool(url: RedisUrl, timeout_s: float, newest: NewestReceipts | None = None, **options: Any) -> Pool:
    """Return a pool of connections to a server, or to the primary that Sentinels name. Each connection reports `newest`."""
    return Pool(
        switch=None if url.kind is RedisKind.NODE else switch_of(url),
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
        **_place(url),
        **{name: value for name, value in url.options if url.tls or not name.startswith("ssl_")},
        **options,
    )


def _place(url: RedisUrl) -> dict[str, Any]:
    """Return the address and the class of the connections of a pool."""
    if url.kind is RedisKind.SOCKET:
        return {"connection_class": SocketConnection, "path": url.path}
    if url.kind is RedisKind.SENTINELS:
        return {"connection_class": TlsConnection if url.tls else Connection, "discovery": discovery_of(url)}
    ((host, port),) = url.hosts
    return {"connection_class": TlsConnection if url.tls else Connection, "host": host, "port": port}


# Round trips of this process to all servers, until the reply was read or the caller gave up.
ROUND_TRIPS = Histogram()
# redis-py does not shape the replies of these commands. So they bypass its layers, which would double the time of a publish
# (docs/decisions/0062).
PASSED_ON = frozenset({"FCALL", "FCALL_RO", "WAIT", "WAITAOF"})
# The time of these commands only measures how long nothing happened.
_WAITING = frozenset({"XREAD", "WAIT", "WAITAOF"})


def open_server(
    url: RedisUrl, timeout_s: float, max_connections: int, newest: NewestReceipts | None = None, wait_s: float | None = None
) -> redis.Redis:
    """Return a client of one server; it connects at its first command. See `client.open_client`."""
    limits = {"max_connections": max_connections, "timeout": timeout_s if wait_s is None else wait_s}
    pool = connection_pool(url, timeout_s, newest, **limits)
    return redis.Redis.from_pool(pool)  # unlike the constructor, its close() closes the pool too


def open_beside(client: redis.Redis, host: str, port: int) -> redis.Redis:
    """Return a client of another server with the credentials and options of a client, for a single question.

    It waits at most ASK_TIMEOUT_S for an answer, because the server may be unreachable.
    """
    pool = client.connection_pool
    options = {name: value for name, value in pool.connection_kwargs.items() if name not in ("path", "discovery", "switch")}
    options |= {"host": host, "port": port, "socket_timeout": ASK_TIMEOUT_S, "socket_connect_timeout": ASK_TIMEOUT_S}
    kind = TlsConnection if issubclass(pool.connection_class, redis.SSLConnection) else Connection
    return redis.Redis.from_pool(Pool(connection_class=kind, **options))


def execute(client: redis.Redis, *command: str | bytes | int, **options: Any) -> Any:
    """Run one command and return its reply. `options` control how redis-py shapes it.

    Raises redis.RedisError, OSError: as redis-py does.
    """
    untyped: Any = client
    began_s = perf_counter()
    try:
        if command[0] in PASSED_ON:
            [reply] = _round_trip(client, (command,))
            if isinstance(reply, redis.RedisError):
                raise reply
            return reply
        return untyped.execute_command(*command, **options)
    finally:
        _record(began_s, command)


def run(client: redis.Redis, *command: str | bytes | int, **options: Any) -> Any:
    """Run one command and return its reply, as `execute` does. Raises as `client.call`."""
    try:
        return execute(client, *command, **options)
    except FAULTS as error:
        raise failed(client, error, command) from shown_cause(error)


def exchange(client: redis.Redis, commands: Sequence[Command], *, shaped: bool = True) -> list[Any]:
    """Run commands in one round trip, without a transaction. Return a reply, or redis-py's error, for each in order.

    Without `shaped` the replies are as Redis sends them. Raises BusUnavailable: the connection broke. It is unknown which
    commands ran.
    """
    began_s = perf_counter()
    try:
        if not shaped or all(command[0] in PASSED_ON for command in commands):
            return _round_trip(client, commands)
        pipeline: Any = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute(raise_on_error=False))
    except FAULTS as error:
        raise failed(client, error) from shown_cause(error)
    finally:
        _record(began_s, *commands[-1:])


def _round_trip(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Run commands without shaping. Return a reply, or redis-py's error, for each in order.

    Any interruption closes the connection, so that no late reply is mistaken for the reply to the next command. Raises
    redis.RedisError, OSError: the connection broke, or there was no answer in time. It is unknown which commands ran. A last
    command that only waits for the others is not unknown: its reply is the error.
    """
    pool: Any = client.connection_pool  # redis-py does not type what follows
    connection = pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        replies: list[Any] = []
        is_batch = len(commands) > 1 and commands[1][0] not in _WAITING
        while len(replies) < len(commands):
            command = commands[len(replies)]
            if is_batch:
                renew()
            if command[0] in _WAITING:  # for replicas or the disk, at times longer than the caller
                left = left_s()
                if not connection.can_read(max(left or 0.0, 0.0)) and replies and left is not None:
                    connection.disconnect()
                    replies.append(redis.TimeoutError("no time left for the reply"))  # the commands before it have theirs
                    break
            try:
                replies.append(connection.read_response())
            except redis.ResponseError as error:
                replies.append(error)
            # What came with it needs neither time nor redis-py's layers, which take most of the time of a short reply.
            if missing := len(commands) - len(replies):
                replies += connection.ready(missing)
        return replies
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


def check_primary(client: redis.Redis) -> None:
    """Ask where the address leads, if the last answer is too old (bounded.py)."""
    pool: Any = client.connection_pool
    try:
        pool.release(pool.get_connection())
    except FAULTS as error:
        raise failed(client, error) from shown_cause(error)


def drop_idle(client: redis.Redis) -> None:
    """Close the idle connections."""
    pool: Any = client.connection_pool
    pool.drop_idle()


def address_of(client: redis.Redis) -> str:
    """Return the address of a client's server, without user and password."""
    discovery = client.connection_pool.connection_kwargs.get("discovery")
    return shown_address(client.connection_pool) if discovery is None else str(discovery.address)


def shown_address(pool: redis.ConnectionPool) -> str:
    """Return the address of a pool's server for errors, with the primary that the Sentinels name."""
    kwargs = pool.connection_kwargs
    if (discovery := kwargs.get("discovery")) is not None:
        return str(discovery.shown())
    return str(kwargs.get("path") or shown_node((kwargs["host"], kwargs["port"])))


def failed(client: redis.Redis, error: Exception, command: Command = ()) -> HeadgateError:
    """Translate an error of a client, or of a command. After a broken connection or a demoted primary, close idle ones too."""
    pool = client.connection_pool
    translated = translate_at(pool, error, shown_command(command) if command else "")
    if isinstance(translated, BusUnavailable) or isinstance(error, redis.exceptions.ReadOnlyError):
        drop_idle(client)
        if (switch := pool.connection_kwargs.get("switch")) is not None:
            switch.doubt()
    return translated


def translate_at(pool: redis.ConnectionPool, error: Exception, asked: str = "") -> HeadgateError:
    """Translate an error of a pool's connection, with the remedy for an address where Redis has answered before, or never."""
    switch = pool.connection_kwargs.get("switch")
    # With Sentinels the switch knows the server before it has answered.
    has_answered = switch is not None and "discovery" not in pool.connection_kwargs and switch.server != UNKNOWN
    tls = issubclass(pool.connection_class, redis.SSLConnection)
    return translate(error, shown_address(pool), asked, tls=tls, has_answered=has_answered)


def _record(began_s: float, *last: Command) -> None:
    """Record a round trip that ends now. `last` is its last command."""
    if last and last[0][0] not in _WAITING:
        ROUND_TRIPS.record(perf_counter() - began_s)


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
    except FAULTS as error:
        tls = isinstance(connection, redis.SSLConnection)
        raise translate(error, where, tls=tls) from shown_cause(error)
    finally:
        connection.disconnect()


def redacted_address(url: str) -> str:
    """Return the address in a Redis URL without user, password and options, for logs and errors."""
    return str(read_url(url))


def is_open(url: str) -> bool:
    """Return whether a Redis URL leads to another machine without a password, so that anyone who reaches it has every right."""
    address = read_url(url)
    if address.kind is RedisKind.SOCKET or all(is_loopback(host) for host, _ in address.hosts):
        return False
    # A client certificate (mutual TLS) identifies us without a password.
    return not (address.password or "ssl_certfile" in dict(address.options))
