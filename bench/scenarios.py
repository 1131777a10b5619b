"""The scenarios: what is measured, of which servers, which figures the table shows, and the targets."""

from __future__ import annotations

from .appending import beside_history, cost, receipts_sync, receipts_tcp
from .disturbed import hostile, stalled
from .hostile import ATTACKS
from .http_publishing import posting
from .joining import connecting, memory, storm
from .loads import bursts, closed_loop, paused, rates, saturation, schedule
from .scenario import KIB, Scenario
from .stage import own, topics

_SOCKETIO = ("headgate", "node")
_PEERS = (*_SOCKETIO, "node-streams", "centrifugo", "centrifugo-history")
# Where the way of publishing counts, Headgate takes part with both of its functions.
_WAYS = ("headgate", "headgate-append", *_PEERS[1:], "centrifugo-ids", "sink")
_OWN = ("headgate", "headgate-append", *_PEERS[1:], "centrifugo-ids", "sink-addressed")
_HTTP = ("headgate", "centrifugo", "centrifugo-history")
_HEADGATE = ("headgate",)
_OWN_5000 = own(5000)
_TOPICS_20_OF_10000 = topics(5000, 20, 10_000)
_DIRECTED_RATES, _BROADCAST_RATES = (2000, 10_000, 20_000), (20, 50, 200)
# The workloads of the classic study of message-queue latency.
_WORKLOADS = ((256, 3000), (KIB, 3000), (5 * KIB, 2000), (KIB, 20_000), (64 * KIB, 100), (KIB**2, 100))

# fmt: off
_REDIS_US = {"redis_us_per_event": "Redis CPU µs per event"}
_LOAD_SHARE = {"load_core_share": "generator's share of its core"}
_SERVER_SHARE = {"server_core_share": "server's share of its core"}
_SERVER_MIB = {"server_mib": "server memory (MiB)"}
_EVENTS_PER_S = {"events_per_s": "events per second"}
_EVENTS_PER_CPU_S = {"events_per_cpu_s": "events per server CPU second"}
_DELIVERIES_PER_CPU_S = {"deliveries_per_cpu_s": "deliveries per server CPU second"}
_P50, _P99, _P99_9 = {"p50_ms": "p50 ms"}, {"p99_ms": "p99 ms"}, {"p99_9_ms": "p99.9 ms"}
_MAX = {"max_ms": "max ms"}
_THROUGHPUT_COLUMNS = {
    **_DELIVERIES_PER_CPU_S, **_REDIS_US, "deliveries_per_s": "deliveries per second", **_LOAD_SHARE, **_SERVER_MIB,
}
_EVENTS_COLUMNS = {**_EVENTS_PER_CPU_S, **_REDIS_US, **_DELIVERIES_PER_CPU_S, **_EVENTS_PER_S, **_LOAD_SHARE}
_LATENCY_COLUMNS = {**_P50, "p90_ms": "p90 ms", **_P99, **_P99_9, **_MAX, **_SERVER_SHARE, **_REDIS_US}
_POSTING_COLUMNS = {**_EVENTS_PER_S, **_EVENTS_PER_CPU_S, **_P50, **_P99, **_MAX}
_SATURATION_COLUMNS = {
    "borne_events_per_s": "events per second", "maximum_events_per_s": "maximum in a closed loop", **_P50, **_P99_9, **_MAX,
}
_MEMORY_COLUMNS = {
    "kib_per_client": "KiB per client beyond the first 100",
    "kib_per_client_from_empty": "KiB per client from an empty server",
    **_SERVER_MIB,
}
_CONNECTING_COLUMNS = {"connects_per_s": "connects per second", "connects_per_cpu_s": "per server CPU second", **_P99, **_MAX}
_RECEIPTS_COLUMNS = {"receipts_per_s": "receipts per second", "redis_py_per_s": "calls of redis-py per second", "ratio": "ratio"}
_PAUSED_COLUMNS = {
    "lost": "events lost", "gap_notices": "gap notices", "live_again_s": "live again after (s)",
    "p50_ms": "p50 ms before and after", **_P99_9, **_MAX, **_SERVER_SHARE,
}
_STALLED_COLUMNS = {
    "growth_mib_per_stopped": "memory growth per stopped client (MiB)",
    "calm_p99_ms": "others' p99 before and after (ms)",
    "p99_ms": "others' p99 meanwhile (ms)",
    "p99_change": "ratio",
    "max_ms": "longest freeze (max ms)",
    "cut_while_stopped": "cut", "events_owed": "events owed", "caught_up": "caught up", "gap_notices": "gap notices",
}
_HOSTILE_COLUMNS = {
    "p99_ms": "others' p99 ms", "max_ms": "worst stall (max ms)", **_SERVER_SHARE, "growth_mib": "memory growth (MiB)",
    "sent_mib": "MiB taken", "connections": "attacking connections", "answer": "how it ended",
}
_APPENDING_COLUMNS = {
    "headgate_publish_us": "headgate_publish µs",
    "headgate_append_us": "headgate_append µs",
    "headgate_append_batch_us": "in batches of 100 µs",
    "by_hand_us": "HSETNX, XADD and PUBLISH in a function µs",
    "xadd_us": "XADD µs",
    "headgate_publish_multiple": "headgate_publish / XADD",
    "headgate_append_multiple": "headgate_append / XADD",
    "headgate_append_batch_multiple": "in batches of 100 / XADD",
    "by_hand_multiple": "three commands in a function / XADD",
}
_HISTORY_COLUMNS = {
    "append_us": "headgate_append, one topic, µs",
    "append_users_us": "headgate_append, 5,000 users, µs",
    "batch_users_us": "in batches of 100, 5,000 users, µs",
    "history_ids_us": "history with ids, one channel, µs",
    "history_ids_users_us": "history with ids, 5,000 channels, µs",
    "history_us": "history without ids, one channel, µs",
    "history_users_us": "history without ids, 5,000 channels, µs",
    "append_multiple": "one topic / history with ids",
    "append_users_multiple": "5,000 users / history with ids",
    "batch_users_multiple": "in batches / history with ids",
}
_COMING_BACK_COLUMNS = {"seconds_until_all_had_all": "seconds until all had all", "server_cpu_seconds": "server CPU seconds"}
# fmt: on


