"""Requests to /api/v1: the steps of each, in order, and the duties of HTTP. With a recording gate and a small Redis."""

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.auth.identity import Identity
from headgate.errors import BusUnavailable, Unauthorized, UnauthorizedReason
from headgate.settings.settings import Settings
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate

As = Callable[..., FlaskClient]


@pytest.fixture
def with_scopes(gate: RecordingGate) -> As:
    """Make a client for a caller with a key with scopes."""

    def make(*scopes: str, **settings: int) -> FlaskClient:
        gate.identity = Identity("\0key:k1", publish=("orders.#",), scopes=scopes)
        return create_app(Settings(**settings), gate=gate).test_client()  # type: ignore[arg-type]

    return make


def test_a_missing_scope_is_named(with_scopes: As) -> None:
    """403, with the scope as a program needs it; a request within another scope goes through."""
    client = with_scopes("presence:rooms.#")
    refused = client.get("/api/v1/presence?topic=mail.1")
    assert (refused.status_code, refused.get_json()["code"], refused.get_json()["scope"]) == (403, "forbidden", "presence:mail.1")
    assert client.get("/api/v1/presence?topic=rooms.7").status_code == 200
    for path, scope in (("/events", "read:…"), ("/keys", "keys"), ("/consumers", "consumers"), ("/events/1/trace", "trace")):
        answer = client.get(f"/api/v1{path}")
        assert (answer.status_code, answer.get_json()["scope"]) == (403, scope)
    assert with_scopes("read:orders.#").get("/api/v1/events").get_json()["scope"] == "read:#"


@pytest.mark.parametrize("pattern", ["a..b", "#.#.", "", "a" * 300, "%00", "*.#.*.#.x.#.y.#.z"])
def test_a_pattern_that_is_none_is_refused_before_it_is_held_against_scopes(with_scopes: As, pattern: str) -> None:
    """400, whatever the key may read."""
    answer = with_scopes("read:orders.*").get("/api/v1/events", query_string={"pattern": pattern})
    assert (answer.status_code, answer.get_json()["code"]) == (400, "invalid_pattern")


def test_a_user_has_what_its_token_grants_and_nothing_of_an_operators(gate: RecordingGate) -> None:
    """Presence as it may subscribe; no keys, whatever it may subscribe to."""
    gate.identity = Identity("ana", subscribe=("#",), publish=("#",))
    client = create_app(Settings(), gate=gate).test_client()
    assert client.get("/api/v1/presence?topic=rooms.7").status_code == 200
    gate.identity = Identity("ana", subscribe=("rooms.8",))
    assert client.get("/api/v1/presence?topic=rooms.7").get_json()["scope"] == "presence:rooms.7"
    assert client.get("/api/v1/keys").get_json()["scope"] == "keys"
    assert client.put("/api/v1/pauses/connects", json={}).get_json()["scope"] == "pauses:write"


def test_development_lets_anyone_here_do_all_but_what_outlasts_it(dev: FlaskClient, gate: RecordingGate) -> None:
    """No keys are made; Redis is asked for the rest, and there is none here."""
    gate.identity = Identity("anonymous", subscribe=("#",), publish=("#",))
    assert dev.get("/api/v1/pauses").get_json()["code"] == "bus_unavailable"
    assert dev.post("/api/v1/keys", json={"name": "a", "scopes": ["admin"]}).get_json()["scope"] == "keys:write"


