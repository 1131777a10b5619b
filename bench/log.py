"""Measures the log: publishing with receipts, and five thousand clients that come back at once. The price in Redis: appending.py.

`python -m bench.log [--clients 5000]`; with `--clients 0` publishing alone. The gateway is pinned to one core; clients, publisher
and Redis share the other. The clients are those of the fault suite: Python, so that the time to resume is an upper bound, theirs
included.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from headgate.services.publisher import Publisher
from tests.fault.checker import History, assert_kept
from tests.fault.many_clients import Swarm
from tests.fault.redis_process import RedisProcess
from tests.fault.site import Load, Publishing, wait_until_had
from tests.support.gateway_process import GatewayProcess

from . import machine

PAYLOAD_BYTES = 256
PIPELINED_EVENTS, BATCH_EVENTS = 50_000, 500
ONE_BY_ONE_EVENTS = 5_000
MISSED_EVENTS = 1_000
LIVE_CLIENTS = 20
LIVE_PER_S = 50.0
BASELINE_S = 5.0
CONNECTS_AT_ONCE = 100
RESUME_DEADLINE_S = 120.0


@click.command()
@click.option("--clients", default=5000, show_default=True, help="Clients that come back at once; 0: none, only publish.")
def main(clients: int) -> None:
    """Measure, and print one JSON object."""
    server_core, load_core = machine.cores()
    results: dict[str, Any] = {"machine": machine.describe()}
    with tempfile.TemporaryDirectory() as folder, RedisProcess(Path(folder, "redis")) as redis:
        pin(redis.pid, server_core)  # while publishing is measured, Redis and the publisher have a core each
        pin(0, load_core)
        results["publish"] = measure_publish(redis.url)
        redis.call("FLUSHALL")
        if not clients:
            print(json.dumps(results, indent=2))
            return
        pin(redis.pid, load_core)
        with GatewayProcess(Path(folder, "gateway"), {"HEADGATE_REDIS_URL": redis.url}, ("--dev",)) as gateway:
            pin(gateway.pid, server_core)
            results["resume"] = measure_resume(redis, gateway, clients)
    print(json.dumps(results, indent=2))


def measure_publish(url: str) -> dict[str, Any]:
    """Publish in batches of one round trip, then one by one; return rates and latencies."""
    data = {"pad": "x" * (PAYLOAD_BYTES - 10)}
    with Publisher(url) as publisher:
        batch = [("bench.log", data)] * BATCH_EVENTS
        publisher.publish_many(batch)  # the library is loaded, the connection made
        began_s = time.perf_counter()
        for _ in range(PIPELINED_EVENTS // BATCH_EVENTS):
            assert len(publisher.publish_many(batch)) == BATCH_EVENTS
        pipelined_s = time.perf_counter() - began_s
        took_s = []
        for _ in range(ONE_BY_ONE_EVENTS):
            one_s = time.perf_counter()
            publisher.publish("bench.log", data)
            took_s.append(time.perf_counter() - one_s)
    return {
        "payload_bytes": PAYLOAD_BYTES,
        "pipelined_per_s": round(PIPELINED_EVENTS / pipelined_s),
        "batch_events": BATCH_EVENTS,
        "one_by_one_per_s": round(ONE_BY_ONE_EVENTS / sum(took_s)),
        "one_by_one_p50_us": round(1e6 * statistics.median(took_s)),
        "one_by_one_p99_us": round(1e6 * statistics.quantiles(took_s, n=100)[98]),
    }


def measure_resume(redis: RedisProcess, gateway: GatewayProcess, clients: int) -> dict[str, Any]:
    """Let clients go offline, publish, and bring them back all at once beside others that are live."""
    history = History()
    load = Load("bench", gateways=1, clients=clients, per_s=LIVE_PER_S, payload_bytes=PAYLOAD_BYTES, offline_s=0)
    live = Swarm([gateway.url], LIVE_CLIENTS, lambda index: ["load.#"], name="live").open()
    back = Swarm([gateway.url], clients, lambda index: [f"load.t{index % 50}.*"], name="back")
    try:
        back.open(at_once=CONNECTS_AT_ONCE, deadline_s=RESUME_DEADLINE_S)
        with Publishing(redis.url, load, history=history) as publishing:
            time.sleep(BASELINE_S)  # the length of the measurement
            before_s = time.monotonic()
            back.leave(hard=True)
            publishing.wait_for(MISSED_EVENTS, MISSED_EVENTS / LIVE_PER_S + 20)
            redis.call("CONFIG", "RESETSTAT")
            epoch, head = max(history.events)
            used_s = cpu_s(gateway.pid)
            back_s = time.monotonic()
            back.reopen()
            wait_until_had(back, history, epoch, head, RESUME_DEADLINE_S)
            resumed_s = time.monotonic() - back_s
            used_s = cpu_s(gateway.pid) - used_s
            publishing.stop()
        newest = max(history.events)
        for swarm in (live, back):
            wait_until_had(swarm, history, *newest, RESUME_DEADLINE_S)
            assert_kept(history, swarm.records, newest)
        seen = [entry for record in live.records for entry in record.seen()]
        return {
            "clients": clients,
            "events_missed_in_all": MISSED_EVENTS,
            "until_the_last_had_its_last_s": round(resumed_s, 2),
            "gateway_cpu_s": round(used_s, 2),
            "pages_read_from_redis": redis.call("INFO", "commandstats")["cmdstat_hget"]["calls"],
            "live_p99_ms_before": p99_ms(entry.took_s for entry in seen if entry.at_s < before_s),
            "live_p99_ms_meanwhile": p99_ms(e.took_s for e in seen if back_s <= e.at_s <= back_s + resumed_s),
            "live_max_ms_meanwhile": round(1e3 * max(e.took_s for e in seen if back_s <= e.at_s <= back_s + resumed_s), 1),
            "lost": 0,
            "doubled": 0,
        }
    finally:
        live.close()
        back.close()


def pin(pid: int, core: int) -> None:
    """Pin every thread of a process (0: our own) to a core."""
    for task in Path("/proc", str(pid or os.getpid()), "task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def p99_ms(took_s: Iterable[float]) -> float:
    """Return the 99th percentile of times in seconds, in milliseconds."""
    return round(1e3 * float(statistics.quantiles(took_s, n=100)[98]), 1)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
