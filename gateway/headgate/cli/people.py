"""`headgate clients`, `disconnect` and `presence`, over all gateways. Imports only click."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, need_namespace, operator_name, redis_option, with_options
from .output import counted, echo, exit_for, fail, local_time, print_done, print_one, wants_json

if TYPE_CHECKING:
    from headgate.services.clients import ConnectedClient

# Of a page, for people.
_SHOWN_PATTERNS = 3


@click.command()
@click.option("--user", metavar="NAME", help="Only the clients of this user.")
@click.option("--namespace", metavar="NAME", help="Only those of this namespace. Default: all.")
@click.option("--sort", default="trouble", show_default=True, help="trouble, queue, newest or user.")
@click.option("--limit", default=100, show_default=True, metavar="N", help="Print so many at most.")
@click.option("--session", metavar="ID", help="Print this one, with all its patterns.")
@with_options(redis_option, json_option)
def clients(user: str | None, namespace: str | None, sort: str, limit: int, session: str | None, redis_url: str | None) -> None:
    """List the clients of all gateways, those in trouble first.

    Exit code 1 if a gateway did not answer in time; the clients of the others are printed.
    """
    from headgate.services.clients import MAX_PAGE_CLIENTS, Clients

    if limit < 1:
        raise click.BadParameter("expected a number from 1 on", param_hint="--limit")
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

    They may reconnect; `headgate revoke` keeps them out. Exit code 1 if a gateway did not answer in time.
    """
    from headgate.services.clients import Clients

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