def _size(size_bytes: int) -> str:
    return next(f"{size_bytes // unit} {name}" for unit, name in ((KIB**2, "MiB"), (KIB, "KiB"), (1, "B")) if size_bytes >= unit)


def _mark(size_bytes: int) -> str:
    return _size(size_bytes).replace(" ", "")


def _rates_columns(rates: tuple[int, ...]) -> dict[str, str]:
    kinds = {**_P50, **_P99_9, "server_us": "server CPU µs per event", "redis_us": "Redis CPU µs per event"}
    return {f"at_{rate}_{name}": f"{title} at {rate:,}/s" for rate in rates for name, title in kinds.items()}


def _throughput(clients: int, target: float, *, quick: bool = False) -> Scenario:
    return Scenario(
        f"throughput-{clients}x256B-w8",
        f"Throughput: {clients:,} clients, 256 B, window 8",
        closed_loop(clients, 256, 8),
        _THROUGHPUT_COLUMNS,
        (*_PEERS, "sink"),
        "deliveries_per_cpu_s",
        quick,
        {"deliveries_per_cpu_s": target},
    )


def _stalled(mark: str, title: str, clients: int, stopped: int, size_bytes: int, *, quick: bool = False) -> Scenario:
    run = stalled(clients, stopped, size_bytes, 100)
    targets = {"growth_mib_per_stopped": 1.2, "p99_change": 1.1}
    return Scenario(f"stalled{mark}", title, run, _STALLED_COLUMNS, _PEERS, "p99_ms", quick, targets)


def _hostile(name: str) -> Scenario:
    attack = ATTACKS[name]
    title = f"{attack.what} ({name}) while 100 others get 100 events/s"
    servers, targets = _SOCKETIO if attack.anywhere else _HEADGATE, {"p99_ms": attack.p99_ms, "growth_mib": 5 + attack.keeps}
    return Scenario(f"hostile-{name}", title, hostile(name), _HOSTILE_COLUMNS, servers, "max_ms", targets=targets)


