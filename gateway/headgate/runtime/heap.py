"""The heap of this process: the one file that calls Python's garbage collector once a gateway has started, as the policy of
collector.py says.

In: a look each second, by the loop's timer. Out: collections, freezes, and the time that each collection took, in the metrics.
For a process that is the gateway and nothing else: the collector belongs to all of it.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable

from headgate.metrics import GC_LONGEST_SECONDS, GC_SECONDS

from .collector import LOOK_S, THRESHOLDS, Action, Collector, Measures
from .loop import Watcher, repeat

# Between two looks there are fewer; a loop that is blocked for minutes must not keep one entry for each.
MAX_PAUSES = 10_000


class Heap:
    """See the module. `clients` returns how many are connected."""

    def __init__(self, clients: Callable[[], int]) -> None:
        self._clients = clients
        self._collector: Collector | None = None
        self._timer: Watcher | None = None
        self._thresholds = gc.get_threshold()
        self._promotions = self._blocks = 0
        self._has_collected = True
        self._began_s = self._longest_s = 0.0
        self._pauses: deque[tuple[int, float]] = deque(maxlen=MAX_PAUSES)

    def start(self) -> None:
        """Collect and freeze what is there for good, 150,000 objects, and look after what comes. Idempotent."""
        if self._timer is not None:
            return
        self._collect_all()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collecting)
        self._collector = Collector(self._measures())
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

    def look(self) -> Action:
        """Ask the policy, and do what it says. Runs in the hub."""
        assert self._collector is not None
        action = self._collector.look(self._measures())
        if action is Action.COLLECT_ALL:
            self._collect_all()
            self._collector.collected_all(self._measures())
        elif action is Action.SETTLE:
            gc.collect(1)
            gc.freeze()
        if action is not Action.NOTHING:
            self._promotions = 0
        self._count_pauses()
        return action

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def _measures(self) -> Measures:
        return Measures(
            now_s=time.monotonic(),
            cpu_s=time.process_time(),
            promotions=self._promotions,
            blocks=self._count_blocks(),
            clients=self._clients(),
        )

    def _count_blocks(self) -> int:
        """Return how many blocks are in use: counted again only after Python has collected, since a count takes 0.1 ms and more.

        Cycles are made of objects that Python collects, and it does so once there are some thousand new ones.
        """
        if self._has_collected:
            self._has_collected = False
            self._blocks = sys.getallocatedblocks()
        return self._blocks

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        """Python begins, or has ended, a collection: anywhere, so that no lock may be taken here, as a counter would."""
        if phase == "start":
            self._has_collected = True
            self._began_s = time.perf_counter()
            return
        generation = info["generation"]
        self._pauses.append((generation, time.perf_counter() - self._began_s))
        if generation:
            self._promotions += 1

    def _count_pauses(self) -> None:
        while self._pauses:
            generation, seconds = self._pauses.popleft()
            GC_SECONDS.labels(str(generation)).observe(seconds)
            if seconds > self._longest_s:
                self._longest_s = seconds
                GC_LONGEST_SECONDS.set(seconds)
