"""Events on the way to clients: closed loops, open schedules, bursts, pauses, and the highest rate that a server still bears."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .generator import Answer
from .scenario import KIB, Row, Run, checked, latency
from .stage import Audience, stage
from .variants import Variant

# A rate is borne if every event arrives and 99.9 % of them within this.
BORNE_P99_9_MS = 100.0
SEARCH_STEPS = 6


def closed_loop(clients: int | Audience, size_bytes: int, window: int) -> Run:
    """Keep `window` events under way: events and deliveries per second of the server's CPU."""

    def run(variant: Variant, quick: bool) -> Row:
        with stage(variant, size_bytes=size_bytes, clients=clients) as on:
            answer = on.generator.closed(window, *((1, 3) if quick else (2, 8)))
            server_cpu_s = max(answer["server_cpu_s"], 1e-3)
            return checked(answer) | {
                "events_per_cpu_s": round(answer["published"] / server_cpu_s),
                "deliveries_per_cpu_s": round(answer["deliveries"] / server_cpu_s),
                "events_per_s": round(answer["published"] / answer["seconds"]),
                "deliveries_per_s": round(answer["deliveries"] / answer["seconds"]),
                "server_mib": round(on.server.resident_bytes() / KIB**2, 1),
            }

    return run


def schedule(clients: int | Audience, size_bytes: int, events_per_s: float, measure_s: float = 20) -> Run:
    """Publish on schedule, whatever the server does: the latency of every delivery, from the planned time of its event."""

    def run(variant: Variant, quick: bool) -> Row:
        with stage(variant, size_bytes=size_bytes, clients=clients) as on:
            on.generator.open(events_per_s, 1 if quick else 2)
            answer = on.generator.open(events_per_s, 5 if quick else measure_s)
            return checked(answer) | latency(answer)

    return run


def bursts(clients: int, size_bytes: int, events: int) -> Run:
    """Publish `events` at once every two seconds: the latency of every delivery, from the burst's planned time."""

    def run(variant: Variant, quick: bool) -> Row:
        times = 3 if quick else 8
        with stage(variant, size_bytes=size_bytes, clients=clients) as on:
            on.generator.ask("burst", events, 1, 2000, takes_s=2)
            answer = on.generator.ask("burst", events, times, 2000, takes_s=2 * times)
            return checked(answer) | latency(answer)

    return run


def paused(size_bytes: int, events_per_s: float, pause_s: float) -> Run:
    """Publish on schedule to a client that does not read for a while in the middle: what it loses, and when it is live again.

    The latencies are those before the pause, and from 1 s after it is live again. `gap_notices`: it was notified of its losses.
    """

    def run(variant: Variant, quick: bool) -> Row:
        measure_s = 8 if quick else 30
        with stage(variant, size_bytes=size_bytes, clients=1) as on:
            on.generator.open(events_per_s, 1)
            answer = on.generator.ask("pause", events_per_s, measure_s * 1000, pause_s * 1000, takes_s=measure_s)
            row = checked(answer) | latency(answer)
            row["live_again_s"] = round(answer["live_again_ms"] / 1000, 3) if answer["live_again_ms"] >= 0 else "never"
            row["gap_notices"] = answer["gaps"]
            if answer["outcome"] != "bus_lost":  # else Redis did not take all of them
                row["lost"] = answer["published"] - answer["deliveries"]
            row["server_us_per_event"] = round(answer["server_cpu_s"] / max(answer["published"], 1) * 1e6, 1)
            return row

    return run


def rates(clients: int | Audience, size_bytes: int, events_per_s: Sequence[int]) -> Run:
    """Publish on schedule at rates that are the same for every server, in turn; the row has the CPU and the latencies of each."""

    def run(variant: Variant, quick: bool) -> Row:
        row: Row = {}
        with stage(variant, size_bytes=size_bytes, clients=clients) as on:
            on.generator.open(events_per_s[0], 1)
            for rate in events_per_s:
                answer = on.generator.open(rate, 3 if quick else 10)
                if row.get("outcome", "ok") == "ok":
                    row |= checked(answer)
                row |= latency(answer, f"at_{rate}_")
                row[f"at_{rate}_server_us"] = round(answer["server_cpu_s"] / answer["published"] * 1e6, 1)
                row[f"at_{rate}_redis_us"] = round(answer["redis_cpu_s"] / answer["published"] * 1e6, 1)
        return row

    return run


def saturation(clients: int | Audience, size_bytes: int, window: int) -> Run:
    """Search the highest rate at which the 99.9th percentile stays within `BORNE_P99_9_MS`, from the maximum of a closed loop."""

    def run(variant: Variant, quick: bool) -> Row:
        with stage(variant, size_bytes=size_bytes, clients=clients) as on:
            answer = on.generator.closed(window, *((1, 2) if quick else (2, 4)))
            most = max(1.0, answer["published"] / answer["seconds"])
            tried: dict[float, Answer] = {}

            def borne(rate: float) -> bool:
                tried[rate] = on.generator.open(rate, 3 if quick else 8)
                p99_9_us: float = tried[rate]["microseconds"]["p99_9"]
                return bool(tried[rate]["outcome"] == "ok") and p99_9_us <= BORNE_P99_9_MS * 1000

            found = search(borne, most / 8, most * 1.5, SEARCH_STEPS)
            answer = tried[found or most / 8]
            row = checked(answer) | {"maximum_events_per_s": round(most), "borne_events_per_s": round(found or 0)}
            if found:
                return row | latency(answer)
            return row | {"outcome": f"not even {most / 8:,.0f} events per second within {BORNE_P99_9_MS:g} ms"}

    return run


def search(borne: Callable[[float], bool], low: float, high: float, steps: int) -> float | None:
    """Return the highest rate that was tried and borne, or None: `low` first, then by halves between the borne and the other."""
    if not borne(low):
        return None
    for _ in range(steps):
        middle = (low + high) / 2
        if borne(middle):
            low = middle
        else:
            high = middle
    return low
