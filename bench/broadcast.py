"""Events for every client: throughput in a closed loop, and latency on a schedule and in bursts."""

from __future__ import annotations

from .scenario import KIB, Row, Run, checked, latency
from .stage import stage
from .variants import Variant


def throughput(clients: int, size_bytes: int, window: int, offer_deflate: bool, pipelined: bool) -> Run:
    """Closed loop: `window` events under way; deliveries per second of the server's CPU.

    `pipelined`: what is published at the same moment goes to Redis in one write, else each event in its own.
    """
    command = "pipelined" if pipelined else "window"

    def run(variant: Variant, quick: bool) -> Row:
        warm_s, measure_s = (1, 3) if quick else (2, 6)
        with stage(variant, size_bytes=size_bytes, room=clients, offer_deflate=offer_deflate) as on:
            on.generator.connects(clients)
            answer = on.generator.ask(command, window, warm_s * 1000, measure_s * 1000, takes_s=warm_s + measure_s)
            row = checked(answer)
            row["deliveries_per_cpu_s"] = round(answer["deliveries"] / max(answer["server_cpu_s"], 1e-3))
            row["deliveries_per_s"] = round(answer["deliveries"] / answer["seconds"])
            row["server_mib"] = round(on.server.resident_bytes() / KIB**2, 1)
            return row

    return run


def schedule(clients: int, size_bytes: int, deliveries_per_s: int) -> Run:
    """Open loop at a fixed rate: the latency of every delivery, from the planned time of its event."""

    def run(variant: Variant, quick: bool) -> Row:
        warm_s, measure_s = (1, 5) if quick else (2, 20)
        rate = deliveries_per_s / clients
        with stage(variant, size_bytes=size_bytes, room=clients) as on:
            on.generator.connects(clients)
            on.generator.ask("open", rate, warm_s * 1000, takes_s=warm_s)
            answer = on.generator.ask("open", rate, measure_s * 1000, takes_s=measure_s)
            return checked(answer) | latency(answer)

    return run


def bursts(clients: int, size_bytes: int, events: int) -> Run:
    """Open loop, `events` at once every two seconds: the latency of every delivery, from the burst's planned time."""

    def run(variant: Variant, quick: bool) -> Row:
        times = 3 if quick else 8
        with stage(variant, size_bytes=size_bytes, room=clients) as on:
            on.generator.connects(clients)
            on.generator.ask("burst", events, 1, 2000, takes_s=2)
            answer = on.generator.ask("burst", events, times, 2000, takes_s=2 * times)
            return checked(answer) | latency(answer)

    return run
