"""The client for commands to Redis: a small pool of connections, and calls that speak this project's errors.

Threads and greenlets may share a client, as each command borrows a connection of its own; still give every role (log reader,
fence, publisher) its own client, so that one role's stall is not another's. Run commands through `call` and `call_many`. There
are no hidden retries, so nothing is written twice behind the caller's back. Never kill a greenlet inside a call.

No message of any error holds a URL's password: they are built from host, port and path, and from what Redis answered. An error
of connecting has a note (PEP 678) that says what to do.
This file imports no gevent; in a patched process its sockets are cooperative, in others they block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import redis
import redis.exceptions

from headgate.errors import BusRefused, BusUnavailable, HeadgateError

from .connections import Command, connection_pool, redacted_address
from .faults import NEEDED, NO_MEMORY, NO_PERMISSION, advised, refused, shown_cause, translate

Client = redis.Redis

MAX_CONNECTIONS = 16


def open_client(url: str, *, timeout_s: float = 5.0, max_connections: int = MAX_CONNECTIONS) -> Client:
    """Return a client for commands; it connects at its first command.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        timeout_s: limit on connecting, on each command, and on waiting for a free connection of the pool.
        max_connections: bound of the pool; one more command waits.

    Raises:
        BusRefused: `url` is not a Redis URL.
    """
    pool = connection_pool(url, timeout_s, redis.BlockingConnectionPool, max_connections=max_connections, timeout=timeout_s)
    return redis.Redis.from_pool(pool)  # unlike the constructor: its close() closes the pool too


def call(client: Client, *command: str | bytes | int) -> Any:
    """Run one command and return its reply as redis-py shapes it (INFO and HGETALL: a dict; XRANGE: pairs); text is bytes.

    Raises:
        BusUnavailable: no answer, or a broken one: whether the command ran is not known. Or Redis says to try later.
        BusRefused: Redis answered and will not do it.
        HeadgateError: what log.lua refused, as the class of errors.py that it names.
    """
    try:
        return _untyped(client).execute_command(*command)
    except (redis.RedisError, OSError) as error:
        raise _after(client, error) from shown_cause(error)


def call_many(client: Client, commands: Iterable[Command]) -> list[Any]:
    """Run commands in one round trip, no transaction; return a reply, or the error (a HeadgateError), for each in order.

    Raises:
        BusUnavailable: the connection broke: which commands ran is not known.
    """
    try:
        pipeline: Any = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies = pipeline.execute(raise_on_error=False)
    except (redis.RedisError, OSError) as error:
        raise _after(client, error) from shown_cause(error)
    return [translate(reply) if isinstance(reply, Exception) else reply for reply in replies]


def database(client: Client) -> str:
    """Return which database a client talks to, such as `localhost:6379/0`, without user and password."""
    return f"{_address_of(client)}/{client.connection_pool.connection_kwargs.get('db') or 0}"


def drop_idle(client: Client) -> None:
    """Close the connections that wait for a command: after a fault elsewhere they are doubtful, and waiting on one costs time."""
    pool: Any = client.connection_pool  # before redis-py 7 its own `disconnect` takes those in use by others too
    for connection in [idle for idle in pool.pool.queue if idle is not None]:
        connection.disconnect()


def is_forbidden(error: BusRefused) -> bool:
    """Return whether Redis refused for want of a right, which the same user will not have in a moment either."""
    return error.redis_code == NO_PERMISSION


def is_full(error: BusRefused) -> bool:
    """Return whether Redis refused because it is at its `maxmemory`."""
    return error.redis_code == NO_MEMORY


def check_server(client: Client) -> tuple[str, str]:
    """Return (name, version) of the server, such as ("Redis", "7.0.15") or ("Valkey", "9.1.2").

    Raises:
        BusRefused: too old, wrong password, or not Redis at all, in one line that names what was found and needed.
        BusUnavailable: nothing answers there.
    """
    reply = call(client, "INFO", "server")
    if not isinstance(reply, dict) or "redis_version" not in reply:
        raise refused(f"what answers at {_address_of(client)} is not Redis; needed: {NEEDED}")
    if "valkey_version" in reply:
        return "Valkey", str(reply["valkey_version"])
    version = str(reply["redis_version"])
    if not is_new_enough(version):
        raise refused(f"Redis {version} at {_address_of(client)} is too old; needed: {NEEDED}")
    return "Redis", version


def describe_server(url: str) -> str:
    """Return what answers at a URL, such as `Redis 7.0.15 at localhost:6379`.

    Raises:
        BusUnavailable, BusRefused: as `check_server`; also when `url` is not a Redis URL.
    """
    client = open_client(url, max_connections=1)
    try:
        name, version = check_server(client)
    finally:
        client.close()
    return f"{name} {version} at {redacted_address(url)}"


def is_new_enough(version: str) -> bool:
    """Return whether a Redis version such as `7.0.15` has what Headgate needs (functions: 7.0)."""
    major = re.match(r"\d+", version)
    return major is not None and int(major[0]) >= 7


def _untyped(client: Client) -> Any:
    return client


def _address_of(client: Client) -> str:
    kwargs = client.connection_pool.connection_kwargs
    if (discovery := kwargs.get("discovery")) is not None:
        return str(discovery.address)
    return str(kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}")


def _after(client: Client, error: Exception) -> HeadgateError:
    """Translate an error of a client; after a broken connection or a demoted primary the idle ones are doubtful too."""
    pool = client.connection_pool
    translated = translate(error, _address_of(client))
    if isinstance(translated, BusUnavailable) or isinstance(error, redis.exceptions.ReadOnlyError):
        drop_idle(client)
    return advised(translated, error, tls=issubclass(pool.connection_class, redis.SSLConnection))
