"""`headgate pause`, `headgate resume` and `headgate rebalance`, over all gateways. Imports only click.

The first two stop connects, publishes or a namespace. The third evens out the clients of all gateway processes of a Redis.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from .options import json_option, open_redis, redis_option, seconds, with_options
from .output import echo, print_done, print_one, wants_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.redis.client import Client

_WHAT = click.Choice(["connects", "publishes", "namespace"])


@click.command()
@click.argument("what", type=_WHAT, required=False)
@click.argument("name", required=False)
@click.option("--for", "for_", metavar="TIME", help="For how long: 90, 90s, 15m, 1h or 7d. Default: until `headgate resume`.")
@with_options(redis_option, json_option)
def pause(what: str | None, name: str | None, for_: str | None, redis_url: str | None) -> None:
    """Refuse connects, publishes, or both in namespace NAME on every gateway, within two seconds. Without WHAT, list the pauses.

    Browsers and HTTP publishers learn when to retry. Connected clients stay connected. Publishers that write to Redis directly
    are not stopped.
    """
    from headgate.redis import pauses

    for_s = None if for_ is None else seconds(for_)
    if what is None:
        if for_ is not None:
            raise click.UsageError("--for needs one of connects, publishes, namespace NAME")
        paused = pauses.read_paused(open_redis(redis_url))
        for each, left_s in sorted(paused.items()):
            line = f"{_words(each)}: {'until resumed' if math.isinf(left_s) else f'for {round(left_s)} s'}"
            print_one(line, {"paused": each, "left_s": None if math.isinf(left_s) else left_s})
        if not paused and not wants_json():
            echo("nothing is paused")
        return
    member = _member(what, name)
    client = open_redis(redis_url)
    pauses.pause(client, member, for_s)
    if name is not None:
        _warn_if_unserved(client, name)
    line = f"paused {_words(member)}" + ("" if for_s is None else f" for {for_s} s")
    print_done(line, {"paused": member, "left_s": for_s})


@click.command()
@click.argument("what", type=_WHAT)
@click.argument("name", required=False)
@with_options(redis_option, json_option)
def resume(what: str, name: str | None, redis_url: str | None) -> None:
    """Allow connects, publishes or namespace NAME again on every gateway, within two seconds."""
    from headgate.redis import pauses

    member = _member(what, name)
    client = open_redis(redis_url)
    was_paused = pauses.resume(client, member)
    if name is not None and not was_paused:
        _warn_if_unserved(client, name)
    line = f"resumed {_words(member)}" if was_paused else f"{_words(member)}: not paused"
    print_done(line, {"resumed": member, "was_paused": was_paused})


def _warn_if_unserved(client: Client, name: str) -> None:
    """Warn if no gateway serves a namespace: its name may be misspelt, and the intended one not paused."""
    from headgate.redis.registry import has_been_served

    is_served, known = has_been_served(client, name)
    if not is_served:
        served = f"; gateways serve {', '.join(known)}" if known else ""
        echo(f"headgate: no gateway serves the namespace {name} now{served}", err=True)


def _member(what: str, name: str | None) -> str:
    if (what == "namespace") != (name is not None):
        raise click.UsageError("expected connects, publishes or namespace NAME")
    if name is None:
        return what
    from headgate.redis.pauses import namespace_member

    return namespace_member(name)


def _words(member: str) -> str:
    return member.replace(":", " ", 1)


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
