"""The scenarios: what is measured, of which servers, which figures the table shows, and the targets."""

from __future__ import annotations

from .appending import beside_history, receipts_sync, receipts_tcp
from .appending import cost as appending
from .disturbed import hostile, stalled
from .hostile import ATTACKS
from .http_publishing import posting
from .joining import connecting, memory, storm, with_tokens
from .loads import bursts, closed_loop, paused, rates, saturation, schedule
from .scenario import KIB, Run, Scenario
from .stage import own, topics, wildcards

SOCKETIO = ("headgate", "stock", "flask-socketio", "node")
PEERS = (*SOCKETIO, "node-streams", "centrifugo", "centrifugo-history")
# Where the way of publishing counts, Headgate takes part with both of its functions.
WAYS = ("headgate", "headgate-append", *PEERS[1:], "centrifugo-ids", "sink")
OWN = ("headgate", "headgate-append", "headgate-python", "headgate-two", *PEERS[1:], "centrifugo-ids", "sink-addressed")
_THROUGHPUT_COLUMNS = {
    "deliveries_per_cpu_s": "deliveries per server CPU second",
    "redis_us_per_event": "Redis CPU µs per event",
    "deliveries_per_s": "deliveries per second",
    "load_core_share": "generator's share of its core",
    "server_mib": "server memory (MiB)",
}
_EVENTS_COLUMNS = {
    "events_per_cpu_s": "events per server CPU second",
    "redis_us_per_event": "Redis CPU µs per event",
    "deliveries_per_cpu_s": "deliveries per server CPU second",
    "events_per_s": "events per second",
    "load_core_share": "generator's share of its core",
}
_LATENCY_COLUMNS = {
    "p50_ms": "p50 ms", "p90_ms": "p90 ms", "p99_ms": "p99 ms", "p99_9_ms": "p99.9 ms", "max_ms": "max ms",
    "server_core_share": "server's share of its core",
    "redis_us_per_event": "Redis CPU µs per event",
}  # fmt: skip


_POSTING_COLUMNS = {
    "events_per_s": "events per second",
    "events_per_cpu_s": "events per server CPU second",
    "p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms",
}  # fmt: skip
_DIRECTED_RATES = (2000, 10_000, 20_000)
_BROADCAST_RATES = (20, 50, 200)


def _rates_columns(rates: tuple[int, ...]) -> dict[str, str]:
    kinds = {
        "p50_ms": "p50 ms",
        "p99_9_ms": "p99.9 ms",
        "server_us": "server CPU µs per event",
        "redis_us": "Redis CPU µs per event",
    }
    return {f"at_{rate}_{name}": f"{title} at {rate:,}/s" for rate in rates for name, title in kinds.items()}


_SATURATION_COLUMNS = {
    "borne_events_per_s": "events per second",
    "maximum_events_per_s": "maximum in a closed loop",
    "p50_ms": "p50 ms", "p99_9_ms": "p99.9 ms", "max_ms": "max ms",
}  # fmt: skip
_MEMORY_COLUMNS = {
    "kib_per_client": "KiB per client beyond the first 100",
    "kib_per_client_from_empty": "KiB per client from an empty server",
    "server_mib": "server memory (MiB)",
}
_CONNECTING_COLUMNS = {
    "connects_per_s": "connects per second",
    "connects_per_cpu_s": "per server CPU second",
    "p99_ms": "p99 ms",
    "max_ms": "max ms",
}


def _throughput(
    clients: int, size_bytes: int, label: str, window: int, target: float | None, *, pipelined: bool = False, quick: bool = False
) -> Scenario:
    return Scenario(
        f"throughput-{clients}x{label.replace(' ', '')}-w{window}{'-pipelined' if pipelined else ''}",
        f"Throughput: {clients:,} clients, {label}, window {window}{', publishes pipelined' if pipelined else ''}",
        closed_loop(clients, size_bytes, window, pipelined=pipelined),
        _THROUGHPUT_COLUMNS,
        (*PEERS, "sink", "sink-each"),
        "deliveries_per_cpu_s",
        more_is_better=True,
        quick=quick,
        targets={"deliveries_per_cpu_s": ("at least", target)} if target else {},
    )


def _stalled(name: str, title: str, run: Run, quick: bool = False) -> Scenario:
    return Scenario(
        name,
        title,
        run,
        {
            "growth_mib_per_stopped": "memory growth per stopped client (MiB)",
            "calm_p99_ms": "others' p99 before and after (ms)",
            "p99_ms": "others' p99 meanwhile (ms)",
            "p99_change": "ratio",
            "max_ms": "longest freeze (max ms)",
            "cut_while_stopped": "cut",
            "events_owed": "events owed",
            "caught_up": "caught up",
            "gap_notices": "gap notices",
        },
        PEERS,
        "p99_ms",
        more_is_better=False,
        quick=quick,
        targets={"growth_mib_per_stopped": ("at most", 1.2), "p99_change": ("at most", 1.1)},
    )


