"""Service for the others while some clients do not read, or attack (hostile.py)."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from .generator import Answer
from .hostile import ATTACK_DEADLINE_S, ATTACKS
from .hostile import attack as attack_server
from .machine import cores
from .publishing import TOPIC
from .scenario import KIB, Row, Run, checked, latency
from .stage import Stage, stage
from .variants import LOG_KEY, Variant, headgate_connect


def stalled(clients: int, stopped: int, size_bytes: int, events_per_s: int) -> Run:
    """Some clients stop reading: what they cost in memory, what the others notice, what becomes of the stopped ones.

    The latency of the others is compared with the calm before and the calm after, because two calms of a run differ by half.
    """

    def run(variant: Variant, quick: bool) -> Row:
        measure_s = 5 if quick else 8
        with stage(variant, size_bytes=size_bytes, clients=clients) as on:
            generator = on.generator
            generator.open(events_per_s, 2)
            calm, _ = _watched(on, events_per_s, measure_s)
            before = on.server.resident_bytes()
            generator.ask("stall", stopped)
            answer, peak = _watched(on, events_per_s, measure_s)
            stopped_left = answer["stalled"]
            after = generator.ask("unstall", 4000, takes_s=4)
            after_bytes = on.server.resident_bytes()
            calm_again, _ = _watched(on, events_per_s, measure_s)
            row = checked(answer) | latency(calm, "calm_") | latency(answer)
            calm_p99_us = (calm["microseconds"]["p99"] + calm_again["microseconds"]["p99"]) / 2
            row["calm_p99_ms"] = round(calm_p99_us / 1000, 3)
            row["p99_change"] = round(answer["microseconds"]["p99"] / max(1.0, calm_p99_us), 3)
            row["growth_mib_per_stopped"] = round(max(0, peak - before) / stopped / KIB**2, 2)
            row["growth_mib"] = round((after_bytes - before) / KIB**2, 2)
            row["cut_while_stopped"] = stopped - stopped_left
            row["events_owed"] = answer["published"] * stopped
            row["caught_up"] = after["caught_up"]
            row["gap_notices"] = after["gaps"]
            row["backpressure_notices"] = after["backpressure"]
            return row

    return run


def _watched(on: Stage, events_per_s: int, seconds: float) -> tuple[Answer, int]:
    """Publish on schedule and sample the server's memory. Sampling costs the server time, so calm parts are sampled too."""
    on.generator.tell("open", events_per_s, seconds * 1000)
    peak = _peak_bytes(on, seconds)
    return on.generator.answer(seconds), peak


def _peak_bytes(on: Stage, seconds: float) -> int:
    """Return the largest resident memory seen, ten looks per second: a look is a measurement, not a wait for luck."""
    peak, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        peak = max(peak, on.server.resident_bytes())
        time.sleep(0.1)
    return peak


def hostile(attack: str, clients: int = 100) -> Run:
    """An attack, while 100 others get 100 events per second: the others' latency, and the server's memory.

    Where the attack is on subscriptions, the server remembers as many topics as it can, and nobody has subscribed to `#`: one who
    has makes the gateway take all there is from Redis, which spares it most of what subscriptions cost.
    """
    remembering = not ATTACKS[attack].anywhere

    def run(variant: Variant, _quick: bool) -> Row:
        load_core = cores()[1]
        connects = [headgate_connect(subscriptions=[{"pattern": TOPIC}, {"pattern": "orders.#"}])] if remembering else ()
        with stage(variant, size_bytes=256, clients=clients, connects=connects) as on:
            if remembering:
                _publish_topics(on, ATTACKS[attack].topics)
            on.generator.open(100, 2)
            before = on.server.resident_bytes()
            with ThreadPoolExecutor(1, initializer=lambda: os.sched_setaffinity(0, {load_core})) as second:
                seconds = ATTACK_DEADLINE_S / 2
                on.generator.tell("open", 100, seconds * 1000)
                sent = second.submit(attack_server, attack, on.port, connects[0] if connects else variant.connect)
                peak = _peak_bytes(on, seconds)
                answer = on.generator.answer(seconds)
                row = checked(answer) | latency(answer) | sent.result(ATTACK_DEADLINE_S * 2)
            row["growth_mib"] = round(max(0, peak - before) / KIB**2, 2)
            return row

    return run


def _publish_topics(on: Stage, count: int) -> None:
    """Publish once to each of so many topics; returns when the log has them."""
    with on.bus.client() as client, client.pipeline(transaction=False) as pipeline:
        for number in range(count):
            pipeline.execute_command("FCALL", "headgate_publish", 1, LOG_KEY, f"orders.{number}.a.b.c.d.e.f", "null")
        pipeline.execute()
