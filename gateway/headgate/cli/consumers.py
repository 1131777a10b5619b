"""`headgate consume`, `consumers` and `dead-letters` run consumers and inspect their data in Redis. Imports only click."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .options import (
    config_option,
    effective_settings,
    json_option,
    namespace_option,
    open_redis,
    read_address,
    redis_option,
    with_options,
)
from .output import Commands, counted, echo, fail, one_line_errors, print_done, print_one, utc_time, wants_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.consumers.work.dead_letters import DeadLetter, DeadLetters
    from headgate.consumers.work.groups import GroupStatus
    from headgate.redis.client import Client

# Next to a gateway, consumers get the processor time that it and Redis leave (man 2 nice), because live delivery goes first.
NICENESS = 10


@click.command()
@config_option
@click.option("--only", multiple=True, metavar="NAME", help="Only this consumer of the file; repeatable.")
@redis_option
@click.option("--listen", metavar="HOST:PORT", callback=read_address, help="Serve /healthz and /metrics at this address.")
@click.option("--check", "is_check", is_flag=True, help="Only check the file and Redis: a line per consumer, or per fault.")
@click.option("--file-only", is_flag=True, hidden=True, help="Of --check: not Redis, which is not started yet.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done with each event; nothing is acknowledged.")
@click.option("--since", type=click.IntRange(1), metavar="OFFSET", help="First event of a dry run. Default: the next one.")
@click.option("--parent", type=int, hidden=True, help="End when this process is not the parent any more.")
@one_line_errors
def consume(
    config: str | None,
    only: tuple[str, ...],
    redis_url: str | None,
    listen: tuple[str, int] | None,
    is_check: bool,
    file_only: bool,
    dry_run: bool,
    since: int | None,
    parent: int | None,
) -> None:
    """Run the consumers in the configuration file: e-mail, webhooks, monitoring and your own."""
    import os
    from functools import partial

    from headgate.consumers.process import dry_run as previews
    from headgate.consumers.process.config import read_consumers
    from headgate.consumers.process.supervisor import describe, supervise
    from headgate.runtime import logging as logs
    from headgate.runtime import spans
    from headgate.runtime.operator_lines import say
    from headgate.runtime.standard_streams import never_block
    from headgate.services.publisher import find_redis_url
    from headgate.settings.file import need_file
    from headgate.settings.settings import PREFIX, environment, service_links_ignored

    if since is not None and not dry_run:
        raise click.UsageError("--since goes with --dry-run; what a new consumer begins with is `start` in its table")
    environ = {**environment(), **({PREFIX + "REDIS_URL": redis_url} if redis_url else {})}
    path = need_file(config)
    if is_check:
        sys.exit(_check(path, environ, only, file_only=file_only))
    if not dry_run:
        never_block()
        if parent is not None:
            os.nice(NICENESS)
    settings, consumers = read_consumers(path, environ, only)
    url = find_redis_url(settings)
    if dry_run:
        for spec in consumers:
            say(f"dry run: {describe(spec)}")
        previews.dry_run(consumers, url, since, partial(print, flush=True))
        return
    logs.configure(settings.log_level, form=settings.log_format)
    if settings.otel:
        spans.start()
    if (line := service_links_ignored(environ)) is not None:
        say(line)
    say(f"consumers from {path}")
    sys.exit(supervise(settings, consumers, url, say, listen, parent))


def _check(path: str, environ: Mapping[str, str], only: Sequence[str], *, file_only: bool) -> int:
    """Check file and Redis, and print a line for each consumer; return 1 on any fault."""
    from headgate.consumers.process.config import read_consumers
    from headgate.consumers.process.supervisor import describe
    from headgate.errors import HeadgateError, SettingsError
    from headgate.redis.client import describe_server
    from headgate.runtime.operator_lines import complain, say
    from headgate.services.publisher import find_redis_url
    from headgate.settings.file import read_settings
    from headgate.settings.settings import Settings

    faults: list[str] = []
    try:
        for spec in read_consumers(path, environ, only)[1]:
            say(describe(spec))
    except SettingsError as error:
        faults += error.faults
    try:
        settings = Settings.read(read_settings(path, environ))
        if not file_only:
            say(f"using {describe_server(find_redis_url(settings))}")
    except SettingsError:
        pass  # the faults are in the list already
    except HeadgateError as error:
        faults += error.lines()
    for fault in faults:
        complain(fault)
    return 1 if faults else 0


@click.group(cls=Commands)
def consumers() -> None:
    """Inspect what consumers keep in Redis, and remove one for good. No consumer has to run for this."""


@consumers.command("list")
@with_options(namespace_option, config_option, redis_option, json_option)
def list_consumers(namespace: str, config: str | None, redis_url: str | None) -> None:
    """List the consumers of a namespace: backlog, work in progress, dead letters, and whether the file names them."""
    import dataclasses

    from headgate.consumers.work.groups import Groups
    from headgate.redis.registry import need_known

    configured = configured_consumers(config)
    client = redis_of_consumers(config, redis_url)
    statuses = Groups(client, namespace).statuses()
    if not statuses:
        need_known(client, namespace)
        if not wants_json():
            echo(f"no consumer has worked in {namespace}", err=True)
    for status in statuses:
        is_configured = None if configured is None else (namespace, status.name) in configured
        value = {**dataclasses.asdict(status), "configured": is_configured}
        print_one(_status_line(status, is_configured), value)


@consumers.command("remove")
@click.argument("consumer")
@with_options(namespace_option, config_option, redis_option, json_option)
def remove_consumer(consumer: str, namespace: str, config: str | None, redis_url: str | None) -> None:
    """Remove CONSUMER from Redis for good: its position, work in progress, dead letters and state.

    Refused if one of its instances has worked within the last minute.
    """
    from headgate.consumers.work.groups import Groups, check_consumer

    consumer = check_consumer(consumer)
    configured = configured_consumers(config)
    client = redis_of_consumers(config, redis_url)
    waiting, dead = Groups(client, namespace).remove(consumer)
    is_configured = (namespace, consumer) in (configured or ())
    print_done(
        f"removed {consumer}, and with it {waiting} waiting and {dead} dead",
        {"removed": consumer, "waiting": waiting, "dead": dead, "configured": is_configured},
    )
    if is_configured and not wants_json():
        echo("the configuration file still has it, so it starts again when it runs", err=True)


def need_consumer(client: Client, namespace: str, name: str, config: str | None) -> None:
    """Raise for a consumer that is neither in Redis nor in the configuration file. Its name may be misspelt.

    Raises:
        InvalidRequest: there is no such consumer.
        NamespaceNotServed: there is no such namespace either.
        SettingsError: the file cannot be read.
    """
    from difflib import get_close_matches

    from headgate.consumers.work.groups import Groups
    from headgate.errors import InvalidRequest
    from headgate.redis.registry import need_known

    configured = configured_consumers(config) or ()
    if (namespace, name) in configured:
        return
    known = sorted({*Groups(client, namespace).names(), *(each for of, each in configured if of == namespace)})
    if name in known:
        return
    if not known:
        need_known(client, namespace)
    close = get_close_matches(name, known, 1, 0.6)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise InvalidRequest(f"there is no consumer {name} in {namespace}; there are: {', '.join(known) or 'none'}{meant}")


def redis_of_consumers(config: str | None, redis_url: str | None) -> Client:
    """Return a client of the given Redis, else of the Redis of the configuration's consumers."""
    return open_redis(redis_url, None if redis_url else effective_settings(config, {}))