def _hostile(name: str) -> Scenario:
    attack = ATTACKS[name]
    return Scenario(
        f"hostile-{name}",
        f"{attack.what} ({name}) while 100 others get 100 events/s",
        hostile(name),
        {
            "p99_ms": "others' p99 ms",
            "max_ms": "worst stall (max ms)",
            "server_core_share": "server's share of its core",
            "growth_mib": "memory growth (MiB)",
            "sent_mib": "MiB taken",
            "connections": "attacking connections",
            "answer": "how it ended",
        },
        SOCKETIO if attack.anywhere else ("headgate",),
        "max_ms",
        more_is_better=False,
        targets={"p99_ms": ("at most", attack.p99_ms), "growth_mib": ("at most", 5 + attack.keeps)},
    )


def _appending(size_bytes: int, label: str, target: float) -> Scenario:
    return Scenario(
        f"appending-{label.replace(' ', '')}",
        f"CPU time of Redis for an event of {label} in the log, and for an XADD of the same bytes",
        appending(size_bytes),
        {
            "headgate_publish_us": "headgate_publish µs",
            "headgate_append_us": "headgate_append µs",
            "headgate_append_batch_us": "in batches of 100 µs",
            "by_hand_us": "HSETNX, XADD and PUBLISH in a function µs",
            "xadd_us": "XADD µs",
            "headgate_publish_multiple": "headgate_publish / XADD",
            "headgate_append_multiple": "headgate_append / XADD",
            "headgate_append_batch_multiple": "in batches of 100 / XADD",
            "by_hand_multiple": "three commands in a function / XADD",
        },
        ("headgate",),
        "headgate_publish_us",
        more_is_better=False,
        targets={f"headgate_{name}_multiple": ("at most", target) for name in ("publish", "append", "append_batch")},
    )


def _beside_history(size_bytes: int, label: str, most: float) -> Scenario:
    return Scenario(
        f"appending-beside-history-{label.replace(' ', '')}",
        f"CPU time of Redis for an event of {label} in the log, and in a script that keeps a history as Centrifugo does",
        beside_history(size_bytes),
        {
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
        },
        ("headgate",),
        "append_us",
        more_is_better=False,
        targets={f"{name}_multiple": ("at most", most) for name in ("append", "append_users", "batch_users")},
    )


def _catching_up(clients: int) -> Scenario:
    who = "One client comes" if clients == 1 else f"{clients} clients come"
    return Scenario(
        f"catching-up-{clients}",
        f"{who} back with 60,000 events of 1 KiB missed",
        storm(clients, 60_000, KIB),
        {
            "seconds_until_all_had_all": "seconds until all had all",
            "server_cpu_seconds": "server CPU seconds",
            "deliveries_per_cpu_s": "events per server CPU second",
        },
        ("headgate",),
        "deliveries_per_cpu_s",
        more_is_better=True,
    )


def _workload(size_bytes: int, label: str, rate: int) -> Scenario:
    return Scenario(
        f"workload-{label.replace(' ', '')}-{rate}",
        f"One client, {label} × {rate:,} per second, for 30 s",
        schedule(1, size_bytes, rate, measure_s=30),
        _LATENCY_COLUMNS,
        WAYS,
        "p99_9_ms",
        more_is_better=False,
    )


def _paused(size_bytes: int, label: str, rate: int, quick: bool = False) -> Scenario:
    return Scenario(
        f"workload-{label.replace(' ', '')}-{rate}-paused",
        f"One client, {label} × {rate:,} per second, that does not read for 1 s in the middle of 30 s",
        paused(size_bytes, rate, 1.0),
        {
            "lost": "events lost",
            "gap_notices": "gap notices",
            "live_again_s": "live again after (s)",
            "p50_ms": "p50 ms before and after", "p99_9_ms": "p99.9 ms", "max_ms": "max ms",
            "server_core_share": "server's share of its core",
        },
        WAYS,
        "p99_9_ms",
        more_is_better=False,
        quick=quick,
        targets={"lost": ("at most", 0), "live_again_s": ("at most", 3)},
    )  # fmt: skip


