"""Advice about a Redis server: how it keeps events over a crash, a failover and a full memory. No I/O.

In: what the server says of itself (INFO). Out: lines for an operator, each with the setting to change where there is one.
docs/operations.md has the recipe with which nothing is lost that has a receipt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def advise(info: Mapping[str, Any]) -> list[str]:
    """Return one line about its role, its disk and its memory each."""
    return [_role(info), _disk(info), _memory(info)]


def _role(info: Mapping[str, Any]) -> str:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        return f"role: replica of {primary}; gateways and publishers need the primary"
    replicas = int(info.get("connected_slaves", 0))
    if not replicas:
        return 'role: primary without replicas; durable="disk" waits for the disk, durable="replica" cannot be had'
    guarded = "min_slaves_good_slaves" in info  # Redis names it only where min-replicas-to-write is set
    if guarded:
        return f"role: primary with {replicas} replica(s); it refuses writes without them (min-replicas-to-write)"
    return (
        f"role: primary with {replicas} replica(s); it goes on without them, and a failover may lose events that have receipts: "
        'set min-replicas-to-write 1, and publish with durable="replica" what must not be lost'
    )


def _disk(info: Mapping[str, Any]) -> str:
    if int(info.get("loading", 0)):
        return "disk: it is loading its data"
    if not int(info.get("aof_enabled", 0)):
        return "disk: no append-only file, so a restart loses the log or its end: set appendonly yes"
    if info.get("aof_last_write_status", "ok") != "ok":
        return "disk: its last write to the append-only file failed, so it refuses events: is the disk full?"
    return "disk: append-only file"


def _memory(info: Mapping[str, Any]) -> str:
    maxmemory = int(info.get("maxmemory", 0))
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        return f"memory: maxmemory-policy {policy}; a full Redis loses events without a word: set noeviction"
    if not maxmemory:
        return "memory: no maxmemory; a full machine ends Redis: set maxmemory"
    return (
        f"memory: maxmemory {maxmemory / 2**20:,.0f} MiB, noeviction; {int(info.get('used_memory', 0)) / 2**20:,.0f} MiB in use"
    )
