"""The monitoring consumer exports counters and gauges to StatsD and Prometheus, and alerts on rates and silence.

In: pages of events. Out: their totals. All instances share the counts of alerts in Redis, in buckets by the time of the events.
One instance at a time judges them and publishes the notices. Every name and label comes from the configuration.

A page handled twice, because a process died within it, is counted twice (at least once, as everywhere).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import ClassVar

import msgspec
import structlog

from headgate.consumers.base import Consumer, Context, Delivery
from headgate.errors import BusUnavailable, HeadgateError, InvalidTopic
from headgate.events.topic import matches, overlaps, user_topic
from headgate.runtime.logging import throttled
from headgate.runtime.metrics import MONITOR_FAULTS, MONITORED_EVENTS, MONITORED_VALUE
from headgate.runtime.statsd import Statsd
from headgate.settings.options import HOST_AND_PORT, PATTERN, STATSD_PREFIX, Kind, matching, option, required, tables

from .alerts import Record, Rule, bucket, bucket_width_s, judge, notice_data, notified, window_buckets

MAX_METRICS = 256
MAX_ALERTS = 64
# Topics with cached rules.
MAX_TOPICS = 4096
# Counts outlive their window by this time, so alerts can be judged up to this late.
KEEP_S = 600
# The judging instance renews its lease every second. Another instance takes over after this time.
LEASE_S = 5.0
RECORDS_TTL_S = 30 * 86400
_RECORDS = "alerts"
# Faults that the consumer skips: the code for the metric, and the line for the log.
_FAULTS = {
    "not_a_number": "a gauge found no number",
    "statsd": "StatsD was not reached",
    "bad_record": "the records of alerts could not be read; they start again",
    "not_published": "an alert could not be published; it is tried again",
}

log = structlog.get_logger("headgate.monitoring")
_METRIC = matching(re.compile(r"[a-z0-9_]{1,64}", re.ASCII), "1 to 64 characters of [a-z0-9_]")
_VALUE = re.compile(r"data(?:\.[^.]{1,64}){0,16}")
_records = msgspec.json.Decoder(dict[str, Record])
_encode = msgspec.json.Encoder().encode


def _path(raw: str) -> tuple[str, ...]:
    if not _VALUE.fullmatch(raw):
        raise ValueError
    return tuple(raw.split(".")[1:])


@dataclass(frozen=True, slots=True)
class CounterRule:
    """One table of `counters`."""

    name: str = option(required(), _METRIC, "Name of the counter.")
    pattern: str = option(required(), PATTERN, "The consumer's events that it counts.")


@dataclass(frozen=True, slots=True)
class GaugeRule:
    """One table of `gauges`."""

    name: str = option(required(), _METRIC, "Name of the gauge.")
    pattern: str = option(required(), PATTERN, "The consumer's events that set it.")
    value: tuple[str, ...] = option(
        required(),
        Kind(_path, "a path such as data.depth"),
        "Path of the number in the event; a number in the path is a place in a list, from 0.",
    )


@dataclass(frozen=True, slots=True)
class MonitoringOptions:
    """The options of the monitoring consumer."""

    statsd: tuple[str, int] | None = option(None, HOST_AND_PORT, "StatsD server (UDP) that gets the counters and gauges.")
    prefix: str = option("headgate", STATSD_PREFIX, "Prefix of names in StatsD; a dot follows it.")
    counters: tuple[CounterRule, ...] = option((), tables(CounterRule, MAX_METRICS), "Counters of events.")
    gauges: tuple[GaugeRule, ...] = option((), tables(GaugeRule, MAX_METRICS), "Gauges that hold the newest number in an event.")
    alerts: tuple[Rule, ...] = option((), tables(Rule, MAX_ALERTS), "Alerts.")


class Monitoring(Consumer):
    """Counts, and judges alerts once a second."""

    Options = MonitoringOptions
    batch = True
    tick_s: ClassVar[float | None] = 1.0

    def __init__(self, options: MonitoringOptions, context: Context) -> None:
        super().__init__(options, context)
        self._matching = lru_cache(MAX_TOPICS)(self._match)
        self._statsd = Statsd(options.statsd, lambda error: self._fault("statsd", str(error))) if options.statsd else None
        self._gauged_ms: dict[str, int] = {}
        self._log = throttled(log.warning)
        self._counts_ttl_s = KEEP_S + max((2 * rule.window_s for rule in options.alerts), default=0)
        self._origin = hashlib.sha256(f"{context.namespace}:{context.name}".encode()).hexdigest()[:16]

    @classmethod
    def check(cls, options: MonitoringOptions, patterns: Sequence[str]) -> list[str]:
        """Report duplicate names, rules that can match nothing, and alerts that would trigger each other in a cycle."""
        faults = []
        metrics = [rule.name for rule in options.counters] + [rule.name for rule in options.gauges]
        for kind, names in (("counters and gauges", metrics), ("alerts", [rule.name for rule in options.alerts])):
            taken = [name for name, times in Counter(names).items() if times > 1]
            faults += [f"{kind}: the name {name} is used more than once" for name in taken]
        if len(metrics) > MAX_METRICS:
            faults.append(f"{len(metrics)} counters and gauges: at most {MAX_METRICS} are allowed")
        faults += [
            f"{kind}[{rule.name}].pattern={rule.pattern!r}: no topic matches it and the consumer's patterns"
            for kind in ("counters", "gauges", "alerts")
            for rule in getattr(options, kind)
            if not any(overlaps(rule.pattern, one) for one in patterns)
        ]
        return faults + _topic_faults(options.alerts)

    def start(self) -> None:
        """Resolve the StatsD server, and export every counter with 0."""
        for rule in self.options.counters:
            MONITORED_EVENTS.labels(self.context.name, rule.name)
        if self._statsd:
            self._statsd.start()

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Count a page. Alerts in Redis come first, because only they may fail."""
        counts: Counter[str] = Counter()
        amounts: Counter[tuple[str, int]] = Counter()
        values: dict[str, float] = {}
        for delivery in deliveries:
            counters, gauges, alerts = self._matching(delivery.topic)
            counts.update(counters)
            amounts.update((_counted_as(rule), bucket(rule.window_s, delivery.time_ms)) for rule in alerts)
            if gauges:
                values.update(self._read_gauges(gauges, delivery))
        if amounts:
            self.context.state.add(amounts, self._counts_ttl_s)
        for name, count in counts.items():
            MONITORED_EVENTS.labels(self.context.name, name).inc(count)
        for name, value in values.items():
            MONITORED_VALUE.labels(self.context.name, name).set(value)
        if self._statsd:
            prefix = self.options.prefix
            self._statsd.send(
                {f"{prefix}.{name}": count for name, count in counts.items()},
                {f"{prefix}.{name}": value for name, value in values.items()},
            )

    def tick(self) -> None:
        """Judge the alerts if this instance holds the lease.

        They are judged as of the time up to which everything has been counted. If that is too long ago they are not judged,
        because counts may have expired, and past silence no longer matters.
        """
        rules = self.options.alerts
        if not rules or not self.context.state.lease(_RECORDS, LEASE_S):
            return
        progress = self.context.state.progress()  # before the counts, so that they are complete up to then
        lag_s = (progress.now_ms - progress.handled_ms) / 1000
        before = self._read_records()
        counts = self.context.state.sums(
            [(_counted_as(rule), window_buckets(rule.window_s, progress.handled_ms)) for rule in rules]
        )
        records = {}
        for rule, count in zip(rules, counts, strict=True):
            record = before.get(rule.name)
            if lag_s <= (min(rule.window_s, KEEP_S) if rule.kind == "absence" else KEEP_S):
                record = judge(rule, record, progress.handled_ms, round(count))
            if record is not None:
                records[rule.name] = record
        if any(record.notice is not None for record in records.values()):
            self._write_records(records)
            self._publish(rules, records)
        self._write_records(records)

    def preview(self, delivery: Delivery) -> str:
        """Name the rules that count an event."""
        counters, gauges, alerts = self._matching(delivery.topic)
        prefix, values = self.options.prefix, self._read_gauges(gauges, delivery)
        lines = [f"{prefix}.{name} + 1" for name in counters]
        lines += [f"{prefix}.{name} = {value:.15g}" for name, value in values.items()]
        lines += [f"alert {rule.name}: one event" for rule in alerts]
        return "\n".join(lines) or "nothing counts it"

    def close(self) -> None:
        """Close the socket to StatsD."""
        if self._statsd:
            self._statsd.close()

    def _match(self, topic: str) -> tuple[list[str], list[GaugeRule], list[Rule]]:
        """Return the counters, gauges and alerts for a topic."""
        counters = [rule.name for rule in self.options.counters if matches(rule.pattern, topic)]
        gauges = [rule for rule in self.options.gauges if matches(rule.pattern, topic)]
        return counters, gauges, [rule for rule in self.options.alerts if matches(rule.pattern, topic)]

    def _read_gauges(self, rules: Iterable[GaugeRule], delivery: Delivery) -> dict[str, float]:
        """Return the numbers in an event, except for gauges set by a newer event, because an older event may repeat."""
        data = delivery.value()
        values = {}
        for rule in rules:
            if (value := _number_at(data, rule.value)) is None:
                self._fault("not_a_number", f"gauges[{rule.name}]: no number there")
            elif delivery.time_ms >= self._gauged_ms.get(rule.name, 0):
                self._gauged_ms[rule.name] = delivery.time_ms
                values[rule.name] = value
        return values

    def _read_records(self) -> dict[str, Record]:
        raw = self.context.state.get(_RECORDS)
        try:
            return _records.decode(raw) if raw else {}
        except msgspec.DecodeError as error:
            self._fault("bad_record", str(error))
            return {}

    def _write_records(self, records: dict[str, Record]) -> None:
        self.context.state.put(_RECORDS, _encode(records), RECORDS_TTL_S)

    def _publish(self, rules: Iterable[Rule], records: dict[str, Record]) -> None:
        """Publish the due notices, and update `records`. The next tick retries a notice that Redis refused.

        Raises BusUnavailable. The records in Redis then still hold the unpublished notices.
        """
        for rule in rules:
            record = records.get(rule.name)
            if record is None or record.notice is None:
                continue
            event_id = f"alert:{self._origin}:{rule.name}:{record.began_ms}:{record.number}"
            topic, data = _topic_of(rule), notice_data(rule, record)
            try:
                self.context.publisher.publish(topic, data, event_id, self.context.namespace, user=rule.user)
            except BusUnavailable:
                raise
            except HeadgateError as error:
                self._fault("not_published", f"alerts[{rule.name}]: {error.message}")
            else:
                records[rule.name] = notified(record)
                log.info("alert told", consumer=self.context.name, alert=rule.name, state=data["state"], value=data["value"])

    def _fault(self, code: str, reason: str) -> None:
        """Count a fault that the consumer skips; log each kind once a minute."""
        MONITOR_FAULTS.labels(self.context.name, code).inc()
        self._log(_FAULTS[code], consumer=self.context.name, reason=reason)