# The workloads of the classic study of message-queue latency.
_WORKLOADS = (
    (256, "256 B", 3000), (KIB, "1 KiB", 3000), (5 * KIB, "5 KiB", 2000), (KIB, "1 KiB", 20_000), (64 * KIB, "64 KiB", 100),
    (KIB**2, "1 MiB", 100),
)  # fmt: skip
_OWN_5000 = own(5000)
_TOPICS_20_OF_10000 = topics(5000, 20, 10_000)


def _topics(window: int) -> Scenario:
    # 64 was the only one at first, and keeps the name.
    return Scenario(
        "topics-20-of-10000" + ("" if window == 64 else f"-w{window}"),
        f"Each of 5,000 clients listens to 20 of 10,000 topics, 256 B, window {window}",
        closed_loop(_TOPICS_20_OF_10000, 256, window),
        _EVENTS_COLUMNS,
        OWN,
        "events_per_cpu_s",
        more_is_better=True,
    )


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "directed-5000", "Each event for 1 of 5,000 users, 256 B, window 64", closed_loop(_OWN_5000, 256, 64),
            _EVENTS_COLUMNS, OWN, "events_per_cpu_s", more_is_better=True, quick=True,
            targets={"events_per_cpu_s": ("at least", 80_000)},
        ),
        Scenario(
            "directed-5000-schedule", "Each event for 1 of 5,000 users, 256 B, open schedule of 5,000 events per second",
            schedule(_OWN_5000, 256, 5000), _LATENCY_COLUMNS, OWN, "p99_9_ms", more_is_better=False,
            targets={"p99_9_ms": ("at most", 10)},
        ),
        *(_topics(window) for window in (32, 64)),
        Scenario(
            "topics-20-of-10000-schedule", "Each of 5,000 clients listens to 20 of 10,000 topics, 1,000 events per second",
            schedule(_TOPICS_20_OF_10000, 256, 1000), _LATENCY_COLUMNS, OWN, "p99_9_ms", more_is_better=False,
            targets={"p99_9_ms": ("at most", 15)},
        ),
        _throughput(1000, 256, "256 B", 8, 700_000, quick=True),
        _throughput(1000, 256, "256 B", 8, None, pipelined=True),
        _throughput(1000, 1024, "1 KiB", 8, 600_000),
        _throughput(10_000, 256, "256 B", 8, None),
        _throughput(5000, 256, "256 B", 8, 500_000),
        _throughput(5000, 1024, "1 KiB", 8, 500_000),
        _throughput(1000, 256, "256 B", 64, None),
        _throughput(1000, 256, "256 B", 1, None),
        Scenario(
            "schedule", "Open schedule: 10,000 deliveries per second to 1,000 clients, 256 B", schedule(1000, 256, 10),
            _LATENCY_COLUMNS, (*PEERS, "sink"), "p99_ms", more_is_better=False, quick=True,
        ),
        Scenario(
            "schedule-10000", "Open schedule: 50,000 deliveries per second to 10,000 clients", schedule(10_000, 256, 5),
            _LATENCY_COLUMNS, (*PEERS, "sink"), "p99_ms", more_is_better=False,
        ),
        Scenario(
            "bursts", "Bursts: 20 events at once to 1,000 clients, 256 B", bursts(1000, 256, 20),
            _LATENCY_COLUMNS, (*PEERS, "sink"), "p99_ms", more_is_better=False,
        ),
        Scenario(
            "memory", "Memory per connected, subscribed, idle client at 5,000", memory(5000),
            _MEMORY_COLUMNS, PEERS,
            "kib_per_client_from_empty", more_is_better=False, quick=True, targets={"kib_per_client_from_empty": ("at most", 10)},
        ),
        _stalled("stalled", "One of 10 clients never reads, 60 KB × 100/s", stalled(10, 1, 60_000, 100), quick=True),
        _stalled("stalled-half", "10 of 20 clients never read, 60 KB × 100/s", stalled(20, 10, 60_000, 100)),
        _stalled("stalled-mix", "20 of 100 clients stopped, 1 KiB × 100/s", stalled(100, 20, 1024, 100)),
        Scenario(
            "connecting", "Connections: joined and subscribed", connecting(4000),
            _CONNECTING_COLUMNS,
            PEERS, "connects_per_s", more_is_better=True, quick=True, targets={"connects_per_s": ("at least", 1500)},
        ),
        Scenario(
            "connecting-token-resume", "Connections with a token each, and a resume position", connecting(4000, with_tokens),
            _CONNECTING_COLUMNS,
            ("headgate",), "connects_per_s", more_is_better=True, targets={"connects_per_s": ("at least", 1500)},
        ),
        Scenario(
            "joins-token-own-pattern", "Connections with a token each, and the pattern of all that is one's own",
            connecting(4000, audience=own), _CONNECTING_COLUMNS,
            PEERS, "connects_per_s", more_is_better=True, targets={"connects_per_s": ("at least", 5000)},
        ),
        Scenario(
            "joins-20-exact", "Connections with 20 of 10,000 exact topics each",
            connecting(4000, audience=lambda clients: topics(clients, 20, 10_000)), _CONNECTING_COLUMNS,
            PEERS, "connects_per_s", more_is_better=True, targets={"connects_per_s": ("at least", 4000)},
        ),
        Scenario(
            "http-publish", "Publishing over HTTP: 64 kept connections, one event of 256 B to a request", posting(256, 1),
            _POSTING_COLUMNS, ("headgate", "centrifugo", "centrifugo-history"), "events_per_s", more_is_better=True,
            targets={"events_per_s": ("at least", 15_000)},
        ),
        Scenario(
            "http-publish-batch", "Publishing over HTTP: 64 kept connections, 100 events of 256 B each", posting(256, 100),
            _POSTING_COLUMNS, ("headgate", "centrifugo", "centrifugo-history"), "events_per_s", more_is_better=True,
            targets={"events_per_s": ("at least", 60_000)},
        ),
        Scenario(
            "receipts-sync", "One thread publishes and waits for each receipt, 256 B, beside redis-py alone", receipts_sync(256),
            {"receipts_per_s": "receipts per second", "redis_py_per_s": "calls of redis-py per second", "ratio": "ratio"},
            ("headgate",), "receipts_per_s", more_is_better=True,
            targets={"receipts_per_s": ("at least", 9000), "ratio": ("at least", 0.95)},
        ),
        Scenario(
            "receipts-tcp", "One thread publishes over TCP and waits for each receipt, 256 B, while a gateway delivers",
            receipts_tcp(256),
            {"receipts_per_s": "receipts per second", "redis_py_per_s": "calls of redis-py per second", "ratio": "ratio"},
            ("headgate",), "receipts_per_s", more_is_better=True, targets={"ratio": ("at least", 0.95)},
        ),
        _appending(256, "256 B", 5),
        _appending(16 * KIB, "16 KiB", 2.5),
        _beside_history(256, "256 B", 1.2),
        _beside_history(16 * KIB, "16 KiB", 1.5),
        *(_workload(size_bytes, label, rate) for size_bytes, label, rate in _WORKLOADS),
        *(_paused(KIB, "1 KiB", rate) for rate in (10_000, 20_000)),
        Scenario(
            "rates", "Fixed rates: every event to 1,000 clients, 256 B", rates(1000, 256, _BROADCAST_RATES),
            _rates_columns(_BROADCAST_RATES), PEERS, "at_50_p99_9_ms", more_is_better=False,
        ),
        Scenario(
            "directed-5000-rates", "Fixed rates: each event for 1 of 5,000 users, 256 B",
            rates(_OWN_5000, 256, _DIRECTED_RATES), _rates_columns(_DIRECTED_RATES), OWN, "at_10000_p99_9_ms",
            more_is_better=False,
        ),
        Scenario(
            "saturation", "The highest rate with a p99.9 within 100 ms: 1,000 clients, 256 B", saturation(1000, 256, 8),
            _SATURATION_COLUMNS, PEERS, "borne_events_per_s", more_is_better=True,
        ),
        Scenario(
            "directed-5000-saturation", "The highest rate with a p99.9 within 100 ms: each event for 1 of 5,000 users, 256 B",
            saturation(_OWN_5000, 256, 64), _SATURATION_COLUMNS, OWN, "borne_events_per_s", more_is_better=True,
        ),
        Scenario(
            "wildcards", "Each of 5,000 clients has 10 patterns with wildcards, out of 5,000, 256 B, window 64",
            closed_loop(wildcards(5000, 10, 5000), 256, 64), _EVENTS_COLUMNS, ("headgate", "headgate-append"),
            "events_per_cpu_s", more_is_better=True,
        ),
        Scenario(
            "storm", "5,000 clients come back at once, each 1,000 events of 256 B behind", storm(5000, 1000, 256),
            {
                "clients_back": "clients", "seconds_until_all_had_all": "seconds until all had all",
                "server_cpu_seconds": "server CPU seconds",
            },
            ("headgate",), "seconds_until_all_had_all", more_is_better=False,
        ),
        *(_catching_up(clients) for clients in (1, 20)),
        *(_hostile(attack) for attack in ATTACKS),
    )
}  # fmt: skip
