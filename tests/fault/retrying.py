"""Publishers as applications have them: an event whose publish failed is published again with the same id, every 50 ms."""

from __future__ import annotations

import time

from headgate.errors import BusRefused, BusUnavailable
from headgate.publisher import Publisher
from tests.fault.site import TOPICS, Publishing

RETRY_S = 0.05


class Retrying(Publishing):
    """Publishes at a fixed rate until `stop`; gives an event up only then.

    An event may be in the log twice over: once with the part that was lost, and once in its place.
    """

    def _publish(self, publisher: Publisher, number: int) -> None:
        topic, event_id = f"load.t{number % TOPICS}.changed", f"e{number}-{self._name}"
        data = {"id": event_id, "at_s": time.monotonic(), "pad": "x" * (self._load.payload_bytes - 60)}
        while True:
            try:
                receipt = publisher.publish(topic, data, id=event_id)
            except (BusUnavailable, BusRefused):
                self.refused.append(time.monotonic())
                self.history.doubtful(event_id)
                if self._stopped.wait(RETRY_S):
                    return
            else:
                self.receipts.append(time.monotonic())
                self.history.published(receipt.epoch, receipt.offset, topic, event_id)
                return
