"""The tables of docs/scaling.md, from the committed constants: `python -m bench.scale.page [--check]`.

In: bench/results/scale.json. Out: the page, with the text between `<!-- scale NAME -->` and `<!-- end -->` written again; with
`--check` nothing is written, and the exit code is 1 if the page differs from the constants.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tools.generated import write_or_check

from .model import MIB, RESULTS, Costs, Load, need, site
from .simulate import checked, simulate

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
_BLOCK = re.compile(r"(<!-- scale (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
USERS = (10_000, 100_000, 1_000_000, 10_000_000)
GATEWAYS_SIMULATED = 100
_MBIT = 1e6 / 8


def filled(page: str, results: dict[str, Any]) -> str:
    """Return the page with its tables."""
    tables = {"constants": _constants, "workers": _workers, "check": _check, "capacity": _capacity, "simulation": _simulation}
    return _BLOCK.sub(lambda found: f"{found[1]}\n{tables[found[2]](results)}\n\n{found[3]}", page)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


_NAMES = {
    "event_us": "CPU of a gateway for an event that reaches one of its clients, µs",
    "delivery_us": "for each further client that the event reaches, one event at a time, µs",
    "silent_us": "for a silent client, each second, µs",
    "join_us": "for a client that comes, µs",
    "client_bytes": "memory of a client in the gateway, bytes",
    "kernel_bytes": "memory of its socket in the kernel, bytes",
    "publish_us": "CPU of Redis for a publish (256 B), µs",
    "listener_us": "for each gateway process that hears it, µs",
    "listener_bytes": "bytes from Redis to each of these",
}


def _constants(results: dict[str, Any]) -> str:
    costs = Costs.of(results)
    return _table(
        ["constant", "measured"],
        [[_NAMES[each.name], f"{getattr(costs, each.name):,.1f}"] for each in fields(Costs)],
    )


def _workers(results: dict[str, Any]) -> str:
    rows = []
    for kind in ("broadcast", "directed"):
        for cores in ("one", "all"):
            found: Any = results.get(f"workers_{kind}_on_{cores}")
            for pace in ("full", "paced") if found else ():
                one = found[pace]["1"]["us_per_event"]
                for count, row in found[pace].items():
                    rows.append(
                        [
                            kind, cores, pace, count, f"{row['us_per_event']:,.1f}", f"{row['us_per_event'] / one:.2f}",
                            f"{row['deliveries_per_s']:,.0f}", f"{row['server_cores']:.2f}", f"{row['generator_cores']:.2f}",
                        ]
                    )  # fmt: skip
    head = ["events", "cores", "pace", "workers", "µs per event", "× one", "deliveries/s", "workers' cores", "generator's"]
    return _table(head, rows)


def _check(results: dict[str, Any]) -> str:
    rows = [
        [kind, count, f"{simulated:,.1f}", f"{measured:,.1f}", f"{measured / simulated:.2f}"]
        for kind, count, simulated, measured in checked(results, Costs.of(results))
    ]
    return _table(["events", "workers", "simulated µs per event", "measured", "measured / simulated"], rows)


def _capacity(results: dict[str, Any]) -> str:
    costs = Costs.of(results)
    rows = []
    for users in USERS:
        load = site(users)
        wanted = need(load, costs)
        rows.append(
            [
                f"{users:,}",
                f"{load.events_per_s:,.0f}",
                f"{load.deliveries_per_s:,.0f}",
                f"{wanted.processes:,} ({wanted.bound})",
                f"{wanted.gateway_cores:,.1f}",
                f"{wanted.memory_bytes / MIB:,.0f} MiB",
                f"{wanted.redis_cores:.2f}",
                f"{wanted.redis_bytes_per_s / _MBIT:,.1f}",
                f"{wanted.client_bytes_per_s / _MBIT:,.0f}",
                wanted.namespaces,
            ]
        )
    head = [
        "users connected", "events/s", "deliveries/s", "gateway processes", "their CPU, cores", "memory of clients",
        "Redis, cores", "out of Redis, Mbit/s", "to clients, Mbit/s", "Redis servers",
    ]  # fmt: skip
    return _table(head, rows)


def _simulation(results: dict[str, Any]) -> str:
    costs = Costs.of(results)
    rows = []
    for users in USERS[1:]:
        load = site(users)
        servers = need(load, costs).namespaces
        part = Load(
            users // servers, load.directed_per_s / servers, load.topics_per_s / servers, load.fan_out, load.broadcast_per_s
        )
        gateways = GATEWAYS_SIMULATED if users < USERS[-1] else need(part, costs).processes
        seen = simulate(part, costs, gateways)
        rows.append(
            [
                f"{users:,}", servers, gateways, f"{seen.redis:.0%}", f"{seen.gateways:.0%}", f"{seen.busiest_gateway:.0%}",
                f"{seen.p50_ms:.2f}", f"{seen.p99_ms:.2f}",
            ]
        )  # fmt: skip
    head = ["users", "Redis servers", "gateways of each", "Redis busy", "gateways busy", "busiest gateway", "p50 ms", "p99 ms"]
    return _table(head, rows)


def main(words: Sequence[str]) -> int:
    """Write the page, or check it."""
    wanted = filled(PAGE.read_text(), json.loads(RESULTS.read_text()))
    return write_or_check(words, PAGE, wanted, "bench/results", "bench.scale.page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
