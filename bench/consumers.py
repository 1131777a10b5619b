"""Measures consumers: events per second of a free sink, and the cost of a backlog that is worked off for live delivery.

`python -m bench.consumers [--events 100000] [--rounds 5] [--pace 10000 --pace 3000]`. For the first part the consumer is pinned
to one core, Redis to the other. For the second the gateway has one core, Redis and the load generator the other, and the
consumer, as nice as beside a gateway, takes what they leave of both. A process that only computes is put in its place as well:
what that costs live delivery, a busy machine costs; the rest is the consumer's, which shares Redis.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import click
from headgate.consumers.process.command import NICENESS

from headgate.consumers import Consumer, Delivery
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import group_key
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.fault.redis_process import RedisProcess

from . import machine
from .log import pin
from .publishing import TOPIC
from .stage import Stage, stage
from .variants import VARIANTS, headgate_connect

PAYLOAD_BYTES = 256
BATCH_EVENTS = 500
LIVE_CLIENTS, DELIVERIES_PER_S = 1_000, 10_000
LIVE_S = 6
# Longer than is worked off meanwhile.
BACKLOG_EVENTS = 15_000 * LIVE_S
DEADLINE_S = 300.0


class Free(Consumer):
    """Does nothing, one event at a time. `wanted` of them set `reached`."""

    lock = threading.Lock()
    count = wanted = 0
    reached = threading.Event()

    def handle(self, delivery: Delivery) -> None:
        """Count it."""
        self.add(1)

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Count them."""
        self.add(len(deliveries))

    def add(self, count: int) -> None:
        """Count, over all workers."""
        with self.lock:
            Free.count += count
            if Free.count >= Free.wanted:
                Free.reached.set()


class FreeBatch(Free):
    """Does nothing, a page at a time."""

    batch = True


@click.command()
@click.option("--events", default=100_000, show_default=True, help="Length of each backlog.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds; medians are shown.")
@click.option("--pace", default=(10_000, 3_000), show_default=True, multiple=True, help="Events per second beside live delivery.")
def main(events: int, rounds: int, pace: tuple[int, ...]) -> None:
    """Measure, print one JSON object and a table."""
    server_core, load_core = machine.cores()
    results: dict[str, Any] = {"machine": machine.describe(), "events": events, "payload_bytes": PAYLOAD_BYTES}
    with tempfile.TemporaryDirectory() as folder, RedisProcess(Path(folder, "redis")) as redis:
        pin(redis.pid, load_core)
        pin(0, server_core)
        rates: dict[str, list[int]] = {}
        for number in range(rounds):
            for name, consumer, workers in (("batch", FreeBatch, 1), ("single", Free, 1), ("single, 2 workers", Free, 2)):
                rates.setdefault(name, []).append(
                    measure_rate(redis.url, f"{consumer.__name__}-{number}", consumer, workers, events)
                )
                redis.call("FLUSHALL")
        results["events_per_s"] = {name: {"median": statistics.median(found), "all": found} for name, found in rates.items()}
    pin(0, load_core)
    results["live"] = [row for _ in range(rounds) for row in (measure_live(None), *map(measure_live, pace))]
    print(json.dumps(results, indent=2))
    print(table(results))


def measure_rate(url: str, name: str, consumer: type[Consumer], workers: int, events: int) -> int:
    """Let a free consumer work off a backlog; return events per second, read, matched, handled and acknowledged."""
    client = open_client(url)
    EventLog(DEFAULT_NAMESPACE, client, 65536).configure(2 * events, 86400)
    client.close()
    Free.count, Free.wanted = 0, events
    Free.reached.clear()
    runner = open_runner(url, name, consumer, RunnerOptions(workers=workers, max_per_s=0))
    publish_backlog(url, events)
    began_s = time.perf_counter()
    runner.start()
    assert Free.reached.wait(DEADLINE_S)
    took_s = time.perf_counter() - began_s
    assert runner.stop()
    return round(events / took_s)


