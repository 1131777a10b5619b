"""`headgate replay`: a range of the log as NDJSON, one event per line, for `headgate publish --file`. Imports click only."""

from __future__ import annotations

import click

from .options import json_option, namespace_option, redis_option
from .output import echo, one_line_errors
from .since import EXPECTED, read_since


@click.command()
@click.argument("pattern")
@click.option("--since", metavar="WHEN", default="1", help=f"Begin there: {EXPECTED}. Default: the oldest event kept.")
@click.option("--until", metavar="WHEN", help="End there, that offset included, that time not. Default: what is the end now.")
@namespace_option
@redis_option
@json_option
@one_line_errors
def replay(pattern: str, since: str, until: str | None, namespace: str, redis_url: str | None, as_json: bool) -> None:
    """Write the logged events that match PATTERN (* is one word, # is zero or more), one JSON object per line.

    Publishes nothing. `headgate publish --file` publishes these lines into another namespace or Redis. With --json, errors are
    JSON too.
    """
    import time

    from headgate.events.topic import check_namespace, check_pattern
    from headgate.redis.client import open_client
    from headgate.redis.log_range import LogRange
    from headgate.redis.registry import need_known
    from headgate.services.publisher import find_redis_url

    from .events import event_line, tell_aside

    now_s = time.time()
    begin, end = read_since(since, now_s), None if until is None else read_since(until, now_s)
    check_pattern(pattern)
    client = open_client(redis_url or find_redis_url(), max_connections=1)
    need_known(client, check_namespace(namespace))
    log = LogRange(client, namespace)
    if end is None:
        last = log.head()[1]
    else:
        last = end.offset if end.offset is not None else end.first(log) - 1
    for event in log.events(pattern, begin.first(log), last, tell_aside):
        echo(event_line(event))
    client.close()
