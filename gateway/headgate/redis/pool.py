"""The connections of one client to one server, each lent to one caller at a time. This file uses public names of redis-py only.

In: redis-py's arguments for a connection. Out: an open connection, for one command or one batch. A caller beyond
`max_connections` waits until one is returned, before any later caller.

redis-py's blocking pool counts each step for its metrics and locks twice. Threads and greenlets may share a pool. A forked
child starts without connections, and `reset_in_child` lets other parts start again there, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Condition
from time import monotonic
from typing import Any
from weakref import WeakSet

import redis

from .budget import left_s
from .faults import AllInUse

# A wait that ends later than this after its limit shows that the process did not run in between.
STOOD_STILL_S = 0.05


class Pool(redis.ConnectionPool):
    """See the module. `timeout` is the longest wait for a connection, in seconds; `max_connections` may be open.

    Attributes:
        waiting: how many callers wait for a connection.
    """

    def __init__(self, *, max_connections: int = 1, timeout: float = 1.0, **options: Any) -> None:
        self._timeout_s = timeout
        untyped: Any = super()
        untyped.__init__(max_connections=max_connections, **options)  # calls `reset`
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all connections, which belong to the parent of this process."""
        super().reset()
        # Weak, because a signal handler that raises may end a caller before it has noted the connection that it got.
        self._made = WeakSet[Any]()
        self._idle: list[Any] = []
        self.waiting = 0
        self._returned = Condition()

    def get_connection(self, *_: object, **__: object) -> Any:
        """Return an open connection. `release` must follow. May wait.

        Raises AllInUse: none was returned in time; redis.RedisError, OSError: it does not connect.
        """
        try:
            connection = self._next() if self.waiting else self._idle.pop()
        except IndexError:
            connection = self._next()
        try:
            connection.connect()
            if _is_broken(connection):
                connection.disconnect()
                connection.connect()
        except BaseException:
            self.release(connection)
            raise
        return connection

    def release(self, connection: Any) -> None:
        """Take a connection back, open or closed."""
        self._idle.append(connection)
        if self.waiting:
            with self._returned:
                self._returned.notify()

    def drop_idle(self) -> None:
        """Close the idle connections."""
        taken: list[Any] = []
        with suppress(IndexError):
            while True:
                taken.append(self._idle.pop())  # so that no other thread takes it while it closes
        for connection in reversed(taken):
            connection.disconnect()
            self.release(connection)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close all connections, or the idle ones."""
        self.drop_idle()
        for connection in list(self._made) if inuse_connections else ():
            connection.disconnect()

    def _next(self) -> Any:
        """Return a returned connection or a new one, to callers in the order in which they came.

        One with many calls would otherwise keep its connection, as it comes again before a waiter wakes. Once, time during
        which this process stood still does not count, because a reply for the caller with the connection came then.
        """
        left = left_s()
        longest_s = self._timeout_s if left is None else min(self._timeout_s, left)
        until_s, is_extended, is_over = monotonic() + longest_s, False, False
        with self._returned:
            has_turn = not self.waiting
            self.waiting += 1
            try:
                while True:
                    with suppress(IndexError):
                        if has_turn:
                            return self._idle.pop()
                    has_turn = True
                    if len(self._made) < self.max_connections:
                        connection = self.connection_class(**self.connection_kwargs)
                        self._made.add(connection)
                        return connection
                    if is_over:
                        raise AllInUse(f"all {self.max_connections} connections of this process are in use")
                    if not self._returned.wait(until_s - monotonic()):
                        late_s = monotonic() - until_s
                        is_over, is_extended = is_extended or late_s < STOOD_STILL_S, True
                        until_s = monotonic() + min(late_s, longest_s)
            finally:
                self.waiting -= 1


def _is_broken(connection: Any) -> bool:
    """Return whether an idle connection is closed or has stray bytes."""
    try:
        return bool(connection.can_read(0))
    except (redis.RedisError, OSError):
        return True


# Objects to reset in a forked child, which lacks the threads that hold their locks and connections.
_parts = WeakSet[Any]()


def reset_in_child(part: Any) -> None:
    """Call `reset` in each child forked while `part` exists."""
    _parts.add(part)


def _in_child() -> None:
    for part in list(_parts):
        part.reset()


os.register_at_fork(after_in_child=_in_child)
