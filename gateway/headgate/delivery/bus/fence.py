"""The fence of one connection proves about once a second that everything up to a head of the log has arrived. No I/O.

A fence reads the head of the log, then sends PING on the subscriber connection. Redis answers a connection in order, so the PONG
follows every event up to that head. A regular fence begins at a tick of the clock, or at every fifth one while the log is idle.
An expedited fence begins between two ticks, because a client waits for its subscription.

In: begin, the head, ticks, the PONG, failures. Out: whether one is `under_way`, and `missed`, from which the feed (feed.py)
concludes.
"""

from __future__ import annotations

from headgate.redis.lineage import Head

from .interest import Source

# From one fence to the next while no client needs anything and the log does not move.
IDLE_TICKS = 5


class Fence:
    """The fences of one connection, one at a time."""

    __slots__ = ("_idle_ticks", "_was", "head", "is_fresh", "missed", "number", "position", "sources", "under_way")

    def __init__(self) -> None:
        self.under_way = False
        self.is_fresh = False  # it is expedited and began since the last tick, so the next tick does not count it as late
        self.number = 0  # of the last fence
        self.missed = 0  # ticks in a row without a proof
        self.position = 0  # of the feed when the fence began, before its head was read
        self.sources: frozenset[Source] = frozenset()  # that Redis had acknowledged by then
        self.head: Head | None = None  # that it proves; None until it has been read
        self._was: Head | None = None
        self._idle_ticks = IDLE_TICKS

    @property
    def token(self) -> bytes:
        """The text of the PING, which the PONG repeats."""
        return b"fence %d" % self.number

    def reset(self) -> None:
        """Begin with a new connection. Numbers continue, so an answer to the old connection matches no fence of the new one."""
        self.under_way, self.missed, self.head, self._idle_ticks = False, 0, None, IDLE_TICKS

    def is_due(self, *, is_idle: bool) -> bool:
        """Return whether to begin a fence at this tick."""
        self._idle_ticks = self._idle_ticks + 1 if is_idle and not self.missed and self.head == self._was else IDLE_TICKS
        return self._idle_ticks >= IDLE_TICKS

    def begin(self, position: int, sources: frozenset[Source], *, expedited: bool) -> None:
        """Begin a fence. Its head may be read from now on."""
        self.under_way, self.is_fresh = True, expedited
        self.number += 1
        self._idle_ticks, self._was = 0, self.head
        self.position, self.sources, self.head = position, sources, None

    def tick(self) -> None:
        """Note a tick of the clock. The fence under way is late unless it is fresh."""
        self.missed += self.under_way and not self.is_fresh
        self.is_fresh = False

    def fail(self) -> None:
        """End the fence under way, as its head could not be read or its PING could not be sent."""
        self.missed += not self.is_fresh  # a regular fence is due soon, and counts
        self.under_way = False

    def pong(self) -> None:
        """End the fence under way, as its PONG has arrived."""
        self.under_way, self.missed = False, 0
