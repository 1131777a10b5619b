"""Advice about a Redis server: how well it keeps events through a crash, a failover and full memory, and how long it waits for
readers.

In: the server's INFO and its settings (CONFIG GET, which many users may not call). Out: findings, each with the setting to
change, if any. docs/operations/failover.md has the configuration that loses no event with a receipt. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.runtime.check_result import CheckResult, fault, ok, unknown, warning

# Redis disconnects a gateway that lags further. It then reads the missed events from the log.
ENOUGH_BUFFER_BYTES = 32 * 2**20
BUFFER_FIX = "set client-output-buffer-limit pubsub 128mb 64mb 60"
# Settings of Redis that `advise_settings` wants to know.
SETTINGS = ("client-output-buffer-limit", "timeout", "maxclients")
# A gateway's connections to Redis, approximately. Consumers and publishers add theirs.
LEAST_CLIENTS = 100


def advise(info: Mapping[str, Any]) -> list[CheckResult]:
    """Return one finding each about its role, its disk and its memory, or `unknown` if the server does not report it."""
    return [_role(info), _disk(info), _memory(info)]


def advise_settings(settings: Mapping[str, str] | None) -> list[CheckResult]:
    """Return findings about the settings of a server (None: this user may not read them)."""
    if settings is None:
        return [
            unknown("settings", "this Redis user may not read them", "run this as a user with +config|get to have them checked")
        ]
    return [_buffers(settings.get("client-output-buffer-limit", "")), *_connections(settings)]


def _role(info: Mapping[str, Any]) -> CheckResult:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        return fault("role", f"replica of {primary}; gateways and publishers need the primary")
    replicas, good = _count(info, "connected_slaves"), _count(info, "min_slaves_good_slaves")
    if "role" not in info or replicas is None:
        return unknown("role", "it does not report its role and the number of its replicas")
    if good == 0:  # INFO has it only if min-replicas-to-write is set
        return fault(
            "role",
            "primary that needs replicas for a write (min-replicas-to-write), but no replica keeps up",
            "bring its replicas back, or lower min-replicas-to-write",
        )
    if not replicas:
        return ok("role", 'primary without replicas; durable="disk" waits for the disk, durable="replica" is not available')
    if good is not None:
        return ok("role", f"primary with {replicas} replica(s); it refuses writes without them (min-replicas-to-write)")
    return warning(
        "role",
        f"primary with {replicas} replica(s); it accepts writes without them, and a failover may lose events with receipts",
        'set min-replicas-to-write 1, and publish important events with durable="replica"',
    )


def _disk(info: Mapping[str, Any]) -> CheckResult:
    has_file = _count(info, "aof_enabled")
    if _count(info, "loading"):
        return fault("disk", "it is loading its data", "wait until it has loaded; INFO persistence shows the progress")
    if has_file is None:
        return unknown("disk", "it does not report how it stores its data")
    if info.get("aof_last_write_status", "ok") != "ok":
        return fault("disk", "its last write to the append-only file failed, so it refuses events", "is the disk full?")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return warning(
            "disk",
            "its last snapshot failed; with save points and stop-writes-on-bgsave-error it refuses events until one succeeds",
            "is the disk full, or its folder read-only? Read its log, then run BGSAVE",
        )
    if not has_file:
        return warning("disk", "no append-only file, so a restart loses the log or its end", "set appendonly yes")
    return ok("disk", "append-only file")


def _memory(info: Mapping[str, Any]) -> CheckResult:
    maxmemory, used, policy = _count(info, "maxmemory"), _count(info, "used_memory"), info.get("maxmemory_policy")
    if maxmemory is None or used is None or policy is None:
        return unknown("memory", "it does not report its memory limit and eviction policy")
    if policy != "noeviction":
        return fault("memory", f"maxmemory-policy {policy}; a full Redis loses events without notice", "set noeviction")
    if not maxmemory:
        return warning("memory", "no maxmemory; a full machine ends Redis", "set maxmemory")
    if used >= maxmemory:
        full = f"full: {used / 2**20:,.0f} of {maxmemory / 2**20:,.0f} MiB (maxmemory), so it refuses events"
        return fault("memory", full, "raise maxmemory, or lower HEADGATE_LOG_MAX_BYTES")
    return ok("memory", f"maxmemory {maxmemory / 2**20:,.0f} MiB, noeviction; {used / 2**20:,.0f} MiB in use")


def _buffers(limits: str) -> CheckResult:
    """Judge the limits of one line such as `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`."""
    words = limits.split()
    of_pubsub = dict(zip(words[::4], zip(words[1::4], words[2::4], words[3::4], strict=False), strict=False)).get("pubsub")
    if of_pubsub is None or not all(word.isdigit() for word in of_pubsub):
        return unknown("buffers", "client-output-buffer-limit has no entry for pubsub", BUFFER_FIX)
    hard, soft, _ = limits_of = [int(word) for word in of_pubsub]
    if not hard and not soft:
        return warning("buffers", "client-output-buffer-limit pubsub has no limit: a stuck gateway may fill Redis", BUFFER_FIX)
    shown = f"client-output-buffer-limit pubsub {hard / 2**20:g} MiB, {soft / 2**20:g} MiB for {limits_of[2]} s"
    if min(limit for limit in (hard, soft) if limit) < ENOUGH_BUFFER_BYTES:
        return warning("buffers", f"{shown}; a burst of large events disconnects gateways, which then read the log", BUFFER_FIX)
    return ok("buffers", shown)


def _connections(settings: Mapping[str, str]) -> list[CheckResult]:
    results = []
    if (idle_s := _number(settings.get("timeout"))) not in (None, 0):
        results.append(warning("connections", f"Redis closes connections that are idle for {idle_s} s", "set timeout 0"))
    most = _number(settings.get("maxclients"))
    if most is not None and most < LEAST_CLIENTS:
        results.append(warning("connections", f"maxclients {most}", f"set maxclients {LEAST_CLIENTS} or more"))
    return results or [ok("connections", f"maxclients {most}, no timeout")]


def _count(info: Mapping[str, Any], name: str) -> int | None:
    """Return a number of INFO; None if the server hides it, as some hosted ones do."""
    value = info.get(name)
    return value if isinstance(value, int) else _number(str(value))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
