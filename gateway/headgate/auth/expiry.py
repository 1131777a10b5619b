"""Expiry of client identities, with one timer and one slot per tick on a monotonic clock.

In: clients and their expiry times, from the gateway. Out: a call with the expired clients, at most one tick late. A client that
leaves or is renewed is forgotten at once, so a token valid for a day does not keep a one-minute client in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from headgate.runtime.loop import Watcher, repeat, spawn

TICK_S = 0.5
# Longer lifetimes are capped, because no process runs that long.
LONGEST_S = 10 * 365 * 86400

C = TypeVar("C", bound=Hashable)


class Expiry(Generic[C]):
    """Calls `on_due(clients)` in its own greenlet; clients that leave or are renewed during that call are skipped.

    The expiry is converted to the monotonic clock when it is set, so changes of the wall clock do not affect admitted clients.

    Args:
        now: seconds since 1970; now_s: monotonic clock.
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
        self._slot_of: dict[C, int] = {}  # also of the due clients that were not passed on yet
        self._timer: Watcher | None = None

    def set(self, client: C, expires_at: float | None) -> None:
        """Set when a client expires, in seconds since 1970, or None for never. Replaces the earlier value."""
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
        """Remove a client. Idempotent."""
        slot = self._slot_of.pop(client, None)
        if slot is not None and (members := self._slots.get(slot)):
            members.discard(client)
            if not members:
                del self._slots[slot]

    def tick(self) -> None:
        """Pass on the expired clients. Runs in the hub; costs a pass over the used slots, not over the clients."""
        reached = self._now_s() / TICK_S
        if due := {slot: self._slots.pop(slot) for slot in [slot for slot in self._slots if slot <= reached]}:
            spawn(self._on_due, self._still_due(due))

    def close(self) -> None:
        """Remove all clients and stop the timer. Idempotent."""
        self._slots.clear()
        self._slot_of.clear()
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _still_due(self, due: Mapping[int, Iterable[C]]) -> Iterator[C]:
        for slot, clients in due.items():
            for client in clients:
                if self._slot_of.get(client) == slot:
                    del self._slot_of[client]
                    yield client
