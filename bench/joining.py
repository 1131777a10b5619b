"""Clients that join: how many a server takes in a second, and how long each of them waits."""

from __future__ import annotations

from collections.abc import Callable

from .scenario import Row, Run, checked, latency
from .stage import Audience, stage
from .variants import Variant, headgate_connect, mint


def connecting(
    clients: int, texts: Callable[[int], list[str]] | None = None, audience: Callable[[int], Audience] | None = None
) -> Run:
    """Clients join as fast as the server lets them, 64 under way at a time; joined means that events will come."""

    def run(variant: Variant, quick: bool) -> Row:
        count = clients // 4 if quick else clients
        room = count + 100
        connects, listening = texts(room) if texts else (), audience(room) if audience else None
        with stage(variant, size_bytes=256, room=room, connects=connects, audience=listening) as on:
            on.generator.connects(100)
            answer = on.generator.connects(count)
            row = checked(answer) | latency(answer)
            row["connects_per_s"] = round(count / answer["seconds"])
            row["connects_per_cpu_s"] = round(count / max(answer["server_cpu_s"], 1e-3))
            return row

    return run


_GONE = {"epoch": "0" * 16, "offset": 1}


def resuming(_count: int) -> list[str]:
    """Return a CONNECT with a position of a log that is gone: the gateway reads, compares and tells, as after a restart."""
    return [headgate_connect(resume=_GONE)]


def with_tokens(count: int) -> list[str]:
    """Return as many CONNECTs, each of another user with a token of its own, and a position to resume from."""
    return [headgate_connect(token=mint(f"user-{n}", ["#"], []), resume=_GONE) for n in range(count)]
