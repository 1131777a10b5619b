"""Where is my event? All that is known of one event: its place in the log, each gateway, the browsers of its user, each consumer.

In: an event's id or offset, and the Redis of its namespace. Out: a `Trace`. It reads what is there anyway (the log, consumers'
groups and dead letters, `seen`) and what gateways tell of single events (redis/traces.py). Each step is bounded, and all of
them together by DEADLINE_S, however slowly Redis answers: a thread looks, and whoever asks waits no longer. A trace names what
was not found out by then in `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import Any

import msgspec

from headgate.auth.api_keys import shown_name
from headgate.consumers.notification import OUTCOMES, NotificationState, state_of
from headgate.consumers.work.dead_letters import PAGE_LETTERS, DeadLetters
from headgate.consumers.work.groups import Groups
from headgate.consumers.work.state import read_outcomes
from headgate.consumers.work.task import unpack
from headgate.delivery.tally import NAMES, QUIET_EVENTS
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidRequest
from headgate.events.sender import operators_name
from headgate.events.topic import user_of
from headgate.events.traceparent import read_traceparent
from headgate.redis.client import Client, call, deliveries
from headgate.redis.event_ids import IdSearch, is_offset
from headgate.redis.handled_events import AtBrowsers, ask_browsers
from headgate.redis.keys import group_in_log, group_key, log_key
from headgate.redis.lineage import Lineage
from headgate.redis.log import EventLog, time_or_zero
from headgate.redis.traces import read
from headgate.redis.user_facts import read_user_facts
from headgate.settings import Settings

DEADLINE_S = 0.8
# Of a search by id.
MAX_EVENTS = 100_000
MAX_LETTERS = 1000
MAX_SCANS = 100
# What a step of a scan, or a page of dead letters, is charged as: a look at a thousand names costs about as much.
STEP_EVENTS = 100
# The parts of a trace, as `unknown` names them.
GATEWAYS, BROWSERS, CONSUMERS, HANDLED = "gateways", "browsers", "consumers", "handled"
# A gateway counts each event again a second or two after the last second with more than QUIET_EVENTS.
BUSY_MS = 2500
# Pages have a part of this to say whether they have handled the event.
HANDLED_S = 0.4


@dataclass(slots=True)
class AtGateway:
    """What one gateway process did with the event; `counts` by the names of delivery/tally.py."""

    gateway: str
    counts: dict[str, int]


@dataclass(slots=True)
class AtConsumer:
    """How one consumer stands with the event.

    `state` is `not taken`, `leased` (at work, or its worker died), `waiting` (deferred, or to be tried again), `dead`, or `done`.
    Done may mean that it did not want the event, or began behind it: Redis does not have its patterns. `outcomes` are what it did
    for the event's user, where it is a channel: `mailed`, `pushed`, or why it was withdrawn (consumers/notification.py).
    """

    consumer: str
    state: str
    attempts: int = 0
    reason: str = ""
    outcomes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Trace:
    """See the module.

    Attributes:
        by: the user on whose behalf it was published, or `key <id>`; None: a service published it.
        traceparent: the trace that it belongs to; None: none.
        browsers: what the pages say that are connected now (redis/handled_events.py); None: not known.
        shown: whether a browser of the event's user has said that it has shown it; None: it is for several, or not known.
        read: whether it is an item that its user has read or archived; None as of `shown`.
        state: what has become of it for its user, by all that is known (consumers/notification.py); None as of `shown`.
        unknown: the parts of the trace that were not found out: `gateways`, `browsers`, `consumers`, `consumer <name>`,
            `handled`.
    """

    namespace: str
    epoch: str
    offset: int
    topic: str
    id: str
    time_ms: int
    bytes: int
    head: int
    by: str | None = None
    traceparent: str | None = None
    gateways: list[AtGateway] = field(default_factory=list)
    browsers: AtBrowsers | None = None
    shown: bool | None = None
    read: bool | None = None
    state: str | None = None
    consumers: list[AtConsumer] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class NoSuchEvent(InvalidRequest):
    """The log has no such event (any more): all of it was looked through."""


def trace(
    client: Client,
    namespace: str,
    wanted: str,
    now_s: Callable[[], float] = monotonic,
    wait: Callable[[Flag, float], object] = Flag.wait,
    charge: Callable[[int], None] = lambda looked: None,
) -> Trace:
    """Return all that is known of the event with this id, or at this offset. Waits for Redis, for DEADLINE_S at most.

    Args:
        client: for this trace alone. Close it afterwards: a command that Redis has not answered ends then.
        namespace, wanted: of which log; an id, or an offset.
        now_s: a clock.
        wait: waits for a flag, so many seconds at most.
        charge: is called now and then with the work since, in events that were looked at; a page that is asked counts as one.

    Raises:
        NoSuchEvent: the log has no such event (any more).
        InvalidRequest: it is not among the newest MAX_EVENTS, and the log holds more.
        BusUnavailable, BusRefused: as `redis.client.call`; BusUnavailable also when the event was not found in time.
    """
    search = _Search(client, namespace, wanted, now_s, charge)
    Thread(target=search.run, name="trace", daemon=True).start()
    wait(search.ended, DEADLINE_S)
    return search.answer()


class _Search:
    """The search for one event. `run` looks, in a thread of its own; `answer` ends it, and returns what it has found so far."""

    def __init__(
        self, client: Client, namespace: str, wanted: str, now_s: Callable[[], float], charge: Callable[[int], None]
    ) -> None:
        self._client, self._namespace, self._wanted = client, namespace, wanted
        self._now_s, self._charge = now_s, charge
        self._until_s = now_s() + DEADLINE_S
        self._answered = False
        self._step = "the head of the log"
        self._error: Exception | None = None
        self._found: Trace | None = None
        self.ended = Flag()

    def run(self) -> None:
        """Look until the end, or the deadline."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - the one who asks raises it
            self._error = error
        self.ended.set()

    def answer(self) -> Trace:
        """Return what is known by now. Raises as `trace`."""
        self._answered = True
        if self._error is not None:
            raise self._error
        if self._found is None:
            raise BusUnavailable(f"Redis has not told {self._step} within {DEADLINE_S} s")
        found = self._found
        if found.unknown:
            found.notes.append(f"Redis was too slow, or refused: not known is {', '.join(found.unknown)}.")
        return found

    def _late(self) -> bool:
        return self._answered or self._now_s() > self._until_s

    def _late_after_step(self) -> bool:
        """Charge one step through the names of keys, tasks or dead letters, and return whether it is late."""
        self._charge(STEP_EVENTS)
        return self._late()

    def _look(self) -> None:
        head = EventLog(self._namespace, self._client, 0).head("")
        lineage = head.lineage or Lineage(head.epoch, {}, {})
        self._step = "the event"
        offset, fields = _find(self._client, self._namespace, self._wanted, self._late, self._charge)
        topic = fields.get(b"topic", b"").decode("ascii", "replace")
        time_ms = time_or_zero(fields.get(b"time", b""))
        event_id = fields.get(b"id", b"").decode("utf-8", "replace")
        epoch, size = epoch_of(lineage, offset), len(fields.get(b"data", b""))
        found = Trace(
            self._namespace, epoch, offset, topic, event_id, time_ms, size, head.offset, _by(fields), _traceparent(fields)
        )
        steps: dict[str, Callable[[Trace], None]] = {
            GATEWAYS: lambda found: self._ask_gateways(found, lineage),
            BROWSERS: self._ask_browsers,
            CONSUMERS: self._ask_consumers,
            HANDLED: lambda found: self._ask_pages(found, lineage.epoch),
        }
        found.unknown = list(steps)
        self._show(found)
        for part, step in steps.items():
            if self._late():
                return
            try:
                step(found)
            except _NotKnown:
                continue
            except HeadgateError as error:
                found.notes.append(f"{part}: {error}")
                continue
            found.unknown = [each for each in found.unknown if each != part]
            self._show(found)

    def _show(self, found: Trace) -> None:
        """Have `answer` return what is known now: a copy, as this goes on."""
        if found.shown is not None:
            found.state = state_of(_facts(found)).value
        self._found = deepcopy(found)

    def _ask_gateways(self, found: Trace, lineage: Lineage) -> None:
        found.gateways = _gateways(self._client, found, lineage, self._late)
        if not found.gateways:
            found.notes.append(_not_sampled(found) if self._was_busy(found) else _UNCOUNTED)

    def _was_busy(self, found: Trace) -> bool:
        """Return whether the log took more events just before this one than a gateway counts each of."""
        if found.offset <= QUIET_EVENTS:
            return False
        before = _fields(self._client, self._namespace, found.offset - QUIET_EVENTS)
        return before is not None and found.time_ms - time_or_zero(before.get(b"time", b"")) < BUSY_MS

    def _ask_browsers(self, found: Trace) -> None:
        user = user_of(found.topic)
        if user is None:
            found.notes.append("The event is for more than one user: who has shown it is not known.")
        else:
            facts = read_user_facts(self._client, found.namespace, user, found.topic, found.id)
            found.read, found.shown = facts.is_read, facts.is_shown

    def _ask_pages(self, found: Trace, epoch: str) -> None:
        """Ask the pages last: they have what is left of the time, up to HANDLED_S."""
        within_s = min(HANDLED_S, self._until_s - self._now_s())
        found.browsers, silent = ask_browsers(self._client, found.namespace, epoch, found.offset, found.topic, within_s)
        self._charge(found.browsers.clients - found.browsers.not_asked)
        if silent:
            found.notes.append(f"handled: no word from the pages of {', '.join(silent[:5])}.")

    def _ask_consumers(self, found: Trace) -> None:
        """Add each consumer. Once their names are known, each is a part of the trace by itself."""
        names = Groups(self._client, found.namespace).names(self._late_after_step)
        if names is None:
            raise _NotKnown
        parts = {name: f"consumer {name}" for name in names}
        found.unknown = [each for each in found.unknown if each != CONSUMERS] + list(parts.values())
        self._show(found)
        for name, part in parts.items():
            if self._late():
                return
            try:
                consumer = _consumer(self._client, found, name, self._late_after_step)
            except _NotKnown:
                continue
            if (user := user_of(found.topic)) is not None:
                consumer.outcomes = read_outcomes(self._client, found.namespace, name, user, found.id)
            found.consumers.append(consumer)
            found.unknown.remove(part)
            self._show(found)


