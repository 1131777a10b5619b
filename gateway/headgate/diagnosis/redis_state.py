"""Checks Redis for `headgate check`, and for the first part of `headgate doctor`.

In: a client, and its URL. Out: results in the order of printing. It writes nothing unless `load` requests the function
libraries, but it sends Redis writes without effect, which Redis refuses if it would refuse events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from math import ceil

from headgate.consumers.work.groups import Groups, GroupStatus
from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.events.event import ID_COUNTS_S
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.redis import loads
from headgate.redis.client import Client, call, call_many, check_server, is_forbidden, mixed, primaries, versions
from headgate.redis.cluster_client import ClusterClient
from headgate.redis.connections import address_of, is_open, redacted_address
from headgate.redis.faults import CURES, NEEDED, NO_FUNCTION
from headgate.redis.functions import LOG_LIBRARY, Library, server_token
from headgate.redis.keys import LOADS, NAMESPACES, PAUSED, REVOKED, STRICT, log_key, trial_key
from headgate.redis.lineage import Extent
from headgate.redis.log import RECONNECT_S, EventLog
from headgate.redis.presence import PRESENCE_LIBRARY
from headgate.redis.registry import Served, read_groups, read_served
from headgate.redis.server_advice import SETTINGS, advise, advise_settings
from headgate.runtime.check_result import CheckResult, fault, ok, unknown, warning

# Keys that a gateway reads in addition to logs and channels. Without the right to one, it runs without that feature.
_READS = (
    ("ZRANGE", NAMESPACES, 0, 0), ("ZRANGE", REVOKED, 0, 0), ("ZRANGE", PAUSED, 0, 0), ("HLEN", LOADS),
)  # fmt: skip


_FIX = "if it runs, check its log and its Redis URL, allow its user +fcall_ro|headgate_version, and restart it"
_END_PAUSE = "wait if a failover is under way; else end the pause of writes: CLIENT UNPAUSE"


def check_gateways(client: Client) -> Iterator[CheckResult]:
    """Yield a result for each gateway that gets its events from another server. Raises as `redis.client.call`."""
    server = server_token(client, LOADS)
    rows = loads.read(client, server)
    for load in rows.loads.values():
        if not load.is_at(server):
            yield fault(f"gateway {load.name}", "its events come from another Redis server than this one", _FIX)
    for load in rows.left.values():
        text = f"on another Redis server than this one {rows.now_s - load.at_s} s ago, and still there unless it has ended"
        yield warning(f"gateway {load.name}", text, _FIX)


def check_consumers(statuses: Iterable[GroupStatus]) -> Iterator[CheckResult]:
    """Yield a result for each consumer with instances on another server."""
    for status in statuses:
        if status.elsewhere:
            text = f"on another Redis server, unless they have ended: {', '.join(status.elsewhere)}"
            yield warning(f"consumer {status.name}", f"{text}; the lag here says nothing of them", _FIX)


def check_writes(client: Client, namespaces: Collection[str]) -> CheckResult:
    """Return whether Redis accepts events of these namespaces (or of the default one) from this user, and why not.

    One round trip each, with two writes without effect. The first adds an entry to a missing stream without creating it. The
    second is an event without a topic, which the function refuses after Redis has allowed the write. Raises BusUnavailable if
    Redis does not answer reads either.
    """
    refused: dict[str, list[str]] = {}
    cures: set[str] = set()
    for name in sorted(namespaces) or [DEFAULT_NAMESPACE]:
        entry = ("XADD", trial_key(name), "NOMKSTREAM", "*", "by", "headgate check")
        try:
            replies = call_many(client, [entry, ("FCALL", STRICT, 1, log_key(name), "", "null", "")])
        except BusUnavailable:
            call(client, "PING")
            return fault("writes", "it answers reads, but no write", _END_PAUSE)
        for reply in replies:
            # A missing library is not a refused write. Another check reports it.
            if isinstance(reply, BusRefused | BusUnavailable) and reply.redis_code != NO_FUNCTION:
                refused.setdefault(str(reply.parts["reason"]).removeprefix("Redis: "), []).append(name)
                cures.add(CURES.get(reply.redis_code, ""))
                break
    if not refused:
        return ok("writes", "it takes events from this user")
    reasons = "; ".join(f"{reason}, of {', '.join(of)}" for reason, of in refused.items())
    return fault("writes", f"it refuses events: {reasons}", "; ".join(sorted(cures - {""})) or None)


def check_redis(client: Client, url: str, *, load: bool = False) -> Iterator[CheckResult]:
    """Yield results about Redis itself, its persistence, its function libraries, and the served namespaces.

    Raises BusUnavailable, BusRefused: it does not answer, or is unusable for us.

    Args:
        load: also load or update our function libraries.
    """
    name, version = check_server(client)
    yield ok("found", f"{name} {version} at {redacted_address(url)}")
    yield ok("needed", NEEDED)
    yield _library(client, LOG_LIBRARY, "function library", "publisher or gateway", load)
    yield _library(client, GROUP_LIBRARY, "function library of consumers", "consumer", load)
    yield _library(client, PRESENCE_LIBRARY, "function library of presence", "gateway with members", load)
    yield from _servers(client)
    served: dict[str, Served] = {}
    unread: HeadgateError | None = None
    try:
        served = read_served(client)
    except HeadgateError as error:
        unread = error
    yield check_writes(client, served)
    if (differ := mixed(versions(client))) is not None:
        yield warning("warning", differ)
    if isinstance(client, ClusterClient) and (without := client.topology.without_owner()):
        yield fault(
            "warning", f"the Cluster is down for {without} of its 16384 slots, which no node owns, and for their namespaces"
        )
    if unread is not None:
        yield unknown("namespaces", f"cannot determine which ones are served: {unread.message}")
    for namespace, each in served.items():
        yield _namespace(namespace, each, is_fault=not load)
        try:
            extent = EventLog(namespace, client, 0).extent()
        except BusRefused as error:
            yield unknown(f"ids of {namespace}", f"for how long they count is not known: {error.message}")
        else:
            if extent.most_id_bytes:
                yield judge_ids(namespace, extent)
    for namespace in served:
        seconds = retention_s(client, namespace, loads.clock(client)[0])
        if seconds is not None:
            short = short_log(seconds)
            name = f"log of {namespace}"
            yield warning(name, *short) if short else ok(name, f"keeps an event for {seconds:.0f} s at the present rate")
    yield from _elsewhere(client, served)


def judge_ids(namespace: str, extent: Extent) -> CheckResult:
    """Return a result about how long the ids of a log count, and the memory that they may take."""
    name, most = f"ids of {namespace}", f"{extent.most_id_bytes / 2**20:,.0f} MiB"
    if extent.id_hold_s >= ID_COUNTS_S:
        return ok(name, f"an id counts for {ID_COUNTS_S} s; all may take {most}")
    # Bytes of the ids of 300 s, and of the events: 11/8 of the setting (log.lua).
    needed = (extent.most_id_bytes * ID_COUNTS_S / max(extent.id_hold_s, 1) + extent.bytes) * 8 / 11
    return warning(
        name,
        f"an id counts for {extent.id_hold_s:.0f} s at the present rate, not for {ID_COUNTS_S} s, as all may take {most}:"
        " an event that is published again after that is in the log twice",
        f"set HEADGATE_LOG_MAX_BYTES to {ceil(needed / 2**20) * 2**20} or more, and give Redis the memory",
    )


def retention_s(client: Client, namespace: str, now_s: float) -> float | None:
    """Return how long a log keeps an event at its recent rate; None if it has no bounds yet or may not be read.

    About twenty round trips. `now_s` is Redis' time. Raises BusUnavailable if the connection breaks.
    """
    try:
        log = EventLog(namespace, client)
        extent = log.extent()
        return extent.retention_s(log.events_per_s(log.clock_ms(int(now_s * 1000)))) if extent.max_age_s else None
    except BusRefused:
        return None


def short_log(seconds: float) -> tuple[str, str] | None:
    """Return the problem with a log that keeps an event for these seconds, and its fix, or None."""
    if seconds >= RECONNECT_S:
        return None
    text = f"at the present rate the log keeps an event for {seconds:.1f} s; to come back takes a client up to {RECONNECT_S:g} s"
    return text, "raise HEADGATE_LOG_MAX_BYTES or HEADGATE_LOG_MAX_EVENTS, or publish less"


def check_rights(client: Client, url: str) -> Iterator[CheckResult]:
    """Yield results about rights in Redis. Reads only. Raises as `check_redis`."""
    if is_open(url):
        yield fault(
            "password",
            f"none at {redacted_address(url)}, so every program that reaches it may publish, read and revoke",
            "make users with passwords (docs/operations/redis-users.md), and put one into HEADGATE_REDIS_URL",
        )
    refused = [
        str(command[1]) for command, reply in zip(_READS, call_many(client, _READS), strict=True)
        if isinstance(reply, BusRefused) and is_forbidden(reply)
    ]  # fmt: skip
    if refused:
        keys = " ".join(f"~{key}" for key in refused)
        yield warning(
            "rights", f"this user may not read {', '.join(refused)}", f"ACL SETUSER <name> {keys} +zrange +hlen +hgetall"
        )
    else:
        yield ok("rights", "this user may read what a gateway reads beside logs and channels")


def _elsewhere(client: Client, namespaces: Collection[str]) -> Iterator[CheckResult]:
    try:
        yield from check_gateways(client)
        for namespace in namespaces:
            groups, names = Groups(client, namespace), sorted(read_groups(client, namespace))
            yield from check_consumers(status for name in names if (status := groups.status_of(name)) is not None)
    except BusRefused as error:
        yield unknown("other servers", f"cannot determine which processes are on another Redis server: {error.message}")


def _namespace(name: str, served: Served, *, is_fault: bool) -> CheckResult:
    """Judge how a namespace is served. If its gateways stopped in an orderly way, that may be intended."""
    seen = "none seen" if served.seen_s_ago is None else f"the last one seen {served.seen_s_ago} s ago"
    text = f"{served.live} gateway(s) at work, {seen}"
    if served.live:
        return ok(f"namespace {name}", text)
    if not served.silent:
        return warning(f"namespace {name}", text)
    text = f"{text}; {served.silent} did not stop in an orderly way (killed, or unable to reach Redis)"
    return (fault if is_fault else warning)(f"namespace {name}", text, "start it again: headgate serve")


def _library(client: Client, library: Library, name: str, loaded_by: str, load: bool) -> CheckResult:
    loaded = library.ensure_loaded(client) if load else library.loaded_version(client)
    if loaded is None:
        return ok(name, f"not loaded; the first {loaded_by} loads it (ours: {library.version})")
    if loaded < library.version:
        fix = f"run `headgate check --load` as a user who may load functions, unless the next {loaded_by} may"
        return warning(name, f"version {loaded}, which is older (ours: {library.version})", fix)
    return ok(name, f"version {loaded} (ours: {library.version})")


def _servers(client: Client) -> Iterator[CheckResult]:
    servers = primaries(client)
    for server in servers:
        results = [*advise(call(server, "INFO")), *advise_settings(_settings(server))]
        for result in results:
            where = "" if len(servers) == 1 else f"{address_of(server)}: "
            yield replace(result, name=where + result.name)


def _settings(server: Client) -> dict[str, str] | None:
    """Return the relevant settings of a server, or None if this user may not read them."""
    try:
        flat = call(server, "CONFIG", "GET", *SETTINGS)
    except BusRefused:
        return None
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