def _counted_as(rule: Rule) -> str:
    """Return the name of an alert's counts. It includes the width of the buckets, so another width has separate counts."""
    return f"{rule.name}:{bucket_width_s(rule.window_s)}"


def _topic_of(rule: Rule) -> str:
    return rule.topic or f"alerts.{rule.name}"


def _topic_faults(rules: Sequence[Rule]) -> list[str]:
    published: dict[str, str] = {}
    faults = []
    for rule in rules:
        try:
            published[rule.name] = user_topic(rule.user, _topic_of(rule)) if rule.user else _topic_of(rule)
        except InvalidTopic as error:
            faults.append(f"alerts[{rule.name}]: {error.message}")
    sets_off = {rule.name: [name for name, topic in published.items() if matches(rule.pattern, topic)] for rule in rules}
    try:
        TopologicalSorter(sets_off).prepare()
    except CycleError as error:
        faults.append(f"alerts: their own events would set them off for ever: {' → '.join(error.args[1])}")
    return faults


def _number_at(value: object, path: Iterable[str]) -> float | None:
    """Return the number at a path; None if it is missing, of another type, or beyond the range of a float."""
    try:
        for word in path:
            match value:
                case list():
                    value = value[int(word)]
                case dict():
                    value = value[word]
                case _:
                    return None
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
