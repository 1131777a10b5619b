"""Measures inboxes: what an item costs an append in Redis, what it takes in memory, and how soon a page of 20 is there.

`python -m bench.inbox [--users 10000 --items 100]`. Redis has a core, the publisher the other. The time of an append is that of
its function by Redis' own count (`INFO commandstats`), without client and network. `consumer_us` is the work in Redis of the
alternative: the log is read in a group, the item written by a separate call, and the entry acknowledged.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import click
from redis import Redis

from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher

from . import machine
from .bus import bus_apart
from .variants import LOG_KEY

DATA = {"order": 12345, "text": "x" * 180}
APPENDS, BATCH_EVENTS, PAGES, ITEMS_OF_PAGE = 20_000, 500, 2_000, 20
# The writes of inbox.lua for an item of an existing inbox, as a consumer would have to send them.
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
    results: dict[str, Any] = {"machine": machine.describe(), "data_bytes": len(json.dumps(DATA, separators=(",", ":")))}
    with bus_apart() as bus, bus.client() as redis, Publisher(bus.url, timeout_s=60) as publisher:
        results["append_us"] = {name: append_us(redis, publisher, topic) for name, topic in TOPICS.items()}
        results["consumer_us"] = consumer_us(redis, publisher)
        redis.flushall()
        results["memory"] = memory(redis, publisher, users, items)
        results["page"] = page_ms(publisher, users)
    print(json.dumps(results, indent=2))


TOPICS = {"user": "users.u{}.news.order", "inbox": "users.u{}.inbox.order"}


def append_us(redis: Redis, publisher: Publisher, topic: str) -> float:
    """Return the time of Redis for an event, published one by one to 100 users."""
    redis.flushall()
    for number in range(200):
        publisher.publish(topic.format(number % 100), DATA)
    redis.config_resetstat()
    for number in range(APPENDS):
        publisher.publish(topic.format(number % 100), DATA)
    return round(float(redis.info("commandstats")["cmdstat_fcall"]["usec_per_call"]), 1)


def consumer_us(redis: Redis, publisher: Publisher) -> float:
    """Return the time of Redis for an item of a consumer, compared with the append of its event."""
    redis.flushall()
    publisher.publish_many([(TOPICS["user"].format(number % 100), DATA) for number in range(5000)])
    redis.xgroup_create(LOG_KEY, "bench", "0")
    write = redis.register_script(WRITE)
    write.sha = redis.script_load(WRITE)
    redis.config_resetstat()
    done = 0
    while read := redis.xreadgroup("bench", "one", {LOG_KEY: ">"}, count=100):
        entries: Any = read[0][1] if isinstance(read, list) else next(iter(read.values()))[0]
        for _ in entries:
            done += 1
            key = f"hg:{{notifications}}:inbox:u{done % 100}"
            write([key, f"{key}:order"], [f"order/{done}", json.dumps(DATA), done])
        redis.xack(LOG_KEY, "bench", *(entry for entry, _ in entries))
    stats = redis.info("commandstats")
    return round(sum(float(stats[f"cmdstat_{name}"]["usec"]) for name in ("evalsha", "xreadgroup", "xack")) / done, 1)


def memory(redis: Redis, publisher: Publisher, users: int, items: int) -> dict[str, Any]:
    """Fill inboxes while the log keeps little; return what an item takes."""
    publisher.publish("a", 1)
    redis.fcall("headgate_configure", 1, LOG_KEY, 1000, 600000, 65536, 1024 * 1024)
    before = redis.info("memory")["used_memory"]
    began_s = time.perf_counter()
    for item in range(items):
        for first in range(0, users, BATCH_EVENTS):
            last = min(users, first + BATCH_EVENTS)
            publisher.publish_many([(TOPICS["inbox"].format(user), DATA, f"item-{item}") for user in range(first, last)])
    took_s = time.perf_counter() - began_s
    redis.fcall("headgate_trim", 1, LOG_KEY)
    ids = sum(redis.memory_usage(key, samples=0) or 0 for key in redis.keys("hg:{notifications}:id:*"))
    count = users * items
    return {
        "items": count,
        "bytes_per_item": round((redis.info("memory")["used_memory"] - before - ids) / count),
        "filled_per_s": round(count / took_s),
    }


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
