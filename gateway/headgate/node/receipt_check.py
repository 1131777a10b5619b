"""Checks by receipts whether this gateway's publishes go into the log that its feed follows.

In: the outcomes of publishes of this process, and each fence of the feed. Out: a count and, now and then, a log line for
receipts of another Redis server. The cause is an address that leads to two primaries, or a failover that only some connections
have followed. Clients of this gateway see these events only if it continues with that server's log.

One Redis process writes an epoch (redis/lineage.py), so the epoch identifies the server. If the feed does not know the epoch of
a receipt, the same server may just have begun it. A fence that begins after the receipt shows this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import structlog

from headgate.delivery.bus.listener import Bus
from headgate.errors import HeadgateError
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.metrics import PUBLISHED_ELSEWHERE
from headgate.services.publisher import Receipt

log = structlog.get_logger("headgate.receipts")

# Epochs that wait for a fence at once. Receipts of further ones count for the last of them.
MAX_WAITING = 16


@dataclass(slots=True)
class _Waiting:
    """Receipts of one epoch that wait for a fence, with the time of the first, their number, and the newest offset."""

    since_s: float
    count: int = 0
    offset: int = 0


class ReceiptCheck:
    """See the module. One per namespace."""

    def __init__(self, namespace: str, bus: Bus) -> None:
        self._namespace, self._bus = namespace, bus
        self._waiting: dict[str, _Waiting] = {}
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
                self._wait(receipt)

    def fenced(self) -> None:
        """Check the receipts from before the fence, which has just passed."""
        for epoch, waiting in list(self._waiting.items()):
            if waiting.since_s >= self._bus.fence_began_s:
                continue
            del self._waiting[epoch]
            end = self._bus.lineage.end_of(epoch, self._bus.head)
            if end is not None and waiting.offset <= end:
                continue
            self._elsewhere.inc(waiting.count)
            if self._log_throttle.due() is not None:
                log.error(
                    "published to another Redis server",
                    namespace=self._namespace,
                    events=waiting.count,
                    epoch=epoch,
                    offset=waiting.offset,
                    followed_epoch=self._bus.epoch,
                    effect="clients of this gateway get these events only if it goes on with that server's log",
                )

    def _wait(self, receipt: Receipt) -> None:
        waiting = self._waiting.get(receipt.epoch)
        if waiting is None:
            if len(self._waiting) >= MAX_WAITING:
                waiting = next(reversed(self._waiting.values()))
            else:
                waiting = self._waiting[receipt.epoch] = _Waiting(monotonic())
        waiting.count += 1
        waiting.offset = max(waiting.offset, receipt.offset)
