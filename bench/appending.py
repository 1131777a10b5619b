"""Publishing from Python: the receipts that one thread gets, and the CPU time of Redis for each event.

Both are compared with a reference in the same run, in turns of a fraction of a second: redis-py alone with the same call, and a
plain XADD of the same bytes or a script that keeps a history. The ratio means more than the figure.
"""

from __future__ import annotations

import json
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import redis

from headgate.services.publisher import Publisher

from . import publishing
from .bus import Bus, bus_apart, on_core
from .child import cpu_s
from .machine import cores
from .scenario import Row, Run
from .stage import stage
from .variants import FUNCTIONS, LOG_KEY, Variant

# redis-py's type of it is generic in its stubs alone.
Pipeline: TypeAlias = Any
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
# What a server does that keeps a short history of each channel in Redis, and with an id in a third key also the result of each
# publish: the commands of Centrifugo 6.9, seen in a MONITOR.
HISTORY = """#!lua name=history
redis.register_function('history', function(keys, args)
  local call = redis.call
  local known = keys[3] and call('HMGET', keys[3], 'e', 's')
  if known and known[1] then return { known[2], known[1], '1' } end
  local epoch = call('HGET', keys[2], 'e')
  if not epoch then
    epoch = 'abcdefgh'
    call('HSET', keys[2], 'e', epoch)
  end
  local offset = call('HINCRBY', keys[2], 's', 1)
  call('EXPIRE', keys[2], 2592000)
  call('XADD', keys[1], 'MAXLEN', 1000, offset, 'd', args[2])
  call('EXPIRE', keys[1], 300)
  call('PUBLISH', args[1], '__p1:' .. offset .. ':' .. epoch .. '__' .. args[2])
  if keys[3] then
    call('HSET', keys[3], 'e', epoch, 's', offset)
    call('EXPIRE', keys[3], 300)
  end
  return { offset, epoch, '0' }
end)
"""
BATCH = "headgate_append_batch"
USERS = 5000
# What sends so many events, each with an id, in a pipeline.
Way: TypeAlias = Callable[[Pipeline, Sequence[str]], None]


@contextmanager
def _bus() -> Iterator[tuple[Bus, redis.Redis, Publisher]]:
    """A bus on one core, and us on the other; the library is loaded."""
    with bus_apart() as bus, bus.client() as client, Publisher(bus.url) as publisher:
        publisher.publish(publishing.TOPIC, {})
        yield bus, client, publisher


def receipts_sync(size_bytes: int) -> Run:
    """One thread publishes, waits for the receipt, publishes again; so does redis-py alone, with the same function and bytes."""

    def run(_variant: Variant, quick: bool) -> Row:
        with _bus() as (_, client, publisher):
            return _receipts(client, publisher, size_bytes, quick)

    return run


def receipts_tcp(size_bytes: int) -> Run:
    """The same over TCP, while a gateway delivers each event to a client, on the core of publisher and Redis."""

    def run(variant: Variant, quick: bool) -> Row:
        with stage(variant, size_bytes=size_bytes, clients=1, has_tcp=True) as on:
            with on_core(cores()[1]), Publisher(on.bus.tcp_url) as publisher, redis.Redis.from_url(on.bus.tcp_url) as client:
                row = _receipts(client, publisher, size_bytes, quick)
            is_there = on.generator.ask("idle", 100, takes_s=0.1)["clients"] == 1
        return row if is_there else row | {"outcome": "the client was disconnected"}

    return run


def _receipts(client: redis.Redis, publisher: Publisher, size_bytes: int, quick: bool) -> Row:
    turns, calls = (6, 300) if quick else (20, 1000)
    data = {"pad": "x" * (size_bytes - 10)}
    payload = json.dumps(data, separators=(",", ":"))
    ways: dict[str, Callable[[], object]] = {
        "receipts": lambda: publisher.publish(publishing.TOPIC, data),
        "redis_py": lambda: client.fcall("headgate_append", 1, LOG_KEY, publishing.TOPIC, payload, secrets.token_hex(16)),
    }
    took_s = _in_turns({name: partial(_timed, call, calls) for name, call in ways.items()}, turns)
    row: Row = {"outcome": "ok"}
    for name, seconds in took_s.items():
        row[f"{name}_per_s"] = round(calls / statistics.median(seconds))
    return row | {"ratio": round(_median_ratio(took_s["redis_py"], took_s["receipts"]), 3)}


def _timed(call: Callable[[], object], times: int) -> float:
    began_s = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began_s


