"""A simulation of many gateways behind one Redis, event by event: `python -m bench.scale.simulate [--gateways 100]`.

In: the constants and the load of model.py. Each event comes at a random moment, is published by one Redis after the other events,
and is delivered by each gateway that has a client for it, after that gateway's other events. Out: how busy each part is, and
when deliveries are done: which a sum over a second cannot show. `check` compares the measured 1, 2 and 4 workers with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Any

import click

from .model import Costs, Load, need, site

# So many events are enough; a second of a large site has more.
MAX_EVENTS = 10_000
MEASURED = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome: shares of a core, and milliseconds from an event's arrival to its delivery by the last gateway."""

    redis: float
    gateways: float
    busiest_gateway: float
    p50_ms: float
    p99_ms: float
    us_per_event: float


def simulate(load: Load, costs: Costs, processes: int, seed: int = 1) -> Outcome:
    """Play a load on so many gateway processes behind one Redis."""
    random = Random(seed)
    clients = _spread(load.clients, processes, random)
    idle = [1 - min(0.9, count * costs.silent_us / 1e6) for count in clients]  # the rest is for pings
    seconds = min(60.0, MAX_EVENTS / load.events_per_s)
    redis_free_s, free_s = 0.0, [0.0] * processes
    redis_busy_s, busy_s = 0.0, [0.0] * processes
    delays_s: list[float] = []
    for at_s, wanted in _events(load, seconds, random):
        hearing = _hearing(wanted, clients, random)
        cost_s = (costs.publish_us + len(hearing) * costs.listener_us) / 1e6
        redis_free_s = max(redis_free_s, at_s) + cost_s
        redis_busy_s += cost_s
        done_s = redis_free_s
        for gateway, reached in hearing.items():
            cost_s = (costs.event_us + (reached - 1) * costs.delivery_us) / 1e6
            busy_s[gateway] += cost_s
            free_s[gateway] = max(free_s[gateway], redis_free_s) + cost_s / idle[gateway]
            done_s = max(done_s, free_s[gateway])
        delays_s.append(done_s - at_s)
    shares = [busy / seconds + 1 - left for busy, left in zip(busy_s, idle, strict=True)]
    delays_s.sort()
    return Outcome(
        redis=redis_busy_s / seconds,
        gateways=fmean(shares),
        busiest_gateway=max(shares),
        p50_ms=1000 * delays_s[len(delays_s) // 2],
        p99_ms=1000 * delays_s[len(delays_s) * 99 // 100],
        us_per_event=1e6 * sum(busy_s) / len(delays_s),
    )


def _events(load: Load, seconds: float, random: Random) -> Iterator[tuple[float, int]]:
    """Yield the time of each event, and how many clients want it."""
    kinds = (1, load.fan_out, load.clients)
    rates = (load.directed_per_s, load.topics_per_s, load.broadcast_per_s)
    at_s = random.expovariate(load.events_per_s)
    while at_s < seconds:
        yield at_s, random.choices(kinds, rates)[0]
        at_s += random.expovariate(load.events_per_s)


def _spread(clients: int, processes: int, random: Random) -> list[int]:
    """Return the clients of each process: as even as the balance keeps them, 5 % more or less."""
    each = [random.uniform(0.95, 1.05) for _ in range(processes)]
    return [round(clients * share / sum(each)) for share in each]


def _hearing(wanted: int, clients: list[int], random: Random) -> dict[int, int]:
    """Return how many clients of which gateway an event reaches."""
    if wanted >= sum(clients):
        return {gateway: count for gateway, count in enumerate(clients) if count}
    return Counter(random.choices(range(len(clients)), clients, k=wanted))


def checked(results: dict[str, Any], costs: Costs) -> list[tuple[str, int, float, float]]:
    """Return, for each measured number of workers on one core, the CPU of an event as simulated and as measured, in µs.

    The constants are those of one worker, so the rows of 2 and 4 are a check.
    """
    rows = []
    for kind, pace in (("directed", "full"), ("directed", "paced"), ("broadcast", "full"), ("broadcast", "paced")):
        measured: dict[str, Any] = results[f"workers_{kind}_on_one"]
        one, clients = measured[pace]["1"], int(measured["clients"])
        if kind == "directed":
            of_pace = replace(costs, event_us=one["us_per_event"])
        else:  # the first client of an event is one of many here
            of_pace = replace(costs, event_us=one["us_per_delivery"], delivery_us=one["us_per_delivery"])
        for count in MEASURED:
            row = measured[pace][str(count)]
            few = 0.2 * 1e6 / row["us_per_event"]  # the rate does not change the cost
            load = Load(clients, few, 0, 1) if kind == "directed" else Load(clients, 0, 0, 1, broadcast_per_s=few)
            rows.append((f"{kind}, {pace}", count, simulate(load, of_pace, count).us_per_event, row["us_per_event"]))
    return rows


@click.command()
@click.option("--gateways", default=100, show_default=True)
@click.option("--users", default=1_000_000, show_default=True, help="Clients that are connected at once.")
def main(gateways: int, users: int) -> None:
    """Play the load of docs/scaling.md with so many users on so many gateways."""
    costs, load = Costs.measured(), site(users)
    outcome = simulate(load, costs, gateways)
    click.echo(
        f"{users:,} users on {gateways} gateways, {load.events_per_s:,.0f} events/s, {load.deliveries_per_s:,.0f} deliveries/s"
    )
    click.echo(f"the model wants {need(load, costs).processes} gateways, and {need(load, costs).namespaces} Redis")
    click.echo(
        f"Redis {outcome.redis:.0%} busy, gateways {outcome.gateways:.0%} (the busiest {outcome.busiest_gateway:.0%}); "
        f"delivered by the last gateway after {outcome.p50_ms:.2f} ms (p50), {outcome.p99_ms:.2f} ms (p99)"
    )


if __name__ == "__main__":
    main()
