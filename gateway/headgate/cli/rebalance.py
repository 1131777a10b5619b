"""`headgate rebalance`: evens out the clients of all gateway processes of a Redis. Imports click only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from .options import json_option, open_redis, redis_option, with_options
from .output import print_done

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PER_S = 100.0


@click.command()
@click.option("--per-s", metavar="N", type=float, default=DEFAULT_PER_S, help="Clients that a process takes per second (100).")
@click.option("--show", is_flag=True, help="Say how many each process has, and move nobody.")
@with_options(redis_option, json_option)
def rebalance(per_s: float, show: bool, redis_url: str | None) -> None:
    """Move clients from gateway processes with more than their share to those with fewer.

    Each gateway begins within half a minute and asks one client after another to reconnect; a client reconnects at once and
    misses nothing. Gateways also do this by themselves after a deploy (HEADGATE_REBALANCE_PER_S).
    """
    from headgate.redis import loads

    client = open_redis(redis_url)
    if not show:
        loads.request(client, per_s)
    table = loads.read(client)
    groups: dict[str, list[int]] = {}
    for load in table.loads.values():
        groups.setdefault(load.serves, []).append(load.sessions)
    asked_per_s = None if show else per_s
    ordered = [(serves, sorted(sessions, reverse=True)) for serves, sessions in sorted(groups.items())]
    lines = [_line(serves, sessions, asked_per_s) for serves, sessions in ordered]
    print_done(
        "\n".join(lines or ["no gateway process is at work"]),
        *({"serves": serves.split(","), "sessions": sessions, "asked_per_s": asked_per_s} for serves, sessions in ordered),
    )


def _line(serves: str, sessions: Sequence[int], per_s: float | None) -> str:
    share = math.ceil(sum(sessions) / len(sessions))
    excess = sum(max(0, each - share) for each in sessions)
    processes = "1 process" if len(sessions) == 1 else f"{len(sessions)} processes"
    line = f"{serves}: {processes}, sessions {', '.join(map(str, sessions))}"
    if per_s is None or not excess:
        return line
    takers = sum(each < share for each in sessions)
    return f"{line}: up to {excess} will move, in about {math.ceil(excess / (per_s * takers))} s"
