"""The bounds of what Headgate keeps in Redis, by their defaults: together they are less than the private server may take."""

from __future__ import annotations

import re
from typing import Any

from headgate.consumers.work.spec import RunnerOptions
from headgate.consumers.work.store import GROUP_LIBRARY, Store, defer_for
from headgate.consumers.work.task import Task
from headgate.redis.client import Client, at, call
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import LOG_LIBRARY, ensure_loaded
from headgate.redis.keys import group_key, log_key
from headgate.redis.log import EventLog
from headgate.settings import Settings

# The bytes of an id at the most, and of a waiting task beside its body; the tests below measure them.
ID_BYTES, TASK_OVERHEAD_BYTES = 600, 800
LONGEST_ID, LONGEST_BY, LONGEST_TOPIC = "i" * 128, "u" * 64, ".".join(["t" * 31] * 7 + ["t" * 31])
# As docs/operations.md promises.
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
    """The log, the ids, and the waiting tasks and dead letters of three consumers, all of them at their limits."""
    options, settings = RunnerOptions(), Settings()
    assert settings.log_max_bytes == 0  # derived
    maxmemory = int(call(redis_client, "INFO", "memory")["maxmemory"])
    log_bytes = EventLog("notifications", redis_client, settings.max_payload_bytes).share_of_memory(len(settings.namespaces))

    most_ids = 2 * max(constant(LOG_LIBRARY.source, "LEAST_IDS"), log_bytes // constant(LOG_LIBRARY.source, "LOG_BYTES_PER_ID"))
    waiting = options.max_waiting * (constant(GROUP_LIBRARY.source, "TASK_BYTES") + TASK_OVERHEAD_BYTES)
    bounds = {
        "logs": log_bytes * len(settings.namespaces),
        "ids": most_ids * ID_BYTES * len(settings.namespaces),
        "waiting tasks": CONSUMERS * waiting,
        "dead letters": CONSUMERS * options.max_dead_bytes,
    }

    assert sum(bounds.values()) < maxmemory, bounds


def test_an_id_takes_no_more_than_is_reckoned(redis_client: Client) -> None:
    """The longest there may be: as long a topic, user and id as the grammar has."""
    ensure_loaded(redis_client)
    count = 3_000
    pipeline: Any = at(redis_client, log_key("n" * 64)).pipeline(transaction=False)
    for number in range(count):
        event_id = f"{number:06d}{LONGEST_ID}"[:128]
        pipeline.execute_command("FCALL", "headgate_publish", 1, log_key("n" * 64), LONGEST_TOPIC, "1", event_id, LONGEST_BY)
    pipeline.execute()

    taken = call(redis_client, "MEMORY", "USAGE", f"hg:{{{'n' * 64}}}:id:1", "SAMPLES", 0)
    assert call(redis_client, "HLEN", f"hg:{{{'n' * 64}}}:id:1") == count
    assert taken <= count * ID_BYTES


def test_a_waiting_task_takes_no_more_than_is_reckoned(redis_client: Client, redis_url: str) -> None:
    """In the four keys that it is in, beside its body: leased, and to be worked on together with others."""
    store = Store(redis_client, redis_url, "notifications", "mail", 65536)
    store.open("new")
    tasks = [Task("e" * 16, number, "a", None, 10**12, b"1", "ada", True, together=True) for number in range(2_000)]
    store.settle([defer_for(task, 60_000, 1) for task in tasks])
    store.close()

    keys = [f"{group_key('notifications', 'mail')}:{part}" for part in ("held", "body", "out", "together")]
    taken = sum(call(redis_client, "MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys)
    assert taken <= sum(len(task.pack()) + TASK_OVERHEAD_BYTES for task in tasks)
