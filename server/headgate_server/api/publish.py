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
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from flask import Blueprint, Response, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header

from headgate.auth.api_keys import shown_name
from headgate.auth.audit import audit
from headgate.auth.identity import Handshake, Identity
from headgate.errors import Forbidden, HeadgateError, InvalidRequest, LimitReached, PayloadTooLarge
from headgate.event import JsonText, compact_json, json_reason
from headgate.runtime.logging import told
from headgate.runtime.shared_rates import SharedRates
from headgate.settings import Settings
from headgate.spans import current_traceparent
from headgate.topic import check_topic
from headgate.traceparent import read_traceparent
from headgate.transport.http_answers import Answer
from headgate.transport.http_routes import Route, RoutedRequest
from headgate.transport.peer_address import address_of
from headgate_server.gate import Gate, Receipt
from headgate_server.security_headers import security_headers

from .callers import account_of, caller, first_known, has_credentials
from .error_pages import WORDS, WORDS_OF_V1, Words, log_failure
from .json_answers import as_response, encoded_answer, json_bytes
from .v1.problems import BodyFault, problem_answer
from .waiting_bodies import AT_ONCE_BYTES, WaitingBodies

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

    known: object
    """Who asks, as `PublishApi` has found out; a request with the same head may have it from the one before."""

    def body(self, limit_bytes: int) -> bytes:
        """Return the body. Waits for it.

        Raises:
            PayloadTooLarge, RequestEntityTooLarge: it is larger; if it says how large it is, nothing was read.
        """


class HasData(Protocol):
    """An event, as it came."""

    data: msgspec.Raw


Publish: TypeAlias = Callable[[Asked], Answer]


class PublishApi:
    """See the module. Errors are raised: of the tree, and what reading the body raises."""

    def __init__(self, gate: Gate, settings: Settings, beside: PublishApi | None = None) -> None:
        """`beside`: another one, whose events and bodies count with those here."""
        self._gate, self._settings = gate, settings
        self._max_one_bytes = settings.max_payload_bytes + ENVELOPE_BYTES
        self._max_batch_bytes = max(self._max_one_bytes, min(settings.max_body_bytes, MAX_BATCH_BYTES))
        self.rates: SharedRates = (
            SharedRates("publish", settings.publish_per_s, settings.publish_burst) if beside is None else beside.rates
        )
        self.bodies: WaitingBodies = WaitingBodies(self._max_batch_bytes) if beside is None else beside.bodies

    def one(self, asked: Asked) -> Answer:
        """Publish one event. Switches greenlets."""
        known = self._first_known(asked)  # a stranger's body is not waited for
        event = self._read(asked, known[1], self._max_one_bytes, _decode_one, "{topic, data, id?, namespace?}")
        data = self._encoded(event)
        check_topic(event.topic)
        namespace, identity = self._caller(asked, known, event.namespace)
        self._check_grant(asked, namespace, identity, event.topic)
        self._count(identity, 1)
        events = [(event.topic, data, event.id)]
        return one_answer(self._gate.publish_each(events, namespace, by=identity.user, traceparent=traceparent_of(asked)))

    def batch(self, asked: Asked) -> Answer:
        """Publish a batch. Switches greenlets."""
        known = self._first_known(asked)
        expected = "{events: [{topic, data, id?}, …], namespace?}"
        batch = self._read(asked, known[1], self._max_batch_bytes, _decode_batch, expected)
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
        rest = iter(self._gate.publish_each(events, namespace, by=identity.user, traceparent=traceparent_of(asked)))
        return batch_answer([errors.get(index) or next(rest) for index in range(len(batch.events))])

    def _first_known(self, asked: Asked) -> tuple[str, Identity]:
        known = asked.known
        shown = known if isinstance(known, Handshake) else None
        handshake, identity = first_known(self._gate, self._settings.namespaces, asked.environ, shown)
        if shown is None and handshake.kept() is not None:
            asked.known = handshake
        return handshake.namespace, identity

    def _caller(self, asked: Asked, known: tuple[str, Identity], namespace: str | None) -> tuple[str, Identity]:
        """Return the namespace that a request names, and the identity of its caller there."""
        wanted = (namespace if namespace is not None else self._settings.namespaces[0]).removeprefix("/")
        return known if known[0] == wanted else (wanted, caller(self._gate, wanted, asked.environ))

    def _read(self, asked: Asked, identity: Identity, limit_bytes: int, decode: Callable[[bytes], T], expected: str) -> T:
        """Return the body, decoded. Only JSON is read: a page of another site could send text/plain without asking first."""
        kind = str(asked.environ.get("CONTENT_TYPE", ""))
        if kind != "application/json" and parse_options_header(kind)[0].lower() != "application/json":
            raise InvalidRequest("expected a body of type application/json")
        body = self._body(asked, identity, limit_bytes)
        try:
            return decode(body)
        except _BAD_JSON as error:
            raise InvalidRequest(f"expected {expected}: {json_reason(error, body)}") from error

    def _body(self, asked: Asked, identity: Identity, limit_bytes: int) -> bytes:
        """Return the body, as `asked.body`. Raises LimitReached as well: too much is on its way."""
        environ = asked.environ
        told = str(environ.get("CONTENT_LENGTH", ""))
        size = limit_bytes if "HTTP_TRANSFER_ENCODING" in environ else int(told) if told.isdecimal() else 0
        if not AT_ONCE_BYTES < size <= limit_bytes:
            return asked.body(limit_bytes)
        with self.bodies.coming(account_of(identity, environ, self._settings.proxies), size):
            return asked.body(limit_bytes)

    def _encoded(self, event: HasData) -> JsonText:
        """Return the data of an event as it is published: compact."""
        if (size := len(event.data)) > self._settings.max_payload_bytes:
            raise PayloadTooLarge(size, self._settings.max_payload_bytes, "http")
        return compact_json(event.data)

    def _check_grant(self, asked: Asked, namespace: str, identity: Identity, topic: str) -> None:
        if not identity.may_publish(topic):
            address = address_of(asked.environ, self._settings.proxies)
            audit.right_refused(
                address=address, namespace=namespace, user=shown_name(identity.user), action="publish", name=topic
            )
            raise Forbidden("publish to", topic)

    def _count(self, identity: Identity, events: int) -> None:
        """Let events count for their user. Raises LimitReached when they are too many now."""
        if wait_s := self.rates.spend(identity.user, time.monotonic(), events):
            raise LimitReached("publish_per_s", self._settings.publish_per_s, wait_s)


