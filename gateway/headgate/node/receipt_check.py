"""Checks by receipts whether this gateway's publishes go into the log that its feed follows.

In: the outcomes of publishes of this process, and each fence of the feed. Out: a count and, now and then, a log line for
receipts of another Redis server. The cause is an address that leads to two primaries, or a failover that only some connections
have followed. Clients of this gateway see these events only if it continues with that server's log.

One Redis process writes an epoch (redis/lineage.py), so the epoch identifies the server. If the feed does not know the epoch of
a receipt, the same server may just have begun it. A fence that begins after the receipt shows this.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import structlog

from headgate.delivery.bus.listener import Bus
from headgate.errors import HeadgateError
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.metrics import PUBLISHED_ELSEWHERE
from headgate.services.publisher import Receipt

log = structlog.get_logger("headgate.receipts")

# Epochs that wait for a fence at once.
MAX_WAITING = 16


class ReceiptCheck:
    """See the module. One per namespace."""

    def __init__(self, namespace: str, bus: Bus) -> None:
        self._namespace, self._bus = namespace, bus
        # By epoch, its receipts that wait for a fence: the time of the first, their number, and the newest offset.
        self._waiting: dict[str, tuple[float, int, int]] = {}
        self._log_throttle = LogThrottle()
        self._elsewhere = PUBLISHED_ELSEWHERE.labels(namespace)

    def published(self, outcomes: Sequence[Receipt | HeadgateError]) -> None:
        """Take the outcomes of one round trip. Never waits."""
        epoch = self._bus.epoch
        last = outcomes[-1] if outcomes else None
        if isinstance(last, Receipt) and last.epoch == epoch:
            return
        for receipt in outcomes:
            if isinstance(receipt, Receipt) and receipt.epoch != epoch:
                # A further epoch counts for the last one.
                is_full = receipt.epoch not in self._waiting and len(self._waiting) >= MAX_WAITING
                key = next(reversed(self._waiting)) if is_full else receipt.epoch
                since_s, count, offset = self._waiting.get(key, (monotonic(), 0, 0))
                self._waiting[key] = since_s, count + 1, max(offset, receipt.offset)

    def fenced(self) -> None:
        """Check the receipts from before the fence, which has just passed."""
        for epoch, (since_s, count, offset) in list(self._waiting.items()):
            if since_s >= self._bus.fence_began_s:
                continue
            del self._waiting[epoch]
            end = self._bus.lineage.end_of(epoch, self._bus.head)
            if end is not None and offset <= end:
                continue
            self._elsewhere.inc(count)
            if self._log_throttle.due() is not None:
                log.error(
                    "published to another Redis server",
                    namespace=self._namespace,
                    events=count,
                    epoch=epoch,
                    offset=offset,
                    followed_epoch=self._bus.epoch,
                    effect="clients of this gateway get these events only if it goes on with that server's log",
                )
