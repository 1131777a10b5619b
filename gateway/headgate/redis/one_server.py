"""Commands to one Redis server, over a pool of connections: a reply, or an error of our tree.

In: a plain URL, or one that names Sentinels. Out: replies as redis-py shapes them. client.py offers these calls to other files,
and cluster_client.py uses them for each node of a Cluster.

There are no hidden retries, so nothing is written twice without the caller's knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import redis
import redis.exceptions

from headgate.errors import BusUnavailable, HeadgateError
from headgate.runtime.histogram import Histogram
from headgate.settings.addresses.redis_url import RedisUrl, shown_node

from .bounded import Connection, TlsConnection
from .budget import left_s, renew
from .cluster import ASK_TIMEOUT_S
from .connections import Command, connection_pool
from .faults import advised, shown_cause, translate
from .newest import NewestReceipts
from .pool import Pool

# Round trips of this process to all servers, until the reply was read or the caller gave up.
ROUND_TRIPS = Histogram()
# redis-py does not shape the replies of these commands. So they bypass its layers, which would double the time of a publish
# (docs/decisions/0062).
PASSED_ON = frozenset({"FCALL", "FCALL_RO", "WAIT", "WAITAOF"})
# The time of these commands only measures how long nothing happened.
_WAITING = frozenset({"XREAD", "WAIT", "WAITAOF"})


def open_server(url: RedisUrl, timeout_s: float, max_connections: int, newest: NewestReceipts | None = None) -> redis.Redis:
    """Return a client of one server; it connects at its first command."""
    limits = {"max_connections": max_connections, "timeout": timeout_s}
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

    Raises:
        redis.RedisError, OSError: as redis-py does.
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
    except (redis.RedisError, OSError) as error:
        raise failed(client, error) from shown_cause(error)


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
    except (redis.RedisError, OSError) as error:
        raise failed(client, error) from shown_cause(error)
    finally:
        _record(began_s, *commands[-1:])


def _round_trip(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Run commands without shaping. Return a reply, or redis-py's error, for each in order.

    Any interruption closes the connection, so that no late reply is mistaken for the reply to the next command. Raises
    redis.RedisError, OSError: the connection broke, or there was no answer in time. It is unknown which commands ran.
    """
    pool: Any = client.connection_pool  # redis-py does not type what follows
    connection = pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        replies: list[Any] = []
        is_batch = len(commands) > 1 and commands[1][0] not in _WAITING
        for command in commands:
            if is_batch:
                renew()
            if command[0] in _WAITING:
                connection.can_read(max(left_s() or 0.0, 0.0))  # these wait for replicas or the disk
            try:
                replies.append(connection.read_response())
            except redis.ResponseError as error:
                replies.append(error)
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
    except (redis.RedisError, OSError) as error:
        raise failed(client, error) from shown_cause(error)


def drop_idle(client: redis.Redis) -> None:
    """Close the idle connections."""
    pool: Any = client.connection_pool
    pool.drop_idle()


def address_of(client: redis.Redis) -> str:
    """Return the address of a client's server, without user and password."""
    kwargs = client.connection_pool.connection_kwargs
    if (discovery := kwargs.get("discovery")) is not None:
        return str(discovery.address)
    return str(kwargs.get("path") or shown_node((kwargs["host"], kwargs["port"])))


def failed(client: redis.Redis, error: Exception) -> HeadgateError:
    """Translate an error of a client. After a broken connection or a demoted primary, close the idle connections too."""
    pool = client.connection_pool
    translated = translate(error, address_of(client))
    if isinstance(translated, BusUnavailable) or isinstance(error, redis.exceptions.ReadOnlyError):
        drop_idle(client)
        if (switch := pool.connection_kwargs.get("switch")) is not None:
            switch.doubt()
    return advised(translated, error, tls=issubclass(pool.connection_class, redis.SSLConnection))


def _record(began_s: float, *last: Command) -> None:
    """Record a round trip that ends now. `last` is its last command."""
    if last and last[0][0] not in _WAITING:
        ROUND_TRIPS.record(perf_counter() - began_s)
