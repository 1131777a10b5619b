"""Whose turn it is to be told its position: an idle client has no event that would tell it. No I/O.

The clients are in CURSOR_SLOTS slots, by their sessions, and each slot has its turn every CURSOR_INTERVAL_S: so a client gets one
cursor in that time at most, and not all clients at once. Only where the log would pass a client's place sooner, its slot has its
turn when half of what the log retains has been published since the last one. So a client that loses its connection finds at least
half of the retention between its place and the end of the log.

In: the clock, and where the log stands. Out: slots.
"""

from __future__ import annotations

CURSOR_INTERVAL_S = 10.0
CURSOR_SLOTS = 10


def slot_of(session: str) -> int:
    """Return the slot of a session: the same one for as long as this process runs."""
    return hash(session) % CURSOR_SLOTS


class CursorTurns:
    """The turns of one namespace, from `now_s` (monotonic) on; the first ones come one after the other within the interval."""

    def __init__(self, now_s: float) -> None:
        # When the last turn of each slot was, and at which offset.
        self._last = [(now_s - CURSOR_INTERVAL_S * slot / CURSOR_SLOTS, 0) for slot in range(CURSOR_SLOTS)]

    def due(self, now_s: float, position: int, retained: float) -> set[int]:
        """Return the slots that have their turn now.

        Args:
            now_s: monotonic.
            position: the offset up to which events have been handed on.
            retained: how many events the log holds, or will hold, before it trims.
        """
        found = set()
        for slot, (at_s, offset) in enumerate(self._last):
            if now_s - at_s >= CURSOR_INTERVAL_S or position - offset >= max(retained / 2, 1):
                found.add(slot)
                self._last[slot] = now_s, position
            elif position < offset:
                self._last[slot] = at_s, position  # the log has lost its end, which each client is told
        return found
