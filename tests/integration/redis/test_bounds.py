"""The bounds of Headgate's data in Redis, by their defaults. Together they are less than the private server may take."""

import re
from typing import Any

import pytest

from headgate.consumers.work.spec import RunnerOptions
from headgate.consumers.work.store import GROUP_LIBRARY, Store, defer_for
from headgate.consumers.work.task import Task
from headgate.redis.client import Client, at, call
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import group_key, head_key, log_key
from headgate.redis.log import EventLog
from headgate.settings.settings import MOST_LOG_EVENTS, Settings

# The bytes of a waiting task beside its body; a test below measures them.
TASK_OVERHEAD_BYTES = 800
# As docs/operations/redis.md promises.
CONSUMERS = 3


def constant(source: str, name: str) -> int:
    """Return a number that a library's file sets, alone or as the first or second of two."""
    found = re.search(rf"^local (?:(\w+), )?{name}(, \w+)? = (.+)$", source, re.MULTILINE)
    assert found is not None, name
    text = found[3].split(", ")[1 if found[1] else 0]
    product = 1
    for factor in text.split(" * "):
        product *= int(factor)
    return product


def test_all_defaults_add_up_to_less_than_the_private_server_may_take(redis_server: EmbeddedRedis, redis_client: Client) -> None:
    """The log and the ids, and the waiting tasks and dead letters of three consumers, all of them at their limits."""
    options, settings = RunnerOptions(), Settings()
    assert settings.log_max_bytes == 0  # derived
    maxmemory = int(call(redis_client, "INFO", "memory")["maxmemory"])
    log = EventLog("notifications", redis_client, settings.max_payload_bytes)
    log_bytes = log.share_of_memory(len(settings.namespaces))
    log.configure(settings.log_max_events or MOST_LOG_EVENTS, settings.log_max_age_s, log_bytes)
    waiting = options.max_waiting * (constant(GROUP_LIBRARY.source, "TASK_BYTES") + TASK_OVERHEAD_BYTES)
    bounds = {
        # Of an empty log, as ids have the room that the log leaves.
        "logs and ids": log.extent().most_id_bytes * len(settings.namespaces),
        "waiting tasks": CONSUMERS * waiting,
        "dead letters": CONSUMERS * options.max_dead_bytes,
    }

    assert sum(bounds.values()) < maxmemory, bounds


@pytest.mark.parametrize(
    ("topic", "id_length", "by"),
    [("orders.42.shipped", 32, ()), (".".join(["t" * 31] * 8), 128, ("u" * 64,))],
    ids=["usual", "longest"],
)
def test_an_id_takes_no_more_than_is_reckoned(redis_client: Client, topic: str, id_length: int, by: tuple[str, ...]) -> None:
    """A usual one, and one with as long a topic, user and id as the grammar has (Redis 7.0 takes 6.1 % more for it)."""
    ensure_loaded(redis_client)
    count = 3_000
    pipeline: Any = at(redis_client, log_key("n")).pipeline(transaction=False)
    for number in range(count):
        pipeline.execute_command("FCALL", "headgate_publish", 1, log_key("n"), topic, "1", f"{number:0{id_length}d}", *by)
    pipeline.execute()
    EventLog("n", redis_client, 1024).configure(10_000, 600)  # saves the head

    taken = call(redis_client, "MEMORY", "USAGE", "hg:{n}:id:1", "SAMPLES", 0)
    assert call(redis_client, "HLEN", "hg:{n}:id:1") == count
    assert taken <= 1.07 * int(call(redis_client, "HGET", head_key("n"), "ids_bytes"))


def test_a_waiting_task_takes_no_more_than_is_reckoned(redis_client: Client, redis_url: str) -> None:
    """In its four keys, beside its body, leased, and to be worked on together with others."""
    store = Store(redis_client, redis_url, "notifications", "mail", 65536)
    store.open("new")
    tasks = [Task("e" * 16, number, "a", None, 10**12, b"1", "ada", True, together=True) for number in range(2_000)]
    store.settle([defer_for(task, 60_000, 1) for task in tasks])
    store.close()

    keys = [f"{group_key('notifications', 'mail')}:{part}" for part in ("held", "body", "out", "together")]
    taken = sum(call(redis_client, "MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys)
    assert taken <= sum(len(task.pack()) + TASK_OVERHEAD_BYTES for task in tasks)