def test_a_stranger_is_told_nothing_of_the_request(gate: RecordingGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """401 with WWW-Authenticate, whatever is wrong with the rest of it."""

    def refuse(handshake: object) -> Identity:
        raise Unauthorized(UnauthorizedReason.NO_TOKEN)

    monkeypatch.setattr(gate, "identify", refuse)
    client = create_app(Settings(), gate=gate).test_client()
    for method, path in (("GET", "/presence?x=1"), ("PUT", "/pauses/none"), ("POST", "/events"), ("GET", "/events?from=x")):
        answer = client.open(f"/api/v1{path}", method=method, data=b"{")
        assert (answer.status_code, answer.get_json()["code"]) == (401, "unauthorized"), path
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="headgate"'


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/events", b'{"topic": "orders.1", "data": 1}'),
        ("POST", "/events/batch", b'{"events": [{"topic": "orders.1", "data": 1}]}'),
        ("PUT", "/pauses/connects", b"{}"),
    ],
)
def test_a_caller_whose_rights_end_while_its_body_comes_is_refused(
    with_scopes: As, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: bytes
) -> None:
    """A body may take minutes, and every gateway refuses a revoked key within two seconds."""
    now_s = [1000.0]

    def refuse(handshake: object) -> Identity:
        raise Unauthorized(UnauthorizedReason.NOT_ACCEPTED)

    def end_rights() -> None:
        now_s[0] += 2.0
        monkeypatch.setattr(gate, "identify", refuse)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            end_rights()
            return super().read(size)

        def readinto(self, buffer: Any) -> int:
            end_rights()
            return super().readinto(buffer)

    for module in ("dispatch", "publishing"):
        monkeypatch.setattr(f"headgate_server.api.v1.{module}.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    client = with_scopes("publish:orders.#", "pauses:write")
    answer = client.open(
        f"/api/v1{path}", method=method, input_stream=Slow(body), content_type="application/json", content_length=len(body)
    )
    assert (answer.status_code, gate.published) == (401, [])


def test_each_caller_may_ask_only_so_fast(with_scopes: As, monkeypatch: pytest.MonkeyPatch) -> None:
    """429 with Retry-After and the quota; a request without the scope costs nothing; health costs nothing."""
    monkeypatch.setattr("headgate_server.api.v1.dispatch.time.monotonic", lambda: 1000.0)
    client = with_scopes("presence:#", read_per_s=0.5)
    assert [client.get("/api/v1/keys").status_code for _ in range(3)] == [403] * 3
    answers = [client.get("/api/v1/presence?topic=a") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].headers["Retry-After"] == "2"
    assert answers[-1].headers["RateLimit-Policy"] == '"read_per_s";q=2;w=4'
    assert client.get("/api/v1/health").status_code == 200


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("topic=a&x=1", "unknown field `x`; known: namespace, topic"),
        ("topic=a&topic=b", "'topic' is there more than once"),
        ("", "missing required field `topic`"),
        ("topic=a&limit=0", "limit"),
        ("topic=a&limit=many", "limit"),
        ("topic=a&limit=1001", "limit"),
        ("topic=rooms.*", "invalid topic"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(dev: FlaskClient, query: str, says: str) -> None:
    """400."""
    answer = dev.get(f"/api/v1/presence?{query}")
    assert answer.status_code == 400
    assert says in answer.get_json()["detail"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "pointer"),
    [
        (b"{", "application/json", 400, None),
        (b"\xff", "application/json", 400, None),
        (b"{}", "text/plain", 415, None),
        (b"{}", "", 415, None),
        (b"[]", "application/json", 422, ""),
        (b'{"for_s": 0}', "application/json", 422, "/for_s"),
        (b'{"for": 1}', "application/json", 422, "/for"),
        (b" " * 70_000, "application/json", 413, None),
    ],
)
def test_a_body_that_cannot_be_is_told_with_the_place_of_its_fault(
    dev: FlaskClient, gate: RecordingGate, body: bytes, kind: str, status: int, pointer: str | None
) -> None:
    """400 for invalid JSON, 413, 415, and 422 for JSON with impossible values."""
    gate.identity = Identity("anonymous", subscribe=("#",))
    answer = dev.put("/api/v1/pauses/connects", data=body, content_type=kind)
    assert answer.status_code == status
    assert (answer.get_json().get("errors") or [{}])[0].get("pointer") == pointer


@pytest.mark.parametrize(("method", "path"), [("PUT", "pauses/connects"), ("POST", "events"), ("POST", "events/batch")])
@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("Identity", 422)])
def test_a_compressed_body_is_refused_for_its_encoding(
    dev: FlaskClient, gate: RecordingGate, method: str, path: str, encoding: str, status: int
) -> None:
    """Not as broken JSON, because the fault is in the head."""
    gate.identity = Identity("anonymous", subscribe=("#",), publish=("#",))
    head = {"Content-Type": "application/json", "Content-Encoding": encoding}
    assert dev.open(f"/api/v1/{path}", method=method, data=b"[]", headers=head).status_code == status


JSON_TAKEN = (
    *("", "*/*", "application/*", "text/html, application/json;q=0.1", "application/json; charset=utf-8"),
    "application/json;charset=UTF-8;q=0.5, text/html",
)
NO_JSON_TAKEN = ("text/html", "application/json;charset=utf-8;q=0", "application/json;q=0, */*")


@pytest.mark.parametrize(("accepts", "status"), [(JSON_TAKEN, 200), (NO_JSON_TAKEN, 406)])
def test_an_answer_is_json_or_none(dev: FlaskClient, accepts: tuple[str, ...], status: int) -> None:
    """A caller that takes no JSON is notified of that."""
    for accept in accepts:
        assert dev.get("/api/v1/presence?topic=a", headers={"Accept": accept}).status_code == status, accept


