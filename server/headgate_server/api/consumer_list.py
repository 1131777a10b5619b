"""The consumers of a namespace, for clients that poll every few seconds: a view of the console, a program.

In: the groups that read the log, which Redis lists at once, and from time to time the names of all keys, a slow scan in a large
Redis. Only the scan finds a consumer that has nothing but dead letters. Out: the status of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.consumers.work.groups import Groups, GroupStatus
from headgate.redis.client import Client
from headgate.redis.registry import read_groups

# How often the names of all keys are scanned.
SCAN_EVERY_S = 60.0
MAX_CONSUMERS = 100


class Consumers:
    """See the module. One per process. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._known: dict[str, tuple[float, set[str]]] = {}

    def statuses(self, client: Client, namespace: str) -> list[GroupStatus]:
        """Return the status of each consumer, by name, at most MAX_CONSUMERS. Waits for Redis.

        Raises BusUnavailable, BusRefused: as `redis.client.call`.
        """
        groups = Groups(client, namespace)
        scanned_s, names = self._known.get(namespace, (-SCAN_EVERY_S, set()))
        if self._now_s() - scanned_s >= SCAN_EVERY_S:
            names = {status.name for status in groups.statuses()}
            self._known[namespace] = (self._now_s(), names)
        wanted = sorted(names | read_groups(client, namespace))[:MAX_CONSUMERS]
        shown = [groups.status_of(name) for name in wanted]
        return [status for status in shown if status is not None]
