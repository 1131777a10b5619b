"""`headgate status` shows gateways, Redis, namespaces and consumers at a glance. Imports only click."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from .options import SecondsRange, open_redis, redis_option, with_options
from .output import echo, local_time, paint, print_json, print_result, print_title, wants_json

if TYPE_CHECKING:
    from headgate.consumers.work.groups import GroupStatus
    from headgate.diagnosis.overview import GatewayState, NamespaceState, Overview, RedisOverview
    from headgate.errors import HeadgateError

# Processes, namespaces and consumers shown; the rest is counted.
_ROWS = 20


@click.command()
@redis_option
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C, with events per second.")
@click.option(
    "--every", "every_s", metavar="S", type=SecondsRange(0.5, 3600), default=2.0, show_default=True,
    help="Seconds between two refreshes.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 for a warning, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each update.")
@with_options()
def status(redis_url: str | None, watch: bool, every_s: float, strict: bool) -> None:
    """Show gateways, Redis, namespaces and consumers at a glance. Exit code 1 if something is wrong."""
    import time
    from dataclasses import asdict

    from headgate.diagnosis.overview import read_overview
    from headgate.errors import HeadgateError
    from headgate.runtime.check_result import Verdict, count
    from headgate.services.publisher import find_redis_url

    url = redis_url or find_redis_url()
    client = open_redis(url)
    now: Overview | None
    before: Overview | None = None
    while True:
        if watch and not wants_json() and sys.stdout.isatty():
            click.clear()
        try:
            now = read_overview(client, url)
        except HeadgateError as error:
            if not (watch or wants_json()):
                raise
            is_good, now = False, None
            _show_error(error)
        else:
            is_good = not count(now.wrong, Verdict.FAULT) and not (strict and now.wrong)
            if wants_json():
                print_json({"ok": is_good, **asdict(now)})
            else:
                _show(now, before)
        if not watch:
            break
        before = now
        time.sleep(every_s)
    sys.exit(0 if is_good else 1)


def _show_error(error: HeadgateError) -> None:
    if wants_json():
        print_json({"ok": False, "error": {**error.to_wire(), **error.parts, "message": "; ".join(error.lines())}})
    for line in () if wants_json() else error.lines():
        echo(f"headgate: {line}", err=True)


def _show(now: Overview, before: Overview | None) -> None:
    print_title(f"Headgate at {local_time(now.at_s)}")
    echo(_redis(now.redis))
    _table("gateways", ("process", "version", "sessions", "up", "clock", "serves"), [_gateway(each) for each in now.gateways])
    _table(
        "namespaces",
        ("namespace", "gateways", "newest", "events kept", "size", "oldest", "kept for", *(("events/s",) if before else ())),
        [_namespace(each, now, before) for each in now.namespaces],
    )
    _table(
        "consumers",
        ("consumer", "namespace", "lag", "leased", "waiting", "dead", "missed", "at work"),
        [_consumer(each) for each in now.consumers],
    )
    echo()
    if now.wrong:
        print_title("wrong")
        for result in now.wrong:
            print_result(result)
    else:
        echo(paint("nothing is wrong", "green"))


def _redis(state: RedisOverview) -> str:
    limit = f" of {_size(state.max_bytes)}" if state.max_bytes else ""
    used = "?" if state.used_bytes is None else _size(state.used_bytes)
    clients, commands = ("?" if each is None else each for each in (state.clients, state.commands_per_s))
    return f"{state.server}: {used}{limit} in use, {clients} connections, {commands} commands/s"


def _gateway(state: GatewayState) -> Sequence[str]:
    clock = "" if state.clock_ms is None else f"{state.clock_ms:+d} ms"
    up = "?" if state.up_s is None else _time(state.up_s)
    return state.name or "?", state.version or "?", f"{state.sessions:,}", up, clock, state.namespaces


def _namespace(state: NamespaceState, now: Overview, before: Overview | None) -> Sequence[str]:
    oldest = "" if state.oldest_s is None else _time(state.oldest_s)
    kept = "?" if state.retention_s is None else _time(state.retention_s)
    row = (state.name, str(state.gateways), str(state.head), f"{state.events:,}", _size(state.bytes), oldest, kept)
    if before is None:
        return row
    earlier = {each.name: each for each in before.namespaces if each.epoch == state.epoch}.get(state.name)
    seconds = now.at_s - before.at_s
    return *row, f"{(state.head - earlier.head) / seconds:,.1f}" if earlier and seconds > 0 else ""


def _consumer(state: GroupStatus) -> Sequence[str]:
    counts = (f"{each:,}" for each in (state.lag, state.leased, state.waiting, state.dead, state.missed))
    at_work = "never" if state.idle_s is None else "now" if state.is_at_work else f"{_time(state.idle_s)} ago"
    if state.elsewhere:
        at_work += f", and {len(state.elsewhere)} on another server"
    return state.name, state.namespace, *counts, at_work


def _table(title: str, head: Sequence[str], rows: list[Sequence[str]]) -> None:
    echo()
    print_title(f"{title}: {len(rows) or 'none'}")
    if rows:
        for line in table_lines([head, *rows[:_ROWS]]):
            echo(line)
    if len(rows) > _ROWS:
        echo(f"  and {len(rows) - _ROWS} more; --json has all")


def table_lines(rows: list[Sequence[str]]) -> Iterator[str]:
    """Yield rows with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _time(seconds: float) -> str:
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