def test_methods_are_as_http_has_them(dev: FlaskClient) -> None:
    """HEAD is GET without a body, OPTIONS and 405 list the methods; nothing is to be cached, and no other site may read it."""
    get, head = dev.get("/api/v1/presence?topic=a"), dev.head("/api/v1/presence?topic=a")
    assert (head.status_code, head.data, head.headers["Content-Length"]) == (200, b"", str(len(get.data)))
    options = dev.options("/api/v1/pauses/connects", headers={"Origin": "https://evil.example"})
    assert (options.status_code, options.headers["Allow"], options.data) == (204, "DELETE, OPTIONS, PUT", b"")
    wrong = dev.delete("/api/v1/presence")
    assert (wrong.status_code, wrong.get_json()["code"]) == (405, "method_not_allowed")
    assert set(wrong.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
    missing, elsewhere = dev.get("/api/v1/nothing"), dev.delete("/livez")
    assert (missing.status_code, missing.mimetype, missing.get_json()["code"]) == (404, "application/problem+json", "not_found")
    assert (elsewhere.status_code, elsewhere.get_json()["code"]) == (405, "method_not_allowed")
    assert "GET" in elsewhere.headers["Allow"]
    websocket = dev.get("/livez", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    assert "expected /socket.io/" in websocket.get_json()["detail"]
    for answer in (get, head, options, wrong, missing):
        assert answer.headers["Cache-Control"] == "no-store"
        assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]


def test_a_fault_of_ours_tells_the_caller_nothing(dev: FlaskClient, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text may hold a secret."""

    def fail(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(gate, "presence_page", fail)
    answer = dev.get("/api/v1/presence?topic=a")
    assert (answer.status_code, answer.get_json()["code"]) == (500, "internal_error")
    assert "hunter2" not in answer.text


def test_a_batch_is_published_as_a_whole_or_not_at_all(dev: FlaskClient, gate: RecordingGate) -> None:
    """If that is wanted. The problem says which event is bad, and why."""
    events = [{"topic": "a", "data": 1}, {"topic": "b..c", "data": 2}, {"topic": "c", "data": 3, "id": "no id"}]
    answer = dev.post("/api/v1/events/batch", json={"events": events, "atomic": True})
    assert (answer.status_code, answer.get_json()["code"]) == (422, "batch_refused")
    assert [(each["pointer"], each["code"]) for each in answer.get_json()["errors"]] == [
        ("/events/1/topic", "invalid_topic"),
        ("/events/2/id", "invalid_event"),
    ]
    assert gate.published == []


def test_what_the_gateway_refuses_of_an_atomic_batch_is_named_too(dev: FlaskClient, gate: RecordingGate) -> None:
    """A schema, for example, which the route does not know of."""
    gate.error, gate.after = BusUnavailable("no"), 1
    answer = dev.post("/api/v1/events/batch", json={"events": [{"topic": "a", "data": 1}] * 2, "atomic": True})
    assert answer.get_json()["errors"][0]["pointer"] == "/events/1"
    assert gate.published == []


def test_an_idempotency_key_is_the_id_of_events_without_one(dev: FlaskClient) -> None:
    """Bare or in quotes; in a batch with the number of the event; an id of the event's own is its id."""
    one = {"topic": "a", "data": 1}
    for key in ("e-1", '"e-1"'):
        assert dev.post("/api/v1/events", json=one, headers={"Idempotency-Key": key}).get_json()["id"] == "e-1"
    batch = {"events": [one, {**one, "id": "own"}, one]}
    answer = dev.post("/api/v1/events/batch", json=batch, headers={"Idempotency-Key": "e-1"})
    assert [receipt["id"] for receipt in answer.get_json()["receipts"]] == ["e-1.0", "own", "e-1.2"]
    assert dev.post("/api/v1/events", json={**one, "id": "own"}, headers={"Idempotency-Key": "e-2"}).get_json()["id"] == "own"
    for key in ("no key", "x" * 129, ""):
        assert dev.post("/api/v1/events", json=one, headers={"Idempotency-Key": key}).status_code == 400


def test_a_caller_without_any_right_to_publish_is_refused_before_its_body(gate: RecordingGate) -> None:
    """Whatever its body."""
    gate.identity = Identity("\0key:k1", scopes=("clients",))
    client = create_app(Settings(), gate=gate).test_client()
    answer = client.post("/api/v1/events", data=b"{", content_type="application/json")
    assert (answer.status_code, answer.get_json()["scope"]) == (403, "publish:…")


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/events/batch"])
def test_a_body_with_a_number_that_json_does_not_have_is_refused_by_name(dev: FlaskClient, path: str) -> None:
    """With its byte, because a body is text, in which another encoder than JSON's wrote it."""
    event = '{"topic": "a", "data": NaN}'
    body = f'{{"events": [{event}]}}' if path.endswith("batch") else event
    answer = dev.post(path, data=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert f"NaN at byte {body.index('NaN')} is not a JSON number; write null or a string" in answer.text
