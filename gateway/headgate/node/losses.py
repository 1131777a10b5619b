"""The metrics of what full queues left out: counted while a client is there, and once.

In: clients, now and then and when they leave. Out: two counters. A client that stays slow for hours shows within a round.
"""

from __future__ import annotations

from headgate.delivery.client import Client
from headgate.metrics import CONFLATED, DISCARDED


class Losses:
    """The losses of each client that have been counted so far."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._counted: dict[Client, tuple[int, int]] = {}  # discarded, conflated

    def count(self, client: Client) -> None:
        """Add to the metrics what this client has lost since the last time."""
        losses = (client.discarded, client.conflated)
        if any(losses):
            discarded, conflated = self._counted.get(client, (0, 0))
            DISCARDED.labels(self._namespace).inc(losses[0] - discarded)
            CONFLATED.labels(self._namespace).inc(losses[1] - conflated)
            self._counted[client] = losses

    def count_last(self, client: Client) -> None:
        """Count a client that has left, and forget it."""
        self.count(client)
        self._counted.pop(client, None)