def _appending(size_bytes: int, most: float) -> Scenario:
    return Scenario(
        f"appending-{_mark(size_bytes)}",
        f"CPU time of Redis for an event of {_size(size_bytes)} in the log, and for an XADD of the same bytes",
        cost(size_bytes),
        _APPENDING_COLUMNS,
        _HEADGATE,
        "headgate_publish_us",
        targets={f"headgate_{name}_multiple": most for name in ("publish", "append", "append_batch")},
    )


def _beside_history(size_bytes: int, most: float) -> Scenario:
    return Scenario(
        f"appending-beside-history-{_mark(size_bytes)}",
        f"CPU time of Redis for an event of {_size(size_bytes)} in the log, and in a script that keeps a history "
        "as Centrifugo does",
        beside_history(size_bytes),
        _HISTORY_COLUMNS,
        _HEADGATE,
        "append_us",
        targets={f"{name}_multiple": most for name in ("append", "append_users", "batch_users")},
    )


def _catching_up(clients: int) -> Scenario:
    who = "One client comes" if clients == 1 else f"{clients} clients come"
    title = f"{who} back with 60,000 events of 1 KiB missed"
    columns = {**_COMING_BACK_COLUMNS, "deliveries_per_cpu_s": "events per server CPU second"}
    return Scenario(f"catching-up-{clients}", title, storm(clients, 60_000, KIB), columns, _HEADGATE, "deliveries_per_cpu_s")


def _workload(size_bytes: int, rate: int) -> Scenario:
    title = f"One client, {_size(size_bytes)} × {rate:,} per second, for 30 s"
    run = schedule(1, size_bytes, rate, measure_s=30)
    return Scenario(f"workload-{_mark(size_bytes)}-{rate}", title, run, _LATENCY_COLUMNS, _WAYS, "p99_9_ms")


def _paused(rate: int) -> Scenario:
    title = f"One client, 1 KiB × {rate:,} per second, that does not read for 1 s in the middle of 30 s"
    targets = {"lost": 0, "live_again_s": 3}
    run = paused(KIB, rate, 1.0)
    return Scenario(f"workload-1KiB-{rate}-paused", title, run, _PAUSED_COLUMNS, _WAYS, "p99_9_ms", targets=targets)


def _topics(window: int) -> Scenario:
    name = "topics-20-of-10000" + ("" if window == 64 else f"-w{window}")  # 64 was the only one at first
    title = f"Each of 5,000 clients listens to 20 of 10,000 topics, 256 B, window {window}"
    return Scenario(name, title, closed_loop(_TOPICS_20_OF_10000, 256, window), _EVENTS_COLUMNS, _OWN, "events_per_cpu_s")


