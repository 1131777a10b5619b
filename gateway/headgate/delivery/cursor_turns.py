"""The turns in which idle clients get a cursor, as no event brings them their position. No I/O.

Clients are in CURSOR_SLOTS slots by their sessions. Each slot has its turn every CURSOR_INTERVAL_S, so that not all clients get
a cursor at once. A slot has its turn sooner when half of the events that the log retains have been published since the last one.
So a client that loses its connection is at least half of the retention away from the end of the log.

In: the clock, and the position of the log. Out: slots.
"""

from __future__ import annotations

CURSOR_INTERVAL_S = 10.0
CURSOR_SLOTS = 10


def slot_of(session: str) -> int:
    """Return the slot of a session, which is constant within a process."""
    return hash(session) % CURSOR_SLOTS


class CursorTurns:
    """The turns of one namespace from `now_s` (monotonic) on; the first ones are spread over the interval."""

    def __init__(self, now_s: float) -> None:
        # Time and offset of the last turn of each slot.
        self._last = [(now_s - CURSOR_INTERVAL_S * slot / CURSOR_SLOTS, 0) for slot in range(CURSOR_SLOTS)]

    def due(self, now_s: float, position: int, retained: float) -> set[int]:
        """Return the due slots.

        Args:
            now_s: monotonic.
            position: the offset up to which events have been handed on.
            retained: how many events the log holds, or will hold, before it trims.
        """
        due = set()
        for slot, (at_s, offset) in enumerate(self._last):
            if now_s - at_s >= CURSOR_INTERVAL_S or position - offset >= max(retained / 2, 1):
                due.add(slot)
                self._last[slot] = now_s, position
            elif position < offset:
                self._last[slot] = at_s, position  # the log has lost its end, and each client got a notice
        return due