_UNCOUNTED = (
    "No gateway has counted this event: no client wanted it, or has read it since; or the gateway was killed within a second of"
    " it, counted it an hour ago (6 minutes at 100 events a second), or has HEADGATE_TRACE_EVERY=0."
)


def _not_sampled(found: Trace) -> str:
    """Return why no gateway has counts of an event that came among many, and how to get some."""
    every = Settings().trace_every
    nearest = found.offset - found.offset % every or every
    return (
        f"Not sampled: of more than about {QUIET_EVENTS} events a second a gateway counts every {every}th (HEADGATE_TRACE_EVERY),"
        f" and this one came among more. Offset {nearest} beside it is counted: `headgate trace {nearest}`. To follow this one,"
        " publish it again when there are fewer, or with HEADGATE_TRACE_EVERY=1 at the gateways."
    )


def _facts(found: Trace) -> Iterator[NotificationState]:
    """Yield what is known of the event for its user."""
    if any(at.counts.get(name) for at in found.gateways for name in ("written", "queued", "from_log")):
        yield NotificationState.DELIVERED
    if found.browsers is not None and found.browsers.handled:
        yield NotificationState.HANDLED
    for consumer in found.consumers:
        yield from (OUTCOMES[outcome] for outcome in consumer.outcomes)
    if found.shown:
        yield NotificationState.SHOWN
    if found.read:
        yield NotificationState.READ


