"""Publishes one event over /api/v1, or a batch of independent events or all or none.

`Idempotency-Key` is the id of an event without one. In a batch, `<key>.<number>` is the id of each event without one. An id
counts for its topic and its caller. While it counts (event.ID_RULE), a second request with it for the same topics gets the
receipts of the first, with `duplicate` set. On another topic it publishes.

Its only I/O is through the gate, and it answers requests below WSGI and in Flask with the same bytes (api/publish_requests.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headgate.auth.identity import Handshake, Identity
from headgate.errors import HeadgateError, InvalidRequest, LimitReached, PayloadTooLarge
from headgate.events.event import ID_RULE, MAX_ID_LENGTH, JsonText, check_event_id, compact_json
from headgate.events.topic import check_topic
from headgate.flask.extension import Headgate
from headgate.runtime.logging import wire_form
from headgate.runtime.shared_rates import SharedRates
from headgate.services.publisher import MAX_ID_FOR_S, NonePublished, Receipt
from headgate.settings.settings import Settings
from headgate.transport.http_answers import Answer
from headgate_server.api.callers import SLOW_BODY_S, account_of, caller, first_known
from headgate_server.api.publish_requests import PublishRequest, receipt_json, traceparent_of
from headgate_server.api.shares import AT_ONCE_BYTES, IN_ALL, PER_CALLER, Shares

from .dispatch import check_acceptable, check_media_type, decode
from .operation import Cost, EventId, Operation, Topic
from .problems import ROOT, BodyFault, RateReached, encoded_answer, json_bytes, scope_missing
from .rights import refuse

EVENTS, BATCH = f"{ROOT}/events", f"{ROOT}/events/batch"
# Room in a request body in addition to the payload: topic 255, id 128, namespace 64, JSON punctuation.
ENVELOPE_BYTES = 1024
# A batch is checked and encoded without yielding, for about 3 ms.
MAX_BATCH_EVENTS = 500
MAX_BATCH_BYTES = 1024 * 1024
# After the key of a batch: a dot and the number of the event.
MAX_BATCH_KEY_LENGTH = MAX_ID_LENGTH - len(f".{MAX_BATCH_EVENTS - 1}")


IdForS = Annotated[int, Meta(ge=1, le=MAX_ID_FOR_S)]


class BatchEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event of a batch, as a single event, except that an invalid topic or id is refused at its place."""

    topic: str
    data: msgspec.Raw
    id: str | None = None


class NewEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event, with a topic, any JSON as data, an id, and a namespace (the first by default).

    The id makes publishing to the topic idempotent for 300 s (less at a high rate), or, with an API key, for `id_for_s` seconds.
    `id_for_s` needs an id or an `Idempotency-Key`.
    """

    topic: Topic
    data: msgspec.Raw
    id: EventId | None = None
    namespace: str | None = None
    id_for_s: IdForS | None = None


class NewBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Events in order. With `atomic`, all are published or none. Otherwise they are independent.

    `id_for_s` applies to all ids, as for a single event. Each event needs an id, or the batch an `Idempotency-Key`.
    """

    events: Annotated[list[BatchEvent], Meta(extra_json_schema={"maxItems": MAX_BATCH_EVENTS})]
    namespace: str | None = None
    atomic: bool = False
    id_for_s: IdForS | None = None


class ReceiptShown(msgspec.Struct):
    """The position of an event in the log, and its id. `duplicate` means that the id existed already and nothing was added."""

    duplicate: bool
    epoch: str
    id: str
    offset: int


class WireError(msgspec.Struct):
    """An error of the tree, with its parts, as on the wire."""

    code: str
    message: str
    retry: bool


class Outcome(msgspec.Struct, omit_defaults=True):
    """A receipt, or the `error` that prevented an event."""

    duplicate: bool | UnsetType = UNSET
    epoch: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    error: WireError | UnsetType = UNSET


