"""Publishing below WSGI: the answers of Flask to the byte; and Flask wherever an application has its own in between."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from flask import Flask

from headgate.auth.identity import Identity
from headgate.errors import BusUnavailable
from headgate.flask.extension import Headgate
from headgate.settings.settings import Settings
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import Route
from headgate_server.api.publish_requests import routes_below
from headgate_server.api.v1.publishing import BATCH, EVENTS, Publishing
from headgate_server.app import create_app
from tests.support.http_peer import FOREVER, Pause, Peer
from tests.support.recording_gate import RecordingGate

SETTINGS = Settings(max_payload_bytes=200, publish_per_s=1.5)
ONE = b'{"topic": "orders.42.shipped", "data": {"carrier": "UPS"}}'


def request(body: bytes, *lines: str, path: str = EVENTS, kind: str = "application/json", length: int | None = None) -> bytes:
    """Return a request as it travels."""
    size = len(body) if length is None else length
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1:8000", f"Content-Type: {kind}", f"Content-Length: {size}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


BEARER = "Authorization: Bearer the.token.of-ana"


def with_token(body: bytes, *lines: str, **options: Any) -> bytes:
    return request(body, BEARER, *lines, **options)


def batch(*events: dict[str, Any], **more: Any) -> bytes:
    return with_token(json.dumps({"events": events, **more}).encode(), path=BATCH)


EVENT = {"topic": "orders.42.shipped", "data": 1}
REQUESTS: dict[str, list[bytes | Pause]] = {
    "an event": [with_token(ONE)],
    "an event with an id": [with_token(b'{"topic":"orders.1","data":null,"id":"e-1","namespace":"/notifications"}')],
    "another content type of JSON": [with_token(ONE, kind="Application/JSON; charset=utf-8")],
    "no token": [request(ONE)],
    "an empty credential": [request(ONE, "Authorization:")],
    "another kind of credential": [request(ONE, "Authorization: Basic YTpi")],
    "a topic that is not granted": [with_token(b'{"topic": "mail.1", "data": 1}')],
    "no topic": [with_token(b'{"topic": "a..b", "data": 1}')],
    "a bad id": [with_token(b'{"topic": "orders.1", "data": 1, "id": "no id"}')],
    "no JSON": [with_token(b"{")],
    "bad text": [with_token(b'{"topic": "orders.1", "data": "\xff"}')],
    "a lone surrogate": [with_token(b'{"topic": "orders.1", "data": "\\ud800"}')],
    "text/plain": [with_token(ONE, kind="text/plain")],
    "another namespace": [with_token(b'{"topic": "orders.1", "data": 1, "namespace": "elsewhere"}')],
    "a payload too large": [with_token(json.dumps({"topic": "orders.1", "data": "x" * 200}).encode())],
    "a body too large": [with_token(b"x" * 2000)],
    "a body too large that has not come": [with_token(b"", length=10_000_000)],
    "a body that does not come": [with_token(b"{", length=60), FOREVER],
    "a stranger's body that does not come": [request(b"", "Authorization: Basic YTpi", length=60_000), FOREVER],
    "four at a time": [with_token(ONE) * 4],
    "the last request of a connection": [with_token(ONE, "Connection: close") + with_token(ONE)],
    "a body in chunks": [
        f"POST {EVENTS} HTTP/1.1\r\nHost: test\r\n{BEARER}\r\nContent-Type: application/json\r\n".encode()
        + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE)
    ],
    "100 Continue": [with_token(b"", "Expect: 100-continue", length=len(ONE)), Pause(1), ONE],
    "a question before the request of another site": [
        f"OPTIONS {EVENTS} HTTP/1.1\r\nHost: test\r\nOrigin: https://evil.example\r\n\r\n".encode()
    ],
    "another method": [f"GET {EVENTS} HTTP/1.1\r\nHost: test\r\n{BEARER}\r\n\r\n".encode()],
    "a batch": [batch(EVENT, {**EVENT, "id": "e-2"})],
    "a batch of none": [batch()],
    "a batch with some refused": [batch(EVENT, {"topic": "mail.1", "data": 1}, {"topic": "orders.", "data": 1}, EVENT)],
    "a batch with all refused": [batch({"topic": "mail.1", "data": 1})],
    "a batch above the rate": [batch(EVENT, EVENT) + batch(EVENT, EVENT)],
    "a batch above the burst": [batch(EVENT, EVENT, EVENT, EVENT)],
    "a batch that is none": [with_token(ONE, path=BATCH)],
    "an idempotency key": [with_token(ONE, "Idempotency-Key: e-1")],
    "an idempotency key in quotes": [with_token(ONE, 'Idempotency-Key: "e-1"')],
    "an idempotency key that is none": [with_token(ONE, "Idempotency-Key: no key")],
    "an answer that is not wanted": [with_token(ONE, "Accept: text/html")],
    "an answer that is wanted less": [with_token(ONE, "Accept: text/html, application/json;q=0.1")],
    "a compressed body": [with_token(ONE, "Content-Encoding: gzip")],
    "a parameter": [with_token(ONE, path=f"{EVENTS}?a=1")],
    "one after the other, until the rate is reached": [with_token(ONE)] * 5,
    "others after an event": [
        with_token(body)
        for body in (ONE, b'{"topic":"orders.1","data":1,"id":"e-1","namespace":"notifications"}', b'{"topic":"mail.1","data":1}')
    ],
    "faults after an event": [
        with_token(body) for body in (ONE, b"{", b'{"topic":"orders.1","data":1,"id":"no id"}', b"x" * 2000, ONE)
    ],
    "another namespace after an event": [with_token(ONE), with_token(b'{"topic":"orders.1","data":1,"namespace":"elsewhere"}')],
    "half of one after an event": [with_token(ONE), with_token(ONE)[:-5], Pause(1), ONE[-5:]],
    "all or none": [batch(EVENT, EVENT, atomic=True)],
    "all or none, with one refused": [batch(EVENT, {"topic": "orders.", "data": 1}, EVENT, atomic=True)],
}


class Clock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def all_routes(gate: RecordingGate, settings: Settings, answers_to: Callable[[Any], bool]) -> Mapping[tuple[str, str], Route]:
    publishing = Publishing(gate, settings)
    return routes_below({EVENTS: publishing.one, BATCH: publishing.batch}, answers_to, {EVENTS: publishing.begin_one})


def served(sends: list[bytes | Pause], gate: RecordingGate, *, below: bool) -> bytes:
    """Return the bytes with which requests are answered, through Flask or below WSGI."""
    app = create_app(SETTINGS, gate=gate)
    left: list[str] = []
    routes = all_routes(gate, SETTINGS, lambda environ: True)
    if below:
        app.before_request(lambda: left.append("Flask"))
    peer = Peer(list(sends))
    peer.served_by(app, HttpLimits(), routes=routes if below else {})
    return peer.received


@pytest.mark.parametrize(("before", "now", "status"), [(8, 2, b"409"), (2, 8, b"201")])
def test_a_batch_is_held_against_the_burst_that_is_in_force(before: int, now: int, status: bytes) -> None:
    """After a reload too: a batch above the burst would be told to come again, for ever."""
    publishing = Publishing(RecordingGate(), Settings(publish_per_s=before / 2))
    publishing.rates.apply(now / 2, now)
    peer, routes = Peer([batch(EVENT, EVENT, EVENT)]), routes_below({BATCH: publishing.batch}, lambda environ: True, {})
    peer.served_by(lambda *_: pytest.fail("the application was asked"), HttpLimits(), routes=routes)
    assert peer.received.split()[1] == status


FAULTS = (BusUnavailable("no answer"), RuntimeError("a secret"))
FAILING = (
    "an event",
    "one after the other, until the rate is reached",
    "a batch",
    "all or none",
    "an idempotency key",
    "100 Continue",
)


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_is_the_same_below_and_in_flask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, headers, body, and whether the connection goes on; and the same is published. Some of each kind also fail."""
    for module in ("http_answers", "http_wsgi"):
        monkeypatch.setattr(f"headgate.transport.{module}.date_line", lambda now_s: b"Date: Thu, 01 Jan 1970 00:16:40 GMT\r\n")
    monkeypatch.setattr("headgate_server.api.v1.publishing.time", Clock())
    for error in (None, *(FAULTS if name in FAILING else ())):
        gates = [RecordingGate(error=error, identity=Identity("ana", publish=("orders.#",))) for _ in range(2)]
        through, under = (served(REQUESTS[name], gate, below=below) for gate, below in zip(gates, (False, True), strict=True))
        assert through == under
        assert gates[0].published == gates[1].published
        assert through.startswith(b"HTTP/1.1 ")


