"""Measures the CPU of a gateway for events of other gateways' users: the whole feed against one that follows its own clients.

`python -m bench.interest [--users 1000] [--events 5000] [--per-s 1000] [--rounds 3]`. Three gateways share a core; the users are
split between two of them, the third has none. Every user wants `users.<user>.#`. Clients, publisher and Redis have the other.
Events go to one user each, in turn. The whole feed is brought about by one more client of each gateway, whose pattern `*` needs
it and matches none of them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import click

from headgate.services.publisher import Publisher
from tests.fault.many_clients import Swarm
from tests.fault.redis_process import RedisProcess
from tests.support.gateway_process import GatewayProcess

from . import machine
from .log import cpu_s, pin

PAYLOAD_BYTES = 256
CONNECTS_AT_ONCE = 100
BATCH_EVENTS = 10
FEEDS = ("whole", "narrow")
# Longer than what nobody wants any more lingers, so that no feed is measured while it changes.
SETTLE_S = 8.0


@click.command()
@click.option("--users", default=1000, show_default=True, help="Users, split between the gateways.")
@click.option("--events", default=5000, show_default=True, help="Events per round.")
@click.option("--per-s", default=1000.0, show_default=True, help="How many are published per second.")
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds; the table has medians.")
def main(users: int, events: int, per_s: float, rounds: int) -> None:
    """Measure, and print a table."""
    server_core, load_core = machine.cores()
    rows: dict[str, list[tuple[float, ...]]] = {feed: [] for feed in FEEDS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(RedisProcess(folder / "redis"))
        settings = {"HEADGATE_REDIS_URL": redis.url}
        gateways = [stack.enter_context(GatewayProcess(folder / f"gateway-{n}", settings, ("--dev",))) for n in range(3)]
        for gateway in gateways:
            pin(gateway.pid, server_core)
        pin(redis.pid, load_core)
        pin(0, load_core)
        urls = [gateway.url for gateway in gateways]
        swarm = stack.enter_context(closing(Swarm(urls[:2], users, lambda index: [f"users.u{index}.#"])))
        swarm.open(at_once=CONNECTS_AT_ONCE)
        for _ in range(rounds):
            for feed in FEEDS:
                with closing(Swarm(urls, len(urls) if feed == "whole" else 0, lambda index: ["*"], name="whole")) as all_of_it:
                    all_of_it.open()
                    time.sleep(SETTLE_S)  # until what is no longer wanted has been given up
                    rows[feed].append(measure(redis, gateways, swarm, events, per_s))
    print(table(rows, users, events, per_s))


def measure(
    redis: RedisProcess, gateways: Sequence[GatewayProcess], swarm: Swarm, events: int, per_s: float
) -> tuple[float, ...]:
    """Publish events, each to one user; return µs of CPU per published event: of each gateway, and of Redis for its FCALL."""
    data = {"pad": "x" * (PAYLOAD_BYTES - 10)}
    had = _seen(swarm)
    redis.call("CONFIG", "RESETSTAT")
    before = [cpu_s(gateway.pid) for gateway in gateways]
    with Publisher(redis.url) as publisher:
        began_s = time.monotonic()
        for first in range(0, events, BATCH_EVENTS):
            time.sleep(max(0.0, began_s + first / per_s - time.monotonic()))
            batch = range(first, first + BATCH_EVENTS)
            publisher.publish_many([(f"users.u{number % len(swarm.clients)}.mail", data) for number in batch])
    swarm.wait(lambda: _seen(swarm) >= had + events, "every event to be seen", 60)
    after = [cpu_s(gateway.pid) for gateway in gateways]
    fcall = redis.call("INFO", "commandstats")["cmdstat_fcall"]
    return (*(1e6 * (end - start) / events for start, end in zip(before, after, strict=True)), fcall["usec_per_call"])


def table(rows: dict[str, list[tuple[float, ...]]], users: int, events: int, per_s: float) -> str:
    """Return medians as a Markdown table."""
    found = machine.describe()
    lines = [
        f"{users} users on two gateways, {events} events at {per_s:g}/s, each to one user; {found['cpu_model']}, "
        f"load average {found['load_average_at_start']} at the end. µs of CPU per published event, medians of "
        f"{len(rows[FEEDS[0]])} rounds:",
        "",
        "| feed | gateway 1 | gateway 2 | gateway 3, without users | Redis, FCALL |",
        "|---|---|---|---|---|",
    ]
    for feed, measured in rows.items():
        medians = (statistics.median(column) for column in zip(*measured, strict=True))
        lines.append("| " + " | ".join([feed, *(f"{value:.1f}" for value in medians)]) + " |")
    return "\n".join(lines)


def _seen(swarm: Swarm) -> int:
    return sum(len(client.record.seen()) for client in swarm.clients)


if __name__ == "__main__":
    main()