def configured_consumers(config: str | None) -> frozenset[tuple[str, str]] | None:
    """Return (namespace, name) of the consumers in the configuration file, or None without a file."""
    from headgate.consumers.process.config import read_names
    from headgate.settings.file import find_file
    from headgate.settings.settings import environment

    path = find_file(config)
    return read_names(path, environment()) if path else None


def _status_line(status: GroupStatus, is_configured: bool | None) -> str:
    counts = f"lag {status.lag}, leased {status.leased}, waiting {status.waiting}, dead {status.dead}, missed {status.missed}"
    at_work = "never at work" if status.idle_s is None else f"at work {status.idle_s:.0f} s ago"
    known = {None: "", True: ", configured", False: ", not configured"}[is_configured]
    elsewhere = f"; on another Redis server: {', '.join(status.elsewhere)}" if status.elsewhere else ""
    return f"{status.name}: {counts}, {at_work}{known}{elsewhere}"


def _which_letters(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command either ids or --all; `_letters_command` checks that it has one of them."""
    ids = click.argument("letter_ids", metavar="[ID]...", nargs=-1)
    return ids(click.option("--all", "all_", is_flag=True, help="All that are there now.")(command))


@click.group("dead-letters", cls=Commands)
def dead_letters() -> None:
    """Inspect the events that a consumer gave up on, and retry or drop them. The consumer need not run."""


def _letters_command(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command of `dead-letters` the argument CONSUMER. The command is called with its letters instead."""

    @functools.wraps(command)
    def wrapper(consumer: str, namespace: str, config: str | None, redis_url: str | None, **kwargs: object) -> None:
        from headgate.consumers.work.dead_letters import DeadLetters
        from headgate.consumers.work.groups import check_consumer

        if "all_" in kwargs and bool(kwargs["letter_ids"]) == kwargs["all_"]:
            raise click.UsageError("expected one or more IDs, or --all")
        check_consumer(consumer)
        client = redis_of_consumers(config, redis_url)
        need_consumer(client, namespace, consumer, config)
        command(letters=DeadLetters(client, namespace, consumer), **kwargs)

    return click.argument("consumer")(with_options(namespace_option, config_option, redis_option)(wrapper))


@dead_letters.command("list")
@_letters_command
@click.option("--after", metavar="ID", help="Begin after this one. Without it: with the oldest.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many at most.")
@json_option
def list_letters(letters: DeadLetters, after: str | None, limit: int) -> None:
    """List dead letters, oldest first: id, when, why, offset and topic, and the reason."""
    page = letters.page(after, limit)
    for letter in page:
        _print_letter(letter)
    count = letters.count()
    more = f"; continue with --after {page[-1].id}" if len(page) == limit and letters.page(page[-1].id, 1) else ""
    echo(f"{counted(count, 'dead letter')} in all{more}", err=True)


@dead_letters.command("show")
@_letters_command
@click.argument("letter_id", metavar="ID")
@json_option
def show_letter(letters: DeadLetters, letter_id: str) -> None:
    """Print one dead letter with its data."""
    letter = letters.show(letter_id)
    if letter is None:
        fail(f"there is no dead letter {letter_id} (any more)")
    else:
        _print_letter(letter)
        if not wants_json():
            echo(letter.task.data.decode(errors="replace"))


@dead_letters.command("retry")
@_letters_command
@json_option
@_which_letters
def retry_letters(letters: DeadLetters, letter_ids: tuple[str, ...], all_: bool) -> None:
    """Let the consumer try dead letters again, as new tasks."""
    count = letters.retry_all() if all_ else letters.retry(letter_ids)
    print_done(f"{count} to be tried again", {"retried": count})
    _exit_for_others(letter_ids, count)


@dead_letters.command("drop")
@_letters_command
@json_option
@_which_letters
def drop_letters(letters: DeadLetters, letter_ids: tuple[str, ...], all_: bool) -> None:
    """Drop dead letters for good."""
    count = letters.drop_all() if all_ else letters.drop(letter_ids)
    print_done(f"{count} dropped", {"dropped": count})
    _exit_for_others(letter_ids, count)


def _exit_for_others(letter_ids: tuple[str, ...], count: int) -> None:
    """End with exit code 1 if some ids were not dead letters for this command."""
    others = len(set(letter_ids)) - count
    if others > 0:
        fail(f"of the IDs {others} are no dead letters (any more), or cannot be read, which only `drop` takes")


def _print_letter(letter: DeadLetter) -> None:
    task = letter.task
    part = f" ({task.key})" if task.key else ""
    line = f"{letter.id} {utc_time(letter.at_ms / 1000)} {letter.why} {task.offset} {task.topic}{part}: {letter.reason}"
    print_one(line, letter.shown())
