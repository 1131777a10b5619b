"""The library check of one namespace finds the offset up to which Redis has published on the channels of users. No I/O.

The first function library does not publish there, and another program may load it at any time. A later one answers like it if
it publishes on channels that this gateway does not know (log.lua, "Users"). In both cases the feed may lack events of users
without a hole, as its position moves past them.

In: heads (each names the library that answered), and the offsets that a fence has proved. Out: the fault for which the feed
closes its connection, and the first offset of the gap with which the next connection begins. The verified offset survives a
connection, as the position does.
"""

from __future__ import annotations

from headgate.errors import BusUnavailable
from headgate.redis.entries import Head

# The first function library that publishes on the channels of users.
BY_USER_LIBRARY = 2


class LibraryCheck:
    """See the module.

    Attributes:
        verified: up to here the library in Redis publishes on the channels of users.
    """

    __slots__ = ("_downgraded", "verified")

    def __init__(self) -> None:
        self.verified = 0
        self._downgraded = False

    def fault_of(self, head: Head) -> BusUnavailable | None:
        """Return the fault of an older library that answers; remember it until `told`."""
        if head.library >= BY_USER_LIBRARY:
            return None
        self._downgraded = True
        return BusUnavailable("the function library in Redis is too old, and publishes nothing on the channels of users")

    def gap_start(self, offset: int) -> int | None:
        """Return the first offset that an older library may have kept from the feed, if one has answered. `offset`: the last."""
        return self.verified + 1 if self._downgraded and self.verified < offset else None

    def told(self, offset: int) -> None:
        """The gap up to `offset`, if there was one, has been told."""
        if self._downgraded:
            self.verified = max(self.verified, offset)
        self._downgraded = False

    def roll_back(self, offset: int) -> None:
        """The log has nothing of this line above `offset`."""
        self.verified = min(self.verified, offset)