class _NotKnown(Exception):
    """There was no time to find something out, or too much to look through."""


def _by(fields: Mapping[bytes, bytes]) -> str | None:
    """Return the user, or `key <id>`, whom an entry names as its publisher, as far as it does: a long name is cut."""
    name = fields.get(b"publisher")
    return None if name is None else shown_name(operators_name(name.decode("ascii", "replace")))


def _traceparent(fields: Mapping[bytes, bytes]) -> str | None:
    text = fields.get(b"traceparent")
    return None if text is None else read_traceparent(text.decode("ascii", "replace"), "log")


def epoch_of(lineage: Lineage, offset: int) -> str:
    """Return the epoch in which an offset of a log was written."""
    for epoch, end in reversed(list(lineage.ends.items())):
        if offset <= end:
            return epoch
    return lineage.epoch


def _find(
    client: Client, namespace: str, wanted: str, late: Callable[[], bool], charge: Callable[[int], None]
) -> tuple[int, Mapping[bytes, bytes]]:
    """Return offset and fields of the event: at that offset, or the newest with that id."""
    try:
        search = IdSearch(client, namespace, wanted, charge)
    except UnicodeEncodeError:
        raise NoSuchEvent(f"no event's id: {wanted[:80]!a} is not Unicode") from None
    if is_offset(wanted) and (fields := _fields(client, namespace, int(wanted))):
        return int(wanted), fields
    for offset in search.offsets(MAX_EVENTS, late=late):
        if fields := _fields(client, namespace, offset):
            return offset, fields
    if search.at_end:
        raise NoSuchEvent(f"no event {wanted[:80]} in the log of {namespace}, which holds {search.looked}")
    among = f"no event {wanted[:80]} among the newest {search.looked} of {namespace}"
    if search.looked < MAX_EVENTS:
        raise BusUnavailable(f"{among}, and no time to look further back; try again, or give its offset")
    raise InvalidRequest(f"{among}; give its offset to look further back")


