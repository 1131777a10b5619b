"""Resident memory of a server per client."""

from __future__ import annotations

from .scenario import KIB, Row, Run, checked
from .stage import Stage, stage
from .variants import Variant


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


def memory(clients: int, offer_deflate: bool = False) -> Run:
    """Resident memory per client that is connected, subscribed and idle; what the first 100 cost is start-up, not theirs."""

    def run(variant: Variant, _quick: bool) -> Row:
        first = 100
        with stage(variant, size_bytes=256, room=clients, offer_deflate=offer_deflate) as on:
            empty = _settled_bytes(on)
            on.generator.connects(first)
            before = _settled_bytes(on)
            on.generator.connects(clients - first)
            answer = on.generator.ask("idle", 100, takes_s=0.1)
            after = _settled_bytes(on)
            row = checked(answer)
            row["kib_per_client"] = round((after - before) / (clients - first) / KIB, 2)
            row["kib_per_client_from_empty"] = round((after - empty) / clients / KIB, 2)
            row["server_mib"] = round(after / KIB**2, 1)
            return row

    return run
