"""Garbage collection of a gateway: Python looks at new objects only, and everything is looked through when it must be.

Nothing of ours needs the collector: a session that is over is freed by its reference counts, and a test proves that. A look at
all objects stops a gateway with 7,000 clients for 150 ms, so it is due only when the process has grown by more than its clients
explain: when it is idle, or at once beyond MAX_BLOCKS. What outlives Python's own looks is frozen: looked at no more, and freed
by its reference count as ever. A cycle of frozen objects is garbage that stays until the next look at everything.

In: the number of clients, and a look each second by the loop's timer. Out: collections, and the time of each in the metrics.
For a process that is the gateway and nothing else: the collector belongs to all of it.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from headgate.metrics import GC_PAUSES

from .loop import Watcher, repeat

LOOK_S = 1.0
# Python looks at so many new objects (0.5 ms, however many clients there are), and after so many of these looks at all that have
# outlived one (2.5 ms, at most 4.5 while 7,000 clients join). It never looks at everything by itself: that takes 157 ms.
THRESHOLDS = (2_500, 4, 1_000_000)
# Blocks of memory (64 to 100 bytes on average) that clients do not explain: with more than the first a look at everything is due
# when the process is idle, with more than the second, some 100 MB, at once.
SWOLLEN_BLOCKS, MAX_BLOCKS = 250_000, 1_000_000
# One client has 30 to 40, and more with its queue and its subscriptions.
BLOCKS_PER_CLIENT = 200
# Idle: without clients, or with so small a share of the processor since the last look.
IDLE_SHARE = 0.02


class Heap:
    """See the module. `clients` returns how many are connected."""

    def __init__(self, clients: Callable[[], int]) -> None:
        self._clients = clients
        self._timer: Watcher | None = None
        self._thresholds = gc.get_threshold()
        self._began_s = self._looked_s = self._cpu_s = 0.0
        self._promotions = self._least_blocks = self._least_clients = 0

    def start(self) -> None:
        """Collect and freeze what is there for good, 150,000 objects, and look after what comes. Idempotent."""
        if self._timer is None:
            self._collect_all()
            gc.set_threshold(*THRESHOLDS)
            gc.callbacks.append(self._collecting)
            self._timer = repeat(LOOK_S, self.look)

    def close(self) -> None:
        """Leave the garbage collector as it was found. Idempotent."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None
            gc.callbacks.remove(self._collecting)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def look(self) -> None:
        """Collect and freeze what the policy wants now. Runs in the hub."""
        if self.is_swollen(time.monotonic(), time.process_time(), sys.getallocatedblocks(), self._clients()):
            self._collect_all()
        elif self._promotions:
            gc.collect(1)
            gc.freeze()
            self._promotions = 0

    def is_swollen(self, now_s: float, cpu_s: float, blocks: int, clients: int) -> bool:
        """Return whether everything is to be looked through: of `blocks` more are unexplained than may be, idle or busy."""
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
        """Python begins, or has ended, a collection: anywhere, so that no lock may be taken here."""
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            generation = info["generation"]
            self._promotions += generation > 0
            GC_PAUSES[generation].record(time.perf_counter() - self._began_s)
