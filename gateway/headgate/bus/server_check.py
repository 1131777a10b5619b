"""The server check of one namespace: the feed listens to one Redis server, and that is a primary. No I/O.

Two servers may stand behind one address: after a failover, or when a name leads elsewhere. Nothing that one of them sends
proves anything about the log of the other. So every head says which Redis process it is of, and whether that is a primary.
The connections themselves find out that the address leads elsewhere (redis/primary_switch.py); until all have, this is the proof.

In: each head, whoever asked for it, and each connection that begins. Out: the fault for which the feed closes the connection. The
next attempt makes all connections anew.
"""

from __future__ import annotations

from headgate.errors import BusUnavailable
from headgate.redis.entries import Head


class ServerCheck:
    """The server of one connection at a time.

    Attributes:
        server: the token of the Redis process that this connection leads to; "": not known yet.
    """

    __slots__ = ("server",)

    def __init__(self) -> None:
        self.server = ""

    def reset(self) -> None:
        """Begin with a new connection: it may lead to another server."""
        self.server = ""

    def fault_of(self, head: Head) -> BusUnavailable | None:
        """Return why the server that has a head is not the one to listen to, if so. The first head names the server."""
        if head.replica:
            return BusUnavailable("the address leads to a replica, not to a primary")
        self.server = self.server or head.server
        if head.server not in ("", self.server):  # an older library does not say which it is
            return BusUnavailable("the address leads to another Redis server than a moment ago")
        return None
