"""The history of one event in the log, at each gateway, in its user's browsers, and at each consumer.

In: an event's id or offset, and the Redis of its namespace. Out: a `Trace`. It reads existing data (the log, consumers' groups
and dead letters, `seen`) and the gateways' reports on single events (redis/traces.py). Each step is bounded. The caller waits at
most DEADLINE_S, even if Redis answers slowly. The trace lists the parts still missing in `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from headgate.auth.api_keys import shown_name
from headgate.consumers.notification import OUTCOMES, state_of
from headgate.consumers.work.dead_letters import PAGE_LETTERS, DeadLetters
from headgate.consumers.work.groups import Groups
from headgate.consumers.work.state import read_outcomes
from headgate.consumers.work.store import read_position
from headgate.consumers.work.task import unpack
from headgate.delivery.tally import NAMES, QUIET_EVENTS
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidRequest
from headgate.events.sender import operators_name
from headgate.events.topic import user_of
from headgate.events.traceparent import read_traceparent
from headgate.redis.budget import Budget
from headgate.redis.client import Client, call, deliveries, place_of
from headgate.redis.event_ids import IdSearch, is_offset
from headgate.redis.inbox import read_user_facts
from headgate.redis.keys import group_in_log, group_key, log_key
from headgate.redis.lineage import Lineage
from headgate.redis.log import EventLog, time_or_zero
from headgate.redis.questions import AtBrowsers, ask_browsers
from headgate.redis.traces import read
from headgate.settings.settings import Settings

DEADLINE_S = 0.8
# Limits of a search by id.
MAX_EVENTS = 100_000
MAX_LETTERS = 1000
MAX_SCANS = 100
# The charge for a step of a scan (a thousand names) or for a page of dead letters.
STEP_EVENTS = 100
# The parts of a trace, as `unknown` names them.
GATEWAYS, BROWSERS, CONSUMERS, HANDLED = "gateways", "browsers", "consumers", "handled"
# A gateway counts every event again one or two seconds after the last second with more than QUIET_EVENTS.
BUSY_MS = 2500
# Pages have a part of this time to report whether they have handled the event.
HANDLED_S = 0.4


@dataclass(slots=True)
class AtGateway:
    """The results of the event at one gateway process. `counts` has the names of delivery/tally.py."""

    gateway: str
    counts: dict[str, int]


@dataclass(slots=True)
class AtConsumer:
    """The state of the event at one consumer.

    `state` is `not taken`, `leased` (at work, or its worker died), `waiting` (deferred, or to be retried), `dead`, or `done`.
    `done` may mean that the consumer did not want the event or began after it, because Redis does not have its patterns.
    `outcomes` are its results for the event's user, if it is a channel, such as `mailed`, `pushed`, or why it was withdrawn
    (consumers/notification.py).
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
        by: the publishing user, or `key <id>`; None if a service published it.
        traceparent: of its trace, or None.
        browsers: the answers of the pages connected now (redis/questions.py); None if unknown.
        shown: whether a browser of the event's user has reported showing it; None if unknown or if it is for several users.
        read: whether its user has read or archived it in the inbox; None as for `shown`.
        state: its state for its user, from all known facts (consumers/notification.py); None as for `shown`.
        unknown: the missing parts of the trace (`gateways`, `browsers`, `consumers`, `consumer <name>`, `handled`).
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
    """The whole log was searched and does not have the event (any more)."""


def trace(
    client: Client,
    namespace: str,
    wanted: str,
    now_s: Callable[[], float] = monotonic,
    charge: Callable[[int], None] = lambda looked: None,
) -> Trace:
    """Return all known facts about the event with this id, or at this offset. Waits for Redis, at most DEADLINE_S.

    Args:
        client: for this trace alone, so that it waits for no connection.
        namespace, wanted: of which log; an id, or an offset.
        charge: called now and then with the work since the last call, in events read. Asking a page counts as one.

    Raises:
        NoSuchEvent: the log has no such event (any more).
        InvalidRequest: it is not among the newest MAX_EVENTS, and the log holds more.
        BusUnavailable, BusRefused: as `redis.client.call`; BusUnavailable also when the event was not found in time.
    """
    search = _Search(client, namespace, now_s, charge)
    with Budget(place_of(client, log_key(namespace)), DEADLINE_S, is_patient=True):
        try:
            return search.trace(wanted)
        except HeadgateError as error:  # raised outside, because a search that ends without the event is no silence of Redis
            failed = error
    raise failed


