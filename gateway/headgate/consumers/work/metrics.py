"""The metrics of one consumer, by its name: its children of headgate.metrics, resolved once."""

from __future__ import annotations

from headgate.consumers.notification import WITHDRAWN
from headgate.runtime import metrics

from .wants import WANTS_FAULTS

# Causes of dead letters: values of the `why` label, and of the letters themselves.
UNREADABLE, POISON, REJECTED, GAVE_UP, OUTCOME_UNKNOWN = "unreadable", "poison", "rejected", "gave_up", "outcome_unknown"
WHY_DEAD = (UNREADABLE, POISON, REJECTED, GAVE_UP, OUTCOME_UNKNOWN)


class ConsumerMetrics:
    """The counters of one consumer in this process."""

    def __init__(self, consumer: str) -> None:
        self.handled = metrics.CONSUMER_HANDLED.labels(consumer)
        self.withdrawn = {why: metrics.CONSUMER_WITHDRAWN.labels(consumer, why) for why in WITHDRAWN}
        self.wants_faults = {why: metrics.CONSUMER_WANTS_FAULTS.labels(consumer, why) for why in WANTS_FAULTS}
        self.retried = metrics.CONSUMER_RETRIED.labels(consumer)
        self.waiting = metrics.CONSUMER_WAITING.labels(consumer)
        self.full = metrics.CONSUMER_FULL.labels(consumer)
        self.dead = {why: metrics.CONSUMER_DEAD.labels(consumer, why) for why in WHY_DEAD}
        self.dead_dropped = metrics.CONSUMER_DEAD_DROPPED.labels(consumer)
        self.missed = metrics.CONSUMER_MISSED.labels(consumer)
        self.logs_lost = metrics.CONSUMER_LOGS_LOST.labels(consumer)
        self.lag = metrics.CONSUMER_LAG.labels(consumer)
        self.age = metrics.CONSUMER_AGE_SECONDS.labels(consumer)
