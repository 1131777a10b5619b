"""Publishing over HTTP, for those whose grants contain the topic: one event, or a batch.

    POST /api/publish        {topic, data, id?, namespace?}              201 and the receipt {epoch, offset, duplicate, id}
    POST /api/publish/batch  {events: [{topic, data, id?}, …], namespace?}   201 and {receipts: [receipt, …]}, in order

Anything else is an error of the tree; 429 for who goes too fast, before anything is published. In a batch each event stands for
itself: where some are refused, the answer is 207 and has `{"error": …}` in their places. Where no event was published, for one
reason that passes, the answer is that error.

`PublishApi` has no I/O but through the gate. It answers Flask's requests and, with the same bytes, those below WSGI
(`routes_below`), which come with a token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from flask import Blueprint, Response, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header

from headgate.auth.audit import audit
from headgate.auth.identity import Identity
from headgate.errors import Forbidden, HeadgateError, InvalidRequest, LimitReached, PayloadTooLarge
from headgate.event import JsonText, compact_json
from headgate.runtime.logging import told
from headgate.runtime.rates import Rates
from headgate.settings import Settings
from headgate.topic import check_topic
from headgate.transport.http_answers import Answer
from headgate.transport.http_routes import Route, RoutedRequest
from headgate.transport.peer_address import address_of
from headgate_server.gate import Gate, Receipt
from headgate_server.security_headers import security_headers

from .callers import caller, first_known, has_credentials
from .error_pages import failed_answer, late_answer, refusal_answer
from .json_answers import as_response, encoded_answer, json_bytes

PUBLISH_PATH = "/api/publish"
BATCH_PATH = "/api/publish/batch"
# Room for the names around the payload in a request body: topic 255, id 128, namespace 64, JSON punctuation.
ENVELOPE_BYTES = 1024
# A batch is checked and encoded in one piece, in which nobody else has a turn: 3 ms or so.
MAX_BATCH_EVENTS = 500
MAX_BATCH_BYTES = 1024 * 1024


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    data: msgspec.Raw
    id: str | None = None


class _One(_Event, forbid_unknown_fields=True):
    namespace: str | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_Event]
    namespace: str | None = None


_decode_one = msgspec.json.Decoder(_One).decode
_decode_batch = msgspec.json.Decoder(_Batch).decode
T = TypeVar("T")
_BAD_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class Asked(Protocol):
    """A request to publish."""

    @property
    def environ(self) -> Mapping[str, Any]:
        """The WSGI environment."""

    def body(self, limit_bytes: int) -> bytes:
        """Return the body. Waits for it.

        Raises:
            PayloadTooLarge, RequestEntityTooLarge: it is larger; if it says how large it is, nothing was read.
        """


class PublishApi:
    """See the module. Errors are raised: of the tree, and what reading the body raises."""

    def __init__(self, gate: Gate, settings: Settings) -> None:
        self._gate, self._settings = gate, settings
        self._rates = Rates(settings.publish_per_s, settings.publish_burst)
        self._max_one_bytes = settings.max_payload_bytes + ENVELOPE_BYTES
        self._max_batch_bytes = max(self._max_one_bytes, min(settings.max_body_bytes, MAX_BATCH_BYTES))

    def one(self, asked: Asked) -> Answer:
        """Publish one event."""
        known = first_known(self._gate, self._settings.namespaces, asked.environ)  # a stranger's body is not waited for
        event = _read(asked, self._max_one_bytes, _decode_one, "{topic, data, id?, namespace?}")
        data = self._encoded(event)
        check_topic(event.topic)
        namespace, identity = self._caller(asked, known, event.namespace)
        self._check_grant(asked, namespace, identity, event.topic)
        self._count(identity, 1)
        (outcome,) = self._gate.publish_each([(event.topic, data, event.id)], namespace, by=identity.user)
        if isinstance(outcome, HeadgateError):
            raise outcome
        return encoded_answer(201, _receipt(outcome) + b"\n")

    def batch(self, asked: Asked) -> Answer:
        """Publish a batch."""
        known = first_known(self._gate, self._settings.namespaces, asked.environ)
        batch = _read(asked, self._max_batch_bytes, _decode_batch, "{events: [{topic, data, id?}, …], namespace?}")
        limit = min(MAX_BATCH_EVENTS, self._settings.publish_burst)  # more than a burst would never be let in
        if len(batch.events) > limit:
            raise LimitReached("batch_events", limit)
        namespace, identity = self._caller(asked, known, batch.namespace)
        errors: dict[int, HeadgateError] = {}
        events: list[tuple[str, object, str | None]] = []
        granted: set[str] = set()
        for index, event in enumerate(batch.events):
            topic = event.topic
            try:
                data = self._encoded(event)
                if topic not in granted:
                    check_topic(topic)
                    self._check_grant(asked, namespace, identity, topic)
                    granted.add(topic)
            except HeadgateError as error:
                errors[index] = error
            else:
                events.append((topic, data, event.id))
        self._count(identity, len(events))
        published = self._gate.publish_each(events, namespace, by=identity.user)
        if errors:
            rest = iter(published)
            published = [errors.get(index) or next(rest) for index in range(len(batch.events))]
        return _batch_answer(published)

    def _caller(self, asked: Asked, known: tuple[str, Identity], namespace: str | None) -> tuple[str, Identity]:
        """Return the namespace that a request names, and the identity of its caller there."""
        wanted = (namespace if namespace is not None else self._settings.namespaces[0]).removeprefix("/")
        return known if known[0] == wanted else (wanted, caller(self._gate, wanted, asked.environ))

    def _encoded(self, event: _Event) -> JsonText:
        """Return the data of an event as it is published: compact."""
        if (size := len(event.data)) > self._settings.max_payload_bytes:
            raise PayloadTooLarge(size, self._settings.max_payload_bytes, "http")
        return compact_json(event.data)

    def _check_grant(self, asked: Asked, namespace: str, identity: Identity, topic: str) -> None:
        if not identity.may_publish(topic):
            address = address_of(asked.environ, self._settings.proxies)
            audit.right_refused(address=address, namespace=namespace, user=identity.user, action="publish", name=topic)
            raise Forbidden("publish to", topic)

    def _count(self, identity: Identity, events: int) -> None:
        """Let events count for their user. Raises LimitReached when they are too many now."""
        if wait_s := self._rates.spend(identity.user, time.monotonic(), events):
            raise LimitReached("publish_per_s", self._settings.publish_per_s, wait_s)


def publish_routes(api: PublishApi) -> Blueprint:
    """Return the routes of Flask. The body of one event is bounded by the application's MAX_CONTENT_LENGTH before it is read."""
    routes = Blueprint("publish_api", __name__)

    @routes.post(PUBLISH_PATH)
    def publish() -> Response:
        return as_response(api.one(_AskedOfFlask(request.environ)))

    @routes.post(BATCH_PATH)
    def publish_batch() -> Response:
        return as_response(api.batch(_AskedOfFlask(request.environ)))

    return routes


