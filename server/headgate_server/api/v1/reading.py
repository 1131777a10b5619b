"""Reads pages of the log by pattern, single events and their traces, and the present users of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headgate.diagnosis.tracing import NoSuchEvent, Trace, trace
from headgate.errors import Forbidden
from headgate.events.event import Event
from headgate.events.topic import check_pattern, check_topic
from headgate.events.wire.requests import MAX_OFFSET
from headgate.redis.client import Client
from headgate.redis.event_ids import IdSearch, is_offset, recent_offsets
from headgate.redis.lineage import Entry
from headgate.redis.log import PAGE_EVENTS, EventLog
from headgate.services.publisher import Receipt, id_owner

from .operation import ANY_CALLER, Call, Cost, Pattern, Topic, operation
from .problems import not_found

Time = Annotated[int, Meta(ge=0, le=2**53)]
Epoch = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
Offset = Annotated[int, Meta(ge=1, le=MAX_OFFSET)]
# Limits of a search by id: the newest events of a log, and their bytes.
MAX_LOOKED_AT, MAX_LOOKED_AT_BYTES = 20_000, 32 * 1024 * 1024
# The most reads to find an event by its time.
BISECTION_READS = 20


class LoggedEvent(msgspec.Struct):
    """An event of the log. `time` is milliseconds since 1970, by Redis."""

    topic: str
    data: msgspec.Raw
    id: str
    time: int
    offset: int


@operation("GET /events", "read", in_namespace=True, pattern="pattern", cost=Cost.EVENTS, members="namespace epoch events next")
def list_events(
    call: Call,
    *,
    pattern: Annotated[Pattern, Meta(description="Events of these topics only.")] = "#",
    from_: Annotated[Offset | None, Meta(description="First offset.")] = None,
    to: Annotated[Offset | None, Meta(description="Last offset.")] = None,
    since: Annotated[Time | None, Meta(description="First time (ms since 1970). With `from`, the later of the two.")] = None,
) -> tuple[str, str, list[LoggedEvent], int | None]:
    """Read a page of the log.

    A page holds some 100 events or 64 KiB of payload. Ask again with `from` set to `next` until it is null. Offsets that the
    log no longer holds are left out. If the `epoch` differs from the previous page's, the log may have lost its end or been
    replaced.
    """
    first = from_ or 1
    if since is not None:
        call.charge(BISECTION_READS)
        first = max(first, EventLog(call.namespace, call.redis).first_since(since))
    if to is not None and to < first:
        return call.namespace, EventLog(call.namespace, call.redis, 0).head().epoch, [], None
    call.charge(PAGE_EVENTS)
    epoch, events, next_ = call.services.gate.events(check_pattern(pattern), first, to, call.namespace)
    return call.namespace, epoch, [_shown(event) for event in events], next_


@operation("GET /events/{event}", "read", in_namespace=True, problems=(404,), cost=Cost.EVENTS, searches=True)
def get_event(
    call: Call, *, topic: Annotated[Topic | None, Meta(description="The topic of an event given by its id.")] = None
) -> LoggedEvent:
    """Read one event.

    `event` is an offset (only digits) or an id. An id is searched among the newest 20,000 events and 32 MiB. With `topic`, an
    id that still counts is found without a search, and digits are an id, too. An event that the caller may not read counts as
    missing.
    """
    wanted = call.path["event"]
    topic = None if topic is None else check_topic(topic)
    # The newest that the caller may read. Other callers learn neither its topic nor its existence.
    for event in find_events(call.redis, call.namespace, wanted, topic, call.identity.user, call.charge):
        try:
            call.need(f"read:{event.topic}")
            call.services.gate.check_authorized(call.identity, event.topic, "replay")
        except Forbidden:
            continue
        return _shown(event)
    raise not_found("event", wanted)


@operation("GET /receipts", ANY_CALLER, in_namespace=True, members="fate")
def check_receipt(
    call: Call,
    *,
    epoch: Annotated[Epoch, Meta(description="Its epoch.")],
    offset: Annotated[Offset, Meta(description="Its offset.")],
) -> Literal["in_log", "rolled_back", "trimmed", "unknown"]:
    """Check whether a receipt still holds.

    Its event is or was in the log, was lost by Redis, or belongs to another log. After a failover of Redis,
    publish `rolled_back` events again, with their ids.
    """
    return call.services.publisher.check(Receipt(epoch, offset, False, ""), call.namespace).value


@operation("GET /events/{event}/trace", "trace", in_namespace=True, problems=(404,), cost=Cost.EVENTS, searches=True)
def trace_event(call: Call) -> Trace:
    """Trace an event.

    Returns its results at gateways, browsers and consumers, as `headgate trace` does.
    """
    wanted = call.path["event"]
    if is_offset(wanted) and not _page(call.redis, call.namespace, int(wanted)):
        raise not_found("event", wanted)
    with call.services.lent_redis() as redis:
        try:
            return trace(redis, call.namespace, wanted, charge=call.charge)
        except NoSuchEvent:
            raise not_found("event", wanted) from None


def find_events(
    client: Client, namespace: str, wanted: str, topic: str | None, by: str, charge: Callable[[int], None]
) -> Iterator[Event]:
    """Yield the event at an offset, or those with an id, newest first. Waits for Redis. Skips events that cannot be delivered.

    With a topic, yields only its events, first those in the index of recent ids, of services and of `by`. Then MAX_LOOKED_AT
    events of the log are searched and charged.
    """
    if topic is None and is_offset(wanted):
        yield from _at(client, namespace, int(wanted))
        return
    try:
        search = IdSearch(client, namespace, wanted, charge)
    except UnicodeEncodeError:
        return
    recent = recent_offsets(client, namespace, topic, wanted, id_owner(by)) if topic is not None else []
    for offset in recent:
        yield from (each for each in _at(client, namespace, offset) if (each.topic, each.id) == (topic, wanted))
    for offset in search.offsets(MAX_LOOKED_AT, MAX_LOOKED_AT_BYTES):
        yield from (each for each in _at(client, namespace, offset) if topic in (None, each.topic))


def _at(client: Client, namespace: str, offset: int) -> list[Event]:
    return [entry.event for entry in _page(client, namespace, offset) if entry.event is not None]


def _page(client: Client, namespace: str, offset: int) -> list[Entry]:
    return EventLog(namespace, client).page(offset - 1, offset)


def _shown(event: Event) -> LoggedEvent:
    return LoggedEvent(event.topic, msgspec.Raw(event.data), event.id or "", event.time_ms, event.offset or 0)


MAX_PAGE = 1000
# All data is read for shown members, only names for the others.
PER_SHOWN = 10
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Member(msgspec.Struct):
    """A user in a topic, with the number of connections, the start (ms since 1970), and the data from its page."""

    user: str
    connections: int
    since: int
    meta: Any


@operation(
    "GET /presence", "presence", in_namespace=True, pattern="topic", cost=Cost.MEMBERS,
    members="namespace topic count members next",
)  # fmt: skip
def list_members(
    call: Call,
    *,
    topic: Annotated[Topic, Meta(description="The topic.")],
    after: Annotated[Name | None, Meta(description="Members after this user.")] = None,
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Members at most.")] = MAX_PAGE,
) -> tuple[str, str, int, list[Member], str | None]:
    """List the users in a topic.

    They are sorted by name. `count` is the total. Ask again with `after` set to `next` until it is null.
    """
    page = call.services.gate.presence_page(check_topic(topic), after, limit, call.namespace)
    shown = [Member(one.user, one.connections, one.since_ms, one.meta) for one in page.members]
    call.charge(max(page.count, PER_SHOWN * len(shown)))
    return call.namespace, topic, page.count, shown, page.after
