"""A Cluster's cost of an event: PUBLISH against SPUBLISH, and namespaces on one node against as many on three.

`python -m bench.cluster [--rounds 5] [--events 30000]`. Everything is in the CPU time that Redis itself counts (INFO cpu), so it
does not matter that all nodes share the machine. Nobody listens: what other nodes take is the Cluster's own passing on.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import redis

from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.keys import log_key
from tests.support.clusters import Cluster, Node, start_cluster
from tests.support.redis_server import wait_until

from . import machine

PAYLOAD = '"' + "x" * 254 + '"'
BATCH_EVENTS = 500
RETENTION = (1000, 600_000, 65536)
SIZES = (3, 6)
SHARDS = 3


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--events", default=30_000, show_default=True, help="Events of each measurement.")
def main(rounds: int, events: int) -> None:
    """Measure, and print one JSON object."""
    results: dict[str, Any] = {"machine": machine.describe(), "events": events, "rounds": rounds}
    for size in SIZES:
        with cluster_of(size) as cluster:
            results[f"{size} nodes"] = measure_channels(cluster, rounds, events)
            if size == SHARDS:
                results["namespaces"] = measure_shards(cluster, rounds, events)
    print(json.dumps(results, indent=2))


@contextlib.contextmanager
def cluster_of(size: int) -> Iterator[Cluster]:
    """Start so many primaries that have the library."""
    with tempfile.TemporaryDirectory() as folder, start_cluster(Path(folder, "nodes"), size) as cluster:
        for node in cluster.nodes:
            node.call("FUNCTION", "LOAD", LOG_LIBRARY.source)
        yield cluster


def measure_channels(cluster: Cluster, rounds: int, events: int) -> dict[str, dict[str, float]]:
    """Publish to one namespace, on plain and on sharded channels in turns; return µs of CPU for each event."""
    owner = cluster.nodes[0]
    namespace = cluster.namespaces_on(owner, 1)[0]
    found: dict[str, list[list[float]]] = {"PUBLISH": [], "SPUBLISH": []}
    for _ in range(rounds):
        for command, costs in found.items():
            configure(owner, namespace, sharded=command == "SPUBLISH")
            costs.append(cost(cluster, {owner: [namespace]}, events, plain=command == "PUBLISH"))
    return {
        command: {
            "owner": median(each[0] for each in costs),
            "each other node": median(statistics.mean(each[1:]) for each in costs),
            "all": median(sum(each) for each in costs),
        }
        for command, costs in found.items()
    }


def measure_shards(cluster: Cluster, rounds: int, events: int) -> dict[str, dict[str, float]]:
    """Publish to three namespaces of one node, and to three of three, in turns.

    Return µs of CPU of the busiest node for each event, and how many more events three nodes take.
    """
    one = {cluster.nodes[0]: cluster.namespaces_on(cluster.nodes[0], SHARDS, "one")}
    three = {node: cluster.namespaces_on(node, 1, "each") for node in cluster.nodes[:SHARDS]}
    results = {}
    for command in ("PUBLISH", "SPUBLISH"):
        for names in (one, three):
            for node, namespaces in names.items():
                for namespace in namespaces:
                    configure(node, namespace, sharded=command == "SPUBLISH")
        pairs = [
            tuple(max(cost(cluster, names, events, plain=command == "PUBLISH")) for names in (one, three)) for _ in range(rounds)
        ]
        results[command] = {
            "one node": median(pair[0] for pair in pairs),
            "busiest of three": median(pair[1] for pair in pairs),
            "ratio": median(pair[0] / pair[1] for pair in pairs),
            "least ratio": round(min(pair[0] / pair[1] for pair in pairs), 2),
        }
    return results


def cost(cluster: Cluster, names: dict[Node, list[str]], events: int, *, plain: bool) -> list[float]:
    """Publish so many events in all, evenly; return each node's µs of CPU for one of them."""
    keys = [(node, log_key(namespace)) for node, namespaces in names.items() for namespace in namespaces]
    received = [messages(node) for node in cluster.nodes]
    before = [cpu_s(node) for node in cluster.nodes]
    for node, key in keys:
        publish(node, key, events // len(keys))
    if plain:  # what the owner has sent is dealt with a moment later
        sent = [sum(events // len(keys) for owner, _ in keys if owner is not node) for node in cluster.nodes]
        wait_until(
            lambda: all(messages(node) - was >= more for node, was, more in zip(cluster.nodes, received, sent, strict=True)),
            "every node to have every event",
        )
    return [(cpu_s(node) - was) * 1e6 / events for node, was in zip(cluster.nodes, before, strict=True)]


def publish(node: Node, key: str, events: int) -> None:
    """Publish events in batches of one round trip."""
    with redis.Redis.from_url(node.url) as client:
        for _ in range(events // BATCH_EVENTS):
            pipeline: Any = client.pipeline(transaction=False)
            for _ in range(BATCH_EVENTS):
                pipeline.execute_command("FCALL", "headgate_publish", 1, key, "orders.42.shipped", PAYLOAD)
            pipeline.execute()


def configure(node: Node, namespace: str, *, sharded: bool) -> None:
    node.call("FCALL", "headgate_configure", 1, log_key(namespace), *RETENTION, *(("", "sharded") if sharded else ()))


def messages(node: Node) -> int:
    """Return how many publishes of other nodes have come in."""
    said = node.call("CLUSTER", "INFO")
    lines = said if isinstance(said, dict) else dict(line.split(":", 1) for line in said.decode().split("\r\n") if ":" in line)
    return int(lines.get("cluster_stats_messages_publish_received", 0))


def cpu_s(node: Node) -> float:
    said = node.call("INFO", "cpu")
    return float(said["used_cpu_user"]) + float(said["used_cpu_sys"])


def median(values: Iterable[float]) -> float:
    found: Sequence[float] = list(values)
    return round(statistics.median(found), 2)


if __name__ == "__main__":
    main()
