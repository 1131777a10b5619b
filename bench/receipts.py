"""Receipts as an application has them: over TCP, while a gateway listens and delivers each event to a client.

In turns with redis-py alone and the same call: the ratio says more than the figure. The publisher shares its core with
Redis and the client, and waits for each receipt. appending.py has the same over a Unix socket, and nothing that listens.
"""

from __future__ import annotations

import os
import secrets
import statistics
import time
from collections.abc import Callable

import redis

from headgate.services.publisher import Publisher

from . import publishing
from .machine import cores
from .scenario import Row, Run
from .stage import stage
from .variants import LOG_KEY, Variant

WARM_CALLS = 200


def receipts_tcp(size_bytes: int) -> Run:
    """One thread publishes, waits for the receipt, publishes again; so does redis-py alone, with the same function and bytes."""

    def run(variant: Variant, quick: bool) -> Row:
        turns, calls = (6, 300) if quick else (20, 1000)
        data, payload = {"pad": "x" * (size_bytes - 10)}, '{"pad":"' + "x" * (size_bytes - 10) + '"}'
        before = os.sched_getaffinity(0)
        with stage(variant, size_bytes=size_bytes, room=1, has_tcp=True) as on:
            on.generator.connects(1)
            os.sched_setaffinity(0, {cores()[1]})
            try:
                with Publisher(on.bus.tcp_url) as publisher, redis.Redis.from_url(on.bus.tcp_url) as client:
                    took_s = _in_turns(
                        {
                            "receipts": lambda: publisher.publish(publishing.TOPIC, data),
                            "redis_py": lambda: client.fcall(
                                "headgate_append", 1, LOG_KEY, publishing.TOPIC, payload, secrets.token_hex(16)
                            ),
                        },
                        turns,
                        calls,
                    )
            finally:
                os.sched_setaffinity(0, before)
            answer = on.generator.ask("idle", 100, takes_s=0.1)
        row: Row = {"outcome": "ok" if answer["clients"] == 1 else "the client was disconnected"}
        for name, seconds in took_s.items():
            row[f"{name}_per_s"] = round(calls / statistics.median(seconds))
        row["ratio"] = round(statistics.median(b / a for a, b in zip(took_s["receipts"], took_s["redis_py"], strict=True)), 3)
        return row

    return run


def _in_turns(ways: dict[str, Callable[[], object]], turns: int, calls: int) -> dict[str, list[float]]:
    """Return how many seconds so many calls took, of each way in each turn."""
    took_s: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):  # the first is not measured
        for name, call in ways.items():
            began_s = time.perf_counter()
            for _ in range(calls if turn else WARM_CALLS):
                call()
            took_s[name] += [time.perf_counter() - began_s] if turn else []
    return took_s