_decode_one = msgspec.json.Decoder(NewEvent).decode
_decode_batch = msgspec.json.Decoder(NewBatch).decode
_Events: TypeAlias = list[tuple[str, object, str | None]]


class Publishing:
    """See the module. Raises errors of the tree, `BodyFault`, and errors from reading the body."""

    def __init__(self, gate: Headgate, settings: Settings) -> None:
        self._gate, self._settings = gate, settings
        self._max_one_bytes = settings.max_payload_bytes + ENVELOPE_BYTES
        self._max_batch_bytes = max(self._max_one_bytes, MAX_BATCH_BYTES)
        self.rates = SharedRates("publish", settings.publish_per_s, settings.publish_burst)
        self._bodies = Shares("publish_body_bytes", PER_CALLER * self._max_batch_bytes, IN_ALL * self._max_batch_bytes)

    def one(self, asked: PublishRequest) -> Answer:
        """Publish one event. Switches greenlets."""
        known, body = self._read(asked, self._max_one_bytes)
        event = decode(body, _decode_one)
        namespace, identity = self._caller(asked, known, event.namespace)
        checked, options = self._checked(event, namespace, identity, asked.environ)
        (outcome,) = self._gate.publish_each([checked], namespace, **options)
        if isinstance(outcome, HeadgateError):
            raise outcome
        return encoded_answer(201, receipt_json(outcome) + b"\n")

    def begin_one(
        self, environ: Mapping[str, Any], known: object, body: bytes, done: Callable[[Receipt | HeadgateError], object]
    ) -> bool:
        """Begin to publish one event, as `publish_requests.Begin`. Never waits; raises as `one`."""
        if not isinstance(known, Handshake) or len(body) > self._max_one_bytes:
            return False
        identity = self._gate.publishes_at_once(known)
        if identity is None or not identity.publish:
            return False
        event = decode(body, _decode_one)
        if event.namespace is not None and event.namespace.removeprefix("/") != known.namespace:
            return False
        checked, options = self._checked(event, known.namespace, identity, environ)
        self._gate.begin_publish(checked, known.namespace, done, **options)
        return True

    def _checked(
        self, event: NewEvent, namespace: str, identity: Identity, environ: Mapping[str, Any]
    ) -> tuple[tuple[str, JsonText, str | None], dict[str, Any]]:
        """Check one event and count it; return it with the options of `Headgate.publish_each`."""
        key = _idempotency_key(environ, MAX_ID_LENGTH) if "HTTP_IDEMPOTENCY_KEY" in environ else None
        field = "/data"
        try:
            data = self._encoded(event)
            field = "/topic"
            check_topic(event.topic)
            field = "/id"
            event_id = key if event.id is None else event.id
            if event_id is not None:
                check_event_id(event_id)
        except HeadgateError as error:
            raise BodyFault([(field, error)]) from error
        if not identity.may_publish(event.topic):
            self._refuse(environ, namespace, identity, event.topic)
        if event.id_for_s is not None:
            _check_id_for(identity, has_ids=event_id is not None)
        self._count(identity, 1)
        trace = traceparent_of(environ) if "HTTP_TRACEPARENT" in environ else None
        return (event.topic, data, event_id), {"by": identity.user, "traceparent": trace, "id_for_s": event.id_for_s}

    def batch(self, asked: PublishRequest) -> Answer:
        """Publish a batch. Switches greenlets."""
        known, body = self._read(asked, self._max_batch_bytes)
        batch = decode(body, _decode_batch)
        key = _idempotency_key(asked.environ, MAX_BATCH_KEY_LENGTH) if "HTTP_IDEMPOTENCY_KEY" in asked.environ else None
        limit = min(MAX_BATCH_EVENTS, self.rates.burst)  # more than a burst would never be accepted
        if len(batch.events) > limit:
            raise LimitReached("batch_events", limit)
        namespace, identity = self._caller(asked, known, batch.namespace)
        if batch.id_for_s is not None:
            _check_id_for(identity, has_ids=key is not None or all(event.id is not None for event in batch.events))
        errors: dict[int, tuple[str, HeadgateError]] = {}
        events: _Events = []
        granted: set[str] = set()
        for index, event in enumerate(batch.events):
            field, topic = "/data", event.topic
            try:
                data = self._encoded(event)
                field = "/topic"
                if topic not in granted:
                    check_topic(topic)
                    if not identity.may_publish(topic):
                        self._refuse(asked.environ, namespace, identity, topic)
                    granted.add(topic)
                field = "/id"
                event_id = f"{key}.{index}" if event.id is None and key is not None else event.id
                if event_id is not None:
                    check_event_id(event_id)
            except HeadgateError as error:
                errors[index] = (field, error)
            else:
                events.append((topic, data, event_id))
        if errors and batch.atomic:
            raise BodyFault([(f"/events/{index}{field}", error) for index, (field, error) in errors.items()])
        self._count(identity, len(events))
        trace = traceparent_of(asked.environ) if "HTTP_TRACEPARENT" in asked.environ else None
        try:
            published = self._gate.publish_each(
                events, namespace, by=identity.user, all_or_none=batch.atomic, traceparent=trace, id_for_s=batch.id_for_s
            )
        except NonePublished as error:
            raise BodyFault([(f"/events/{index}", each) for index, each in error.errors.items()]) from error
        rest: Iterator[Receipt | HeadgateError] = iter(published)
        return _batch_answer([errors[at][1] if at in errors else next(rest) for at in range(len(batch.events))])

    def _read(self, asked: PublishRequest, limit_bytes: int) -> tuple[tuple[str, Identity], bytes]:
        """Check the head, and read the body; return the namespace and caller of the head, and the body."""
        known, began_s = self._begin(asked), time.monotonic()
        body = self._body(asked, known[1], limit_bytes)
        return known if time.monotonic() - began_s <= SLOW_BODY_S else self._begin(asked), body

    def _begin(self, asked: PublishRequest) -> tuple[str, Identity]:
        """Check the head, so that a refusal does not wait for the body; return its namespace and caller.

        For a head that has passed before, it checks only the caller again.
        """
        environ = asked.environ
        shown = asked.known if isinstance(asked.known, Handshake) else None
        if shown is None and (accept := environ.get("HTTP_ACCEPT")):
            check_acceptable(str(accept))
        handshake, identity = first_known(self._gate, self._settings.namespaces, environ, shown)
        if not identity.publish:
            refuse(identity, scope_missing("publish:…"), handshake.namespace, environ, self._settings.proxies)
        if shown is None:
            check_media_type(environ)
            if environ.get("QUERY_STRING"):
                raise InvalidRequest("expected no parameters")
            if handshake.kept() is not None:
                asked.known = handshake
        return handshake.namespace, identity

    def _caller(self, asked: PublishRequest, known: tuple[str, Identity], namespace: str | None) -> tuple[str, Identity]:
        """Return the namespace of a request, and the identity of its caller there."""
        wanted = self._settings.namespaces[0] if namespace is None else namespace.removeprefix("/")
        return known if known[0] == wanted else (wanted, caller(self._gate, wanted, asked.environ))

    def _body(self, asked: PublishRequest, identity: Identity, limit_bytes: int) -> bytes:
        """Return the body, as `asked.body`. Also raises LimitReached if too many bytes are in transit."""
        environ = asked.environ
        length = str(environ.get("CONTENT_LENGTH", ""))
        size = limit_bytes if "HTTP_TRANSFER_ENCODING" in environ else int(length) if length.isdecimal() else 0
        if not AT_ONCE_BYTES < size <= limit_bytes:
            return asked.body(limit_bytes)
        with self._bodies.lend(account_of(identity, environ, self._settings.proxies), size):
            return asked.body(limit_bytes)

    def _encoded(self, event: NewEvent | BatchEvent) -> JsonText:
        """Return the data of an event in its published, compact form."""
        if (size := len(event.data)) > self._settings.max_payload_bytes:
            raise PayloadTooLarge(size, self._settings.max_payload_bytes, "http")
        return compact_json(event.data)

    def _refuse(self, environ: Mapping[str, Any], namespace: str, identity: Identity, topic: str) -> None:
        refuse(identity, scope_missing(f"publish:{topic}"), namespace, environ, self._settings.proxies)

    def _count(self, identity: Identity, events: int) -> None:
        """Count events against the rate of their user. Raises RateReached if there are too many now."""
        if wait_s := self.rates.spend(identity.user, time.monotonic(), events):
            raise RateReached("publish_per_s", self.rates.per_s, self.rates.burst, wait_s)


