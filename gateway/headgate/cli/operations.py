"""`headgate pause`, `resume`, `rebalance`, `clients`, `disconnect` and `presence`, for all gateways. Imports only click.

The first two stop connects, publishes or a namespace. The third evens out the clients of all gateway processes of a Redis. The
others list clients and members of topics, and disconnect clients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, need_namespace, open_redis, operator_name, redis_option, seconds, with_options
from .output import counted, echo, exit_for, fail, local_time, print_done, print_one, wants_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.redis.client import Client
    from headgate.services.clients import ConnectedClient

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

    for_s = None if for_ is None else seconds(for_, "--for", 1, pauses.MAX_PAUSED_S)
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
    """Warn if no gateway serves a namespace, because its name may be misspelt, and the intended one not paused."""
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
@click.option("--show", is_flag=True, help="Show how many clients each process has, and move none.")
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


# Patterns of a client to print for a person.
_SHOWN_PATTERNS = 3


@click.command()
@click.option("--user", metavar="NAME", help="Only the clients of this user.")
@click.option("--namespace", metavar="NAME", help="Only those of this namespace. Default: all.")
@click.option("--sort", default="trouble", show_default=True, help="trouble, queue, newest or user.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Print so many at most.")
@click.option("--session", metavar="ID", help="Print this one, with all its patterns.")
@with_options(redis_option, json_option)
def clients(user: str | None, namespace: str | None, sort: str, limit: int, session: str | None, redis_url: str | None) -> None:
    """List the clients of all gateways, those in trouble first.

    Exit code 1 if a gateway did not answer in time; the clients of the others are printed.
    """
    from headgate.services.clients import MAX_PAGE_CLIENTS, Clients

    if namespace is not None:
        need_namespace(redis_url, namespace)
    asked = Clients(redis_url)
    if session is not None:
        client = asked.client(session)
        if client is None:
            fail(f"no gateway has the session {session!r}")
        _print(client, all_patterns=True)
        return
    left, after, silent = limit, None, dict[str, None]()
    while True:
        page = asked.page(namespace, user, sort, min(left, MAX_PAGE_CLIENTS), after)
        for client in page.clients:
            _print(client)
        silent |= dict.fromkeys(page.silent)
        after = page.after
        left -= len(page.clients)
        if after is None or left <= 0:
            break
    if not wants_json():
        more = "" if after is None else f", {limit - left} shown"
        echo(f"{counted(page.total, 'client')}{more}", err=True)
    exit_for(silent)


@click.command()
@click.option("--session", metavar="ID", help="Disconnect this client.")
@click.option("--user", metavar="NAME", help="Disconnect all clients of this user.")
@click.option("--reason", default="disconnected by an operator", show_default=True, metavar="TEXT", help="Words for the client.")
@with_options(redis_option, json_option)
def disconnect(session: str | None, user: str | None, reason: str, redis_url: str | None) -> None:
    """Disconnect one client, or every client of a user, on any gateway.

    They may reconnect, unless `headgate revoke` keeps them out. Exit code 1 if a gateway did not answer in time.
    """
    from headgate.services.clients import Clients

    if (session is None) == (user is None):
        raise click.UsageError("expected either --session ID or --user NAME")
    done = Clients(redis_url).disconnect(session=session, user=user, reason=reason, by=operator_name())
    if session is not None and not done.count and not done.silent:
        fail(f"no gateway has the session {session!r}")
    print_done(f"disconnected {counted(done.count, 'client')}", done)
    exit_for(done.silent)


@click.command()
@click.argument("topic")
@with_options(namespace_option, redis_option, json_option)
def presence(topic: str, namespace: str, redis_url: str | None) -> None:
    """List the users present in TOPIC on all gateways, one line each."""
    import msgspec

    from headgate.services.publisher import Publisher

    with Publisher(redis_url, namespace=namespace) as publisher:
        users = publisher.presence(topic)
    if not users:
        need_namespace(redis_url, namespace)
    for one in users:
        meta = b"" if one.meta is None else b" " + msgspec.json.encode(one.meta)
        line = f"{one.user}  {counted(one.connections, 'connection')} since {local_time(one.since_ms / 1000)}".encode() + meta
        parts = {"user": one.user, "connections": one.connections, "since": one.since_ms, "meta": one.meta}
        print_one(line, parts)
    if not users and not wants_json():
        echo(f"nobody is in {topic}", err=True)


def _print(client: ConnectedClient, *, all_patterns: bool = False) -> None:
    shown = client.patterns if all_patterns else client.patterns[:_SHOWN_PATTERNS]
    more = client.subscriptions - len(shown)
    patterns = " ".join(shown) + (f" and {more} more" if more else "")
    trouble = "; ".join(client.trouble) or client.state
    where = f"{client.namespace} at {client.gateway} from {client.address or 'an address not shown'}"
    since = local_time(client.since_ms / 1000)
    line = f"{client.session}  {client.user}  {where} over {client.transport} since {since}  {trouble}  [{patterns}]"
    print_one(line, client)
