"""Reports the progress of consumers, and lists, retries and drops their dead letters, even if no consumer runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headgate.auth.audit import audit
from headgate.consumers.work.dead_letters import PAGE_LETTERS, DeadLetters, Letter
from headgate.consumers.work.groups import Groups, GroupStatus
from headgate.consumers.work.spec import CONSUMER_NAME
from headgate.consumers.work.store import Store
from headgate.errors import InvalidRequest
from headgate.redis.client import Client

from .operation import Call, Cost, operation
from .problems import http_refusal, not_found

_LETTERS = "/consumers/{name}/dead-letters"
LetterId = Annotated[str, Meta(pattern=r"^[0-9]{1,15}-[0-9]{1,15}$")]
LetterIds = Annotated[list[LetterId], Meta(min_length=1, max_length=PAGE_LETTERS)] | Literal["all"]


class Consumer(msgspec.Struct):
    """A consumer of a namespace.

    `lag` counts events not taken yet, and `age_s` is the age of the oldest event not taken, or in work (null without any, or if
    unknown). `leased`, `waiting` and `dead` count tasks, and `missed` counts events that the log lost before the consumer took
    them. `idle_s` is the time since the last heartbeat of an instance (null if unknown). `elsewhere` names the instances
    (machine and process id) with a last heartbeat at another Redis server. `lag` does not cover these.
    """

    name: str
    lag: int
    age_s: float | None
    leased: int
    waiting: int
    dead: int
    missed: int
    idle_s: float | None
    elsewhere: list[str]


@operation("GET /consumers", "consumers", in_namespace=True, cost=Cost.STATUSES, members="namespace consumers")
def list_consumers(call_: Call) -> tuple[str, list[Consumer]]:
    """List consumers.

    They are sorted by name, at most 100. A consumer that has left only dead letters appears within a minute.
    """
    redis = call_.redis
    statuses = call_.services.consumers(redis, call_.namespace)
    call_.charge(len(statuses))
    return call_.namespace, [_shown(redis, call_.namespace, status) for status in statuses]


@operation("GET /consumers/{name}", "consumers", in_namespace=True, problems=(404,))
def get_consumer(call_: Call) -> Consumer:
    """Read the progress of a consumer."""
    name, redis = _name(call_), call_.redis
    status = Groups(redis, call_.namespace).status_of(name)
    if status is None:
        raise not_found("consumer", name)
    return _shown(redis, call_.namespace, status)


_operation = partial(operation, in_namespace=True, cost=Cost.ENTRIES)


@_operation("DELETE /consumers/{name}", "consumers:write", problems=(404, 409), members="waiting dead")
def remove_consumer(call_: Call) -> tuple[int, int]:
    """Remove a consumer from Redis for good.

    Removes its position in the log, its tasks and its dead letters (`waiting` and `dead` of them). 409 if an instance has been
    at work within the last minute.
    """
    # Scanning a thousand names takes about as long as reading a hundred entries.
    name, groups = _name(call_), Groups(call_.redis, call_.namespace, lambda: call_.charge(Cost.ENTRIES.units))
    if groups.status_of(name) is None:
        raise not_found("consumer", name)
    try:
        removed = groups.remove(name)
    except InvalidRequest as error:
        raise http_refusal(409, error.message, reason=error.message) from error
    audit.acted("consumer removed", by=call_.by, namespace=call_.namespace, consumer=name)
    return removed


@_operation(f"GET {_LETTERS}", "consumers", problems=(404,), members="count letters next")
def list_dead_letters(
    call_: Call,
    *,
    after: Annotated[LetterId | None, Meta(description="Letters after this one.")] = None,
    limit: Annotated[int, Meta(ge=1, le=PAGE_LETTERS, description="Letters at most.")] = 20,
) -> tuple[int, list[Letter], str | None]:
    """List the dead letters of a consumer.

    The oldest is first. `count` is the total. Ask again with `after` set to `next` until it is null.
    """
    of = _letters_of(call_)
    page = of.page(after, limit)
    # A KiB of data counts as an entry, because a page may have a hundred of the largest events.
    call_.charge(len(page) + sum(len(each.task.data) for each in page) // 1024)
    is_more = len(page) == limit and bool(of.page(page[-1].id, 1))
    return of.count(), [each.shown() for each in page], page[-1].id if is_more else None


@operation(f"GET {_LETTERS}/{{letter}}", "consumers", in_namespace=True, problems=(404,))
def get_dead_letter(call_: Call) -> Letter:
    """Read one dead letter."""
    letter_id = call_.path["letter"]
    try:
        letter = _letters_of(call_).show(letter_id)
    except InvalidRequest:
        letter = None
    if letter is None:
        raise not_found("dead letter", letter_id)
    return letter.shown()


@_operation(f"POST {_LETTERS}/retry", "consumers:write", problems=(404,), members="count")
def retry_dead_letters(call_: Call, *, ids: LetterIds) -> int:
    """Retry dead letters.

    They become new tasks. The consumer need not run for that. Missing letters, and those that cannot be retried, do not count.
    """
    of = _letters_of(call_)
    count = of.retry_all() if ids == "all" else of.retry(ids)
    return _done(call_, "dead letters to be tried again", count)


@_operation(f"POST {_LETTERS}/drop", "consumers:write", problems=(404,), members="count")
def drop_dead_letters(call_: Call, *, ids: LetterIds) -> int:
    """Drop dead letters for good.

    Missing letters do not count.
    """
    of = _letters_of(call_)
    count = of.drop_all() if ids == "all" else of.drop(ids)
    return _done(call_, "dead letters dropped", count)


def _name(call_: Call) -> str:
    name = call_.path["name"]
    if not CONSUMER_NAME.fullmatch(name):
        raise not_found("consumer", name)
    return name


def _letters_of(call_: Call) -> DeadLetters:
    return DeadLetters(call_.redis, call_.namespace, _name(call_))


def _done(call_: Call, action: str, count: int) -> int:
    call_.charge(count)
    audit.acted(action, by=call_.by, namespace=call_.namespace, consumer=call_.path["name"], count=count)
    return count


def _shown(redis: Client, namespace: str, status: GroupStatus) -> Consumer:
    now_ms, handled_ms = Store(redis, "", namespace, status.name, 0).progress()
    age_s = round((now_ms - handled_ms) / 1000, 3) if handled_ms and (status.lag or status.leased) else None
    return Consumer(
        status.name, status.lag, age_s, status.leased, status.waiting, status.dead, status.missed, status.idle_s,
        list(status.elsewhere),
    )  # fmt: skip
