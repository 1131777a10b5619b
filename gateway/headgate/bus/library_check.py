"""The library check of one namespace: up to which offset Redis has published on every channel in use. No I/O.

An older function library does not publish on the channels of users, and another program may load it at any time. In a Cluster the
head says whether events are published on sharded channels, and another gateway may configure that away, or an older library not
know it. Events are then missing from the feed without a hole: the position moves past them.

In: heads (each names the library that answered), and the offsets that a fence has proved. Out: the fault for which the feed
closes its connection, and the first offset of the gap with which the next connection begins. The verified offset survives a
connection, as the position does.
"""

from __future__ import annotations

from headgate.errors import BusUnavailable
from headgate.redis.entries import Head

# The function library that publishes on the channels of users.
BY_USER_LIBRARY = 2


class LibraryCheck:
    """See the module.

    Args:
        sharded: whether the feed listens to sharded channels.

    Attributes:
        sharded: as above.
        verified: up to here the library in Redis publishes on all channels in use.
    """

    __slots__ = ("_downgraded", "sharded", "verified")

    def __init__(self, *, sharded: bool = False) -> None:
        self.verified = 0
        self.sharded = sharded
        self._downgraded = False

    def fault_of(self, head: Head, *, by_user: bool) -> BusUnavailable | None:
        """Return the fault of a library that does not publish on the channels in use; remember it until `told`."""
        if by_user and head.library < BY_USER_LIBRARY:
            self._downgraded = True
            return BusUnavailable("an older function library has replaced this one in Redis")
        if head.epoch and head.sharded != self.sharded:  # without a log nothing has been published
            self._downgraded = True
            return BusUnavailable(f"events are {'now' if head.sharded else 'no longer'} published on sharded channels")
        return None

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
