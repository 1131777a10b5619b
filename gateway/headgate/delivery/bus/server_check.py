"""The server check of one namespace: the feed listens to one Redis server, which is a primary. No I/O.

One address may lead to two servers, after a failover or when a name changes its target. Messages of one server prove
nothing about the log of the other. So every head names its Redis process, and states whether it is a primary.
The connections notice a changed target by themselves (redis/primary_switch.py). Until all have, this check is the proof.

In: each head, for any caller, and each new connection. Out: the fault for which the feed closes the connection. The
next attempt opens all connections again.
"""

from __future__ import annotations

from headgate.errors import BusUnavailable
from headgate.redis.entries import Head


class ServerCheck:
    """The server of one connection at a time.

    Attributes:
        server: the token of the Redis process at the other end of this connection; "" until it is known.
    """

    __slots__ = ("server",)

    def __init__(self) -> None:
        self.server = ""

    def reset(self) -> None:
        """Begin with a new connection, which may lead to another server."""
        self.server = ""

    def fault_of(self, head: Head) -> BusUnavailable | None:
        """Return why the feed must not listen to the server of a head, if so. The first head names the server."""
        if head.replica:
            return BusUnavailable("the address leads to a replica, not to a primary")
        self.server = self.server or head.server
        if head.server not in ("", self.server):  # an older library does not name its server
            return BusUnavailable("the address leads to another Redis server than a moment ago")
        return None
