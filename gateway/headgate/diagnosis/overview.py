"""The overview of a system as Redis knows it, for `headgate status`.

In: a client. Out: the state of Redis, the gateway processes, the namespaces with their logs, the consumers and the pauses, and
results about problems. It changes nothing and asks no gateway, because each reports to Redis every five seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.consumers.work.groups import Groups, GroupStatus
from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.redis import loads, pauses
from headgate.redis.client import Client, call, call_all, check_server, primaries
from headgate.redis.connections import redacted_address
from headgate.redis.keys import LOADS, head_key, log_key
from headgate.redis.loads import Load
from headgate.redis.log import EventLog, clock_in
from headgate.redis.registry import Served, read_served
from headgate.redis.server_advice import advise
from headgate.runtime.check_result import CheckResult, Verdict, fault, unknown, warning

from .redis_state import check_consumers, check_gateways, check_writes, retention_s, short_log


@dataclass(frozen=True, slots=True)
class RedisOverview:
    """All primaries of Redis together. A value is None if one of them does not report it."""

    server: str
    used_bytes: int | None
    max_bytes: int | None
    clients: int | None
    commands_per_s: int | None


@dataclass(frozen=True, slots=True)
class GatewayState:
    """One gateway process. `up_s` is the time since its start, and `clock_ms` how far its clock is ahead of Redis' (None if
    unreported).
    """

    name: str
    version: str
    namespaces: str
    sessions: int
    up_s: int | None
    clock_ms: int | None


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """A namespace with its running gateways and its log.

    `head` is the newest offset, `oldest_s` the age of the oldest event, and `retention_s` how long the log keeps an event at
    the present rate (None if unknown).
    """

    name: str
    gateways: int
    seen_s_ago: int | None
    epoch: str
    head: int
    events: int
    bytes: int
    oldest_s: float | None
    retention_s: float | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """See the module. `at_s` is Redis' time; `paused` maps each pause to its remaining seconds (None: no end)."""

    at_s: float
    redis: RedisOverview
    gateways: list[GatewayState]
    namespaces: list[NamespaceState]
    consumers: list[GroupStatus]
    paused: dict[str, float | None]
    wrong: list[CheckResult]


def read_overview(client: Client, url: str) -> Overview:
    """Return the overview. Takes about ten round trips, and scans the names of all keys to find the consumers.

    Raises BusUnavailable, BusRefused: Redis does not answer, or refuses this user.
    """
    name, version = check_server(client)
    infos = [call(server, "INFO") for server in primaries(client)]
    at_s = loads.clock(client)[0]
    rows = loads.read(client).loads
    namespaces = [_namespace(client, each, served, at_s) for each, served in sorted(read_served(client).items())]
    consumers: list[GroupStatus] = []
    if GROUP_LIBRARY.loaded_version(client) is not None:  # else no consumer has ever run here
        consumers = [status for each in namespaces for status in Groups(client, each.name).statuses()]
    writes = check_writes(client, [each.name for each in namespaces])
    paused = {each: None if left_s == float("inf") else left_s for each, left_s in sorted(pauses.read_paused(client).items())}
    return Overview(
        at_s,
        _redis(f"{name} {version} at {redacted_address(url)}", infos),
        [_gateway(load, at_s) for load in sorted(rows.values(), key=lambda load: (load.name, load.since_s))],
        namespaces,
        consumers,
        paused,
        [
            *(result for info in infos for result in advise(info) if result.verdict is Verdict.FAULT),
            *([] if writes.verdict is Verdict.OK else [writes]),
            *check_gateways(client),
            *check_consumers(consumers),
            *wrong(rows, namespaces, consumers, paused, takes_writes=writes.verdict is Verdict.OK),
        ],
    )


def wrong(
    rows: Mapping[str, Load],
    namespaces: list[NamespaceState],
    consumers: list[GroupStatus],
    paused: Mapping[str, object],
    *,
    takes_writes: bool = True,
) -> Iterator[CheckResult]:
    """Yield problems. A process that cannot write to Redis cannot report itself."""
    registered = sum(namespace.gateways for namespace in namespaces)
    if not rows and not takes_writes:
        yield unknown("gateways", "none is registered, and none can register while Redis refuses writes: some may be running")
    elif not rows and registered:
        text = f"{registered} registered, but none has reported its state yet; if this continues, allow writes to {LOADS}"
        yield warning("gateways", text, f"ACL SETUSER <name> ~{LOADS} +hset +hdel +hgetall +expire")
    elif not rows:
        yield fault("gateways", "none is at work", "start one: headgate serve")
    for namespace in namespaces:
        if rows and not namespace.gateways:
            seen = "" if namespace.seen_s_ago is None else f"; the last one was seen {namespace.seen_s_ago} s ago"
            yield warning(f"namespace {namespace.name}", f"no gateway serves it{seen}")
        if namespace.retention_s is not None and (short := short_log(namespace.retention_s)) is not None:
            yield warning(f"namespace {namespace.name}", *short)
    for consumer in consumers:
        behind = consumer.lag + consumer.waiting
        if behind and not consumer.is_at_work:
            work = f"{consumer.lag} events and {consumer.waiting} tasks before it"
            if takes_writes:
                yield fault(f"consumer {consumer.name}", f"not at work, with {work}", "start `headgate consume`")
            else:
                yield unknown(f"consumer {consumer.name}", f"it cannot take work while Redis refuses writes, with {work}")
        if consumer.dead:
            fix = f"headgate dead-letters list {consumer.name}"
            yield warning(f"consumer {consumer.name}", f"{consumer.dead} dead letters", fix)
    for name in paused:
        yield warning("paused", name.replace(":", " ", 1), f"headgate resume {name.replace(':', ' ', 1)}")


def _redis(server: str, infos: list[Mapping[str, Any]]) -> RedisOverview:
    def total(name: str) -> int | None:
        return sum(int(info[name]) for info in infos) if all(name in info for info in infos) else None

    return RedisOverview(
        server, total("used_memory"), total("maxmemory"), total("connected_clients"), total("instantaneous_ops_per_sec")
    )


def _gateway(load: Load, at_s: float) -> GatewayState:
    up_s = max(0, int(at_s) - load.since_s) if load.since_s else None
    return GatewayState(load.name, load.version, load.serves, load.sessions, up_s, load.skew_ms)


def _namespace(client: Client, name: str, served: Served, at_s: float) -> NamespaceState:
    key, head = log_key(name), head_key(name)
    fields, events, oldest = call_all(
        client, [("HMGET", head, "epoch", "offset", "sum", "first_sum"), ("XLEN", key), ("XRANGE", key, "-", "+", "COUNT", 1)]
    )
    raw, offset, total, below = fields
    epoch = (raw or b"").decode(errors="replace")
    oldest_s = None
    if oldest and (clock_ms := clock_in(oldest[0][1])):
        oldest_s = max(0.0, EventLog(name, client).clock_ms(round(at_s * 1000)) - clock_ms) / 1000
    size = max(0, _number(total) - _number(below)) if events else 0
    kept_s, head_offset = retention_s(client, name, at_s), _number(offset)
    return NamespaceState(name, served.live, served.seen_s_ago, epoch, head_offset, int(events), size, oldest_s, kept_s)


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