def _in_turns(ways: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Return the figures of each way in each turn; those of a first one do not count."""
    rounds = [{name: way() for name, way in ways.items()} for _ in range(turns + 1)]
    return {name: [each[name] for each in rounds[1:]] for name in ways}


def _median_ratio(of: Sequence[float], to: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def cost(size_bytes: int) -> Run:
    """CPU time of Redis for an event by each function of the log, as a multiple of that for an XADD of the same bytes."""
    payload = publishing.payload(size_bytes)
    ways: dict[str, Way] = {name: _by_function(name, payload) for name in [*FUNCTIONS, "by_hand"]}
    return _measured({**ways, "xadd": _xadd(payload)}, dict.fromkeys(ways, "xadd"), size_bytes)


def beside_history(size_bytes: int) -> Run:
    """CPU time of Redis for an event of one topic and of one of USERS users, and for the same in a history script (HISTORY)."""
    payload = publishing.payload(size_bytes)
    compared = {"append": "history_ids", "append_users": "history_ids_users", "batch_users": "history_ids_users"}
    ways = {
        "append": _by_function("headgate_append", payload),
        "append_users": _by_function("headgate_append", payload, _of_a_user),
        "batch_users": _by_function(BATCH, payload, _of_a_user),
        "history_ids": _history(payload, with_ids=True),
        "history_ids_users": _history(payload, _of_a_user, with_ids=True),
        "history": _history(payload),
        "history_users": _history(payload, _of_a_user),
    }
    return _measured(ways, compared, size_bytes)


def _measured(ways: Mapping[str, Way], compared: Mapping[str, str], size_bytes: int) -> Run:
    """Measure ways in turns; `compared`: of which other way each is a multiple."""

    def run(_variant: Variant, quick: bool) -> Row:
        pipelines = max(1, round((20 if quick else 40) * 256 / size_bytes))
        with _bus() as (bus, client, _):
            for library in (BY_HAND, HISTORY):
                client.function_load(library)
            measured = {name: partial(_used_s, bus, client, way, pipelines) for name, way in ways.items()}
            used_s = _in_turns(measured, 4 if quick else 12)
        row: Row = {"outcome": "ok"}
        for name, used in used_s.items():
            row[f"{name}_us"] = round(statistics.median(used) / pipelines / PIPELINED * 1e6, 2)
        for name, other in compared.items():
            row[f"{name}_multiple"] = round(_median_ratio(used_s[name], used_s[other]), 2)
        return row

    return run


def _used_s(bus: Bus, client: redis.Redis, way: Way, pipelines: int) -> float:
    """Return the CPU time of Redis for so many pipelines of events, each with its own id, as a publisher sends it."""
    before = cpu_s(bus.pid)
    for _ in range(pipelines):
        with client.pipeline(transaction=False) as pipeline:
            way(pipeline, [secrets.token_hex(16) for _ in range(PIPELINED)])
            pipeline.execute()
    used = cpu_s(bus.pid) - before
    client.delete("plain", "ids")
    return used


def _one_topic() -> str:
    return publishing.TOPIC


def _of_a_user() -> str:
    return f"users.{random.randrange(USERS)}.{publishing.TOPIC}"


def _by_function(name: str, payload: str, topic: Callable[[], str] = _one_topic) -> Way:
    def way(pipeline: Pipeline, ids: Sequence[str]) -> None:
        if name != BATCH:
            for event_id in ids:
                pipeline.fcall(name, 1, LOG_KEY, topic(), payload, event_id)
            return
        for first in range(0, len(ids), BATCH_EVENTS):
            words = [word for each in ids[first : first + BATCH_EVENTS] for word in (topic(), payload, each, "")]
            pipeline.fcall(name, 1, LOG_KEY, *words)

    return way


def _xadd(payload: str) -> Way:
    def way(pipeline: Pipeline, ids: Sequence[str]) -> None:
        for event_id in ids:
            pipeline.xadd("plain", {"topic": publishing.TOPIC, "id": event_id, "time": "1700000000000", "data": payload})

    return way


def _history(payload: str, topic: Callable[[], str] = _one_topic, *, with_ids: bool = False) -> Way:
    kind = "ids" if with_ids else "plain"

    def way(pipeline: Pipeline, ids: Sequence[str]) -> None:
        for event_id in ids:
            channel = f"history.{kind}.{topic()}"
            keys = [f"{channel}.stream", f"{channel}.meta", *([f"{channel}.{event_id}"] if with_ids else [])]
            pipeline.fcall("history", len(keys), *keys, channel, payload)

    return way
