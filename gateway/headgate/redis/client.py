"""The link to Redis: the one file, with faults.py, that imports redis and hiredis.

Two kinds of connection, and nothing else talks to Redis:

- `open_client` for commands: a small pool without hidden retries, so that nothing is written twice behind the caller's
  back. Threads and greenlets may share it, as each command borrows a connection of its own; still give every role (log
  reader, fence, publisher) its own client, so that one role's stall is not another's. Run commands through `call` and
  `call_many`: they speak this project's errors. Never kill a greenlet inside a call.
- `SubscriberLink` for Pub/Sub: one connection that is never replaced silently. When it breaks, its owner is told, and
  reads the log from the last offset that it is sure of.

No message of any error holds a URL's password: they are built from host, port and path, and from what Redis answered. An error
of connecting has a note (PEP 678) that says what to do.
This file imports no gevent; in a patched process its sockets are cooperative, in others they block.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
import redis.connection
import redis.exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.settings import is_loopback

from .faults import CHECK_PORT, NEEDED, NO_PERMISSION, advised, reason_of, refused, shown_cause, translate, unavailable

Client = redis.Redis
Command = Sequence[str | bytes | int]

READ_BYTES = 256 * 1024
# A reply is held in memory until it is whole; Redis itself would pass on 512 MB. Above this the link is broken instead.
MAX_REPLY_BYTES = 64 * 1024 * 1024
MAX_CONNECTIONS = 16

# No CLIENT SETINFO: two commands less per connection, and one right less to grant. The option has another name before redis-py 8.
_ANONYMOUS_DRIVER: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(redis.connection.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
# Options that redis-py 7 and newer set for a URL that asks for RESP3, which we do not speak.
_MAINTENANCE = ("maint_notifications_config", "maint_notifications_pool_handler")


def open_client(url: str, *, timeout_s: float = 5.0, max_connections: int = MAX_CONNECTIONS) -> Client:
    """Return a client for commands; it connects at its first command.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        timeout_s: limit on connecting, on each command, and on waiting for a free connection of the pool.
        max_connections: bound of the pool; one more command waits.

    Raises:
        BusRefused: `url` is not a Redis URL.
    """
    pool = _connection_pool(url, timeout_s, redis.BlockingConnectionPool, max_connections=max_connections, timeout=timeout_s)
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


def redacted_address(url: str) -> str:
    """Return where a Redis URL points to, without user, password and options: what may stand in a log or an error."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def is_open(url: str) -> bool:
    """Return whether a Redis URL leads to another machine and names no password: whoever reaches that Redis can do everything."""
    parts = urlsplit(url)
    if parts.scheme == "unix" or is_loopback(parts.hostname or "localhost"):
        return False
    # With a certificate of our own (mutual TLS) the server knows us without.
    options = parse_qs(parts.query)
    return not (parts.password or "password" in options or "ssl_certfile" in options)


