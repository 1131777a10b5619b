"""The publisher, which turns a Python value into an event and a receipt. For any Python process (Flask, Django, Celery, cron).

In: a topic and data from the application. Out: one FCALL to Redis, and its receipt or an error. It raises unless the event is
known to be in the log.

Importing this module loads only modules without I/O. Creating a publisher also loads redis-py, but never gevent, Flask or
Socket.IO. Threads and greenlets may share a publisher.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from headgate.auth.grants import compiled
from headgate.errors import (
    BusUnavailable,
    HeadgateError,
    InvalidRequest,
    LimitReached,
    NotDurable,
    PayloadTooLarge,
    SettingsError,
    stays_in_its_process,
)
from headgate.events.event import JsonText, check_event_id, encode_ephemeral
from headgate.events.json_data import encode_data
from headgate.events.new_ids import endless_ids, new_id
from headgate.events.numbers import check_flag, check_items, check_whole, is_number, is_whole
from headgate.events.sender import sender_word
from headgate.events.topic import DEFAULT_NAMESPACE, check_namespace, check_pattern, check_topic, check_user, user_topic
from headgate.events.traceparent import read_traceparent
from headgate.events.wire.requests import MAX_OFFSET, check_epoch
from headgate.redis.durability import Durability, not_waited, read_durable
from headgate.redis.keys import DEFAULT_REVOKED_S, TRUSTED, log_key, namespace_of
from headgate.redis.lineage import Fate, LogPosition
from headgate.runtime.spans import current_traceparent, publishing

if TYPE_CHECKING:
    from headgate.redis.connections import Command
    from headgate.redis.inbox import InboxPage
    from headgate.redis.presence_entries import Member
    from headgate.services.schemas.check import OnViolation
    from headgate.settings.settings import Settings

# One batch is one round trip, held in memory on both ends.
MAX_BATCH_EVENTS = 10_000
MAX_BATCH_BYTES = 64 * 1024 * 1024

# How long an id can be remembered.
MAX_ID_FOR_S = 86400

# One FCALL has the command, the function, the number of keys, the key, topic, payload and id. The indexes of four follow.
_Call = tuple[str, str, int, str, str, bytes, str]
_KEY: Final = 3
_TOPIC: Final = 4
_PAYLOAD: Final = 5
_ID: Final = 6
# Hexadecimal digits of a publisher's name. With 128 bits, an attacker cannot make names collide.
_BY_LENGTH = 32
# Total time of a call. A nearby Redis answers in a hundredth of it, and the application is blocked while it waits.
DEFAULT_TIMEOUT_S = 1.0
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 0.01, 3600.0
Durable: TypeAlias = Literal["replica", "all", "disk"] | int | None

# From the start of `headgate serve` to the first answer of its private server, on a slow machine.
STARTING_S = 2.0


class PresentUser(msgspec.Struct, frozen=True, gc=False):
    """A user in a topic, with the number of connections, the time of entry (ms since 1970), and the data from the page."""

    user: str
    connections: int
    since_ms: int
    meta: Any


class PresencePage(msgspec.Struct, frozen=True):
    """A page of a topic's members by name. `count` counts all. `after` asks for the next page and is None in the last one."""

    count: int
    members: list[PresentUser]
    after: str | None


