"""Publishing without a gateway: the receipts that one thread gets, and the CPU time of Redis for each event.

Both are measured beside a neighbour in the same run, in turns of a fraction of a second: redis-py alone with the same call, and a
plain XADD of the same bytes. The ratio to it says more than the figure.
"""

from __future__ import annotations

import logging
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from headgate.publisher import Publisher

from . import publishing
from .bus import Bus
from .machine import cores
from .scenario import Row, Run
from .variants import LOG_KEY, Variant, functions, has_append

PIPELINED = 200
BATCH_EVENTS = 100
# The least that a log which remembers ids can do for an event in a function: three commands, and nothing that keeps a promise.
BY_HAND = """#!lua name=by_hand
redis.register_function('by_hand', function(keys, args)
  redis.call('HSETNX', 'ids', args[3], '0123456789abcdef-12345678-1700000000000')
  redis.call('XADD', 'plain', '*', 'topic', args[1], 'id', args[3], 'time', '1700000000000', 'data', args[2])
  redis.call('PUBLISH', args[1], 'hg1 0123456789abcdef 12345678 1700000000000 ' .. args[3] .. '\\n' .. args[2])
  return 'done'
end)
"""
WARM_CALLS = 200


@contextmanager
def _bus() -> Iterator[tuple[Bus, redis.Redis, Publisher]]:
    """A bus on one core, and us on the other; the library is loaded."""
    logging.getLogger("headgate.publisher").setLevel(logging.ERROR)  # that no gateway listens is meant here
    server_core, load_core = cores()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {load_core})
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
            Bus(Path(folder), server_core) as bus,
            bus.client() as client,
            Publisher(bus.url) as publisher,
        ):
            publisher.publish(publishing.TOPIC, {})
            yield bus, client, publisher
    finally:
        os.sched_setaffinity(0, before)


def receipts_sync(size_bytes: int) -> Run:
    """One thread publishes, waits for the receipt, publishes again; so does redis-py alone, with the same function and bytes."""

    def run(_variant: Variant, quick: bool) -> Row:
        turns, calls = (6, 300) if quick else (20, 1000)
        function = "headgate_append" if has_append() else "headgate_publish"
        data, payload = {"pad": "x" * (size_bytes - 10)}, '{"pad":"' + "x" * (size_bytes - 10) + '"}'
        with _bus() as (_, client, publisher):
            ways: dict[str, Callable[[], object]] = {
                "receipts": lambda: publisher.publish(publishing.TOPIC, data),
                "redis_py": lambda: client.fcall(function, 1, LOG_KEY, publishing.TOPIC, payload, secrets.token_hex(16)),
            }
            took_s: dict[str, list[float]] = {name: [] for name in ways}
            for call in ways.values():
                _timed(call, WARM_CALLS)
            for _ in range(turns):
                for name, call in ways.items():
                    took_s[name].append(_timed(call, calls))
        row: Row = {"outcome": "ok", "function": function}
        for name in ways:
            row[f"{name}_per_s"] = round(calls / statistics.median(took_s[name]))
        row["ratio"] = round(statistics.median(b / a for a, b in zip(took_s["receipts"], took_s["redis_py"], strict=True)), 3)
        return row

    return run


def _timed(call: Callable[[], object], times: int) -> float:
    began_s = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began_s


def cost(size_bytes: int) -> Run:
    """CPU time of Redis for an event by each function of the log, as a multiple of that for an XADD of the same bytes."""

    def run(_variant: Variant, quick: bool) -> Row:
        turns = 4 if quick else 12
        pipelines = max(1, round((20 if quick else 40) * 256 / size_bytes))
        names = [*functions(), "by_hand"]
        used_ns: dict[str, list[int]] = {name: [] for name in [*names, "xadd"]}
        with _bus() as (bus, client, _):
            client.function_load(BY_HAND)
            for turn in range(turns + 1):  # the first is not measured
                for name, used in used_ns.items():
                    spent = _used_ns(bus, client, name, publishing.payload(size_bytes), pipelines)
                    used += [spent] if turn else []
        events = pipelines * PIPELINED
        row: Row = {"outcome": "ok"}
        for name, used in used_ns.items():
            row[f"{name}_us"] = round(statistics.median(used) / events / 1e3, 2)
        for name in names:
            multiples = [used / plain for used, plain in zip(used_ns[name], used_ns["xadd"], strict=True)]
            row[f"{name}_multiple"] = round(statistics.median(multiples), 2)
        return row

    return run


def _used_ns(bus: Bus, client: redis.Redis, name: str, payload: str, pipelines: int) -> int:
    """Return the CPU time of Redis for so many pipelines of events, each with an id of its own as a publisher sends it."""
    before = cpu_ns(bus.pid)
    for _ in range(pipelines):
        ids = [secrets.token_hex(16) for _ in range(PIPELINED)]
        with client.pipeline(transaction=False) as pipeline:
            if name == "headgate_append_batch":
                for first in range(0, PIPELINED, BATCH_EVENTS):
                    words = [(publishing.TOPIC, payload, each, "") for each in ids[first : first + BATCH_EVENTS]]
                    pipeline.fcall(name, 1, LOG_KEY, *(word for event in words for word in event))
            for event_id in ids if name != "headgate_append_batch" else ():
                if name == "xadd":
                    fields = {"topic": publishing.TOPIC, "id": event_id, "time": "1700000000000", "data": payload}
                    pipeline.xadd("plain", fields)  # type: ignore[arg-type]
                else:
                    pipeline.fcall(name, 1, LOG_KEY, publishing.TOPIC, payload, event_id)
            pipeline.execute()
    used = cpu_ns(bus.pid) - before
    client.delete("plain", "ids")
    return used


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process, all its threads, to the nanosecond: /proc/<pid>/task/*/schedstat."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