def _check_id_for(identity: Identity, *, has_ids: bool) -> None:
    """Refuse a longer memory of ids to users, who could fill the room of a namespace, or for events without ids."""
    if identity.scopes is None:
        raise BodyFault([("/id_for_s", InvalidRequest("ids are remembered for longer with an API key only, not for a user"))])
    if not has_ids:
        raise BodyFault([("/id_for_s", InvalidRequest("id_for_s needs an id for each event, or an Idempotency-Key"))])


def _idempotency_key(environ: Mapping[str, Any], at_most: int) -> str:
    """Return the key of a request: bare, or in quotes as in draft-ietf-httpapi-idempotency-key-header."""
    text = str(environ["HTTP_IDEMPOTENCY_KEY"]).strip()
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    try:
        if len(key) <= at_most:
            return check_event_id(key)
    except HeadgateError:
        pass
    raise InvalidRequest(f"Idempotency-Key: expected 1 to {at_most} characters of A-Z a-z 0-9 _ . : ~ -")


def _batch_answer(outcomes: Sequence[Receipt | HeadgateError]) -> Answer:
    """Return the answer to a batch. Raises HeadgateError if no event was published, for one temporary reason."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, HeadgateError)]
    if errors and len(errors) == len(outcomes) and errors[0].retry and len({error.code for error in errors}) == 1:
        raise errors[0].with_traceback(None)
    shown = [
        json_bytes({"error": wire_form(outcome)}) if isinstance(outcome, HeadgateError) else receipt_json(outcome)
        for outcome in outcomes
    ]
    return encoded_answer(207 if errors else 201, b'{"receipts":[%b]}\n' % b",".join(shown))


def _key_field(id_of: str, max_length: int) -> Mapping[str, tuple[str, int]]:
    about = (
        f"{id_of} An id counts for its topic and for the caller, for {ID_RULE}: a second request with it publishes nothing on "
        "the same topic, whatever its data, and is answered with the first receipt. On another topic, or later, it publishes."
    )
    return {"Idempotency-Key": (about, max_length)}


_row = partial(
    Operation, method="POST", scope="publish", answer=None, status=201, problems=(404, 409, 422, 502), cost=Cost.PUBLISHED
)
OPERATIONS = (
    _row(
        name="publishEvent",
        path="/events",
        summary="Publish an event",
        returns=ReceiptShown,
        body=NewEvent,
        fields=_key_field("The id of the event, if it has none.", MAX_ID_LENGTH),
        about="The answer is sent when the event is in the log.",
    ),
    _row(
        name="publishBatch",
        path="/events/batch",
        summary="Publish a batch of events",
        returns=msgspec.defstruct("Receipts", [("receipts", list[ReceiptShown])]),
        body=NewBatch,
        also={207: msgspec.defstruct("SomeReceipts", [("receipts", list[Outcome])])},
        fields=_key_field(
            "With a dot and the number of the event after it, the id of each event that has none.", MAX_BATCH_KEY_LENGTH
        ),
        about=(
            "Each event stands for itself: where some are refused, the answer is 207, with an error in their places. With "
            "`atomic` nothing is published unless every event can be: the problem names each that cannot (`errors[].pointer`)."
        ),
    ),
)
