"""The advice that `headgate check` gives about a Redis server."""

from typing import Any

import pytest

from headgate.redis.server_advice import BUFFER_FIX, advise, advise_settings
from headgate.runtime.check_result import Verdict

GOOD = {
    "role": "master", "connected_slaves": 1, "min_slaves_good_slaves": 1, "loading": 0, "aof_enabled": 1,
    "aof_last_write_status": "ok", "maxmemory": 2**30, "maxmemory_policy": "noeviction", "used_memory": 5 * 2**20,
}  # fmt: skip


def test_a_server_that_keeps_what_it_has_confirmed_needs_no_advice() -> None:
    assert [finding.verdict for finding in advise(GOOD)] == [Verdict.OK] * 3
    assert [finding.line for finding in advise(GOOD)] == [
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
        ({"connected_slaves": 0}, 0, 'durable="replica" is not available'),
        ({"min_slaves_good_slaves": None}, 0, "set min-replicas-to-write 1"),
        ({"loading": 1}, 1, "loading"),
        ({"aof_enabled": 0}, 1, "set appendonly yes"),
        ({"aof_last_write_status": "err"}, 1, "is the disk full?"),
        ({"rdb_last_bgsave_status": "err"}, 1, "its last snapshot failed"),
        ({"min_slaves_good_slaves": 0}, 0, "needs replicas for a write (min-replicas-to-write), but no replica keeps up"),
        ({"min_slaves_good_slaves": 0, "connected_slaves": 0}, 0, "bring its replicas back, or lower min-replicas-to-write"),
        ({"used_memory": 2**30}, 2, "full: 1,024 of 1,024 MiB (maxmemory), so it refuses events: raise maxmemory"),
        ({"maxmemory_policy": "allkeys-lru"}, 2, "maxmemory-policy allkeys-lru; a full Redis loses events without notice"),
        ({"maxmemory": 0}, 2, "set maxmemory"),
    ],
)
def test_each_setting_that_loses_events_is_named(differs: dict[str, Any], line: int, says: str) -> None:
    info = {name: value for name, value in {**GOOD, **differs}.items() if value is not None}
    assert says in advise(info)[line].line


@pytest.mark.parametrize("given", [{}, {"role": "master", "aof_enabled": "?", "maxmemory": None}])
def test_a_server_that_does_not_say_it_is_judged_neither_well_nor_ill(given: dict[str, Any]) -> None:
    """A Redis of another operator may leave out parts of INFO, and nothing follows from missing ones."""
    assert [(finding.name, finding.verdict) for finding in advise(given)] == [
        ("role", Verdict.UNKNOWN),
        ("disk", Verdict.UNKNOWN),
        ("memory", Verdict.UNKNOWN),
    ]


@pytest.mark.parametrize(
    ("limit", "verdict", "says"),
    [
        ("normal 0 0 0 slave 268435456 67108864 60 pubsub 134217728 67108864 60", Verdict.OK, "pubsub 128 MiB, 64 MiB for 60 s"),
        (
            "normal 0 0 0 replica 1 1 60 pubsub 33554432 8388608 60",
            Verdict.WARNING,
            "a burst of large events disconnects gateways",
        ),
        ("pubsub 0 0 0", Verdict.WARNING, "no limit"),
        ("normal 0 0 0", Verdict.UNKNOWN, "has no entry for pubsub"),
        ("", Verdict.UNKNOWN, "has no entry for pubsub"),
    ],
)
def test_the_buffer_of_gateways_is_judged(limit: str, verdict: Verdict, says: str) -> None:
    """As Redis and Valkey write it, with the setting to use instead."""
    found, _ = advise_settings({"client-output-buffer-limit": limit, "timeout": "0", "maxclients": "10000"})
    assert (found.name, found.verdict) == ("buffers", verdict)
    assert says in found.text
    assert found.fix == (None if verdict is Verdict.OK else BUFFER_FIX)


def test_a_server_that_closes_quiet_connections_or_takes_few_is_named() -> None:
    """A gateway keeps quiet connections for seconds."""
    found = advise_settings({"client-output-buffer-limit": "pubsub 0 0 0", "timeout": "30", "maxclients": "10"})[1:]
    assert [finding.fix for finding in found] == ["set timeout 0", "set maxclients 100 or more"]


def test_settings_that_nobody_may_ask_for_are_not_judged() -> None:
    """Most users may not call CONFIG GET."""
    [found] = advise_settings(None)
    assert found.verdict is Verdict.UNKNOWN
