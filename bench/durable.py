"""Measures receipts that wait: one publisher without `durable`, with a replica, and with the disk, in turn.

`python -m bench.durable [--events 1000] [--rounds 5]`. One primary with an append-only file and one replica, both on loopback;
the publisher has one core, both servers the other. Each round measures every way once, so that a slow minute of the machine
hits all of them. A way is a value of `durable` and an `appendfsync` of the primary.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headgate.services.publisher import Durable, Publisher
from tests.fault.redis_process import RedisProcess
from tests.support.redis_server import wait_until

from . import machine
from .log import pin

PAYLOAD_BYTES = 256
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Way:
    """How a publisher waits, and how the primary syncs its file."""

    name: str
    durable: Durable
    appendfsync: str


WAYS = (
    Way("none", None, "everysec"),
    Way("replica", "replica", "everysec"),
    Way("disk", "disk", "everysec"),
    Way("none, always", None, "always"),
    Way("disk, always", "disk", "always"),
)


@click.command()
@click.option("--events", default=1000, show_default=True, help="Events of each way in each round.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the figures are medians of their medians.")
def main(events: int, rounds: int) -> None:
    """Measure, and print one JSON object."""
    server_core, load_core = machine.cores()
    described = machine.describe()
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as (primary, replica):
        for server in (primary, replica):
            pin(server.pid, server_core)
        pin(0, load_core)
        rows: dict[str, list[list[float]]] = {way.name: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                rows[way.name].append(published(primary, way, events))
        version = primary.call("INFO", "server")
    print(
        json.dumps(
            {
                "machine": described,
                "server": version.get("valkey_version", version["redis_version"]),
                "payload_bytes": PAYLOAD_BYTES,
                "events": events,
                "rounds": rounds,
                "ways": {name: figures(took_s) for name, took_s in rows.items()},
            },
            indent=2,
        )
    )


@contextmanager
def servers(folder: Path) -> Iterator[tuple[RedisProcess, RedisProcess]]:
    """Start a primary, and a replica that has followed it."""
    with ExitStack() as started:
        primary, replica = (started.enter_context(RedisProcess(folder / name)) for name in ("primary", "replica"))
        replica.call("REPLICAOF", "127.0.0.1", primary.port)
        wait_until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up", "the replica follows")
        yield primary, replica


def published(primary: RedisProcess, way: Way, events: int) -> list[float]:
    """Publish one event after the other; return how long each took."""
    primary.call("CONFIG", "SET", "appendfsync", way.appendfsync)
    data = {"pad": "x" * (PAYLOAD_BYTES - 10)}
    took_s = []
    with Publisher(primary.url, timeout_s=TIMEOUT_S, durable=way.durable) as publisher:
        publisher.publish("bench.durable", data)  # the library is loaded, the connection made
        for _ in range(events):
            began_s = time.perf_counter()
            publisher.publish("bench.durable", data)
            took_s.append(time.perf_counter() - began_s)
    return took_s


def figures(rounds: list[list[float]]) -> dict[str, Any]:
    """Return the medians over the rounds of rate and latency, and the rate of each round."""
    rates = [len(took_s) / sum(took_s) for took_s in rounds]
    return {
        "per_s": round(statistics.median(rates)),
        "per_s_each_round": [round(rate) for rate in rates],
        "p50_ms": round(1e3 * statistics.median(statistics.median(took_s) for took_s in rounds), 3),
        "p99_ms": round(1e3 * statistics.median(statistics.quantiles(took_s, n=100)[98] for took_s in rounds), 3),
    }


if __name__ == "__main__":
    main()
