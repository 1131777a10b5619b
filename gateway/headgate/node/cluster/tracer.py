"""The tracer writes the outcomes of single events here to Redis and creates their spans, once a second, off the hot path.

In: the changed tallies of each namespace, and the events with recorded traces (delivery/tally.py). Out: counts under the name
of this process (redis/traces.py), and spans of OpenTelemetry (runtime/spans.py). Counts that a killed process had not written
yet are lost. A trace then says that this gateway is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from headgate.delivery.tally import values
from headgate.errors import HeadgateError
from headgate.node.namespace import Namespace
from headgate.redis.client import Client
from headgate.redis.loads import process_name
from headgate.redis.traces import kept_s, write
from headgate.runtime import spans
from headgate.runtime.loop import one_round
from headgate.runtime.metrics import SPANS
from headgate.runtime.periodic import PeriodicTask

log = structlog.get_logger("headgate.tracer")

EVERY_S = 1.0
# Spans take about 50 µs each, so the loop runs between batches.
_STRIDE = 10


class Tracer:
    """See the module. It does nothing if no event is traced."""

    def __init__(self, client: Client, namespaces: Mapping[str, Namespace]) -> None:
        self._namespaces = {name: each for name, each in namespaces.items() if each.tallies.every}
        self._traced = {name: each.traced for name, each in namespaces.items() if each.traced is not None}
        self._client = client
        self._task = PeriodicTask(self._step, lambda: log.exception("tracing failed"), EVERY_S)

    def start(self) -> None:
        """Start. Idempotent. Raises MissingExtra: spans are on, and the extra `otel` is not installed."""
        if (self._namespaces or self._traced) and not self._task.begun:
            if self._traced:
                spans.start()
            self._task.start()

    def close(self) -> None:
        """Write the rest, and stop. Idempotent. Waits for Redis."""
        if self._task.close():
            self._step()
            if self._traced:
                spans.stop()

    def write(self) -> None:
        """Write changes. After a refusal by Redis, the next call writes them again."""
        for name, namespace in self._namespaces.items():
            for changed in namespace.tallies.changed():
                if not changed:
                    one_round()
                    continue
                counts = [(tally.epoch, tally.offset, values(tally)) for tally in changed]
                try:
                    write(self._client, name, process_name(), counts, kept_s(namespace.tallies.singles / EVERY_S))
                except HeadgateError:  # the bus reports it
                    namespace.tallies.not_written(changed)

    def make_spans(self) -> None:
        """Make the spans of delivered events, from Redis to the router, and from there to the last client."""
        for name, traced in self._traced.items():
            left_out, traced.left_out = traced.left_out, 0
            SPANS.labels("left_out").inc(left_out)
            for number, each in enumerate(traced.take(), 1):
                attributes: dict[str, str | int] = {
                    "messaging.message.id": each.id,
                    "headgate.offset": each.offset,
                    "headgate.gateway": process_name(),
                }
                routed = spans.record(each.traceparent, "route", name, each.topic, each.published_ms, each.routed_ms, attributes)
                attributes |= {f"headgate.clients.{outcome}": count for outcome, count in each.counts.items()}
                spans.record(
                    routed or each.traceparent, "deliver", name, each.topic, each.routed_ms, each.delivered_ms, attributes
                )
                SPANS.labels("made").inc(2)
                if not number % _STRIDE:
                    one_round()

    def _step(self) -> float:
        self.write()
        self.make_spans()
        return EVERY_S
