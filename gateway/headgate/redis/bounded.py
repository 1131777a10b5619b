"""Connections of redis-py that keep within the budget of the call that uses them (budget.py). Public names of redis-py only.

In: redis-py's own arguments. Out: connections whose `connect` and `read_response` wait no longer than what is left of the
budget: for each address of the host, for each reply while connecting (AUTH, SELECT), and for the reply to a command. The system
resolves names, and has limits of its own for that.
"""

from __future__ import annotations

from typing import Any

import redis

from .budget import left_s, wait_s


class Bounded:
    """What the three kinds of connection share."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._longest_connect_s: float = options["socket_connect_timeout"]
        self._longest_read_s: float = options["socket_timeout"]
        self._is_open = False

    def connect(self) -> None:
        """Connect, unless it is connected. Raises redis.TimeoutError when there is no time left."""
        if self._is_open:
            super().connect()  # type: ignore[misc]
            return
        left = left_s()
        if left is not None:
            if left <= 0:
                raise redis.TimeoutError("no time left to connect")
            untyped: Any = self
            untyped.socket_connect_timeout = min(self._longest_connect_s, left)
        self._find_server()
        super().connect()  # type: ignore[misc]
        if self.can_read(0):  # type: ignore[attr-defined]
            # Redis speaks first only to refuse (too many clients, protected mode): that is raised here. All else is no Redis.
            self.read_response()
            raise redis.InvalidResponse("it speaks first")
        self._is_open = True

    def disconnect(self, *args: Any, **options: Any) -> None:
        """Close the connection; a later `connect` opens a new one."""
        self._is_open = False
        super().disconnect(*args, **options)  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Return the next reply. Raises redis.TimeoutError when it has not begun within the budget."""
        wait = wait_s(self._longest_read_s)
        if wait is not None and not self.can_read(wait):  # type: ignore[attr-defined]
            self.disconnect()
            raise redis.TimeoutError("no time left for the reply")
        return super().read_response(*args, **options)  # type: ignore[misc]

    def _find_server(self) -> None:
        """Set host and port, where they are not known before."""


class Connection(Bounded, redis.Connection):
    """Over TCP."""


class TlsConnection(Bounded, redis.SSLConnection):
    """Over TLS."""


class SocketConnection(Bounded, redis.UnixDomainSocketConnection):
    """Over a Unix socket."""
