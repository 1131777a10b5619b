"""Counters and gauges of the gateway, as Prometheus metrics. In the gateway, only this file imports prometheus_client.

No label carries a topic, an id or a user, and every label set is listed here. The hot path counts nothing per event or client,
and fan-out is counted once per pass. Counts kept by clients are added up at each scrape (`NamespaceMetrics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from headgate.events.traceparent import DROPPED

from .histogram import Histogram as TimeHistogram
from .histogram import up_to

# (name, kind, help, [(name, labels, value)…])
Family = tuple[str, str, str, Sequence[tuple[str, dict[str, str], float]]]
# The limits of our histograms in Prometheus, as powers of two, from a quarter of a millisecond to a minute.
EXPONENTS = range(-12, 7)


class Histograms:
    """Histograms of times (histogram.py) under one name, by the value of one label, and the maximum of each.

    They are created by the first `of`, or added with `put`. The label's values must be few and fixed.
    """

    def __init__(self, name: str, documentation: str, label: str = "") -> None:
        self.name, self.documentation = f"{name}_seconds", documentation
        self.greatest_name = f"{name}_greatest_seconds"
        self._label = label
        self._by_value: dict[str, TimeHistogram] = {}
        HISTOGRAMS.append(self)
        REGISTRY.register(self)

    def of(self, value: str = "") -> TimeHistogram:
        """Return the histogram of a label value, or the only one without a label."""
        return self._by_value.setdefault(value, TimeHistogram())

    def put(self, histogram: TimeHistogram, value: str = "") -> None:
        """Add a histogram owned by another object."""
        self._by_value[value] = histogram

    def collect(self) -> Iterator[Metric]:
        """Return a classic histogram and the maxima, for a registry of prometheus_client."""
        samples: list[tuple[str, dict[str, str], float]] = []
        for labels, each in self.labelled():
            limits = [*((str(limit_s), count) for limit_s, count in up_to(each.counts, EXPONENTS)), ("+Inf", each.count)]
            samples += [(f"{self.name}_bucket", {**labels, "le": limit}, count) for limit, count in limits]
            samples += [(f"{self.name}_count", labels, each.count), (f"{self.name}_sum", labels, each.sum_s)]
        yield _metric((self.name, "histogram", self.documentation, samples))
        greatest = [
            (self.greatest_name, {**labels, "window": window}, value)
            for labels, each in self.labelled()
            for window, value in (("recent", each.recent_s()), ("all", each.greatest_s))
        ]
        text = f"The maximum of {self.name}: of the last one to two minutes (recent), and since the process started (all)."
        yield _metric((self.greatest_name, "gauge", text, greatest))

    def labelled(self) -> list[tuple[dict[str, str], TimeHistogram]]:
        """Return each histogram with its labels."""
        return [({self._label: value} if self._label else {}, histogram) for value, histogram in self._by_value.items()]


HISTOGRAMS: list[Histograms] = []


class Count:
    """A count that only one thread increments."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Counts:
    """Counters under one name, by the value of one label, without prometheus_client's lock, which takes 0.6 µs per read.

    `others` are counts owned by another module.
    """

    def __init__(self, name: str, documentation: str, label: str, others: Mapping[str, int] = MappingProxyType({})) -> None:
        self._name, self._documentation, self._label, self._others = name, documentation, label, others
        self._by_value: dict[str, Count] = {}
        REGISTRY.register(self)

    def of(self, value: str) -> Count:
        """Return the count of a label value."""
        return self._by_value.setdefault(value, Count())

    def collect(self) -> Iterator[Metric]:
        """Return a counter, for a registry of prometheus_client."""
        totals = {value: count.total for value, count in self._by_value.items()} | dict(self._others)
        samples = [(self._name, {self._label: value}, float(total)) for value, total in totals.items()]
        yield _metric((self._name.removesuffix("_total"), "counter", self._documentation, samples))


