"""Measures inboxes: what an item costs an append in Redis, what it takes in memory, and how soon a page of 20 is there.

`python -m bench.inbox [--users 10000 --items 100]`. Redis has a core, the publisher the other. The time of an append is that of
its function by Redis' own count (`INFO commandstats`), without client and network. `consumer_us` is the work in Redis of the
alternative: the log is read in a group, the item written by a call of its own, and the entry acknowledged.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher

from . import machine
from .child import pin

DATA = {"order": 12345, "text": "x" * 180}
APPENDS, BATCH_EVENTS, PAGES, ITEMS_OF_PAGE = 20_000, 500, 2_000, 20
# The writes of inbox.lua for an item of an inbox that is there, as a consumer would have to send them.
WRITE = """
local unread = redis.call('HMGET', KEYS[1], '')[1]
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], '', '1 1 1')
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 7776000000)
redis.call('PEXPIRE', KEYS[2], 7776000000)
return redis.call('ZCARD', KEYS[2])
"""


@click.command()
@click.option("--users", default=10_000, show_default=True, help="Inboxes.")
@click.option("--items", default=100, show_default=True, help="Items of each.")
def main(users: int, items: int) -> None:
    """Measure, and print one JSON object."""
    from tests.fault.redis_process import RedisProcess

    server_core, load_core = machine.cores()
    results: dict[str, Any] = {"machine": machine.describe(), "data_bytes": len(json.dumps(DATA, separators=(",", ":")))}
    with tempfile.TemporaryDirectory() as folder, RedisProcess(Path(folder, "redis")) as redis:
        pin(redis.pid, server_core)
        pin(0, load_core)
        with Publisher(redis.url, timeout_s=60) as publisher:
            results["append_us"] = {name: append_us(redis, publisher, topic) for name, topic in TOPICS.items()}
            results["consumer_us"] = consumer_us(redis, publisher)
            redis.call("FLUSHALL")
            results["memory"] = memory(redis, publisher, users, items)
            results["page"] = page_ms(publisher, users)
    print(json.dumps(results, indent=2))


TOPICS = {"user": "users.u{}.news.order", "inbox": "users.u{}.inbox.order"}


def append_us(redis: Any, publisher: Publisher, topic: str) -> float:
    """Return the time of Redis for an event, published one by one to 100 users."""
    redis.call("FLUSHALL")
    for number in range(200):
        publisher.publish(topic.format(number % 100), DATA)
    redis.call("CONFIG", "RESETSTAT")
    for number in range(APPENDS):
        publisher.publish(topic.format(number % 100), DATA)
    return round(float(redis.call("INFO", "commandstats")["cmdstat_fcall"]["usec_per_call"]), 1)


def consumer_us(redis: Any, publisher: Publisher) -> float:
    """Return the time of Redis for an item of a consumer, beside the append of its event."""
    redis.call("FLUSHALL")
    publisher.publish_many([(TOPICS["user"].format(number % 100), DATA) for number in range(5000)])
    log = "hg:{notifications}:log"
    redis.call("XGROUP", "CREATE", log, "bench", "0")
    sha = redis.call("SCRIPT", "LOAD", WRITE)
    redis.call("CONFIG", "RESETSTAT")
    done = 0
    while read := redis.call("XREADGROUP", "GROUP", "bench", "one", "COUNT", 100, "STREAMS", log, ">"):
        entries = read[0][1] if isinstance(read, list) else next(iter(read.values()))[0]
        for _ in entries:
            done += 1
            key = f"hg:{{notifications}}:inbox:u{done % 100}"
            redis.call("EVALSHA", sha, 2, key, f"{key}:order", f"order/{done}", json.dumps(DATA), done)
        redis.call("XACK", log, "bench", *(entry for entry, _ in entries))
    stats = redis.call("INFO", "commandstats")
    spent = sum(float(stats[f"cmdstat_{name}"]["usec"]) for name in ("evalsha", "xreadgroup", "xack"))
    return round(spent / done, 1)


def memory(redis: Any, publisher: Publisher, users: int, items: int) -> dict[str, Any]:
    """Fill inboxes while the log keeps little; return what an item takes."""
    publisher.publish("a", 1)
    redis.call("FCALL", "headgate_configure", 1, "hg:{notifications}:log", 1000, 600000, 65536, 1024 * 1024)
    before = used(redis)
    began_s = time.perf_counter()
    for item in range(items):
        for first in range(0, users, BATCH_EVENTS):
            last = min(users, first + BATCH_EVENTS)
            publisher.publish_many([(TOPICS["inbox"].format(user), DATA, f"item-{item}") for user in range(first, last)])
    took_s = time.perf_counter() - began_s
    redis.call("FCALL", "headgate_trim", 1, "hg:{notifications}:log")
    ids = sum(int(redis.call("MEMORY", "USAGE", key, "SAMPLES", 0) or 0) for key in redis.call("KEYS", "hg:{notifications}:id:*"))
    count = users * items
    return {
        "items": count,
        "bytes_per_item": round((used(redis) - before - ids) / count),
        "filled_per_s": round(count / took_s),
    }


def used(redis: Any) -> int:
    return int(redis.call("INFO", "memory")["used_memory"])


def page_ms(publisher: Publisher, users: int) -> dict[str, float]:
    """Return how long the newest page of an inbox takes, round trip included."""
    inbox, took_ms = Inbox(publisher), []
    for number in range(PAGES):
        began_s = time.perf_counter()
        assert inbox.page(f"u{number % users}", limit=ITEMS_OF_PAGE).items
        took_ms.append(1e3 * (time.perf_counter() - began_s))
    return {"p50_ms": round(statistics.median(took_ms), 2), "p99_ms": round(statistics.quantiles(took_ms, n=100)[98], 2)}


if __name__ == "__main__":
    main()
