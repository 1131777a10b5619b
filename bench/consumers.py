"""What consumers cost and give: events per second for a free sink, and what a backlog being worked off costs live delivery.

`python -m bench.consumers [--events 100000] [--rounds 3]`. The consumer is pinned to one core, Redis to the other; for the second
part the gateway has one core, Redis, clients and publisher the other, and the consumer what they leave of both.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from headgate.consumers import Consumer, Delivery
from headgate.consumers.command import NICENESS
from headgate.consumers.runner import Runner
from headgate.consumers.spec import ConsumerSpec, RunnerOptions
from headgate.event_log import EventLog
from headgate.layout import DEFAULT_NAMESPACE
from headgate.publisher import Publisher
from headgate.redis_link import open_client
from headgate.settings import Settings
from tests.fault.checker import History
from tests.fault.many_clients import Swarm
from tests.fault.redis_process import RedisProcess
from tests.fault.site import Load, Publishing, wait_until_had
from tests.gateway_process import GatewayProcess

from . import machine
from .log import p99_ms, pin

PAYLOAD_BYTES = 256
BATCH_EVENTS = 500
LIVE_CLIENTS = 20
LIVE_PER_S = 100.0
LIVE_S = 10.0
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
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds; medians are shown.")
def main(events: int, rounds: int) -> None:
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
        gateway_settings = {"HEADGATE_REDIS_URL": redis.url, "HEADGATE_LOG_MAX_EVENTS": "2000000"}
        with GatewayProcess(Path(folder, "gateway"), gateway_settings, ("--dev",)) as gateway:
            pin(gateway.pid, server_core)
            results["live"] = [measure_live(redis, gateway) for _ in range(rounds)]
    print(json.dumps(results, indent=2))
    print(table(results))


def measure_rate(url: str, name: str, consumer: type[Consumer], workers: int, events: int) -> int:
    """Let a free consumer work off a backlog; return events per second, read, matched, handled and acknowledged."""
    client = open_client(url)
    EventLog(DEFAULT_NAMESPACE, client, 65536).configure(2 * events, 86400)
    client.close()
    Free.count, Free.wanted = 0, events
    Free.reached.clear()
    runner = start(url, name, consumer, workers, run=False)
    publish_backlog(url, events)
    began_s = time.perf_counter()
    runner.start()
    assert Free.reached.wait(DEADLINE_S)
    took_s = time.perf_counter() - began_s
    assert runner.stop()
    return round(events / took_s)


def measure_live(redis: RedisProcess, gateway: GatewayProcess) -> dict[str, Any]:
    """Measure live latency without, then with a consumer in a process of its own that works off a backlog."""
    history = History()
    load = Load("bench", gateways=1, clients=LIVE_CLIENTS, per_s=LIVE_PER_S, payload_bytes=PAYLOAD_BYTES, offline_s=0)
    swarm = Swarm([gateway.url], LIVE_CLIENTS, lambda index: ["load.#"], name="live").open()
    working = multiprocessing.get_context("spawn").Process(target=_work_off, args=(redis.url,), daemon=True)
    try:
        with Publishing(redis.url, load, history=history) as publishing:
            began_s = time.monotonic()
            publishing.wait_for(int(LIVE_PER_S * LIVE_S), LIVE_S + 30)
            alone_s = time.monotonic()
            working.start()
            # As soon as it is at work: before that its process loads Python.
            position = _wait_until_moving(redis)
            busy_s = time.monotonic()
            publishing.wait_for(int(LIVE_PER_S * LIVE_S), LIVE_S + 30)
            ended_s = time.monotonic()
            handled = _position(redis) - position
            publishing.stop()
        wait_until_had(swarm, history, *max(history.events), DEADLINE_S)
        seen = [entry for record in swarm.records for entry in record.seen()]
        alone = p99_ms(entry.took_s for entry in seen if began_s <= entry.at_s <= alone_s)
        beside = p99_ms(entry.took_s for entry in seen if busy_s <= entry.at_s <= ended_s)
        return {
            "p99_ms_alone": alone,
            "p99_ms_beside_a_backlog": beside,
            "ratio": round(beside / alone, 2),
            "consumer_events_per_s_meanwhile": round(handled / (ended_s - busy_s)),
        }
    finally:
        if working.is_alive():
            working.kill()
        swarm.close()


def publish_backlog(url: str, events: int) -> None:
    """Publish events for nobody but the consumer."""
    data = {"pad": "x" * (PAYLOAD_BYTES - 10)}
    with Publisher(url) as publisher:
        for _ in range(events // BATCH_EVENTS):
            publisher.publish_many([("backlog.bench", data)] * BATCH_EVENTS)


def start(url: str, name: str, consumer: type[Consumer], workers: int, *, run: bool = True) -> Runner:
    """Open a consumer's group where the log ends now, and have it run, or not yet."""
    options = RunnerOptions(workers=workers)
    runner = Runner(ConsumerSpec(name, consumer, consumer.Options(), ("#",), DEFAULT_NAMESPACE, options), url, Settings())
    runner.open()
    if run:
        runner.start()
    return runner


def table(results: dict[str, Any]) -> str:
    """Return the medians as Markdown."""
    lines = ["| free consumer | events per second |", "|---|---|"]
    lines += [f"| {name} | {found['median']:,.0f} |" for name, found in results["events_per_s"].items()]
    lines += ["", "| live p99 alone, ms | beside a backlog, ms | ratio | consumer, events/s |", "|---|---|---|---|"]
    for row in results["live"]:
        alone, beside, ratio, rate = row.values()
        lines.append(f"| {alone} | {beside} | {ratio} | {rate:,} |")
    return "\n".join(lines)


_BACKLOG_GROUP = "bench-live"


def _work_off(url: str) -> None:
    """Publish a backlog that is longer than the measurement and work it off, until killed: as nice as beside a gateway."""
    os.nice(NICENESS)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # no core of its own, and none that it may not use: as the system decides
    runner = start(url, _BACKLOG_GROUP, Free, 1, run=False)
    publish_backlog(url, int(20_000 * LIVE_S))
    runner.start()
    threading.Event().wait()


def _position(redis: RedisProcess) -> int:
    return int(redis.call("HGET", f"hg:{{{DEFAULT_NAMESPACE}}}:group:{_BACKLOG_GROUP}", "position") or 0)


def _wait_until_moving(redis: RedisProcess) -> int:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        before = _position(redis)
        time.sleep(0.1)
        if 0 < before < (now := _position(redis)):
            return now
    raise AssertionError("the consumer did not begin")


if __name__ == "__main__":
    main()
