"""Clients that join, that come back to what they have missed, and that sit idle: time, CPU and memory of the server."""

from __future__ import annotations

from collections.abc import Callable

from .child import Failed
from .publishing import MARKER, TOPIC, payload
from .scenario import KIB, Row, Run, checked, latency
from .stage import Audience, Stage, stage
from .variants import LOG_KEY, Variant, headgate_connect

FIRST = 100
STORM_DEADLINE_S = 90


def connecting(clients: int, audience: Callable[[int], Audience] | None = None) -> Run:
    """Clients join as fast as the server lets them, 64 under way at a time; joined means that events will come."""

    def run(variant: Variant, quick: bool) -> Row:
        count = clients // 4 if quick else clients
        room = count + FIRST
        with stage(variant, size_bytes=256, clients=audience(room) if audience else room, joined=FIRST) as on:
            answer = on.generator.connects(count)
            return checked(answer) | latency(answer) | {
                "connects_per_s": round(count / answer["seconds"]),
                "connects_per_cpu_s": round(count / max(answer["server_cpu_s"], 1e-3)),
            }  # fmt: skip

    return run


def storm(clients: int, missed: int, size_bytes: int) -> Run:
    """Clients come back `missed` events late, with a resume position: the time until the last client has its last event."""

    def run(variant: Variant, quick: bool) -> Row:
        count = max(1, clients // 5) if quick else clients
        with stage(variant, size_bytes=size_bytes, clients=count, joined=0) as on:
            position = _publish_missed(on, missed, size_bytes)
            with on.further_generator(connects=[headgate_connect(resume=position)], room=count) as back:
                answer = back.ask("connect", count, count, STORM_DEADLINE_S * 1000, count * missed, takes_s=STORM_DEADLINE_S)
        if answer["outcome"] == "not_all_connected":
            raise Failed(f"{answer['clients']} of {count} came back: {answer['first_failure']}")
        return checked(answer) | {
            "undelivered": max(0, count * missed - answer["deliveries"]),
            "clients_back": count,
            "seconds_until_all_had_all": round(answer["seconds"], 2),
            "server_cpu_seconds": round(answer["server_cpu_s"], 2),
            "deliveries_per_cpu_s": round(answer["deliveries"] / max(answer["server_cpu_s"], 1e-3)),
        }

    return run


def _publish_missed(on: Stage, missed: int, size_bytes: int) -> dict[str, object]:
    """Publish what they will have missed, numbered from 1 in the marker; return the position before it."""
    text = payload(size_bytes)
    with on.bus.client() as client:
        epoch, offset, *_ = client.execute_command("FCALL", "headgate_publish", 1, LOG_KEY, TOPIC, "null")
        with client.pipeline(transaction=False) as pipeline:
            for sequence in range(1, missed + 1):
                event = text.replace(MARKER, f"~{sequence:010}:{0:020}~")
                pipeline.execute_command("FCALL", "headgate_publish", 1, LOG_KEY, TOPIC, event)
            pipeline.execute()
    return {"epoch": epoch.decode(), "offset": int(offset)}


def memory(clients: int) -> Run:
    """Resident memory per connected, subscribed and idle client; the cost of the first 100 counts as start-up."""

    def run(variant: Variant, _quick: bool) -> Row:
        with stage(variant, size_bytes=256, clients=clients, joined=0) as on:
            empty = _settled_bytes(on)
            on.generator.connects(FIRST)
            before = _settled_bytes(on)
            on.generator.connects(clients - FIRST)
            answer = on.generator.ask("idle", 100, takes_s=0.1)
            after = _settled_bytes(on)
            return checked(answer) | {
                "kib_per_client": round((after - before) / (clients - FIRST) / KIB, 2),
                "kib_per_client_from_empty": round((after - empty) / clients / KIB, 2),
                "server_mib": round(after / KIB**2, 1),
            }

    return run


def _settled_bytes(on: Stage) -> int:
    """Return resident memory once it has not moved by more than 64 KiB in a second (at most 10 s): collectors are lazy."""
    before = on.server.resident_bytes()
    for _ in range(10):
        on.generator.ask("idle", 1000, takes_s=1)
        after = on.server.resident_bytes()
        if abs(after - before) <= 64 * KIB:
            return after
        before = after
    return before