def _fields(client: Client, namespace: str, offset: int) -> Mapping[bytes, bytes] | None:
    """Return the fields of the entry at an offset; None: it is not there (any more)."""
    found = call(client, "XRANGE", log_key(namespace), f"{offset}-0", f"{offset}-0")
    return found[0][1] if found else None


def _gateways(client: Client, event: Trace, lineage: Lineage, late: Callable[[], bool]) -> list[AtGateway]:
    """Return what gateways told of the event, in every epoch that has it at its offset. Raises _NotKnown."""
    told: dict[str, list[int]] = {}
    for epoch in (lineage.epoch, *lineage.ends):
        end = lineage.end_of(epoch, event.head)
        if end is None or end < event.offset:
            continue
        if late():
            raise _NotKnown
        for gateway, counts in read(client, event.namespace, epoch, event.offset).items():
            before = told.get(gateway, [0] * len(NAMES))
            told[gateway] = [one + two for one, two in zip(before, counts, strict=False)]
    return [AtGateway(gateway, dict(zip(NAMES, counts, strict=False))) for gateway, counts in sorted(told.items())]


def _consumer(client: Client, event: Trace, name: str, late: Callable[[], bool]) -> AtConsumer:
    """Return how a consumer stands. Raises _NotKnown."""
    # In the order in which a task goes on: one that does so meanwhile is met at the next place.
    key = group_key(event.namespace, name)
    [position] = call(client, "HMGET", key, "position")
    if position is None or not position.isdigit() or int(position) < event.offset:
        return AtConsumer(name, "not taken")
    try:
        times = deliveries(client, log_key(event.namespace), group_in_log(name, event.epoch), f"{event.offset}-0")
    except BusRefused:  # there is no such group of Redis: nothing of that epoch is leased any more
        times = 0
    if times:
        return AtConsumer(name, "leased", times)
    return _waiting(client, event, key, name, late) or _letter(client, event, name, late) or AtConsumer(name, "done")


def _waiting(client: Client, event: Trace, key: str, name: str, late: Callable[[], bool]) -> AtConsumer | None:
    """Return the task of the event that waits, if there is one: deferred, to be tried again, or in a worker's hands."""
    pattern = f"{event.time_ms:013d}-{event.epoch}-{event.offset:015d}-*"
    for task_name in _scan(client, "HSCAN", f"{key}:body", pattern, late):
        body = call(client, "HGET", f"{key}:body", task_name)
        if body is None:
            continue
        try:
            task = unpack(body)
        except msgspec.DecodeError:
            return AtConsumer(name, "waiting", reason="unreadable")
        leased = call(client, "HGET", f"{key}:out", task_name)
        return AtConsumer(name, "leased" if leased else "waiting", task.attempt, task.reason)
    return None


def _scan(client: Client, command: str, key: str, pattern: str, late: Callable[[], bool]) -> Iterator[Any]:
    cursor: Any = 0
    for _ in range(MAX_SCANS):
        cursor, found = call(client, command, key, cursor, "MATCH", pattern, "COUNT", 1000)
        yield from found
        if not int(cursor):
            return
        if late():
            break
    raise _NotKnown


def _letter(client: Client, event: Trace, name: str, late: Callable[[], bool]) -> AtConsumer | None:
    letters, after, looked = DeadLetters(client, event.namespace, name), None, 0
    while looked < MAX_LETTERS and not late():
        page = letters.page(after, PAGE_LETTERS)
        for letter in page:
            if letter.task.offset == event.offset and letter.task.epoch == event.epoch:
                return AtConsumer(
                    name, "dead", letter.task.attempt, f"{letter.why}: {letter.reason}" if letter.reason else letter.why
                )
        if len(page) < PAGE_LETTERS:
            return None
        looked, after = looked + len(page), page[-1].id
    event.notes.append(f"{name} has more dead letters than were looked through.")
    raise _NotKnown