def test_the_hub_answers_an_event_whose_head_has_passed_before() -> None:
    """The loop answers it. A request for another namespace, or in pieces, is left to the greenlet."""
    for name, begun in (("one after the other, until the rate is reached", 2), ("half of one after an event", 0)):
        gate = RecordingGate(identity=Identity("ana", publish=("orders.#",)))
        assert served(REQUESTS[name], gate, below=True).count(b"HTTP/1.1 201 ") == len(gate.published)
        assert gate.begun == begun


def test_flask_sees_nothing_of_a_request_with_a_token() -> None:
    """That is the point of it."""
    gate = RecordingGate(identity=Identity("ana", publish=("orders.#",)))
    app = create_app(SETTINGS, gate=gate)
    app.before_request(lambda: pytest.fail("Flask was asked"))
    peer = Peer([with_token(ONE), Pause(1), batch(EVENT), Pause(2), with_token(json.dumps(EVENT).encode())])
    peer.served_by(app, HttpLimits(), routes=all_routes(gate, SETTINGS, lambda environ: True))
    assert peer.received.count(b"HTTP/1.1 201 CREATED\r\n") == 3
    assert gate.published == [("orders.42.shipped", {"carrier": "UPS"}), ("orders.42.shipped", 1), ("orders.42.shipped", 1)]


