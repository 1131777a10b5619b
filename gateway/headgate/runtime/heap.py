"""Tunes garbage collection for a gateway. Python scans only new objects, and a full collection runs only when needed.

Our objects need no collector, because reference counts free an ended session, and a test proves it. A full collection stops a
gateway with 7,000 clients for 150 ms. So it runs only after the process has grown by more than its clients explain, when the
process is idle, or at once beyond MAX_BLOCKS. Objects that survive Python's collections are frozen. The collector skips frozen
objects, but reference counts still free them. A cycle of frozen objects stays until the next full collection.

In: the number of clients, and a timer every second. Out: collections, and their durations in the metrics. Only for a process that
runs nothing but the gateway, because the collector is global.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from headgate.runtime.metrics import GC_PAUSES

from .loop import Watcher, repeat

POLL_S = 1.0
# New objects before Python scans them (0.5 ms for any number of clients), and such scans before it scans their survivors (2.5
# ms, at most 4.5 while 7,000 clients join). Python never starts a full collection itself, because that takes 157 ms.
THRESHOLDS = (2_500, 4, 1_000_000)
# Memory blocks (64 to 100 bytes on average) that clients do not explain. Above the first limit a full collection is due when the
# process is idle; above the second, about 100 MB, at once.
SWOLLEN_BLOCKS, MAX_BLOCKS = 250_000, 1_000_000
# This many new clients since the last scan explain the objects that survived this one, because a client has 30 to 100 objects.
# Scanning these once more would take 5 % of a join.
CLIENTS_PER_SCAN = 25
# A client has 30 to 40, and more with its queue and subscriptions.
BLOCKS_PER_CLIENT = 200
# A process is idle without clients, or below this share of the processor since the last check.
IDLE_SHARE = 0.02


class Heap:
    """See the module. `clients` returns the number of connected clients."""

    def __init__(self, clients: Callable[[], int]) -> None:
        self._clients = clients
        self._timer: Watcher | None = None
        self._thresholds = gc.get_threshold()
        self._began_s = self._looked_s = self._cpu_s = 0.0
        self._promotions = self._least_blocks = self._least_clients = self._clients_at_scan = 0

    def start(self) -> None:
        """Collect, freeze the 150,000 objects of the start, and begin to watch. Idempotent."""
        if self._timer is None:
            self._collect_all()
            gc.set_threshold(*THRESHOLDS)
            gc.callbacks.append(self._collecting)
            self._timer = repeat(POLL_S, self.check)

    def close(self) -> None:
        """Restore the earlier settings of the garbage collector. Idempotent."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
            gc.callbacks.remove(self._collecting)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def check(self) -> None:
        """Collect and freeze as the policy requires now. Runs in the hub."""
        if self.is_swollen(time.monotonic(), time.process_time(), sys.getallocatedblocks(), self._clients()):
            self._collect_all()
        elif self._promotions:
            gc.collect(1)
            gc.freeze()
            self._promotions = 0

    def is_swollen(self, now_s: float, cpu_s: float, blocks: int, clients: int) -> bool:
        """Return whether a full collection is due, because `blocks` exceeds the limit for an idle or busy process."""
        is_idle = not clients or cpu_s - self._cpu_s <= IDLE_SHARE * (now_s - self._looked_s)
        self._looked_s, self._cpu_s = now_s, cpu_s
        if blocks < self._least_blocks:
            self._least_blocks, self._least_clients = blocks, clients
        unexplained = blocks - self._least_blocks - BLOCKS_PER_CLIENT * max(0, clients - self._least_clients)
        return unexplained > (SWOLLEN_BLOCKS if is_idle else MAX_BLOCKS)

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._promotions, self._least_blocks, self._least_clients = 0, sys.getallocatedblocks(), self._clients()

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        """Record a start or end of a collection. It must take no lock, because Python may call it anywhere."""
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            generation, clients = info["generation"], self._clients()
            if clients - self._clients_at_scan >= CLIENTS_PER_SCAN:
                gc.freeze()
            self._clients_at_scan = clients
            self._promotions += generation > 0
            GC_PAUSES[generation].record(time.perf_counter() - self._began_s)