def routes_below(api: PublishApi, answers_to: Callable[[Mapping[str, Any]], bool]) -> Mapping[tuple[str, str], Route]:
    """Return the same routes for requests below WSGI (transport/http_routes.py).

    Flask has the requests without a token, and those to a name that is not ours (`answers_to`).
    """

    def route(publish: Callable[[Asked], Answer]) -> Route:
        def answer(request: RoutedRequest) -> Answer | None:
            environ = request.environ
            if not has_credentials(environ) or not answers_to(environ):
                return None
            try:
                found = publish(_AskedBelow(request))
            except HeadgateError as error:
                found = refusal_answer(error)
            except TimeoutError:
                found = late_answer()
            except OSError:
                raise  # the caller is gone
            except Exception as error:  # noqa: BLE001 - as Flask's own page for it: logged, and told nothing
                found = failed_answer(str(environ["PATH_INFO"]), str(environ["REQUEST_METHOD"]), environ, error)
            host = str(environ.get("HTTP_HOST", ""))
            return found._replace(headers=[*found.headers, *security_headers(host, is_json=True)])

        return answer

    return {("POST", PUBLISH_PATH): route(api.one), ("POST", BATCH_PATH): route(api.batch)}


class _AskedOfFlask:
    """A request of Flask's."""

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self.environ = environ

    def body(self, limit_bytes: int) -> bytes:
        """Return the body. Of a chunked one werkzeug reads as much as may come, and passes that off as the whole."""
        if limit_bytes > (request.max_content_length or limit_bytes):
            request.max_content_length = limit_bytes  # a batch is larger than anything else that this application takes
        body = request.get_data(cache=False)
        if request.content_length is None and request.environ["wsgi.input"].read(1):
            raise RequestEntityTooLarge
        return body


class _AskedBelow:
    """A request below WSGI."""

    def __init__(self, request: RoutedRequest) -> None:
        self._request = request
        self.environ = dict(request.environ)  # an application's authenticator may keep things in it

    def body(self, limit_bytes: int) -> bytes:
        """Return the body, whose length the head says."""
        size = self._request.head.body_bytes
        if size > limit_bytes:
            raise PayloadTooLarge(size, limit_bytes, "http")
        return self._request.body()


def _read(asked: Asked, limit_bytes: int, decode: Callable[[bytes], T], expected: str) -> T:
    """Return the body, decoded. Nothing but JSON is read: a page of another site could send text/plain without asking first."""
    kind = str(asked.environ.get("CONTENT_TYPE", ""))
    if kind != "application/json" and parse_options_header(kind)[0].lower() != "application/json":
        raise InvalidRequest("expected a body of type application/json")
    try:
        return decode(asked.body(limit_bytes))
    except _BAD_JSON as error:
        raise InvalidRequest(f"expected {expected}: {error}") from error


def _receipt(receipt: Receipt) -> bytes:
    """Return a receipt as JSON. An epoch and an id have no character that JSON escapes."""
    duplicate = "true" if receipt.duplicate else "false"
    return f'{{"duplicate":{duplicate},"epoch":"{receipt.epoch}","id":"{receipt.id}","offset":{receipt.offset}}}'.encode()


def _batch_answer(outcomes: Sequence[Receipt | HeadgateError]) -> Answer:
    """Return the answer to a batch.

    Raises:
        HeadgateError: no event was published, for one reason that passes.
    """
    errors = [outcome for outcome in outcomes if isinstance(outcome, HeadgateError)]
    if errors and len(errors) == len(outcomes) and errors[0].retry and len({error.code for error in errors}) == 1:
        raise errors[0].with_traceback(None)
    shown = [
        json_bytes({"error": told(outcome)}) if isinstance(outcome, HeadgateError) else _receipt(outcome) for outcome in outcomes
    ]
    return encoded_answer(207 if errors else 201, b'{"receipts":[%b]}\n' % b",".join(shown))
