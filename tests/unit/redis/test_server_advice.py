"""The advice that `headgate check` gives about a Redis server."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.redis.server_advice import advise

GOOD = {
    "role": "master", "connected_slaves": 1, "min_slaves_good_slaves": 1, "loading": 0, "aof_enabled": 1,
    "aof_last_write_status": "ok", "maxmemory": 2**30, "maxmemory_policy": "noeviction", "used_memory": 5 * 2**20,
}  # fmt: skip


def test_a_server_that_keeps_what_it_has_confirmed_needs_no_advice() -> None:
    """Each line says how things are."""
    assert advise(GOOD) == [
        "role: primary with 1 replica(s); it refuses writes without them (min-replicas-to-write)",
        "disk: append-only file",
        "memory: maxmemory 1,024 MiB, noeviction; 5 MiB in use",
    ]


@pytest.mark.parametrize(
    ("differs", "line", "says"),
    [
        (
            {"role": "slave", "master_host": "10.0.0.1", "master_port": 6379},
            0,
            "replica of 10.0.0.1:6379; gateways and publishers need",
        ),
        ({"connected_slaves": 0}, 0, 'durable="replica" cannot be had'),
        ({"min_slaves_good_slaves": None}, 0, "set min-replicas-to-write 1"),
        ({"loading": 1}, 1, "loading"),
        ({"aof_enabled": 0}, 1, "set appendonly yes"),
        ({"aof_last_write_status": "err"}, 1, "is the disk full?"),
        ({"maxmemory_policy": "allkeys-lru"}, 2, "maxmemory-policy allkeys-lru; a full Redis loses events without a word"),
        ({"maxmemory": 0}, 2, "set maxmemory"),
    ],
)
def test_each_setting_that_loses_events_is_named(differs: dict[str, Any], line: int, says: str) -> None:
    """With the one to set instead."""
    info = {name: value for name, value in {**GOOD, **differs}.items() if value is not None}
    assert says in advise(info)[line]


def test_a_server_that_says_nothing_of_itself_is_not_praised() -> None:
    """An odd reply is taken for the worst that it may mean."""
    assert [part.partition(";")[0] for part in advise({})] == [
        "role: primary without replicas",
        "disk: no append-only file, so a restart loses the log or its end: set appendonly yes",
        "memory: no maxmemory",
    ]