class _Search:
    """The search for one event, which ends at the deadline with the results so far."""

    def __init__(self, client: Client, namespace: str, now_s: Callable[[], float], charge: Callable[[int], None]) -> None:
        self._client, self._namespace, self._now_s, self._charge = client, namespace, now_s, charge
        self._until_s = now_s() + DEADLINE_S

    def trace(self, wanted: str) -> Trace:
        head = EventLog(self._namespace, self._client, 0).head("")
        lineage = head.lineage or Lineage(head.epoch, {}, {})
        offset, fields = self._find(wanted, head.offset)
        topic = fields.get(b"topic", b"").decode("ascii", "replace")
        time_ms = time_or_zero(fields.get(b"time", b""))
        event_id = fields.get(b"id", b"").decode("utf-8", "replace")
        epoch, size = epoch_of(lineage, offset), len(fields.get(b"data", b""))
        name, text = fields.get(b"publisher"), fields.get(b"traceparent")
        by = None if name is None else shown_name(operators_name(name.decode("ascii", "replace")))
        parent = None if text is None else read_traceparent(text.decode("ascii", "replace"), "log")
        trace = Trace(self._namespace, epoch, offset, topic, event_id, time_ms, size, head.offset, by, parent)
        steps: dict[str, Callable[[Trace], None]] = {
            GATEWAYS: lambda trace: self._ask_gateways(trace, lineage),
            BROWSERS: self._ask_browsers,
            CONSUMERS: self._ask_consumers,
            HANDLED: lambda trace: self._ask_pages(trace, lineage.epoch),
        }
        trace.unknown = list(steps)
        for part, step in steps.items():
            if self._late():
                break
            try:
                step(trace)
            except TimeoutError:
                continue
            except HeadgateError as error:
                trace.notes.append(f"{part}: {error}")
                continue
            trace.unknown = [each for each in trace.unknown if each != part]
        if trace.shown is not None:
            trace.state = state_of(_facts(trace))
        if trace.unknown:
            trace.notes.append(f"Redis was too slow, or refused: not known is {', '.join(trace.unknown)}.")
        return trace

    def _find(self, wanted: str, newest: int) -> tuple[int, Mapping[bytes, bytes]]:
        """Return offset and fields of the event at that offset, or of the newest with that id."""
        try:
            search = IdSearch(self._client, self._namespace, wanted, self._charge)
        except UnicodeEncodeError:
            raise NoSuchEvent(f"no event's id: {wanted[:80]!a} is not Unicode") from None
        if is_offset(wanted) and (fields := self._fields(int(wanted))):
            return int(wanted), fields
        for offset in search.offsets(MAX_EVENTS, late=self._late):
            if fields := self._fields(offset):
                return offset, fields
        missing, among = f"no event {wanted[:80]}", f"among the newest {search.looked} of {self._namespace}"
        if search.at_end:
            holds = f"which holds {search.looked}, up to offset {newest}"
            raise NoSuchEvent(f"{missing} in the log of {self._namespace}, {holds}")
        if search.looked < MAX_EVENTS:
            raise BusUnavailable(f"{missing} {among}, and no time to look further back; try again, or give its offset")
        raise InvalidRequest(f"{missing} {among}; give its offset to look further back")

    def _fields(self, offset: int) -> Mapping[bytes, bytes] | None:
        """Return the fields of the entry at an offset, or None if it is not there (any more)."""
        entries = call(self._client, "XRANGE", log_key(self._namespace), f"{offset}-0", f"{offset}-0")
        return entries[0][1] if entries else None

    def _late(self) -> bool:
        return self._now_s() > self._until_s

    def _step(self) -> None:
        """Charge one step of a scan of key names, tasks or dead letters. Raises TimeoutError if it is late."""
        self._charge(STEP_EVENTS)
        if self._late():
            raise TimeoutError

    def _ask_gateways(self, trace: Trace, lineage: Lineage) -> None:
        """Add the gateways' reports, in every epoch with the event at its offset."""
        reports: dict[str, list[int]] = {}
        for epoch in (lineage.epoch, *lineage.ends):
            end = lineage.end_of(epoch, trace.head)
            if end is None or end < trace.offset:
                continue
            if self._late():
                raise TimeoutError
            for gateway, counts in read(self._client, trace.namespace, epoch, trace.offset).items():
                before = reports.get(gateway, [0] * len(NAMES))
                reports[gateway] = [one + two for one, two in zip(before, counts, strict=False)]
        trace.gateways = [AtGateway(name, dict(zip(NAMES, counts, strict=False))) for name, counts in sorted(reports.items())]
        if not trace.gateways:
            trace.notes.append(self._why_uncounted(trace))

    def _why_uncounted(self, trace: Trace) -> str:
        """Return why no gateway has counts of an event. During a busy time each counts a sample."""
        before = None if trace.offset <= QUIET_EVENTS else self._fields(trace.offset - QUIET_EVENTS)
        if before is None or trace.time_ms - time_or_zero(before.get(b"time", b"")) >= BUSY_MS:
            return (
                "No gateway has counted this event. Either no client wanted it or has read it from the log, or the gateway was"
                " killed within a second, counted it more than an hour ago (6 minutes at 100 events a second), or has"
                " HEADGATE_TRACE_EVERY=0."
            )
        every = Settings().trace_every
        nearest = trace.offset - trace.offset % every or every
        return (
            f"Not sampled: of more than about {QUIET_EVENTS} events a second a gateway counts every {every}th"
            f" (HEADGATE_TRACE_EVERY). The nearest counted one is offset {nearest}: `headgate trace {nearest}`. To trace every"
            " event, set HEADGATE_TRACE_EVERY=1 at the gateways."
        )

    def _ask_browsers(self, trace: Trace) -> None:
        user = user_of(trace.topic)
        if user is None:
            trace.notes.append("The event is not for one user, so Headgate does not know which users saw it.")
        else:
            facts = read_user_facts(self._client, trace.namespace, user, trace.topic, trace.id)
            trace.read, trace.shown = facts.is_read, facts.is_shown

    def _ask_pages(self, trace: Trace, epoch: str) -> None:
        """Ask the pages, as the last step, in the remaining time, up to HANDLED_S."""
        within_s = min(HANDLED_S, self._until_s - self._now_s())
        trace.browsers, silent = ask_browsers(self._client, trace.namespace, epoch, trace.offset, trace.topic, within_s)
        self._charge(trace.browsers.clients - trace.browsers.not_asked)
        if silent:
            trace.notes.append(f"handled: no answer from the pages of {', '.join(silent[:5])}.")

    def _ask_consumers(self, trace: Trace) -> None:
        """Add each consumer. Once their names are known, each is a separate part of the trace."""
        parts = {name: f"consumer {name}" for name in Groups(self._client, trace.namespace, self._step).names()}
        trace.unknown = [each for each in trace.unknown if each != CONSUMERS] + list(parts.values())
        for name, part in parts.items():
            if self._late():
                return
            try:
                consumer = self._consumer(trace, name)
            except TimeoutError:
                continue
            if (user := user_of(trace.topic)) is not None:
                consumer.outcomes = read_outcomes(self._client, trace.namespace, name, user, trace.id)
            trace.consumers.append(consumer)
            trace.unknown.remove(part)

    def _consumer(self, event: Trace, name: str) -> AtConsumer:
        """Return the state at a consumer. Raises TimeoutError."""
        # In the order in which a task moves, so that a moving task is found at its next place.
        if read_position(self._client, event.namespace, name) < event.offset:
            return AtConsumer(name, "not taken")
        try:
            group = group_in_log(name, event.epoch)
            times = deliveries(self._client, log_key(event.namespace), group, f"{event.offset}-0")
        except BusRefused:  # Redis has no such group, so nothing of that epoch is leased any more
            times = 0
        if times:
            return AtConsumer(name, "leased", times)
        return self._waiting(event, name) or self._letter(event, name) or AtConsumer(name, "done")

    def _waiting(self, event: Trace, name: str) -> AtConsumer | None:
        """Return the event's task if it is deferred, to be retried, or leased by a worker."""
        key, cursor = group_key(event.namespace, name), b"0"
        pattern = f"{event.time_ms:013d}-{event.epoch}-{event.offset:015d}-*"
        for _ in range(MAX_SCANS):
            cursor, names = call(self._client, "HSCAN", f"{key}:body", cursor, "MATCH", pattern, "COUNT", 1000)
            for task_name in names:  # and, as some clients of Redis answer, values, which name no task
                body = call(self._client, "HGET", f"{key}:body", task_name)
                if body is None:
                    continue
                try:
                    task = unpack(body)
                except msgspec.DecodeError:
                    return AtConsumer(name, "waiting", reason="unreadable")
                leased = call(self._client, "HGET", f"{key}:out", task_name)
                return AtConsumer(name, "leased" if leased else "waiting", task.attempt, task.reason)
            if not int(cursor):
                return None
            self._step()
        raise TimeoutError

    def _letter(self, event: Trace, name: str) -> AtConsumer | None:
        letters, after, looked = DeadLetters(self._client, event.namespace, name), None, 0
        while looked < MAX_LETTERS:
            self._step()
            page = letters.page(after, PAGE_LETTERS)
            for letter in page:
                if letter.task.offset == event.offset and letter.task.epoch == event.epoch:
                    why = f"{letter.why}: {letter.reason}" if letter.reason else letter.why
                    return AtConsumer(name, "dead", letter.task.attempt, why)
            if len(page) < PAGE_LETTERS:
                return None
            looked, after = looked + len(page), page[-1].id
        event.notes.append(f"{name} has more dead letters than were searched.")
        raise TimeoutError


def _facts(trace: Trace) -> Iterator[str]:
    """Yield the known facts about the event for its user."""
    if any(at.counts.get(name) for at in trace.gateways for name in ("written", "queued", "from_log")):
        yield "delivered"
    if trace.browsers is not None and trace.browsers.handled:
        yield "handled"
    for consumer in trace.consumers:
        yield from (OUTCOMES[outcome] for outcome in consumer.outcomes)
    if trace.shown:
        yield "shown"
    if trace.read:
        yield "read"


def epoch_of(lineage: Lineage, offset: int) -> str:
    """Return the epoch in which an offset of a log was written."""
    for epoch, end in reversed(list(lineage.ends.items())):
        if offset <= end:
            return epoch
    return lineage.epoch