@pytest.mark.parametrize(
    ("lines", "answers"), [(["Host: elsewhere"], False), ([BEARER, "Host: elsewhere"], False), (["Host: here"], True)]
)
def test_flask_has_requests_to_other_names_and_those_without_a_token(lines: list[str], answers: bool) -> None:
    """The gateway in front of it refuses the first, and it looks closer at the others."""
    gate = RecordingGate()
    asked: list[str] = []
    app = create_app(Settings(dev=True), gate=gate)
    app.before_request(lambda: asked.append("Flask"))
    head = "\r\n".join([f"POST {EVENTS} HTTP/1.1", *lines, f"Content-Length: {len(ONE)}", "", ""]).encode()
    routes = all_routes(gate, Settings(dev=True), lambda environ: answers)
    Peer([head + ONE]).served_by(app, HttpLimits(), routes=routes)
    assert asked == ["Flask"]


# The served application -------------------------------------------------------------------------------------------------


def test_the_ready_made_application_has_its_publishing_below_wsgi() -> None:
    """Its two paths, and nothing else of it."""
    app = create_app(Settings(), is_final=True)
    publishing = {("POST", path) for path in (EVENTS, BATCH)}
    assert set(app.extensions["headgate"].routes(app)) == publishing


def test_an_application_that_others_change_has_every_request() -> None:
    """A WSGI middleware, or a hook, as each expects to see all."""
    app = create_app(Settings(), is_final=True)
    inner = app.wsgi_app
    app.wsgi_app = lambda environ, start_response: inner(environ, start_response)  # type: ignore[method-assign]
    assert set(app.extensions["headgate"].routes(app)) == set()

    app = create_app(Settings())
    assert set(app.extensions["headgate"].routes(app)) == set()


def test_an_application_of_ones_own_has_every_request() -> None:
    """The gateway inside another application answers none of its paths."""
    app = Flask(__name__)
    routes = Headgate(app, settings=Settings()).routes(app)
    assert not routes