def posted(publish: Publish) -> Callable[[], Answer]:
    """Return what answers a request of Flask's."""
    return lambda: publish(AskedOfFlask(request.environ))


def publish_routes(api: PublishApi) -> Blueprint:
    """Return the routes of Flask. The body of one event is bounded by the application's MAX_CONTENT_LENGTH before it is read."""
    routes = Blueprint("publish_api", __name__)

    @routes.post(PUBLISH_PATH)
    def publish() -> Response:
        return as_response(posted(api.one)())

    @routes.post(BATCH_PATH)
    def publish_batch() -> Response:
        return as_response(posted(api.batch)())

    return routes


def routes_below(
    api: PublishApi, answers_to: Callable[[Mapping[str, Any]], bool], of_v1: Mapping[str, Publish] = {}
) -> Mapping[tuple[str, str], Route]:
    """Return the same routes for requests below WSGI (transport/http_routes.py), and those of /api/v1 by their paths.

    Flask has the requests without a token, and those to a name that is not ours (`answers_to`).
    """

    def route(publish: Publish, words: Words) -> Route:
        def answer(request: RoutedRequest) -> Answer | None:
            environ = request.environ
            if request.known is None and not (has_credentials(environ) and answers_to(environ)):
                return None
            asked = _AskedBelow(request)
            try:
                return _secured(publish(asked), environ)
            except Exception as error:  # noqa: BLE001 - raised again, or told
                return _failure(error, environ, words)
            finally:
                request.known = asked.known

        return answer

    legacy: dict[str, Publish] = {PUBLISH_PATH: api.one, BATCH_PATH: api.batch}
    found = {("POST", path): route(publish, WORDS) for path, publish in legacy.items()}
    return found | {("POST", path): route(publish, WORDS_OF_V1) for path, publish in of_v1.items()}


def _failure(error: Exception, environ: Mapping[str, Any], words: Words) -> Answer:
    """Return the answer that tells an error.

    Raises:
        OSError: the caller is gone.
    """
    if isinstance(error, HeadgateError):
        return _secured(words.refusal(error), environ)
    if isinstance(error, BodyFault):
        return _secured(problem_answer(error), environ)
    if isinstance(error, TimeoutError):
        return _secured(words.late(), environ)
    if isinstance(error, OSError):
        raise error
    # As Flask's own page for it: logged, and told nothing.
    log_failure(str(environ["PATH_INFO"]), str(environ["REQUEST_METHOD"]), environ, error)
    return _secured(words.failed(), environ)


def _secured(answer: Answer, environ: Mapping[str, Any]) -> Answer:
    """Return an answer with the headers that make a browser strict."""
    status, headers, body, closes = answer
    return Answer(status, _with_security(tuple(headers), str(environ.get("HTTP_HOST", ""))), body, closes)


@lru_cache(maxsize=256)
def _with_security(headers: tuple[tuple[str, str], ...], host: str) -> tuple[tuple[str, str], ...]:
    return *headers, *security_headers(host)


class AskedOfFlask:
    """A request of Flask's."""

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self.environ = environ
        self.known: object = None

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

    __slots__ = ("_request", "environ", "known")

    def __init__(self, request: RoutedRequest) -> None:
        self._request, self.known = request, request.known
        # An application's authenticator may keep things in it.
        self.environ = dict(request.environ) if request.known is None else request.environ

    def body(self, limit_bytes: int) -> bytes:
        """Return the body, whose length the head says."""
        size = self._request.head.body_bytes
        if size > limit_bytes:
            raise PayloadTooLarge(size, limit_bytes, "http")
        return self._request.body()


def traceparent_of(asked: Asked) -> str | None:
    """Return the trace of a request: None, for that of the current span, else that of its header; a malformed one is dropped."""
    header = asked.environ.get("HTTP_TRACEPARENT")
    return None if header is None or current_traceparent() else read_traceparent(header, "http")


def _receipt(receipt: Receipt) -> bytes:
    """Return a receipt as JSON. An epoch and an id have no character that JSON escapes."""
    duplicate = "true" if receipt.duplicate else "false"
    return f'{{"duplicate":{duplicate},"epoch":"{receipt.epoch}","id":"{receipt.id}","offset":{receipt.offset}}}'.encode()


def one_answer(outcomes: Sequence[Receipt | HeadgateError]) -> Answer:
    """Return the answer to one event. Raises what it was refused for."""
    outcome = outcomes[0]
    if isinstance(outcome, HeadgateError):
        raise outcome
    return encoded_answer(201, _receipt(outcome) + b"\n")


def batch_answer(outcomes: Sequence[Receipt | HeadgateError]) -> Answer:
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