def measure_live(pace: int | None) -> dict[str, Any]:
    """Measure live latency before, while and after a process of its own is at work beside the gateway.

    It works off a backlog at `pace` events per second; None: it only computes.
    """
    here = dataclasses.replace(VARIANTS["headgate"], connect=headgate_connect(subscriptions=[{"pattern": TOPIC}]))
    spawning = multiprocessing.get_context("spawn")
    ready, go = spawning.Event(), spawning.Event()
    os.environ["HEADGATE_LOG_MAX_EVENTS"] = str(2 * BACKLOG_EVENTS)
    with stage(here, size_bytes=PAYLOAD_BYTES, room=LIVE_CLIENTS) as on, open_client(on.bus.url) as client:
        on.generator.connects(LIVE_CLIENTS)
        process = spawning.Process(target=_be_beside, args=(on.bus.url, pace, ready, go), daemon=True)
        process.start()
        try:
            assert ready.wait(DEADLINE_S)
            _latency(on)  # warm
            calm = _latency(on)
            go.set()
            before = _position(client)
            beside = _latency(on)
            handled = _position(client) - before
        finally:
            process.kill()
            process.join()
        calm_again = _latency(on)
    assert handled < BACKLOG_EVENTS
    return {
        "beside": f"a consumer, {pace:,}/s" if pace else "a process that computes",
        "p50_ms": [round(run["p50"] / 1000, 2) for run in (calm, beside, calm_again)],
        "p99_ms": [round(run["p99"] / 1000, 2) for run in (calm, beside, calm_again)],
        "p99_ratio": round(2 * beside["p99"] / (calm["p99"] + calm_again["p99"]), 2),
        "consumer_events_per_s": round(handled / LIVE_S),
    }


def _latency(on: Stage) -> dict[str, Any]:
    """Deliver on schedule; return percentiles in microseconds from an event's planned time."""
    answer = on.generator.ask("open", DELIVERIES_PER_S / LIVE_CLIENTS, LIVE_S * 1000, takes_s=LIVE_S)
    assert not answer["missing"]
    found: dict[str, Any] = answer["microseconds"]
    return found


def publish_backlog(url: str, events: int) -> None:
    """Publish events for nobody but the consumer."""
    data = {"pad": "x" * (PAYLOAD_BYTES - 10)}
    with Publisher(url) as publisher:
        for _ in range(events // BATCH_EVENTS):
            publisher.publish_many([("backlog.bench", data)] * BATCH_EVENTS)


def open_runner(url: str, name: str, consumer: type[Consumer], options: RunnerOptions) -> Runner:
    """Open a consumer's group where the log ends now."""
    runner = Runner(ConsumerSpec(name, consumer, consumer.Options(), ("#",), DEFAULT_NAMESPACE, options), url, Settings())
    runner.open()
    return runner


def table(results: dict[str, Any]) -> str:
    """Return the medians as Markdown."""
    lines = ["| free consumer | events per second |", "|---|---|"]
    lines += [f"| {name} | {found['median']:,.0f} |" for name, found in results["events_per_s"].items()]
    lines += [
        "",
        "| beside | p99 before, beside, after: ms | ratio, each round | median | consumer, events/s |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["beside"] for row in results["live"]):
        rows = [row for row in results["live"] if row["beside"] == name]
        ratios = [row["p99_ratio"] for row in rows]
        each, median = ", ".join(map(str, ratios)), statistics.median(ratios)
        p99s = [round(statistics.median(found), 1) for found in zip(*(row["p99_ms"] for row in rows), strict=True)]
        rate = statistics.median(row["consumer_events_per_s"] for row in rows)
        lines.append(f"| {name} | {', '.join(map(str, p99s))} | {each} | {median} | {rate:,.0f} |")
    return "\n".join(lines)


_BACKLOG_GROUP = "bench-live"


def _be_beside(url: str, pace: int | None, ready: Event, go: Event) -> None:
    """Work off a backlog, or compute, until killed: as nice as `--with-consumers` makes it, and where the system decides."""
    os.nice(NICENESS)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    if pace is not None:
        runner = open_runner(url, _BACKLOG_GROUP, Free, RunnerOptions(max_per_s=pace))
        publish_backlog(url, BACKLOG_EVENTS)
    ready.set()
    go.wait()
    if pace is not None:
        runner.start()
        threading.Event().wait()
    while True:
        pass


def _position(client: Client) -> int:
    return int(call(client, "HGET", group_key(DEFAULT_NAMESPACE, _BACKLOG_GROUP), "position") or 0)


if __name__ == "__main__":
    main()
