"""Latency over load: the workloads of a study, rates that are the same for all, and the highest that a server still bears."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .generator import Answer
from .scenario import Row, Run, checked, latency
from .stage import Audience, Stage, stage
from .variants import Variant

# A rate is borne if every event arrives and 99.9 % of them within this.
BORNE_P99_9_MS = 100.0
SEARCH_STEPS = 6


def workload(size_bytes: int, events_per_s: float) -> Run:
    """Open loop for one client that gets every event: the workloads of the message-queue latency studies, 30 s each."""

    def run(variant: Variant, quick: bool) -> Row:
        warm_s, measure_s = (1, 5) if quick else (2, 30)
        with stage(variant, size_bytes=size_bytes, room=1) as on:
            on.generator.connects(1)
            on.generator.ask("open", events_per_s, warm_s * 1000, takes_s=warm_s)
            answer = on.generator.ask("open", events_per_s, measure_s * 1000, takes_s=measure_s)
            return checked(answer) | latency(answer)

    return run


def paused(size_bytes: int, events_per_s: float, pause_s: float) -> Run:
    """The same workload, with a client that does not read for a while in the middle: what it loses, and when it is live again.

    The latencies are those before the pause, and from 1 s after it is live again. `gap_notices`: it was told of what it lost.
    """

    def run(variant: Variant, quick: bool) -> Row:
        measure_s = 8 if quick else 30
        with stage(variant, size_bytes=size_bytes, room=1) as on:
            on.generator.connects(1)
            on.generator.ask("open", events_per_s, 1000, takes_s=1)
            answer = on.generator.ask("pause", events_per_s, measure_s * 1000, pause_s * 1000, takes_s=measure_s)
            row = checked(answer) | latency(answer)
            row["live_again_s"] = round(answer["live_again_ms"] / 1000, 3) if answer["live_again_ms"] >= 0 else "never"
            row["gap_notices"] = answer["gaps"]
            if answer["outcome"] != "bus_lost":  # else Redis did not take all of them
                row["lost"] = answer["published"] - answer["deliveries"]
            row["server_us_per_event"] = round(answer["server_cpu_s"] / max(answer["published"], 1) * 1e6, 1)
            return row

    return run


def rates(clients: int, size_bytes: int, events_per_s: Sequence[int], audience: Audience | None = None) -> Run:
    """Publish on schedule at rates that are the same for every server, in turn; the row has the CPU and the latencies of each."""

    def run(variant: Variant, quick: bool) -> Row:
        measure_s = 3 if quick else 10
        row: Row = {}
        with stage(variant, size_bytes=size_bytes, room=clients, audience=audience) as on:
            on.generator.connects(clients)
            on.generator.ask("open", events_per_s[0], 1000, takes_s=1)
            for rate in events_per_s:
                answer = on.generator.ask("open", rate, measure_s * 1000, takes_s=measure_s)
                if row.get("outcome", "ok") == "ok":
                    row |= checked(answer)
                row |= latency(answer, f"at_{rate}_")
                row[f"at_{rate}_server_us"] = round(answer["server_cpu_s"] / answer["published"] * 1e6, 1)
                row[f"at_{rate}_redis_us"] = round(answer["redis_cpu_s"] / answer["published"] * 1e6, 1)
        return row

    return run


def saturation(clients: int, size_bytes: int, window: int, audience: Audience | None = None) -> Run:
    """Search the highest rate at which the 99.9th percentile stays within `BORNE_P99_9_MS`, from the maximum of a closed loop."""

    def run(variant: Variant, quick: bool) -> Row:
        measure_s = 3 if quick else 8
        with stage(variant, size_bytes=size_bytes, room=clients, audience=audience) as on:
            on.generator.connects(clients)
            most = _maximum(on, window, quick)
            tried: dict[float, Answer] = {}

            def borne(rate: float) -> bool:
                tried[rate] = on.generator.ask("open", rate, measure_s * 1000, takes_s=measure_s)
                p99_9_ms: float = tried[rate]["microseconds"]["p99_9"] / 1000
                return bool(tried[rate]["outcome"] == "ok" and p99_9_ms <= BORNE_P99_9_MS)

            found = search(borne, most / 8, most * 1.5, SEARCH_STEPS)
            row: Row = {"outcome": "ok", "maximum_events_per_s": round(most), "borne_events_per_s": round(found or 0)}
            if found:
                row |= checked(tried[found]) | latency(tried[found])
            else:
                row |= checked(tried[most / 8])
                row["outcome"] = f"not even {most / 8:,.0f} events per second within {BORNE_P99_9_MS:g} ms"
            row["latency_over_load"] = sorted([rate, _p(tried[rate], "p50"), _p(tried[rate], "p99_9")] for rate in tried)  # type: ignore[assignment]
            return row

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


def _p(answer: Answer, name: str) -> float:
    return round(float(answer["microseconds"][name]) / 1000, 3)


def _maximum(on: Stage, window: int, quick: bool) -> float:
    warm_s, measure_s = (1, 2) if quick else (2, 4)
    answer = on.generator.ask("window", window, warm_s * 1000, measure_s * 1000, takes_s=warm_s + measure_s)
    return max(1.0, float(answer["published"]) / float(answer["seconds"]))
