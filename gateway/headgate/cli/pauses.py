"""`headgate pause` and `headgate resume`: stop connects, publishes or a namespace on every gateway. Imports only click."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from .options import json_option, open_redis, redis_option, seconds, with_options
from .output import echo, print_done, print_one, wants_json

if TYPE_CHECKING:
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
