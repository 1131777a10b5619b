"""Expiry: the ends of clients' identities. One timer for all of them, a slot per tick; monotonic clock.

In: clients with their time of expiry, from the gateway. Out: a call with those that are due, at most one tick late. A client that
leaves, or is renewed, is forgotten at once: a token of a day must not keep a browser of a minute in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from headgate.runtime.loop import Watcher, repeat, spawn

TICK_S = 0.5
# The longest that is kept: beyond it a token does not expire in the life of a process.
LONGEST_S = 10 * 365 * 86400

C = TypeVar("C", bound=Hashable)


class Expiry(Generic[C]):
    """Calls `on_due(clients)` in a greenlet of its own; a client that is renewed, or leaves, during that call is passed over.

    A wall clock that jumps changes nothing for a client that is in: its time is reckoned once, when it is set.

    Args:
        now: seconds since 1970; now_s: monotonic.
    """

    def __init__(
        self,
        on_due: Callable[[Iterator[C]], None],
        now: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_due = on_due
        self._now, self._now_s = now, now_s
        self._slots: dict[int, set[C]] = {}
        self._slot_of: dict[C, int] = {}
        self._due: set[C] = set()
        self._timer: Watcher | None = None

    def set(self, client: C, expires_at: float | None) -> None:
        """Have a client due at `expires_at` (seconds since 1970), or never; replaces what was set before."""
        self.forget(client)
        if expires_at is None:
            return
        left_s = min(expires_at - self._now(), LONGEST_S)
        slot = math.ceil((self._now_s() + left_s) / TICK_S)
        self._slots.setdefault(slot, set()).add(client)
        self._slot_of[client] = slot
        if self._timer is None:
            self._timer = repeat(TICK_S, self.tick)

    def forget(self, client: C) -> None:
        """Never mind this client. Idempotent."""
        self._due.discard(client)
        slot = self._slot_of.pop(client, None)
        if slot is not None:
            members = self._slots[slot]
            members.discard(client)
            if not members:
                del self._slots[slot]

    def tick(self) -> None:
        """Pass on the clients that are due. Runs in the hub; costs a pass over the slots in use, not over the clients."""
        reached = self._now_s() / TICK_S
        due = [client for slot in [slot for slot in self._slots if slot <= reached] for client in self._slots.pop(slot)]
        for client in due:
            del self._slot_of[client]
        if due:
            self._due.update(due)
            spawn(self._on_due, self._still_due())

    def close(self) -> None:
        """Forget everyone and stop the timer. Idempotent."""
        for kept in (self._slots, self._slot_of, self._due):
            kept.clear()
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _still_due(self) -> Iterator[C]:
        while self._due:
            yield self._due.pop()
