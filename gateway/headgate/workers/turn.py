"""The turn: whether a worker takes the next connection of the port that all share, or leaves it to one that has fewer. No I/O.

The kernel wakes every worker for a connection and gives it to the first that accepts, which may be the same one each time. A
worker above its share waits for a moment before it accepts. It then takes a connection that the others have left, so a blocked
worker costs a connection one such moment.
"""

from __future__ import annotations

from collections.abc import Sequence

# A worker leaves the port when it has more than its share times this, plus a few.
ABOVE_SHARE = 1.05
FEW = 4
LEAVE_S = 0.005


class Turn:
    """See the module. One for each listening socket."""

    def __init__(self) -> None:
        self._left_at: int | None = None

    def leave_s(self, own: int, all_serving: Sequence[int]) -> float:
        """Return the seconds for which to leave the next connection to the others; 0 to take it now."""
        total = sum(all_serving)
        is_left = self._left_at is not None and total <= self._left_at
        if is_left or len(all_serving) < 2 or own <= total / len(all_serving) * ABOVE_SHARE + FEW:
            self._left_at = None
            return 0.0
        self._left_at = total
        return LEAVE_S
