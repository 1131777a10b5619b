"""The fence of one connection proves about once a second that everything up to a head of the log has arrived. No I/O.

A fence reads the head of the log, then sends PING on the subscriber connection. Redis answers a connection in order, so the PONG
follows every event up to that head. A regular fence begins at a tick of the clock, or at every fifth one while the log is idle.
An expedited fence begins between two ticks, because a client waits for its subscription.

In: begin, the head, ticks, the PONG, failures. Out: the state, and `missed`, from which the feed (feed.py) concludes.
"""

from __future__ import annotations

from enum import Enum

from headgate.redis.lineage import Head
from headgate.runtime.machine import between

from .interest import Source

# From one fence to the next while no client needs anything and the log does not move.
IDLE_TICKS = 5


class FenceState(Enum):
    """The progress of a fence."""

    NONE = "none"
    EXPEDITED = "expedited"  # began since the last tick, so the next tick does not count it as late
    IN_FLIGHT = "in flight"  # the next tick counts it as late
    LATE = "late"  # at least one tick has counted it as late


MACHINE = between(
    "fence",
    {
        FenceState.NONE: (FenceState.EXPEDITED, FenceState.IN_FLIGHT),
        FenceState.EXPEDITED: (FenceState.IN_FLIGHT, FenceState.NONE),
        FenceState.IN_FLIGHT: (FenceState.LATE, FenceState.NONE),
        FenceState.LATE: (FenceState.LATE, FenceState.NONE),
    },
)


class Fence:
    """The fences of one connection, one at a time."""

    __slots__ = ("_idle_ticks", "_was", "head", "missed", "number", "position", "sources", "state")

    def __init__(self) -> None:
        self.state = FenceState.NONE
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
        self.state, self.missed, self.head, self._idle_ticks = FenceState.NONE, 0, None, IDLE_TICKS

    def is_due(self, *, is_idle: bool) -> bool:
        """Return whether to begin a fence at this tick."""
        self._idle_ticks = self._idle_ticks + 1 if is_idle and not self.missed and self.head == self._was else IDLE_TICKS
        return self._idle_ticks >= IDLE_TICKS

    def begin(self, position: int, sources: frozenset[Source], *, expedited: bool) -> None:
        """Begin a fence. Its head may be read from now on."""
        self._move(FenceState.EXPEDITED if expedited else FenceState.IN_FLIGHT)
        self.number += 1
        self._idle_ticks, self._was = 0, self.head
        self.position, self.sources, self.head = position, sources, None

    def tick(self) -> None:
        """Note a tick of the clock."""
        if self.state is not FenceState.NONE:
            self._move(FenceState.IN_FLIGHT if self.state is FenceState.EXPEDITED else FenceState.LATE)
            self.missed += self.state is FenceState.LATE

    def fail(self) -> None:
        """End the fence under way, as its head could not be read or its PING could not be sent."""
        self.missed += self.state is not FenceState.EXPEDITED  # a regular fence is due soon, and counts
        self._move(FenceState.NONE)

    def pong(self) -> None:
        """End the fence under way, as its PONG has arrived."""
        self._move(FenceState.NONE)
        self.missed = 0

    def _move(self, state: FenceState) -> None:
        self.state = MACHINE[self.state, state]