class NamespaceMetrics:
    """Counters and gauges of each namespace, measured at each scrape. `sources` return the values by name.

    Args:
        known: kind and help of each name. A counter's name ends in `_total`.
    """

    def __init__(self, known: Mapping[str, tuple[str, str]]) -> None:
        self._known = known
        self.sources: dict[str, Callable[[], Mapping[tuple[str, str, str], float]]] = {}
        REGISTRY.register(self)

    def describe(self) -> list[Metric]:
        """Return the names without collecting values, for prometheus_client's check for duplicates."""
        return [_metric((name.removesuffix("_total"), kind, text, [])) for name, (kind, text) in self._known.items()]

    def collect(self) -> Iterator[Metric]:
        """Collect the values of all `sources`, letting the loop run in between."""
        samples: dict[str, list[tuple[str, dict[str, str], float]]] = {name: [] for name in self._known}
        for namespace, measure in list(self.sources.items()):
            for (name, label, value), number in measure().items():
                samples[name].append((name, {"namespace": namespace, **({label: value} if label else {})}, number))
        for name, (kind, text) in self._known.items():
            yield _metric((name.removesuffix("_total") if kind == "counter" else name, kind, text, samples[name]))


def _metric(family: Family) -> Metric:
    name, kind, documentation, samples = family
    metric = Metric(name, documentation, kind)
    metric.samples = [Sample(*sample) for sample in samples]
    return metric


