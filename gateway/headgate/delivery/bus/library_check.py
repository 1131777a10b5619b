"""The library check of one namespace finds the offset up to which Redis has published on the channels of users. No I/O.

The first function library does not publish there, and another program may load it at any time. A later library answers like the
first if it publishes on channels that this gateway does not know (log.lua, "Users"). In both cases the feed may miss events of
users without a hole, as its position moves past them.

In: heads (each names the library that answered), and the offsets that a fence has proved. Out: the fault for which the feed
closes its connection, and the first offset of the gap with which the next connection begins. Like the position, the verified
offset survives a connection.
"""

from __future__ import annotations

from headgate.errors import BusUnavailable
from headgate.redis.entries import Head

# The first function library that publishes on the channels of users.
BY_USER_LIBRARY = 2


class LibraryCheck:
    """See the module.

    Attributes:
        verified: the library in Redis has published on the channels of users up to this offset.
    """

    __slots__ = ("_downgraded", "verified")

    def __init__(self) -> None:
        self.verified = 0
        self._downgraded = False

    def fault_of(self, head: Head) -> BusUnavailable | None:
        """Return the fault if an older library has answered, and remember it until `gap_reported`."""
        if head.library >= BY_USER_LIBRARY:
            return None
        self._downgraded = True
        return BusUnavailable("the function library in Redis is too old, and publishes nothing on the channels of users")

    def gap_start(self, offset: int) -> int | None:
        """Return the first offset up to `offset` that the feed may have missed because an older library answered, if any."""
        return self.verified + 1 if self._downgraded and self.verified < offset else None

    def gap_reported(self, offset: int) -> None:
        """Note that the clients know the gap up to `offset`, if there was one."""
        if self._downgraded:
            self.verified = max(self.verified, offset)
        self._downgraded = False

    def roll_back(self, offset: int) -> None:
        """Note that the log has nothing of this line above `offset`."""
        self.verified = min(self.verified, offset)