# Creating a Struct takes a tenth of the time of a frozen dataclass.
class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer of Redis to a publish, with the position of the event in the log and its id.

    Redis may lose the event later, in a crash or a failover. `Publisher.check` detects that.

    `duplicate` means that an event with this id existed already and nothing was added. The position is the earlier event's. An
    id counts for 300 s (less at a high rate). A later publish with it is another event, with another receipt.
    `replicas` is the number of replicas known to have it, and `fsynced` whether it is on the primary's disk. They are None
    unless `durable` asked for them.

    For JSON, as in an answer of FastAPI or the result of a Celery task, `msgspec.structs.asdict(receipt)` returns a dict, and
    `Receipt(**fields)` a receipt again.
    """

    epoch: str
    offset: int
    duplicate: bool
    id: str
    replicas: int | None = None
    fsynced: bool | None = None


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """An event ready to be sent, with its command and id. `has_new_id` is True for an unused id.

    `is_checked` is True after the check against the schemas of its topic. `size_bytes` is the length of the payload.
    """

    command: Command
    namespace: str
    has_new_id: bool
    id: str
    size_bytes: int
    is_checked: bool = True

    @property
    def payload(self) -> bytes:
        """The checked JSON text. `msgspec.Raw(payload)` publishes it as it is, for example from a row of an outbox."""
        return cast(bytes, self.command[_PAYLOAD])


class PublishManyError(HeadgateError):
    """Redis took some events of a batch and refused others. `outcomes` has a Receipt or an error for each, in order."""

    code = "batch_refused"

    def __init__(self, outcomes: Sequence[Receipt | HeadgateError]) -> None:
        self.outcomes = tuple(outcomes)
        refused = [(index, outcome) for index, outcome in enumerate(self.outcomes) if isinstance(outcome, HeadgateError)]
        index, first = refused[0]
        super().__init__(
            f"{len(refused)} of {len(self.outcomes)} events were refused; the first is number {index}: {first.message}",
            refused=len(refused),
            published=len(self.outcomes) - len(refused),
            first=first.to_wire(),
        )


class NonePublished(HeadgateError):
    """Some events of a batch cannot be published, so none was. `errors` has their errors by number."""

    code = "batch_refused"

    def __init__(self, errors: dict[int, HeadgateError]) -> None:
        self.errors = errors
        index, first = next(iter(errors.items()))
        super().__init__(
            f"{len(errors)} events cannot be published, so none was; the first is number {index}: {first.message}",
            refused=len(errors),
        )


class Publisher:
    """Publishes events into the log of a namespace.

    Args:
        redis_url: `redis://`, `rediss://` or `unix://`; `redis+sentinel://` or `redis+cluster://` for Redis behind Sentinels and
            Redis Cluster. None means HEADGATE_REDIS_URL, else the private server of a gateway that runs in this project's
            folder.
        namespace: default namespace of `publish`.
        max_payload_bytes: size limit of a payload, as JSON text, before sending. The namespace's limit in Redis still applies.
        timeout_s: total time limit of each call (0.01 to 3,600 s). It includes connecting, and a second attempt over another
            connection after half of it without an answer. While Redis reports that another server takes over (a failover, a
            moving slot of a Cluster), a call keeps trying within it. After a call without an answer in time, every call of this
            process with this limit fails at once for 1 s, and then one at a time tries. Name resolution has the system's limit.
        strict_namespace: refuse to publish to a namespace that no gateway has ever served. Otherwise the logger
            `headgate.publisher` warns once. A process asks Redis once per namespace (a strict one until the answer is yes), and
            publishes if Redis does not answer the question.
        durable: what must have happened to an event before its receipt is given, unless `publish` overrides it. None: it is in
            the primary's memory. "replica" or a number: that many replicas have it (WAIT). "all": every replica that the
            primary lists as online, or did within 10 s, has it, and at least one (INFO replication, one more round trip).
            "disk": it is synced to the primary's disk (WAITAOF, Redis 7.2). Each call costs a round trip to the replica, or a
            sync.
        show_by: patterns of topics whose events name the user of `by` to clients, as `event.by`.
        schemas: a folder with the JSON Schemas of topics, or "redis" for those of the registry. None means HEADGATE_SCHEMAS.
            Needs the extra `schemas`. The registry is read at the first event and every 10 s. That event waits, also in
            `prepare`.
        schema_check: the handling of an event that violates a schema of its topic. "off" publishes it, "warn" also logs it
            (throttled), "refuse" raises SchemaViolation. None means HEADGATE_SCHEMA_CHECK.
        on_schema_violation: called with the namespace and the SchemaViolation of each such event, for counting. Must not wait.

    Raises:
        BusUnavailable: `redis_url` is None and no Redis is set or found.
        BusRefused: `redis_url` is invalid. The message names the fault, without any part of its credentials.
        SettingsError, UnknownNamespace, InvalidPattern (`show_by`), InvalidRequest (`durable`, `strict_namespace`): an argument,
            or a HEADGATE_ variable, is invalid.
        InvalidSchema, MissingExtra: the folder's schemas are unusable, or the extra is not installed.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        max_payload_bytes: int = 65536,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        strict_namespace: bool = False,
        durable: Durable = None,
        show_by: Iterable[str] = (),
        schemas: str | None = None,
        schema_check: Literal["off", "warn", "refuse"] | None = None,
        on_schema_violation: OnViolation | None = None,
    ) -> None:
        # Imported here, because redis-py takes three quarters of the import time, and many processes never publish.
        from headgate.services.log_writer import LogWriter
        from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

        if not is_whole(max_payload_bytes, 1, HARD_MAX_PAYLOAD_BYTES):
            raise SettingsError([f"max_payload_bytes={max_payload_bytes!r:.80}: expected 1 to {HARD_MAX_PAYLOAD_BYTES} bytes"])
        if not is_number(timeout_s, MIN_TIMEOUT_S, MAX_TIMEOUT_S):
            raise SettingsError([f"timeout_s={timeout_s!r:.80}: expected {MIN_TIMEOUT_S:g} to {MAX_TIMEOUT_S:g} seconds"])
        check_flag(strict_namespace, "strict_namespace")
        self._namespace = check_namespace(namespace)
        self._named: Callable[[str | None], str] = self._checked_namespace
        self._max_payload_bytes = max_payload_bytes
        self._writer = LogWriter(url_or_default(redis_url), timeout_s, strict_namespace=strict_namespace)
        self._durable = read_durable(durable)
        patterns = [show_by] if isinstance(show_by, str) else check_items(show_by, "show_by", "patterns")
        self._show_by = compiled(tuple(map(check_pattern, patterns)))
        if on_schema_violation is not None and not callable(on_schema_violation):
            raise SettingsError([f"on_schema_violation={on_schema_violation!r:.80}: expected a function"])
        self._on_schema_violation = on_schema_violation
        self._schemas = self._writer.open_check(schemas, schema_check, on_schema_violation)

    __reduce__ = stays_in_its_process

    def publish(
        self,
        topic: str,
        data: object,
        id: str | None = None,
        namespace: str | None = None,
        *,
        user: str | None = None,
        by: str | None = None,
        durable: Durable = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> Receipt:
        """Append one event to the log and publish it; return its receipt. One round trip; waits for Redis.

        Args:
            topic: 1 to 8 words of `[A-Za-z0-9_-]`, joined by dots.
            data: any JSON value (None, bool, numbers, str, lists and tuples, dicts with str keys), or a type that msgspec
                encodes (datetime, UUID, Decimal, dataclasses, Enum, bytes as base64). `msgspec.Raw` holds ready-made JSON text.
                docs/data.md has the whole table.
            id: makes publishing idempotent within the topic, for 300 s (less at a high rate). 1 to 128 characters of
                `A-Z a-z 0-9 _ . : ~ -`, or None for a new id.
            namespace: None for the publisher's.
            user: publish to this user's own topic, `users.<word>.<topic>`. `headgate.user_word` returns the word.
            by: the publishing user, if users choose ids. Ids of different users never collide with each other or with those of
                publishers without `by`. `headgate trace` shows it, and clients see it in the topics of `show_by`.
            durable: as of the publisher; None for the publisher's.
            traceparent: of the event's trace (W3C Trace Context). A malformed one is dropped. None means the current span of
                OpenTelemetry, if the process uses it. The publish is then a separate span.
            id_for_s: how long to remember the id, up to MAX_ID_FOR_S seconds, at any rate, for attempts hours apart, such as an
                outbox's. Every attempt must set it. The ids of a day may fill a quarter of `log_max_bytes` in Redis. None for
                the usual time.

        Raises:
            LimitReached: there is no more room for ids of `id_for_s` today; nothing was published.
            InvalidTopic, InvalidEvent (the id), UnknownNamespace, NotSerializable, PayloadTooLarge: nothing was sent, or
                Redis refused it; nothing was published.
            SchemaViolation: the data violates a schema of its topic, and `schema_check` is "refuse"; nothing was published.
            NamespaceNotServed: the publisher is strict, and no gateway has served the namespace; nothing was published.
            BusRefused: Redis refused it (out of memory, no permission, …); nothing was published.
            BusUnavailable: no answer within `timeout_s`, no server takes it in time, or Redis refused the second attempt; it may
                have been published. Publish it again with the same id (`event_id` of the error) while the id counts. If it
                raises at once after an earlier call without an answer, nothing was sent.
            NotDurable: it is published, but `durable` is not met within eight tenths of `timeout_s`. The error has the receipt.
                To keep waiting, publish it again with the same id while the id counts.
            InvalidRequest: `user`, `by`, `durable` or `id_for_s` is invalid; nothing was published.
        """
        _check_id_for(id_for_s, has_id=id is not None)
        wish = self._durable if durable is None else read_durable(durable)
        namespace = self._named(namespace)
        event_id = new_id() if id is None else check_event_id(id)
        call = self._call(log_key(namespace), topic if user is None else user_topic(user, topic), data, event_id)
        try:
            with _traced(traceparent, namespace, call[_TOPIC]) as parent:
                command: Command = call
                if not (by is None and parent is None and id_for_s is None):
                    command = (*call, self._origin(call, by, parent, id_for_s))
                if wish is not None:
                    outcome = self._append(
                        namespace, [Prepared(command, namespace, id is None, event_id, len(call[_PAYLOAD]))], wish
                    )[0]
                    if isinstance(outcome, HeadgateError):
                        raise outcome
                    return outcome
                writer = self._writer
                with writer.budget(namespace):
                    writer.refuse_unserved(namespace)
                    appended = writer.append(command)
                    writer.warn_unserved(namespace)
                    receipt = _receipt(appended, event_id, new_id=id is None)
        except BusUnavailable as error:
            error.event_id = event_id
            raise
        self._note_newest((receipt,))
        return receipt

    def publish_many(
        self,
        events: Iterable[tuple[str, object] | tuple[str, object, str | None]],
        namespace: str | None = None,
        *,
        durable: Durable = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> list[Receipt]:
        """Publish events (topic, data) or (topic, data, id) in order and in one round trip; return their receipts.

        Every event is checked before the first is sent. This is not a transaction, so other publishers' events may come in
        between. `traceparent` and `id_for_s` apply to all of them, as in `publish`.

        Raises:
            LimitReached: more than MAX_BATCH_EVENTS events or MAX_BATCH_BYTES of payload.
            InvalidTopic, InvalidEvent, InvalidRequest, UnknownNamespace, NotSerializable, PayloadTooLarge, SchemaViolation:
                nothing was sent; a note on the error gives the number of the invalid event.
            NamespaceNotServed: as `publish`.
            PublishManyError: Redis refused some of them. It holds a receipt or an error for each.
            BusUnavailable: no answer; each may have been published. A batch of more than 100 events may take longer than
                `timeout_s` as long as Redis keeps answering.
            NotDurable: all are published, but `durable` is not met. It has the receipt of the last.
        """
        _check_id_for(id_for_s)
        wish = self._durable if durable is None else read_durable(durable)
        namespace = self._named(namespace)
        key = log_key(namespace)
        batch: list[tuple[_Call, bool]] = []  # each with whether its id is new
        fresh_ids = endless_ids()
        size = 0
        for event in check_items(events, "events", "(topic, data)"):
            _check_batch(len(batch) + 1, size)
            try:
                topic, data, event_id = _parts(event)
                call = self._call(key, topic, data, next(fresh_ids) if event_id is None else check_event_id(event_id))
            except HeadgateError as error:
                error.add_note(f"event number {len(batch)} of the batch")
                raise
            size += len(call[_PAYLOAD])
            _check_batch(len(batch) + 1, size)
            batch.append((call, event_id is None))
        if not batch:
            return []
        with _traced(traceparent, namespace, batch[0][0][_TOPIC], len(batch)) as parent:
            origin = () if parent is None and id_for_s is None else (self._origin(batch[0][0], None, parent, id_for_s),)
            outcomes = self._append(
                namespace,
                [Prepared((*call, *origin), namespace, is_new, call[_ID], len(call[_PAYLOAD])) for call, is_new in batch],
                wish,
            )
        last = outcomes[-1]
        published = [outcome.receipt if isinstance(outcome, NotDurable) else outcome for outcome in outcomes]
        receipts = [outcome for outcome in published if isinstance(outcome, Receipt)]
        if len(receipts) < len(published):
            raise PublishManyError(published)
        if isinstance(last, NotDurable):  # one answer was for all
            raise last
        return receipts

    def publish_ephemeral(
        self,
        topic: str,
        data: object,
        id: str | None = None,
        namespace: str | None = None,
        *,
        user: str | None = None,
        by: str | None = None,
    ) -> str:
        """Publish an event to the clients connected now, without the log and an offset; return its id. Waits for Redis.

        For data that is worthless a moment later, such as a pointer's position or a typing notice. A slow client misses it
        without a gap notice. Repeated ids are not detected. Arguments as of `publish`.

        Raises:
            InvalidTopic, InvalidEvent, UnknownNamespace, NotSerializable, PayloadTooLarge, SchemaViolation, BusRefused: nothing
                was published.
            BusUnavailable: it may have been published.
        """
        namespace = self._named(namespace)
        event_id = new_id() if id is None else check_event_id(id)
        call = self._encoded(log_key(namespace), topic if user is None else user_topic(user, topic), data, event_id)
        self._check_schemas(call)
        sender = "" if by is None else sender_word(by, shown=self._show_by.contain(call[_TOPIC]))
        self._writer.announce(namespace, call[_TOPIC], encode_ephemeral(event_id, sender, call[_PAYLOAD]))
        return event_id

    def prepare(
        self,
        topic: str,
        data: object,
        id: str | None = None,
        namespace: str | None = None,
        *,
        user: str | None = None,
        by: str | None = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
        check_schemas: bool = True,
    ) -> Prepared:
        """Check and encode an event for `publish_prepared`. Arguments and errors as of `publish`.

        With `check_schemas=False`, `publish_prepared` checks the schemas, which may mean reading the registry. Then, and
        without schemas, this method never waits.
        """
        _check_id_for(id_for_s, has_id=id is not None)
        event = (topic if user is None else user_topic(user, topic), data, id)
        (prepared,) = self.prepare_each(
            [event], namespace, by=by, traceparent=traceparent, id_for_s=id_for_s, check_schemas=check_schemas
        )
        if isinstance(prepared, HeadgateError):
            raise prepared
        return prepared

    def prepare_each(
        self,
        events: Sequence[tuple[str, object, str | None]],
        namespace: str | None = None,
        *,
        by: str | None = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
        check_schemas: bool = True,
    ) -> list[Prepared | HeadgateError]:
        """Return a prepared event or an error for each event (topic, data, id).

        Raises:
            UnknownNamespace, InvalidRequest: as `prepare`.
        """
        _check_id_for(id_for_s)
        check_flag(check_schemas, "check_schemas")
        namespace = self._named(namespace)
        key = log_key(namespace)
        parent = current_traceparent() if traceparent is None else read_traceparent(traceparent, "publisher")
        has_origin = not (by is None and parent is None and id_for_s is None)
        prepared: list[Prepared | HeadgateError] = []
        for event in check_items(events, "events", "(topic, data, id)"):
            try:
                topic, data, event_id = event if type(event) is tuple and len(event) == 3 else _parts(event)
                call = self._encoded(key, topic, data, new_id() if event_id is None else check_event_id(event_id))
                if check_schemas and self._schemas is not None:
                    self._check_schemas(call)
            except HeadgateError as error:
                prepared.append(error)
                continue
            command = (*call, self._origin(call, by, parent, id_for_s)) if has_origin else call
            prepared.append(Prepared(command, namespace, event_id is None, call[_ID], len(call[_PAYLOAD]), check_schemas))
        return prepared

    def prepare_checked(
        self,
        topic: str,
        payload: JsonText,
        event_id: str | None,
        namespace: str,
        by: str,
        traceparent: str | None,
        id_for_s: int | None,
    ) -> Prepared:
        """Internal: return a prepared event of checked parts, outside of any span, without a check of schemas. Never waits.

        Raises PayloadTooLarge.
        """
        call = self._sized(log_key(namespace), topic, payload, event_id or new_id())
        command = (*call, self._origin(call, by, traceparent, id_for_s))
        return Prepared(command, namespace, event_id is None, call[_ID], len(payload))

    def publish_prepared(self, events: Sequence[Prepared], *, durable: Durable = None) -> list[Receipt | HeadgateError]:
        """Publish events of one namespace in order and in one round trip; return a receipt or an error for each.

        Each event succeeds or fails alone, and keeps its prepared id, so publishing it again adds nothing while the id counts,
        for 300 s (less at a high rate). Waits for Redis. `durable` applies to all of them, as in `publish`. The outcome of an
        event that misses it is NotDurable.

        Raises:
            NamespaceNotServed, InvalidRequest (`durable`): as `publish`.
            InvalidRequest: they are of several namespaces; nothing was sent.
            LimitReached, BusUnavailable: as `publish_many`.
        """
        try:
            _check_batch(len(events), sum(event.size_bytes for event in events))
        except (TypeError, AttributeError):
            raise InvalidRequest("events: expected a list of events that `prepare` has returned") from None
        if len({event.namespace for event in events}) > 1:
            raise InvalidRequest("events: expected those of one namespace")
        wish = self._durable if durable is None else read_durable(durable)
        violations = {} if self._schemas is None else self._violations(events)
        sent = [event for index, event in enumerate(events) if index not in violations] if violations else events
        outcomes = self._append(sent[0].namespace, sent, wish) if sent else []
        for index, error in violations.items():  # lowest number first
            outcomes.insert(index, error)
        return outcomes

    @property
    def checks_schemas(self) -> bool:
        """Internal: whether events are checked against schemas, for which `prepare_each` may wait."""
        return self._schemas is not None

    def refuse_while_stalled(self, namespace: str) -> None:
        """Internal: raise BusUnavailable while a call of this process with this limit probes a stalled Redis. Never waits."""
        self._writer.refuse_while_stalled(namespace)

    def check(self, receipt: Receipt, namespace: str | None = None) -> Fate:
        """Return the fate of a published event. Waits for Redis.

        After a failover, or a crash of Redis' machine, it shows which receipts still hold. Publish events that were rolled back
        again, with the same ids. A receipt without an id is judged only by its place.

        Raises:
            UnknownNamespace: `namespace` is not a name.
            InvalidRequest: `receipt` is not a receipt.
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        if not isinstance(receipt, Receipt):
            raise InvalidRequest(f"receipt: expected a Receipt, got {type(receipt).__name__}")
        check_epoch(receipt.epoch, "receipt.epoch")
        check_whole(receipt.offset, "receipt.offset", 0, MAX_OFFSET)
        return self._writer.fate(self._named(namespace), receipt.epoch, receipt.offset, receipt.id)

    def position(self, namespace: str | None = None) -> LogPosition | None:
        """Return the current end of the log; None before the first event. Waits for Redis, one round trip.

        Read it before the state that an answer shows, and include it in the answer. `load` in the page then skips the events up
        to there, and a page rendered with the state fetches nothing.

        Raises:
            UnknownNamespace: `namespace` is not a name.
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        return self._writer.position(self._named(namespace))

    def presence(self, topic: str, namespace: str | None = None) -> list[PresentUser]:
        """Return the users in a topic, by name, over all gateways (docs/presence.md). Waits for Redis, four round trips.

        Raises:
            InvalidTopic, UnknownNamespace.
            BusUnavailable, BusRefused: as `publish`.
        """
        return _present(self._writer.members_page(self._named(namespace), check_topic(topic))[1])

    def presence_page(
        self, topic: str, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> PresencePage:
        """Return a page of the users in a topic, which may have thousands. Only this page is decoded. Waits for Redis.

        Args:
            after: `after` of the previous page, the name before the first user, or None for the first page.
            limit: maximum users.

        Raises:
            InvalidRequest: `after` or `limit` is invalid.
            InvalidTopic, UnknownNamespace, BusUnavailable, BusRefused: as `presence`.
        """
        check_whole(limit, "limit", 1, 2**31, "users")
        try:
            if after is not None:
                check_user(after)
        except InvalidRequest:
            raise InvalidRequest("after: expected the `after` of a page, or the name of a user") from None
        count, members, next_ = self._writer.members_page(self._named(namespace), check_topic(topic), after, limit)
        return PresencePage(count, _present(members), next_)

    def inbox_page(
        self,
        user: str,
        before: int | None = None,
        limit: int = 20,
        *,
        archived: bool = False,
        epoch: str | None = None,
        offset: int | None = None,
        namespace: str | None = None,
    ) -> InboxPage:
        """Return a part of a user's inbox, as `headgate.Inbox.page` does."""
        check_flag(archived, "archived")
        if (epoch is None) != (offset is None):
            raise InvalidRequest("epoch, offset: expected both or neither")
        # The epoch of a page is empty before the first event.
        had = (check_epoch(epoch, "epoch"), check_whole(offset, "offset", 0, MAX_OFFSET)) if epoch not in (None, "") else None
        return self._writer.inbox_page(self._named(namespace), user, before, limit, archived=archived, had=had)

    def revoke(self, *, user: str | None = None, token_id: str | None = None, for_s: int = DEFAULT_REVOKED_S) -> int:
        """Refuse a user, or one token (its `jti`), for `for_s` seconds; 0 lifts it. See `revocation.revoke`.

        Every gateway notifies and disconnects the connected clients within a second. Returns how many gateway processes have
        received it. If a failover loses it, one of these writes it back. With 0, only Redis has it.

        Raises:
            InvalidRequest, LimitReached, BusUnavailable, BusRefused: as `revocation.revoke`.
        """
        return self._writer.revoke(self._namespace, user=user, token_id=token_id, for_s=for_s)

    def prepare_schemas(self, schemas: str | None, schema_check: Literal["off", "warn", "refuse"] | None) -> Callable[[], None]:
        """Read schemas again, with arguments as of the constructor; return a function that applies them.

        Raises:
            SettingsError, InvalidSchema, MissingExtra: as the constructor; the current schemas stay in force.
        """
        check = self._writer.open_check(schemas, schema_check, self._on_schema_violation)

        def apply() -> None:
            self._schemas = check

        return apply

    def close(self) -> None:
        """Close the connections to Redis. Idempotent. A later `publish` opens new ones."""
        self._writer.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def restrict(self, named: Callable[[str | None], str]) -> None:
        """Let `named` choose the namespace for a caller's argument from now on. It raises UnknownNamespace for unknown ones."""
        self._named = named

    def _checked_namespace(self, namespace: str | None) -> str:
        """Return the namespace for a caller's argument."""
        if namespace is None or namespace == self._namespace:
            return self._namespace
        return check_namespace(namespace)

    def _call(self, key: str, topic: str, data: object, event_id: str) -> _Call:
        """Return the call that appends an event. Checks only `topic` and `data`. Raises as `publish`."""
        call = self._encoded(key, topic, data, event_id)
        self._check_schemas(call)
        return call

    def _encoded(self, key: str, topic: str, data: object, event_id: str) -> _Call:
        return self._sized(key, check_topic(topic), encode_data(data), event_id)

    def _sized(self, key: str, topic: str, payload: bytes, event_id: str) -> _Call:
        if len(payload) > self._max_payload_bytes:
            raise PayloadTooLarge(len(payload), self._max_payload_bytes, "publisher")
        return "FCALL", TRUSTED, 1, key, topic, payload, event_id

    def _origin(self, call: Command, by: str | None, traceparent: str | None, id_for_s: int | None = None) -> str:
        """Return the origin of a publish as log.lua reads it: `<by> <traceparent> <publisher> <id_for_s>`."""
        owner = word = ""
        if by is not None:
            word, owner = sender_word(by, shown=self._show_by.contain(str(call[_TOPIC]))), id_owner(by)
        return f"{owner} {traceparent or '-'} {word}" + ("" if id_for_s is None else f" {id_for_s}")

    def _append(self, namespace: str, events: Sequence[Prepared], wish: Durability | None) -> list[Receipt | HeadgateError]:
        """Append events in one round trip; return a receipt or an error for each, NotDurable for those that miss `wish`."""
        writer, wait_ms = self._writer, 0
        with writer.budget(namespace):
            writer.refuse_unserved(namespace)
            commands = [event.command for event in events]
            if wish is not None:
                wish = writer.counted(wish, namespace)
                wait_ms = writer.wait_ms(namespace)
                commands.append(wish.command(wait_ms))
            replies = writer.append_many(commands)
            writer.warn_unserved(namespace)
            waited = None if wish is None else replies.pop()
            outcomes: list[Receipt | HeadgateError] = [
                reply if isinstance(reply, HeadgateError) else _receipt(reply, event.id, new_id=event.has_new_id)
                for reply, event in zip(replies, events, strict=True)
            ]
            self._note_newest(outcomes)
            if wish is None:
                return outcomes
            return [each if isinstance(each, HeadgateError) else _confirmed(each, wish, waited, wait_ms) for each in outcomes]

    def _check_schemas(self, call: Any) -> None:
        """Check an event against the schemas of its topic. May wait for Redis. Raises as `publish`."""
        if self._schemas is not None:
            self._schemas.check(namespace_of(call[_KEY]), call[_TOPIC], call[_PAYLOAD])

    def _violations(self, events: Sequence[Prepared]) -> dict[int, HeadgateError]:
        """Return the errors of unchecked events that violate a schema, by number in order."""
        errors: dict[int, HeadgateError] = {}
        for index, event in enumerate(events):
            if not event.is_checked:
                try:
                    self._check_schemas(event.command)
                except HeadgateError as error:
                    errors[index] = error
        return errors

    def _note_newest(self, outcomes: Sequence[Receipt | HeadgateError]) -> None:
        """Remember the last new event of a batch. A duplicate is an older event."""
        for outcome in reversed(outcomes):
            if isinstance(outcome, Receipt) and not outcome.duplicate:
                self._writer.newest.note(outcome.epoch, outcome.offset)
                return


def _confirmed(receipt: Receipt, wish: Durability, waited: Any, wait_ms: int) -> Receipt | NotDurable:
    """Return a receipt with the confirmation of its write, or NotDurable."""
    if isinstance(waited, HeadgateError):
        return NotDurable(receipt, not_waited(waited))
    replicas, fsynced = wish.confirmed(waited)
    receipt = msgspec.structs.replace(receipt, replicas=replicas, fsynced=fsynced)
    return receipt if wish.met(replicas, fsynced) else NotDurable(receipt, wish.shortfall(replicas, wait_ms))


def _receipt(reply: Any, event_id: str, *, new_id: bool) -> Receipt:
    """Return the receipt in a function's reply. The trusted function returns a text, the others return its parts."""
    epoch, offset, duplicate = reply.split() if isinstance(reply, bytes) else reply
    return Receipt(epoch.decode(), int(offset), bool(int(duplicate)) and not new_id, event_id)


def _traced(traceparent: str | None, namespace: str, topic: str, events: int = 1) -> AbstractContextManager[str | None]:
    """Return the traceparent of events, which is the given one or that of a span for their publish."""
    if traceparent is not None:
        return nullcontext(read_traceparent(traceparent, "publisher"))
    return publishing(namespace, topic, events)


def _check_batch(events: int, size_bytes: int) -> None:
    """Refuse a batch beyond the limits. Raises LimitReached."""
    if events > MAX_BATCH_EVENTS:
        raise LimitReached("batch_events", MAX_BATCH_EVENTS)
    if size_bytes > MAX_BATCH_BYTES:
        raise LimitReached("batch_bytes", MAX_BATCH_BYTES)


def _parts(event: Any) -> tuple[str, object, str | None]:
    """Return topic, data and id of an event of a batch. Refuses a dict or a text, which would give its keys or characters.

    Raises InvalidRequest if it is not an event.
    """
    if not isinstance(event, tuple | list) or len(event) not in (2, 3):
        raise InvalidRequest("event: expected (topic, data) or (topic, data, id)")
    return event[0], event[1], event[2] if len(event) == 3 else None


def _check_id_for(id_for_s: int | None, *, has_id: bool = True) -> None:
    if id_for_s is None:
        return
    if not is_whole(id_for_s, 1, MAX_ID_FOR_S):
        raise InvalidRequest(f"id_for_s={id_for_s!r}: expected a whole number of seconds from 1 to {MAX_ID_FOR_S}")
    if not has_id:
        raise InvalidRequest("id_for_s needs an id, because an event with a new id is never published again")


@lru_cache(maxsize=1024)  # a service publishes as one user
def id_owner(by: str) -> str:
    """Return the owner of event ids chosen by a user."""
    return hashlib.sha256(by.encode()).hexdigest()[:_BY_LENGTH]


def publisher_of(settings: Settings, redis_url: str, on_schema_violation: OnViolation | None = None) -> Publisher:
    """Return the publisher of an application or a gateway. It publishes only into the namespaces of the settings."""
    publisher = Publisher(
        redis_url,
        max_payload_bytes=settings.max_payload_bytes,
        show_by=settings.event_by,
        schemas=settings.schemas,
        schema_check=settings.schema_check_in_force(),
        on_schema_violation=on_schema_violation,
    )
    publisher.restrict(settings.served)
    return publisher


def url_or_default(redis_url: str | None) -> str:
    """Return the caller's URL, or for None and "" the result of `find_redis_url`. Raises as `find_redis_url`.

    `open_client` refuses any other value, such as 0.
    """
    return find_redis_url() if redis_url is None or redis_url == "" else redis_url


def find_redis_url(settings: Settings | None = None, within_s: float = STARTING_S) -> str:
    """Return HEADGATE_REDIS_URL, else the URL of the private server that runs or starts in this project's data folder.

    Args:
        settings: source of the two. None reads the environment.
        within_s: how long to wait for a server to start, if one has run here before.

    Raises:
        BusUnavailable: neither exists, or the server takes longer to start. The message has advice.
        SettingsError: the variable is invalid.
    """
    if settings is None:
        from headgate.settings.settings import Settings

        settings = Settings.from_environment("HEADGATE_REDIS_URL", "HEADGATE_DATA_DIR")
    if settings.redis_url:
        return settings.redis_url
    # Imported here, because a publisher with a URL does not need a private server.
    from headgate.redis.data_folder import wait_for_private_redis

    url = wait_for_private_redis(settings.data_dir, within_s)
    if url is None:
        raise BusUnavailable(
            "no Redis: set HEADGATE_REDIS_URL, or start a gateway in this folder (`headgate serve`), which brings a private one"
        )
    return url


def _present(members: Iterable[Member]) -> list[PresentUser]:
    return [
        PresentUser(user, connections, since_ms, None if meta is None else msgspec.json.decode(meta))
        for user, connections, since_ms, meta in members
    ]
