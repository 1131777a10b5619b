"""`headgate dead-letters`: lists, shows, retries or drops the dead letters of a consumer. Imports click only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .consumers import need_consumer, redis_of_consumers
from .options import config_option, json_option, namespace_option, redis_option, with_options
from .output import Commands, counted, echo, fail, print_done, print_one, utc_time, wants_json

if TYPE_CHECKING:
    from headgate.consumers.work.dead_letters import DeadLetter, DeadLetters


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
        from headgate.events.topic import check_namespace

        if "all_" in kwargs and bool(kwargs["letter_ids"]) == kwargs["all_"]:
            raise click.UsageError("expected one or more IDs, or --all")
        check_consumer(consumer)
        client = redis_of_consumers(config, redis_url)
        need_consumer(client, check_namespace(namespace), consumer, config)
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
    more = f"; go on with --after {page[-1].id}" if len(page) == limit and letters.page(page[-1].id, 1) else ""
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
    """Have the consumer try dead letters again, as if for the first time."""
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