PUBLISH_TO_SOCKET = Histograms(
    "headgate_publish_to_socket",
    "Time from Redis accepting an event until the gateway had written it to the last client that keeps up, for each event that a"
    " client here subscribes to. If Redis is on another machine, this compares two clocks.",
    "namespace",
)
FENCE = Histograms(
    "headgate_fence", "Time from reading the log's head until everything up to it was proven to have arrived.", "namespace"
)
LOOP_LAG = Histograms("headgate_loop_lag", "How late the event loop ran a timer, measured four times a second.")
REDIS_ROUND_TRIPS = Histograms("headgate_redis_round_trip", "Time from a call of Redis until its reply was read.")
DELIVERY = NamespaceMetrics(
    {
        "headgate_events_routed_total": (
            "counter",
            "Events that were matched, by whether a client here subscribed to them (some) or not (none).",
        ),
        "headgate_routed_total": (
            "counter",
            "Deliveries owed: events times clients that they were for, on arrival (live) or when the client read them (log)."
            " Equals the sum of headgate_outcomes_total and headgate_waiting while nothing is in progress.",
        ),
        "headgate_outcomes_total": (
            "counter",
            "Outcome of each delivery in headgate_routed_total: sent; discarded by a full queue, and reported to the client;"
            " conflated with a newer event of its topic; left_to_log, to be read from there; gone with its connection.",
        ),
        "headgate_discarded_total": (
            "counter",
            "Events that a full client queue left out. A gap reported each one to the client, unless it was ephemeral.",
        ),
        "headgate_conflated_total": ("counter", "Events replaced by a newer one of their topic."),
        "headgate_waiting": ("gauge", "Events in client queues now."),
        "headgate_queued_frames": ("gauge", "Frames in client queues now, notices included."),
        "headgate_queued_bytes": ("gauge", "Bytes in client queues now."),
        "headgate_queue_fullest_ratio": ("gauge", "How full the fullest client queue is now, 0 to 1."),
        "headgate_queue_oldest_seconds": ("gauge", "Age of the oldest event that waits in a client queue now."),
        "headgate_clients_catching_up": (
            "gauge",
            "Clients that read the log now, because they had fallen behind or requested past events.",
        ),
    }
)
EVENTS = Counts("headgate_events_received_total", "Events that arrived on the bus.", "namespace")
DELIVERIES = Counts("headgate_writes_total", "Writes that fan-out handed to clients, one per client and slice.", "namespace")
FAN_OUT = Histograms(
    "headgate_fan_out", "Time from the first to the last client of a pass, including the turns of other greenlets.", "namespace"
)
Counts("headgate_traceparents_dropped_total", "Malformed traceparents that were removed from their events.", "source", DROPPED)
SPANS = Counter("headgate_spans_total", "Spans of events created here, and events without one: a full buffer.", ["outcome"])
QUARANTINED = Counter("headgate_quarantined_total", "Messages on the bus that could not be delivered.", ["namespace", "code"])
REPAIRED = Counter("headgate_repaired_total", "Events read from the log because the live feed had missed them.", ["namespace"])
BUS_UP = Gauge("headgate_bus_up", "1 while the live feed is verified, 0 while it is not.", ["namespace"])
BUS_RECONNECTS = Counter("headgate_bus_reconnects_total", "Times that the gateway had to reconnect to Redis.", ["namespace"])
BUS_SUBSCRIPTIONS = Gauge("headgate_bus_subscriptions", "Channels and globs that the gateway listens to now.", ["namespace"])
LOG_LOST = Counter("headgate_log_lost_total", "Times that the log was lost: emptied, or replaced by another.", ["namespace"])
ROLLED_BACK = Counter(
    "headgate_rolled_back_events_total",
    "Events that this gateway had seen and that Redis lost with the end of its log.",
    ["namespace"],
)
PUBLISHED_ELSEWHERE = Counter(
    "headgate_published_elsewhere_total",
    "Events that this gateway published to a Redis server other than the one whose log it follows.",
    ["namespace"],
)
FENCE_AGE_SECONDS = Gauge("headgate_fence_age_seconds", "Time since the live feed was last proven to be complete.", ["namespace"])
LOG_EVENTS = Gauge("headgate_log_events", "Events that the log holds, as of the last fence.", ["namespace"])
LOG_BYTES = Gauge("headgate_log_bytes", "Bytes of the events that the log held some seconds ago.", ["namespace"])
LOG_RETENTION_SECONDS = Gauge(
    "headgate_log_retention_seconds", "How long an event stays in the log at the rate of the last seconds.", ["namespace"]
)
LOG_OLDEST_SECONDS = Gauge("headgate_log_oldest_seconds", "Age of the oldest event of the log some seconds ago.", ["namespace"])
ID_HOLD_SECONDS = Gauge(
    "headgate_id_hold_seconds", "Time for which the id of an event prevents a second copy; less at a high rate.", ["namespace"]
)
JOINS = Counter(
    "headgate_joins_total",
    "Clients that joined: new ones (fresh), and returning ones (resumed, or not_resumed if events or state were gone).",
    ["namespace", "kind"],
)
CLIENTS = Gauge("headgate_clients", "Clients connected now.", ["namespace"])
SUBSCRIPTIONS = Gauge("headgate_subscriptions", "Active subscriptions.", ["namespace"])
REFUSED = Counter("headgate_refused_total", "Refused requests of clients.", ["namespace", "code"])
SCHEMA_VIOLATIONS = Counter(
    "headgate_schema_violations_total",
    "Events that broke a schema of their topic, whether they were refused or published.",
    ["namespace"],
)
PAGE_REQUESTS = Counter(
    "headgate_page_requests_total",
    "Requests of pages to functions of the application: answered; refused or failed by the function; timed_out; cancelled.",
    ["namespace", "outcome"],
)
PAGE_REQUESTS_RUNNING = Gauge("headgate_page_requests_running", "Functions that answer requests of pages now.")
PAGE_REQUEST = Histograms("headgate_page_request", "Time in which functions of the application answered requests of pages.")
EPHEMERAL_DISCARDED = Counter(
    "headgate_ephemeral_discarded_total",
    "Ephemeral events that clients missed because they read too slowly; headgate_discarded_total includes them.",
    ["namespace"],
)
PUBLISH_BREAKER = Counter(
    "headgate_publish_breaker_total",
    "Steps of the circuit breakers for Redis: opened by an unanswered publish, closed, refused a publish at once.",
    ["event"],
)
EVICTED = Counter(
    "headgate_evicted_total",
    "Clients disconnected because their identity ended, or by an operator (disconnected).",
    ["namespace", "reason"],
)
QUESTIONS = Counter(
    "headgate_questions_total",
    "Questions to all gateway processes: answered here, dropped because too many waited, or failed.",
    ["kind", "outcome"],
)
MOVED = Counter(
    "headgate_moved_total",
    "Clients that were asked to reconnect because this gateway stops (restart) or has too many clients (rebalance).",
    ["reason"],
)
SESSIONS_REFUSED = Counter(
    "headgate_sessions_refused_total", "Engine.IO sessions refused: their address had too many pending ones."
)
PRESENCE_ROOMS = Gauge("headgate_presence_rooms", "Topics with members or watchers of this process.", ["namespace"])
PRESENCE_MEMBERS = Gauge("headgate_presence_members", "Members of topics that are connected to this process.", ["namespace"])
PRESENCE_WRITES = Counter("headgate_presence_writes_total", "Commands to Redis with changes of members.", ["namespace"])
PRESENCE_RESETS = Counter(
    "headgate_presence_resets_total",
    "Times that a page had to read a room again because it was too slow for the changes.",
    ["namespace"],
)
PRESENCE_DEAD = Counter(
    "headgate_presence_dead_total", "Processes whose members were removed because their heartbeats had stopped.", ["namespace"]
)
SHED = Counter(
    "headgate_shed_total",
    "Newcomers refused because the gateway is full (clients), its loop lags (lag), or connects are paused (paused).",
    ["reason"],
)
SHEDDING = Gauge("headgate_shedding", "1 while newcomers are refused because the loop lags.")
HOSTS_REFUSED = Counter("headgate_hosts_refused_total", "HTTP requests to a host name that this gateway does not serve.")
AUDIT_LEFT_OUT = Counter("headgate_audit_left_out_total", "Lines left out of the audit log because one address caused too many.")
LOGINS_THROTTLED = Counter("headgate_logins_throttled_total", "Logins refused unchecked: too many of their address had failed.")
LOGINS_LATE = Counter("headgate_logins_late_total", "Logins that the application's authenticator did not answer within 10 s.")
JWKS_FETCHES = Counter("headgate_jwks_fetches_total", "Fetches of token keys from HEADGATE_TOKEN_JWKS_URL.", ["outcome"])
SESSIONS_ENDED = Counter("headgate_sessions_ended_total", "Engine.IO sessions that ended.", ["reason"])
HTTP_CONNECTIONS = Gauge("headgate_http_connections", "HTTP connections open now, WebSockets not counted.")
HTTP_ENDED = Counter(
    "headgate_http_ended_total",
    "HTTP connections closed by the gateway: a deadline passed (headers, body, answer), too many connections, a bad request.",
    ["reason"],
)
ACCEPT_FAILURES = Counter("headgate_accept_failures_total", "Times that no file descriptor was left to accept a connection.")
LOOP_STALLS = Counter("headgate_loop_stalls_total", "Times that the event loop was blocked for more than half a second.")
LOOP_STALLED_SECONDS = Counter("headgate_loop_stalled_seconds_total", "Total time for which the event loop was blocked.")
PRIVATE_REDIS_STARTED_AGAIN = Counter(
    "headgate_private_redis_started_again_total", "Times that the private Redis was restarted after it had died."
)
GC_PAUSE = Histograms(
    "headgate_gc_pause",
    "Time for which a garbage collection stopped the gateway, by generation: 2 visits every object that is not frozen.",
    "generation",
)
GC_PAUSES = [GC_PAUSE.of(generation) for generation in "012"]
STATSD_FAULTS = Counter("headgate_statsd_faults_total", "Datagrams to StatsD that could not be sent, and failed name lookups.")
OUTPUT_LINES_DROPPED = Counts(
    "headgate_output_lines_dropped_total",
    "Lines of standard output and error, log lines included, that were dropped because their reader was too slow (stdout_full,"
    " stderr_full) or a write failed (stdout_failed, stderr_failed).",
    "reason",
)
WORKER_UP = Gauge("headgate_worker_up", "1 for a worker that answered this scrape, 0 for one that did not.", ["worker"])
MONITORED_EVENTS = Counter(
    "headgate_monitored_events_total", "Events counted by a counter of a monitoring consumer.", ["consumer", "name"]
)
MONITORED_VALUE = Gauge("headgate_monitored_value", "The newest number of a monitoring consumer's gauge.", ["consumer", "name"])
MONITOR_FAULTS = Counter(
    "headgate_monitor_faults_total",
    "Values that a monitoring consumer could not read, and alerts that it could not send.",
    ["consumer", "code"],
)
MAILS = Counter("headgate_mails_total", "E-mails sent, as single ones or digests.", ["consumer", "outcome"])
PUSHES = Counter(
    "headgate_pushes_total",
    "Web Push messages: sent; not sent because the endpoint was gone or the browser had unsubscribed.",
    ["consumer", "outcome"],
)
CONSUMER_HANDLED = Counter("headgate_consumer_handled_total", "Tasks that a consumer has completed.", ["consumer"])
CONSUMER_WITHDRAWN = Counter(
    "headgate_consumer_withdrawn_total",
    "Tasks that were cancelled because of their user: `read`, `seen`, `muted`, or `unwanted` (the function `wants`).",
    ["consumer", "why"],
)
CONSUMER_WANTS_FAULTS = Counter(
    "headgate_consumer_wants_faults_total",
    "Calls of the function `wants` that failed, so the notification was sent: `raised`, `late`, `no_boolean`.",
    ["consumer", "why"],
)
CONSUMER_RETRIED = Counter("headgate_consumer_retried_total", "Failed attempts of a consumer that it retries.", ["consumer"])
CONSUMER_WAITING = Gauge("headgate_consumer_waiting", "Tasks that wait, either deferred or for a retry.", ["consumer"])
CONSUMER_FULL = Gauge("headgate_consumer_full", "1 while so many tasks wait that the consumer reads no new events.", ["consumer"])
CONSUMER_DEAD = Counter("headgate_consumer_dead_total", "Dead letters: tasks that the consumer gave up on.", ["consumer", "why"])
CONSUMER_DEAD_DROPPED = Counter("headgate_consumer_dead_dropped_total", "Dead letters replaced by newer ones.", ["consumer"])
CONSUMER_MISSED = Counter(
    "headgate_consumer_missed_total",
    "Events trimmed before the consumer had read them, and waiting tasks that Redis has evicted.",
    ["consumer"],
)
CONSUMER_LOGS_LOST = Counter(
    "headgate_consumer_logs_lost_total", "Times that the log was lost: emptied, or replaced by another.", ["consumer"]
)
CONSUMERS_PROCESS_ENDED = Counter(
    "headgate_consumers_process_ended_total", "Times that the consumer process of this gateway ended unexpectedly."
)
CONSUMER_AGE_SECONDS = Gauge(
    "headgate_consumer_age_seconds",
    "Age of the oldest event of the log that the consumer has not taken, or not answered.",
    ["consumer"],
)
CONSUMER_LAG = Gauge(
    "headgate_consumer_lag_events",
    "Events that the consumer has not read yet, in the log of the Redis server that it uses.",
    ["consumer"],
)
CONSUMERS_ELSEWHERE = Gauge(
    "headgate_consumers_elsewhere",
    "Instances of consumers that use another Redis server than this gateway, so their lag does not describe this log.",
    ["namespace"],
)


Totalled: TypeAlias = Counter | Gauge | Counts


def totals(metric: Totalled) -> dict[str, float]:
    """Return the values of a counter or gauge, added up by its first label, or by "" without labels."""
    sums: dict[str, float] = {}
    for each in metric.collect():
        for sample in each.samples:
            if not sample.name.endswith("_created"):
                label = next(iter(sample.labels.values()), "")
                sums[label] = sums.get(label, 0.0) + sample.value
    return sums


def families() -> list[Family]:
    """Return name, kind, help, and samples (name, labels, value) of all metrics of this process."""
    return [
        (each.name, each.type, each.documentation, [(sample.name, dict(sample.labels), sample.value) for sample in each.samples])
        for each in REGISTRY.collect()
    ]


def exposition_of(given: Iterable[Family]) -> tuple[str, bytes]:
    """Return the content type and body of Prometheus text for metrics in the form of `families`."""
    registry: Any = SimpleNamespace(collect=lambda: map(_metric, given))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def exposition() -> tuple[str, bytes]:
    """Return all metrics of this process, in the form of `exposition_of`."""
    return exposition_of(families())
