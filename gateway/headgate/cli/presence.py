"""`headgate presence`: the users in a topic now. Imports click only."""

from __future__ import annotations

import click

from .options import json_option, namespace_option, need_namespace, redis_option
from .output import echo, one_line_errors


@click.command()
@click.argument("topic")
@namespace_option
@redis_option
@json_option
@one_line_errors
def presence(topic: str, namespace: str, redis_url: str | None, as_json: bool) -> None:
    """List the users present in TOPIC on all gateways, one line each."""
    import time

    import msgspec

    from headgate.services.publisher import Publisher

    publisher = Publisher(redis_url, namespace=namespace)
    try:
        users = publisher.presence(topic)
    finally:
        publisher.close()
    if not users:
        need_namespace(redis_url, namespace)
    for one in users:
        if as_json:
            parts = {"user": one.user, "connections": one.connections, "since": one.since_ms, "meta": one.meta}
            line = msgspec.json.encode(parts)
        else:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.since_ms / 1000))
            meta = b"" if one.meta is None else b" " + msgspec.json.encode(one.meta)
            count = f"{one.connections} connection{'' if one.connections == 1 else 's'}"
            line = f"{one.user}  {count} since {since}".encode() + meta
        echo(line)
    if not users and not as_json:
        echo(f"nobody is in {topic}", err=True)
