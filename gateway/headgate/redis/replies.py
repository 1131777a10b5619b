"""Reads replies with hiredis, as redis-py's `parser_class`.

In: an open connection of redis-py. Out: replies, and whether there is more to read. Each use of a connection checks this, so
that a stray reply is never read as the next command's. redis-py's class checks with a new poll, which takes 15 to 35 µs under
gevent, longer than the rest of a command, and the limit of a reply in many pieces counts for each piece there. This one takes
what has arrived (docs/decisions/0062-public-redis-py-only.md).
"""

from __future__ import annotations

from typing import Any

import hiredis
import redis
from redis.connection import DefaultParser

from .budget import check_left
from .faults import NOTHING_YET

CLOSED = "Connection closed by server."


class Replies:
    """See the module. The names and arguments of its methods are redis-py's."""

    def __init__(self, socket_read_size: int) -> None:
        self._read_bytes, self._buffer = socket_read_size, bytearray()
        self._sock: Any = None
        self._reader: Any = None

    def on_connect(self, connection: Any) -> None:
        """Begin with a new connection. `_sock` is private to redis-py; tests/contract/test_redis_py_corners.py pins it."""
        self._sock, self._buffer, connection.ready = connection._sock, bytearray(self._read_bytes), self.ready
        self._reader = hiredis.Reader(protocolError=redis.InvalidResponse, replyError=DefaultParser.parse_error)

    def on_disconnect(self) -> None:
        """Forget the connection."""
        self._sock, self._reader, self._buffer = None, None, bytearray()

    def can_read(self, timeout: float | None = 0) -> bool:
        """Return whether there is a reply, or the end, within `timeout` seconds, or now. Only a timeout may wait.

        Raises redis.ConnectionError, OSError: the connection is closed or broken.
        """
        sock, reader = self._sock, self._reader
        if reader is None:
            raise redis.ConnectionError(CLOSED)
        if reader.has_data():
            return True
        timeout_s = sock.gettimeout()
        sock.settimeout(timeout)
        try:
            size = sock.recv_into(self._buffer)
        except NOTHING_YET:
            return False
        finally:
            sock.settimeout(timeout_s)
        reader.feed(self._buffer, 0, size)  # nothing at the end
        return True

    def read_response(self, **_: object) -> Any:
        """Return the next reply, or the error in it. Waits for it.

        Raises:
            redis.ConnectionError: the connection is closed, or the reply says that Redis cannot serve now.
            redis.InvalidResponse: it is not a reply.
            OSError: the connection broke, or nothing came in time, or the rest of a reply not within the budget.
        """
        sock, reader = self._sock, self._reader
        if reader is None:
            raise redis.ConnectionError(CLOSED)
        reply = reader.gets()
        while reply is False:
            size = sock.recv_into(self._buffer)
            if not size:
                raise redis.ConnectionError(CLOSED)
            reader.feed(self._buffer, 0, size)
            reply = reader.gets()
            if reply is False:
                check_left()
        try:
            return _checked(reply)
        finally:
            del reply  # this frame is in the traceback of an error, so it would be a cycle

    def ready(self, most: int) -> list[Any]:
        """Return the replies that have arrived as a whole, at most so many, with errors in their places. Never waits.

        Raises redis.ConnectionError, redis.InvalidResponse as `read_response`.
        """
        reader, replies, reply = self._reader, list[Any](), None
        try:
            while len(replies) < most and reader is not None and (reply := reader.gets()) is not False:
                replies.append(reply if type(reply) is bytes else _checked(reply))
            return replies
        finally:
            del reply  # as above


def _checked(reply: Any) -> Any:
    """Return a reply, unless it says that Redis cannot serve now."""
    first = reply[0] if type(reply) is list and reply else reply
    if isinstance(first, redis.ConnectionError):
        try:
            raise first
        finally:
            del first, reply  # as above
    return reply
