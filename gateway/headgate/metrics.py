"""Counters and gauges of the gateway, in Prometheus' words. The one file of the gateway that imports prometheus_client.

No label carries a topic, an id or a user: every label set is listed here. Nothing on the hot path counts per event or per
client; fan-out is counted once per pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

EVENTS = Counter("headgate_events_received_total", "Events that arrived on the bus.", ["namespace"])
DELIVERIES = Counter("headgate_writes_total", "Writes handed to clients by fan-out, one per client and slice.", ["namespace"])
FAN_OUT_SECONDS = Histogram(
    "headgate_fan_out_seconds",
    "Time from the first to the last client of a pass, other greenlets' turns included.",
    ["namespace"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
QUARANTINED = Counter("headgate_quarantined_total", "Messages on the bus that could not be delivered.", ["namespace", "code"])
REPAIRED = Counter("headgate_repaired_total", "Events read from the log because the live feed had missed them.", ["namespace"])
BUS_UP = Gauge("headgate_bus_up", "1 while the live feed is verified, 0 while it is not.", ["namespace"])
BUS_RECONNECTS = Counter("headgate_bus_reconnects_total", "Times that the gateway had to reconnect to Redis.", ["namespace"])
BUS_SUBSCRIPTIONS = Gauge("headgate_bus_subscriptions", "Channels and globs that the gateway listens to now.", ["namespace"])
LOG_LOST = Counter("headgate_log_lost_total", "Times that the log was lost: emptied, or replaced by another.", ["namespace"])
ROLLED_BACK = Counter(
    "headgate_rolled_back_events_total", "Offsets up to the position that Redis has lost with the end of its log.", ["namespace"]
)
CLIENTS = Gauge("headgate_clients", "Clients connected now.", ["namespace"])
SUBSCRIPTIONS = Gauge("headgate_subscriptions", "Active subscriptions.", ["namespace"])
REFUSED = Counter("headgate_refused_total", "Requests of clients that were refused.", ["namespace", "code"])
SCHEMA_VIOLATIONS = Counter(
    "headgate_schema_violations_total",
    "Events that broke a schema of their topic, whether refused or let through.",
    ["namespace"],
)
EVICTED = Counter("headgate_evicted_total", "Clients evicted because their identity ended.", ["namespace", "reason"])
DISCARDED = Counter(
    "headgate_discarded_total", "Events that a full client queue left out and that were reported to the client.", ["namespace"]
)
CONFLATED = Counter("headgate_conflated_total", "Events replaced by a newer one of their topic.", ["namespace"])
SESSIONS_REFUSED = Counter(
    "headgate_sessions_refused_total", "Engine.IO sessions refused: their address had too many pending ones."
)
SHED = Counter(
    "headgate_shed_total",
    "Newcomers refused: no room (clients), a loop that lags (lag), connects that are paused (paused).",
    ["reason"],
)
SHEDDING = Gauge("headgate_shedding", "1 while newcomers are refused because the loop lags.")
HOSTS_REFUSED = Counter("headgate_hosts_refused_total", "HTTP requests to a host name that is not this gateway's.")
AUDIT_LEFT_OUT = Counter("headgate_audit_left_out_total", "Lines left out of the audit log: too many of one address.")
LOGINS_THROTTLED = Counter("headgate_logins_throttled_total", "Logins refused unread: too many of their address had failed.")
JWKS_FETCHES = Counter("headgate_jwks_fetches_total", "Fetches of token keys from HEADGATE_TOKEN_JWKS_URL.", ["outcome"])
SESSIONS_ENDED = Counter("headgate_sessions_ended_total", "Engine.IO sessions that ended.", ["reason"])
HTTP_CONNECTIONS = Gauge("headgate_http_connections", "HTTP connections open now, WebSockets not counted.")
HTTP_ENDED = Counter(
    "headgate_http_ended_total",
    "HTTP connections ended by the gateway: a deadline passed (headers, body, answer), too many connections, a bad request.",
    ["reason"],
)
ACCEPT_FAILURES = Counter("headgate_accept_failures_total", "Times that the gateway had no descriptor to accept a connection.")
LOOP_STALLS = Counter("headgate_loop_stalls_total", "Times that the event loop stood still for more than half a second.")
LOOP_STALLED_SECONDS = Counter("headgate_loop_stalled_seconds_total", "Total time that the event loop stood still.")
PRIVATE_REDIS_STARTED_AGAIN = Counter(
    "headgate_private_redis_started_again_total", "Times that the private Redis was started again after it had died."
)
GC_SECONDS = Histogram(
    "headgate_gc_pause_seconds",
    "Time for which a garbage collection stopped the gateway, by generation: 2 looks at everything that is not frozen.",
    ["generation"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
)
GC_LONGEST_SECONDS = Gauge("headgate_gc_longest_pause_seconds", "The longest of these since the gateway started.")
WORKER_UP = Gauge("headgate_worker_up", "1 for a worker that answered this scrape, 0 for one that did not.", ["worker"])
MONITORED_EVENTS = Counter(
    "headgate_monitored_events_total", "Events counted by a counter of a monitoring consumer.", ["consumer", "name"]
)
MONITORED_VALUE = Gauge("headgate_monitored_value", "The newest number of a monitoring consumer's gauge.", ["consumer", "name"])
MONITOR_FAULTS = Counter(
    "headgate_monitor_faults_total", "Values and alerts that a monitoring consumer could not read or send.", ["consumer", "code"]
)
MAILS = Counter("headgate_mails_total", "Mails sent (single, digest) and not sent because of `seen`.", ["consumer", "outcome"])
CONSUMER_HANDLED = Counter("headgate_consumer_handled_total", "Tasks that a consumer has done.", ["consumer"])
CONSUMER_RETRIED = Counter("headgate_consumer_retried_total", "Failures of a consumer that are retried.", ["consumer"])
CONSUMER_WAITING = Gauge("headgate_consumer_waiting", "Tasks that wait: deferred, or to be retried.", ["consumer"])
CONSUMER_FULL = Gauge("headgate_consumer_full", "1 while so many tasks wait that the consumer takes no new events.", ["consumer"])
CONSUMER_DEAD = Counter("headgate_consumer_dead_total", "Dead letters: tasks that were given up.", ["consumer", "why"])
CONSUMER_DEAD_DROPPED = Counter("headgate_consumer_dead_dropped_total", "Dead letters replaced by newer ones.", ["consumer"])
CONSUMER_MISSED = Counter("headgate_consumer_missed_total", "Events trimmed before the consumer got them.", ["consumer"])
CONSUMER_LOGS_LOST = Counter(
    "headgate_consumer_logs_lost_total", "Times that the log was lost: emptied, or replaced by another.", ["consumer"]
)
CONSUMER_RESTARTS = Counter(
    "headgate_consumer_restarts_total", "Times that a consumer was restarted because a worker had ended.", ["consumer"]
)
CONSUMERS_PROCESS_ENDED = Counter(
    "headgate_consumers_process_ended_total", "Times that the process of the consumers beside the gateway ended by itself."
)
CONSUMER_LAG = Gauge("headgate_consumer_lag_events", "Events of the log that the consumer has not taken yet.", ["consumer"])


def families() -> list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]:
    """Return everything that this process counts: name, kind, help, and samples (name, labels, value) of each metric."""
    return [
        (each.name, each.type, each.documentation, [(sample.name, dict(sample.labels), sample.value) for sample in each.samples])
        for each in REGISTRY.collect()
    ]


class _Given:
    """Metrics that were counted elsewhere, where prometheus_client expects a registry."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        return iter(self._metrics)


def exposition_of(given: Iterable[tuple[str, str, str, list[Any]]]) -> bytes:
    """Return metrics in the form of `families` as Prometheus reads them."""
    metrics = []
    for name, kind, documentation, samples in given:
        metric = Metric(name, documentation, kind)
        metric.samples = [Sample(*sample) for sample in samples]
        metrics.append(metric)
    return generate_latest(_Given(metrics))


# Of the text that `exposition_of` returns.
EXPOSITION_TYPE = CONTENT_TYPE_LATEST


def exposition() -> tuple[str, bytes]:
    """Return everything that this process counts: content type and text, as Prometheus reads it."""
    return CONTENT_TYPE_LATEST, generate_latest()