# fmt: off
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "directed-5000", "Each event for 1 of 5,000 users, 256 B, window 64", closed_loop(_OWN_5000, 256, 64),
            _EVENTS_COLUMNS, _OWN, "events_per_cpu_s", quick=True, targets={"events_per_cpu_s": 80_000},
        ),
        Scenario(
            "directed-5000-schedule", "Each event for 1 of 5,000 users, 256 B, open schedule of 5,000 events per second",
            schedule(_OWN_5000, 256, 5000), _LATENCY_COLUMNS, _OWN, "p99_9_ms", targets={"p99_9_ms": 10},
        ),
        *(_topics(window) for window in (32, 64)),
        Scenario(
            "topics-20-of-10000-schedule", "Each of 5,000 clients listens to 20 of 10,000 topics, 1,000 events per second",
            schedule(_TOPICS_20_OF_10000, 256, 1000), _LATENCY_COLUMNS, _OWN, "p99_9_ms", targets={"p99_9_ms": 15},
        ),
        _throughput(1000, 700_000, quick=True),
        _throughput(5000, 500_000),
        Scenario(
            "schedule", "Open schedule: 10,000 deliveries per second to 1,000 clients, 256 B", schedule(1000, 256, 10),
            _LATENCY_COLUMNS, (*_PEERS, "sink"), "p99_ms", quick=True,
        ),
        Scenario(
            "bursts", "Bursts: 20 events at once to 1,000 clients, 256 B", bursts(1000, 256, 20),
            _LATENCY_COLUMNS, (*_PEERS, "sink"), "p99_ms",
        ),
        Scenario(
            "memory", "Memory per connected, subscribed, idle client at 5,000", memory(5000),
            _MEMORY_COLUMNS, _PEERS, "kib_per_client_from_empty", quick=True, targets={"kib_per_client_from_empty": 10},
        ),
        _stalled("", "One of 10 clients never reads, 60 KB × 100/s", 10, 1, 60_000, quick=True),
        _stalled("-mix", "20 of 100 clients stopped, 1 KiB × 100/s", 100, 20, KIB),
        Scenario(
            "connecting", "Connections: joined and subscribed", connecting(4000),
            _CONNECTING_COLUMNS, _PEERS, "connects_per_s", quick=True, targets={"connects_per_s": 1500},
        ),
        Scenario(
            "joins-token-own-pattern", "Connections with a token each, and the pattern of all that is one's own",
            connecting(4000, own), _CONNECTING_COLUMNS, _PEERS, "connects_per_s", targets={"connects_per_s": 5000},
        ),
        Scenario(
            "joins-20-exact", "Connections with 20 of 10,000 exact topics each",
            connecting(4000, lambda clients: topics(clients, 20, 10_000)),
            _CONNECTING_COLUMNS, _PEERS, "connects_per_s", targets={"connects_per_s": 4000},
        ),
        Scenario(
            "http-publish", "Publishing over HTTP: 64 kept connections, one event of 256 B to a request", posting(256, 1),
            _POSTING_COLUMNS, _HTTP, "events_per_s", targets={"events_per_s": 15_000},
        ),
        Scenario(
            "http-publish-batch", "Publishing over HTTP: 64 kept connections, 100 events of 256 B each", posting(256, 100),
            _POSTING_COLUMNS, _HTTP, "events_per_s", targets={"events_per_s": 60_000},
        ),
        Scenario(
            "receipts-sync", "One thread publishes and waits for each receipt, 256 B, beside redis-py alone", receipts_sync(256),
            _RECEIPTS_COLUMNS, _HEADGATE, "receipts_per_s", targets={"receipts_per_s": 9000, "ratio": 0.95},
        ),
        Scenario(
            "receipts-tcp", "One thread publishes over TCP and waits for each receipt, 256 B, while a gateway delivers",
            receipts_tcp(256), _RECEIPTS_COLUMNS, _HEADGATE, "receipts_per_s", targets={"ratio": 0.95},
        ),
        _appending(256, 5),
        _appending(16 * KIB, 2.5),
        _beside_history(256, 1.2),
        _beside_history(16 * KIB, 1.5),
        *(_workload(size_bytes, rate) for size_bytes, rate in _WORKLOADS),
        *(_paused(rate) for rate in (10_000, 20_000)),
        Scenario(
            "rates", "Fixed rates: every event to 1,000 clients, 256 B", rates(1000, 256, _BROADCAST_RATES),
            _rates_columns(_BROADCAST_RATES), _PEERS, "at_50_p99_9_ms",
        ),
        Scenario(
            "directed-5000-rates", "Fixed rates: each event for 1 of 5,000 users, 256 B",
            rates(_OWN_5000, 256, _DIRECTED_RATES), _rates_columns(_DIRECTED_RATES), _OWN, "at_10000_p99_9_ms",
        ),
        Scenario(
            "saturation", "The highest rate with a p99.9 within 100 ms: 1,000 clients, 256 B", saturation(1000, 256, 8),
            _SATURATION_COLUMNS, _PEERS, "borne_events_per_s",
        ),
        Scenario(
            "directed-5000-saturation", "The highest rate with a p99.9 within 100 ms: each event for 1 of 5,000 users, 256 B",
            saturation(_OWN_5000, 256, 64), _SATURATION_COLUMNS, _OWN, "borne_events_per_s",
        ),
        Scenario(
            "storm", "5,000 clients come back at once, each 1,000 events of 256 B behind", storm(5000, 1000, 256),
            {"clients_back": "clients", **_COMING_BACK_COLUMNS}, _HEADGATE, "seconds_until_all_had_all",
        ),
        *(_catching_up(clients) for clients in (1, 20)),
        *(_hostile(attack) for attack in ATTACKS),
    )
}
