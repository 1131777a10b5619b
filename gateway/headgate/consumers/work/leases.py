"""The leases of one worker, which another thread renews while the worker is busy.

In: the work of a page (`take`), and each part of it before its answer (`release`), from the worker's thread; `keep` from the
thread that renews the leases of all workers. Out: renewed leases in the store. A lock is held while leases move, so a task
cannot move between its release and its answer.

Work that lasts longer than a third of the lease is moved out of the log. It becomes a leased task, and its lease is renewed, so
neither another process nor the log's retention can take it away in the meantime.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from .store import LeasedTask, Store, defer_for, done


class Leases:
    """See the module."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._leased: dict[int, LeasedTask] = {}
        self._taken_s = 0.0

    def take(self, work: Sequence[LeasedTask], now_s: float) -> None:
        """Renew the leases of this work from now on, and no others."""
        with self._lock:
            self._leased = {id(leased): leased for leased in work}
            self._taken_s = now_s

    def release(self, group: Sequence[LeasedTask]) -> None:
        """Stop renewing these, as their answers follow."""
        with self._lock:
            for leased in group:
                self._leased.pop(id(leased), None)

    def release_all(self) -> None:
        """Stop renewing all."""
        with self._lock:
            self._leased = {}

    def name(self, leased: LeasedTask, key: str) -> bool:
        """Give an event's only part its key; return False for a task, whose name contains its key already."""
        with self._lock:
            if key and not leased.in_log:
                return False
            leased.task = msgspec.structs.replace(leased.task, key=key, split=True)
            return True

    def keep(self, store: Store, now_s: float) -> None:
        """Renew leases that have lasted for a third of their length, for the whole length. Called by another thread.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; try again.
        """
        with self._lock:
            if not self._leased or now_s - self._taken_s < self._lease_ms / 3000:
                return
            in_log = [leased for leased in self._leased.values() if leased.in_log]
            names = [leased.name for leased in self._leased.values() if not leased.in_log]
            if in_log:
                store.settle([answer for t in in_log for answer in (done(t), defer_for(t.task, self._lease_ms, t.out))])
                for leased in in_log:
                    leased.name = leased.task.name
            if names:
                store.renew(names, self._lease_ms)