class SubscriberLink:
    """One Pub/Sub connection: it connects once, never reconnects, and says so when it breaks.

    Owned by one greenlet or thread, which alone calls `connect` and `read`; any other may `send` (one at a time) and `close`.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        connect_timeout_s: limit on connecting, authentication included; afterwards `settimeout` counts (none at first).
    """

    def __init__(self, url: str, connect_timeout_s: float = 5.0) -> None:
        self._url, self._connect_timeout_s = url, connect_timeout_s
        self._address = redacted_address(url)
        self._socket: socket.socket | None = None
        import hiredis  # only here: a process that only publishes need not have it

        self._pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub knows only tuples of one type
        self._reader: Any = hiredis.Reader(protocolError=_BrokenReply, replyError=_ErrorReply)
        self._buffer = bytearray(READ_BYTES)
        self._unfinished_bytes = 0

    def connect(self) -> None:
        """Connect, once in this object's life. May wait up to `connect_timeout_s`.

        Raises:
            BusUnavailable: nothing answers, or not in time.
            BusRefused: wrong password, no permission, or a URL that is none.
        """
        connection: Any = _connection_pool(self._url, self._connect_timeout_s).make_connection()
        try:
            connection.connect()
        except (redis.RedisError, OSError) as error:
            tls = isinstance(connection, redis.SSLConnection)
            raise advised(translate(error, self._address), error, tls=tls) from shown_cause(error)
        # redis-py connects (address, TLS, AUTH, SELECT); from here on the socket is ours alone, so that nothing can
        # reconnect it, time it out or read from it. tests/contract/test_redis_py_corners.py holds this corner.
        self._socket, connection._sock = connection._sock, None
        self._socket.settimeout(None)

    def send(self, *commands: Command) -> None:
        """Write commands such as ("SUBSCRIBE", channel) or ("PING", token) in one piece. Their replies come from `read`.

        Raises:
            BusUnavailable: the connection is broken or closed.
        """
        packed = b"".join(self._pack(tuple(command)) for command in commands)
        try:
            self._open_socket().sendall(packed)
        except OSError as error:
            raise self._broken(error) from error

    def read(self) -> list[Any]:
        """Wait for a reply, then return all that have arrived, in order: lists of bytes and integers (RESP2).

        In subscribe mode these are [b"message", channel, data], [b"pmessage", pattern, channel, data],
        [b"subscribe", channel, count], [b"pong", token] and the like.

        Raises:
            BusUnavailable: end of stream, reset, the timeout of `settimeout`, a reply that is none or is too large, or `close`.
            BusRefused: Redis answered a command with an error. Replies that came before it in the same read are lost
                with it, so treat the link as broken.
        """
        while True:
            replies = self._receive(self._open_socket())
            if replies:
                return replies

    def read_ready(self) -> list[Any]:
        """Return the replies that have arrived, without waiting: none, if none has. Call it where `read` is called.

        Raises:
            BusUnavailable, BusRefused: as `read`.
        """
        sock = self._open_socket()
        timeout_s = sock.gettimeout()
        sock.settimeout(0.0)
        try:
            return self._receive(sock)
        except BlockingIOError:
            return []
        finally:
            if self._socket is sock:
                sock.settimeout(timeout_s)

    def _receive(self, sock: socket.socket) -> list[Any]:
        """Return what one recv completes: possibly nothing."""
        try:
            size = sock.recv_into(self._buffer)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._broken(error) from error
        if not size:
            raise unavailable(f"{self._address} closed the connection")
        self._reader.feed(self._buffer, 0, size)
        replies: list[Any] = []
        gets = self._reader.gets
        try:
            while (reply := gets()) is not False:
                replies.append(reply)
        except _BrokenReply as error:
            broken = unavailable(f"{self._address} sent something that is not a Redis reply")
            broken.add_note(CHECK_PORT)
            raise broken from error
        if not replies:
            self._unfinished_bytes += size
            if self._unfinished_bytes > MAX_REPLY_BYTES:
                raise unavailable(f"{self._address} sent a reply larger than {MAX_REPLY_BYTES} bytes")
            return replies
        self._unfinished_bytes = 0
        for reply in replies:
            if isinstance(reply, _ErrorReply):
                refusal = redis.ResponseError(str(reply))
                raise advised(translate(refusal, self._address), refusal, tls=False)
        return replies

    def settimeout(self, timeout_s: float | None) -> None:
        """Limit each wait of `read` and `send`; None waits for ever. A read that timed out may be repeated."""
        self._open_socket().settimeout(timeout_s)

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._open_socket().fileno()

    def close(self) -> None:
        """Close the connection and wake whoever waits in `read`; idempotent, from any greenlet or thread."""
        sock, self._socket = self._socket, None
        if sock is None:
            return
        with suppress(OSError):  # the other end may have been faster
            sock.shutdown(socket.SHUT_RDWR)  # close() alone would not wake a thread that is inside recv
        sock.close()

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise unavailable(f"the connection to {self._address} is closed")
        return self._socket

    def _broken(self, error: OSError) -> BusUnavailable:
        if self._socket is None:
            return unavailable(f"the connection to {self._address} was closed")
        if isinstance(error, TimeoutError):
            return unavailable(f"{self._address} did not answer in time")
        return unavailable(f"the connection to {self._address} broke: {reason_of(error)}")


class _ErrorReply(Exception):
    """An error that Redis sent as a reply (hiredis makes them with this class)."""


class _BrokenReply(Exception):
    """Bytes that are not the Redis protocol."""


def _untyped(client: Client) -> Any:
    return client


def _connection_pool(
    url: str, timeout_s: float, kind: type[redis.ConnectionPool] = redis.ConnectionPool, **options: Any
) -> redis.ConnectionPool:
    """Return a pool that makes connections our way, whatever options the URL carries."""
    try:
        pool = kind.from_url(url, **options)
    except (ValueError, redis.RedisError) as error:
        raise BusRefused("the Redis URL is not of the form redis://host:6379/0, rediss://… or unix:///path") from error
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
    return pool


def _address_of(client: Client) -> str:
    kwargs = client.connection_pool.connection_kwargs
    return str(kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}")


def _after(client: Client, error: Exception) -> HeadgateError:
    """Translate an error of a client; after a broken connection or a demoted primary the idle ones are doubtful too."""
    pool = client.connection_pool
    translated = translate(error, _address_of(client))
    if isinstance(translated, BusUnavailable) or isinstance(error, redis.exceptions.ReadOnlyError):
        drop_idle(client)
    return advised(translated, error, tls=issubclass(pool.connection_class, redis.SSLConnection))
