"""One round trip on a connection of redis-py's pool: packed commands out, their replies in. The short way of what is called most.

In: commands whose replies redis-py passes on as they are (`PASSED_ON`), and a client of one server. Out: a reply, or redis-py's
error, for each in order. redis-py connects, authenticates, and keeps the pool; between taking a connection and putting it back
its socket is ours alone. redis-py's own layers took most of the time of a publish (docs/decisions/0022-trusted-append.md).

A connection goes back whole or closed: whatever stops a round trip (a timeout, a broken stream, a signal, a greenlet that is
killed) closes it, so that no late reply is taken for that of the next command. A forked child gets connections of its own.
tests/contract/test_redis_py_corners.py holds the private names of redis-py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from inspect import Parameter, signature
from queue import Empty, Full
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis._parsers.base import BaseParser

from .brief_wait import AWAKE_S, BriefWait, UnderWay
from .connections import Command

# redis-py has no callback for these: their replies are as Redis sends them.
PASSED_ON = frozenset({"FCALL", "FCALL_RO", "WAIT", "WAITAOF"})
READ_BYTES = 64 * 1024
# A batch is written in pieces of this size, so that it is not held in memory a second time.
WRITE_BYTES = 256 * 1024
# The words of a command that come again and again: `FCALL`, the function, the number of keys, the key.
NAMES = 4
# redis-py before 6 wants the name of a command, and later ones warn of it.
_FOR_COMMAND = (
    ("_",) if signature(redis.BlockingConnectionPool.get_connection).parameters["command_name"].default is Parameter.empty else ()
)
_ARRAY, _BULK, _ERROR, _INTEGER, _STATUS = b"*$-:+"
# By the pool: one for each server.
_waits: WeakKeyDictionary[Any, BriefWait] = WeakKeyDictionary()
_under_way = UnderWay()
os.register_at_fork(after_in_child=_under_way.forget)
_parse_error: Any = BaseParser.parse_error  # redis-py does not type it


def is_short(client: redis.Redis, commands: Iterable[Command]) -> bool:
    """Return whether commands can go the short way: over TLS, or where redis-py shapes the replies, they cannot."""
    if not all(command[0] in PASSED_ON for command in commands):
        return False
    pool = client.connection_pool
    return isinstance(pool, redis.BlockingConnectionPool) and not issubclass(pool.connection_class, redis.SSLConnection)


def round_trip(client: redis.Redis, commands: Iterable[Command]) -> list[Any]:
    """Run commands in one round trip, no transaction; return a reply, or redis-py's error, for each in order.

    Raises:
        redis.RedisError, OSError: the connection broke, or there was none in time: which commands ran is not known.
    """
    pieces, count = _pack(commands)
    # Untyped: these are redis-py's own names.
    pool: Any = client.connection_pool
    connection = _take(pool)
    try:
        sock = connection._sock
        if sock is None:
            raise redis.ConnectionError("the connection was closed")
        with _under_way:
            wait = _waits.get(pool) or _waits.setdefault(pool, BriefWait())
            if count == 1 and _under_way.is_alone and _is_of_this_thread(sock) and wait.begins_awake():
                return _receive(sock, 1, _ask_awake(sock, b"".join(pieces), wait))
            for piece in pieces:
                sock.sendall(piece)
            return _receive(sock, count)
    except BaseException:
        connection.disconnect()
        raise
    finally:
        _put_back(pool, connection)


def _pack(commands: Iterable[Command]) -> tuple[list[bytes], int]:
    """Return the bytes of commands in pieces, and how many commands there are."""
    pieces: list[bytes] = []
    parts: list[bytes] = []
    count = size = 0
    for command in commands:
        names, rest = _packed_names(tuple(command[:NAMES])), _packed_words(command[NAMES:])
        packed = b"*%d\r\n%b%b" % (len(command), names, rest)
        count += 1
        size += len(packed)
        parts.append(packed)
        if size > WRITE_BYTES:
            pieces.append(b"".join(parts))
            parts, size = [], 0
    return [*pieces, b"".join(parts)], count


# By the size of a word: the end of the word before it, and its own size. Formatting that took half of the time of packing.
_BETWEEN = tuple(b"\r\n$%d\r\n" % size for size in range(1024))


def _packed_words(words: Command) -> bytes:
    parts: list[bytes] = []
    for word in words:
        encoded = word if isinstance(word, bytes) else str(word).encode()
        size = len(encoded)
        parts.append(_BETWEEN[size] if size < len(_BETWEEN) else b"\r\n$%d\r\n" % size)
        parts.append(encoded)
    if parts:
        parts[0] = parts[0].removeprefix(b"\r\n")
        parts.append(b"\r\n")
    return b"".join(parts)


_packed_names = lru_cache(maxsize=1024)(_packed_words)


def _take(pool: Any) -> Any:
    """Take a connection that is ready: one that waits, if nothing has come on it, else one that redis-py makes ready."""
    pool._checkpid()
    with suppress(Empty):
        connection = pool.pool.get_nowait()
        if connection is not None and connection._sock is not None:
            if _is_quiet(connection._sock):
                return connection
            connection.disconnect()  # redis-py 8 would go on with one on which something has come
        pool.pool.put_nowait(connection)
    return pool.get_connection(*_FOR_COMMAND)


def _put_back(pool: Any, connection: Any) -> None:
    if not pool.owns_connection(connection):
        pool.release(connection)
        return
    with suppress(Full):  # as redis-py does: the pool was made anew meanwhile
        pool.pool.put_nowait(connection)


def _is_quiet(sock: socket.socket) -> bool:
    """Return whether nothing has come: neither the end of the stream nor bytes that nobody waits for."""
    try:
        timeout_s = sock.gettimeout()
        sock.settimeout(0.0)
        try:
            sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            sock.settimeout(timeout_s)
    except OSError:
        pass
    return False


def _is_of_this_thread(sock: socket.socket) -> bool:
    """Return whether a wait holds up this thread alone: where gevent has replaced sockets, it would hold up all greenlets."""
    return type(sock).__module__ == "socket"


def _ask_awake(sock: socket.socket, data: bytes, wait: BriefWait) -> bytes | None:
    """Write a command and wait for its reply without sleep, for AWAKE_S; return what has come, or None."""
    timeout_s = sock.gettimeout()
    sock.settimeout(0.0)
    answer = None
    try:
        try:
            sent = sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            give_up_s = perf_counter() + AWAKE_S
            while answer is None and _under_way.is_alone and perf_counter() < give_up_s:
                try:
                    answer = sock.recv(READ_BYTES)
                except BlockingIOError:
                    continue
    finally:
        sock.settimeout(timeout_s)
    wait.ended(in_time=answer is not None)
    if sent < len(data):
        sock.sendall(data[sent:])
    return answer


def _receive(sock: socket.socket, count: int, begun: bytes | None = None) -> list[Any]:
    """Read so many replies, and nothing behind them. `begun`: what was read before."""
    replies: list[Any] = []
    data = b""
    while True:
        more = sock.recv(READ_BYTES) if begun is None else begun
        begun = None
        if not more:
            raise redis.ConnectionError("Connection closed by server.")
        data = data + more if data else more
        at = 0
        try:
            while len(replies) < count:
                reply, at = read_reply(data, at)
                replies.append(reply)
        except _Unfinished:
            data = data[at:]
            continue
        if at < len(data):
            raise redis.InvalidResponse("bytes behind the last reply")
        return replies


def reply_error(text: bytes) -> Exception:
    """Return redis-py's error for the text of an error reply."""
    error: Exception = _parse_error(text.decode("utf-8", "replace"))
    return error


class _Unfinished(Exception):
    """The reply goes on in bytes that have not come yet."""


def read_reply(data: bytes, at: int) -> tuple[Any, int]:
    """Return the reply of RESP2 that begins at `at`, and where the next one begins. An error is returned, never raised.

    Raises:
        redis.InvalidResponse: there is no reply.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _Unfinished
    kind, text, after = data[at], data[at + 1 : end], end + 2
    if kind == _ERROR:
        return reply_error(text), after
    if kind == _STATUS:
        return text, after
    try:
        size = int(text)
    except ValueError:
        raise redis.InvalidResponse(f"no reply: {data[at:end][:80]!r}") from None
    if kind == _INTEGER:
        return size, after
    if kind == _BULK:
        if size < 0:
            return None, after
        if len(data) < after + size + 2:
            raise _Unfinished
        return data[after : after + size], after + size + 2
    if kind == _ARRAY:
        items = []
        for _ in range(size):
            item, after = read_reply(data, after)
            items.append(item)
        return (items if size >= 0 else None), after
    raise redis.InvalidResponse(f"no reply: {data[at:end][:80]!r}")
