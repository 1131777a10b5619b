"""`headgate check` and `headgate settings`: the Redis that is found, and every setting. Imports click only."""

from __future__ import annotations

import click

from .options import redis_option
from .output import one_line_errors


@click.command()
@redis_option
@click.option("--load", is_flag=True, help="Also load Headgate's function libraries, or replace older ones.")
@one_line_errors
def check(redis_url: str | None, load: bool) -> None:
    """Say which Redis is found, how it keeps events, whether the function libraries are loaded, which namespaces are served."""
    from headgate.consumers.work.store import GROUP_LIBRARY
    from headgate.errors import HeadgateError
    from headgate.publisher import find_redis_url
    from headgate.redis.client import call, check_server, mixed, open_client, primaries, versions
    from headgate.redis.cluster_client import ClusterClient
    from headgate.redis.connections import redacted_address
    from headgate.redis.faults import NEEDED
    from headgate.redis.functions import LOG_LIBRARY
    from headgate.redis.one_server import address_of
    from headgate.redis.registry import read_served
    from headgate.redis.server_advice import advise

    url = redis_url or find_redis_url()
    client = open_client(url)
    name, version = check_server(client)
    click.echo(f"found: {name} {version} at {redacted_address(url)}")
    click.echo(f"needed: {NEEDED}")
    for library, whose, loaded_by in (
        (LOG_LIBRARY, "function library", "publisher or gateway"),
        (GROUP_LIBRARY, "function library of consumers", "consumer"),
    ):
        loaded = library.ensure_loaded(client) if load else library.loaded_version(client)
        state = f"not loaded; the first {loaded_by} loads it" if loaded is None else f"version {loaded}"
        click.echo(f"{whose}: {state} (ours: {library.version})")
    servers = primaries(client)
    for server in servers:
        for line in advise(call(server, "INFO")):
            click.echo(line if len(servers) == 1 else f"{address_of(server)}: {line}")
    if (warning := mixed(versions(client))) is not None:
        click.echo(f"warning: {warning}")
    if isinstance(client, ClusterClient) and (without := client.slots_without_owner()):
        click.echo(f"warning: the Cluster is down for {without} of its 16384 slots, which no node owns, and for their namespaces")
    try:
        for namespace, served in read_served(client).items():
            seen = "none seen" if served.seen_s_ago is None else f"the last one seen {served.seen_s_ago} s ago"
            click.echo(f"namespace {namespace}: {served.live} gateway(s) at work, {seen}")
    except HeadgateError as error:
        click.echo(f"which namespaces are served cannot be told: {error.message}")


@click.command()
def settings() -> None:
    """Print every setting as a Markdown table."""
    from headgate.settings import describe

    click.echo("| name | default | expected | what it does |\n|---|---|---|---|")
    for row in describe():
        name, default, expected, doc = (cell.replace("|", "\\|") for cell in row)
        click.echo(f"| `{name}` | {f'`{default}`' if default else ''} | {expected} | {doc} |")
