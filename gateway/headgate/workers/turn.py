"""The turn: whether a worker takes the next connection of the port that all share, or leaves it to one that has fewer. No I/O.

In: the connections of this worker and of those that serve. Out: the seconds for which it leaves the port to the others. The kernel
wakes every worker for a connection, and gives it to the first that asks, which may be the same one each time. A worker above its
share waits for a moment before it asks. It takes a connection that nobody else has taken meanwhile: a blocked worker costs each
connection one such moment, and never the connection.
"""

from __future__ import annotations

from collections.abc import Sequence

# A worker leaves the port when it has more than its share times this, and a few more: with ten clients nothing is to be balanced.
ABOVE_SHARE = 1.05
FEW = 4
LEAVE_S = 0.005


class Turn:
    """See the module. One for each listening socket."""

    def __init__(self) -> None:
        self._has_left = False

    def leave_s(self, own: int, all_serving: Sequence[int]) -> float:
        """Return the seconds for which to leave the next connection to the others; 0 to take it now."""
        if self._has_left or len(all_serving) < 2 or own <= sum(all_serving) / len(all_serving) * ABOVE_SHARE + FEW:
            self._has_left = False
            return 0.0
        self._has_left = True
        return LEAVE_S
