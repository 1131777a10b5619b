"""The ready-made server's routes over Flask's own client, with a recording gateway: no Redis, no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from headgate.auth.admission import LoginsThrottled
from headgate.auth.identity import Handshake, Identity
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidTopic, LimitReached, Unauthorized
from headgate.event import Event
from headgate.settings import Settings
from headgate_server.app import ENVELOPE_BYTES, create_app
from headgate_server.demo import orders
from headgate_server.demo import tokens as demo_tokens
from headgate_server.demo.pages import demo_authenticator
from headgate_server.demo.tokens import DemoTokens
from headgate_server.security_headers import content_security_policy

SECRET = bytes(range(32))


@dataclass
class Receipt:
    epoch: str
    offset: int
    duplicate: bool
    id: str


@dataclass
class RecordingGate:
    """Keeps what is published; refuses with `error` while that is set, from the `after`-th publish on."""

    published: list[tuple[str, Any]] = field(default_factory=list)
    error: Exception | None = None
    after: int = 0
    state: dict[str, Any] = field(default_factory=lambda: {"ready": True, "bus": "up"})
    identity: Identity = field(default_factory=lambda: Identity("anyone", ("#",), ("#",)))

    def publish(
        self, topic: str, data: Any, id: str | None = None, namespace: str | None = None, *, by: str | None = None
    ) -> Receipt:
        if self.error and len(self.published) >= self.after:
            raise self.error
        self.published.append((topic, data))
        return Receipt("0123456789abcdef", len(self.published), False, id or "made-up")

    def identify(self, handshake: Handshake) -> Identity:
        return self.identity

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        raise AssertionError("tests/integration/server/test_http_api.py reads a real log")

    def ready(self) -> Mapping[str, Any]:
        return self.state


@pytest.fixture
def gate() -> RecordingGate:
    return RecordingGate()


@pytest.fixture
def demo(gate: RecordingGate, tmp_path: Path) -> FlaskClient:
    return create_app(Settings(demo=True, data_dir=str(tmp_path)), gate=gate).test_client()


@pytest.fixture
def dev(gate: RecordingGate) -> FlaskClient:
    return create_app(Settings(dev=True), gate=gate).test_client()


@pytest.fixture
def as_ana(demo: FlaskClient) -> dict[str, str]:
    return {"Authorization": f"Bearer {demo.post('/demo/session', json={'user': 'ana'}).get_json()['token']}"}


def order(client: FlaskClient, number: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in client.get("/demo/orders").get_json() if each["id"] == number)
    return found


# --- Health ---------------------------------------------------------------------------------------------------------


def test_healthz_is_200_when_the_gateway_is_ready(demo: FlaskClient) -> None:
    """Ready: nothing is missing."""
    answer = demo.get("/healthz")
    assert (answer.status_code, answer.get_json()) == (200, {"ready": True, "bus": "up", "missing": []})


def test_healthz_is_503_and_names_what_is_missing(demo: FlaskClient, gate: RecordingGate) -> None:
    """Not ready: the bus is down, and the answer says so."""
    gate.state = {"ready": False, "bus": "down", "clients": 3}
    answer = demo.get("/healthz")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.get_json() == {"ready": False, "bus": "down", "clients": 3, "missing": ["bus"]}


DOWN = {
    "ready": False,
    "bus": "down",
    "namespaces": {"notifications": {"bus": "down", "clients": 3, "error": "the bus is unavailable: 10.1.2.3:6379: refused"}},
}


@pytest.mark.parametrize(
    "request_",
    [
        {"environ_base": {"REMOTE_ADDR": "192.0.2.7"}},
        {"headers": {"X-Forwarded-For": "127.0.0.1"}},
        {"headers": {"Forwarded": "x"}},
    ],
    ids=["another address", "through a proxy", "through another proxy"],
)
def test_healthz_tells_strangers_that_the_bus_is_down_and_not_where_it_is(
    demo: FlaskClient, gate: RecordingGate, request_: dict[str, Any]
) -> None:
    """Loopback is told why; nobody else learns Redis' address."""
    gate.state = DOWN
    answer = demo.get("/healthz", **request_)
    assert answer.status_code == 503
    assert answer.get_json()["namespaces"] == {"notifications": {"bus": "down", "clients": 3}}
    assert "10.1.2.3" not in answer.text
    assert "10.1.2.3" in demo.get("/healthz").text


def test_an_error_of_the_bus_does_not_name_its_address(dev: FlaskClient, gate: RecordingGate) -> None:
    """Over HTTP as on the wire."""
    gate.error = BusUnavailable("10.1.2.3:6379 did not answer in time", told="it does not answer")
    answer = dev.post("/api/publish", json={"topic": "a", "data": 1})
    assert answer.get_json()["error"]["reason"] == "it does not answer"
    assert "10.1.2.3" not in answer.text


def test_livez_does_not_depend_on_the_bus(demo: FlaskClient, gate: RecordingGate) -> None:
    """A gateway whose Redis is away must not be restarted for it."""
    gate.state = {"ready": False, "bus": "down"}
    assert demo.get("/livez").status_code == 200


def test_metrics_are_prometheus_text_on_loopback(demo: FlaskClient) -> None:
    """The default registry, as text."""
    answer = demo.get("/metrics")
    assert answer.status_code == 200
    assert answer.content_type.startswith("text/plain")
    assert "python_info" in answer.text


@pytest.mark.parametrize(
    "request_",
    [
        {"environ_base": {"REMOTE_ADDR": "192.0.2.7"}},
        {"headers": {"X-Forwarded-For": "127.0.0.1"}},
        {"environ_base": {"REMOTE_ADDR": ""}},
    ],
    ids=["another address", "through a proxy", "no address"],
)
def test_metrics_are_refused_to_others(demo: FlaskClient, request_: dict[str, Any]) -> None:
    """Metrics are for this machine unless the operator opens them."""
    assert demo.get("/metrics", **request_).status_code == 403


def test_open_metrics_are_served_to_others(gate: RecordingGate) -> None:
    """`HEADGATE_METRICS_OPEN` is the operator's word."""
    client = create_app(Settings(metrics_open=True), gate=gate).test_client()
    assert client.get("/metrics", environ_base={"REMOTE_ADDR": "192.0.2.7"}).status_code == 200


# --- Errors and headers -----------------------------------------------------------------------------------------------


def test_unknown_pages_and_methods_are_json_errors(demo: FlaskClient) -> None:
    """404 and 405 have the shape of every other refusal; 405 keeps the Allow that it owes."""
    missing, wrong = demo.get("/no/such/page"), demo.delete("/livez")
    assert (missing.status_code, missing.get_json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.get_json()["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["Allow"]


def test_an_unforeseen_exception_tells_the_caller_nothing(gate: RecordingGate) -> None:
    """Its text may hold a secret."""
    app = create_app(Settings(dev=True), gate=gate)
    gate.error = RuntimeError("password=hunter2")
    answer = app.test_client().post("/api/publish", json={"topic": "a", "data": 1})
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (500, "internal_error")
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("path", ["/", "/two", "/healthz", "/no/such/page"])
def test_every_response_carries_the_strict_headers(demo: FlaskClient, path: str) -> None:
    """No inline script, no sniffing, no referrer, framed by nobody else; error pages included."""
    headers = demo.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_the_policy_allows_web_sockets_to_its_own_host_only() -> None:
    """A Host header that is more than a host is not copied into the policy."""
    assert "connect-src 'self' ws://localhost:8000 wss://localhost:8000;" in content_security_policy("localhost:8000")
    assert "connect-src 'self' ws://[::1]:8000 wss://[::1]:8000;" in content_security_policy("[::1]:8000")
    for hostile in ("evil; script-src *", "*", "a b", "", "x" * 300):
        assert "connect-src 'self';" in content_security_policy(hostile)


def test_pages_hold_no_inline_script_or_style(demo: FlaskClient) -> None:
    """What the policy would block must not be there."""
    for path in ("/", "/two"):
        page = demo.get(path).text
        assert " style=" not in page
        assert "<style" not in page
        assert page.count("<script") == page.count('<script type="module" src=')


def test_without_the_demo_the_index_says_what_this_is(gate: RecordingGate) -> None:
    """And none of the demo's routes exist."""
    client = create_app(Settings(), gate=gate).test_client()
    page = client.get("/")
    assert page.status_code == 200
    assert "Headgate" in page.text
    assert client.get("/demo/orders").status_code == 404


# --- Publishing over HTTP ---------------------------------------------------------------------------------------------


def test_publishing_over_http_needs_a_grant(gate: RecordingGate) -> None:
    """A caller whose grants do not contain the topic is told so, and nothing is published."""
    gate.identity = Identity("ana", publish=("orders.*.noted",))
    client = create_app(Settings(), gate=gate).test_client()
    refused = client.post("/api/publish", json={"topic": "orders.42.shipped", "data": 1})
    assert (refused.status_code, refused.get_json()["error"]["code"]) == (403, "forbidden")
    assert gate.published == []
    assert client.post("/api/publish", json={"topic": "orders.42.noted", "data": 1}).status_code == 201


def test_publishing_in_development_returns_the_receipt(dev: FlaskClient, gate: RecordingGate) -> None:
    """201 with epoch, offset, duplicate and id; the data arrives as it was sent."""
    answer = dev.post("/api/publish", json={"topic": "orders.42.shipped", "data": {"carrier": "UPS"}, "id": "e-1"})
    assert answer.status_code == 201
    assert answer.get_json() == {"epoch": "0123456789abcdef", "offset": 1, "duplicate": False, "id": "e-1"}
    assert gate.published == [("orders.42.shipped", {"carrier": "UPS"})]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"topic": "a", "data": 1}', "text/plain"),
        (b'{"topic": "a"}', "application/json"),
        (b'{"topic": 7, "data": 1}', "application/json"),
        (b'{"topic": "a", "data": NaN}', "application/json"),
        (b'{"topic": "a", "data": 1, "tpoic": 2}', "application/json"),
        (b'{"topic": "a", "data": "\xff"}', "application/json"),
        (b"", "application/json"),
        (b"[" * 5000, "application/json"),
    ],
    ids=["not JSON by type", "no data", "topic not text", "NaN", "unknown field", "not UTF-8", "empty", "deep"],
)
def test_a_malformed_publish_is_refused(dev: FlaskClient, gate: RecordingGate, body: bytes, content_type: str) -> None:
    """400 with a code of the tree, and nothing published."""
    answer = dev.post("/api/publish", data=body, content_type=content_type)
    assert answer.status_code == 400
    assert answer.get_json()["error"]["code"] in ("invalid_request", "not_serializable")
    assert gate.published == []


def test_a_payload_over_the_limit_is_refused_with_its_size(gate: RecordingGate) -> None:
    """payload_too_large {size, limit, where} at one byte above; at the limit it goes through."""
    client = create_app(Settings(dev=True, max_payload_bytes=100), gate=gate).test_client()
    fits = client.post("/api/publish", json={"topic": "a", "data": "x" * 98})
    above = client.post("/api/publish", json={"topic": "a", "data": "x" * 99})
    assert fits.status_code == 201
    assert above.status_code == 413
    assert above.get_json()["error"] | {"message": ""} == {
        "code": "payload_too_large",
        "message": "",
        "retry": False,
        "size": 101,
        "limit": 100,
        "where": "http",
    }


def test_a_declared_huge_body_is_refused_before_it_is_read(dev: FlaskClient) -> None:
    """The same words when the whole body is over the bound: nothing is buffered."""
    size = Settings().max_payload_bytes + ENVELOPE_BYTES + 1
    answer = dev.post("/api/publish", data=b"x" * size, content_type="application/json")
    assert answer.status_code == 413
    assert answer.get_json()["error"]["code"] == "payload_too_large"
    assert answer.get_json()["error"]["where"] == "http"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "rebound.example"}, {"Origin": "http://localhost:1"}],
)
def test_other_sites_cannot_publish_through_a_browser(dev: FlaskClient, gate: RecordingGate, headers: dict[str, str]) -> None:
    """Development lets anyone on this machine publish, and no web page."""
    answer = dev.post("/api/publish", json={"topic": "a", "data": 1}, headers=headers)
    assert answer.status_code == 403
    assert gate.published == []


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (InvalidTopic("a..b", "empty word"), 400, None),
        (BusUnavailable("gone"), 503, "1"),
        (BusRefused("OOM"), 502, None),
        (LimitReached("x", 1, 7), 429, "7"),
        (LimitReached("x", 1), 409, None),
    ],
)
def test_errors_of_the_gateway_reach_the_caller(
    dev: FlaskClient, gate: RecordingGate, error: HeadgateError, status: int, retry_after: str | None
) -> None:
    """Same code and parts as on the wire; what may be retried says when."""
    gate.error = error
    answer = dev.post("/api/publish", json={"topic": "a", "data": 1})
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_after)
    assert answer.get_json()["error"] == error.to_wire()


# --- The demo ---------------------------------------------------------------------------------------------------------


def test_who_failed_to_log_in_too_often_is_told_when_to_come_back(gate: RecordingGate) -> None:
    """By the header that every HTTP client knows, and not after the second that other limits take."""
    gate.error = LoginsThrottled(100, 7)
    client = create_app(Settings(), gate=gate).test_client()
    answer = client.post("/api/publish", json={"topic": "a", "data": 1}, headers={"Authorization": "Bearer x"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.get_json()["error"]["retry_after_s"] == 7


def test_a_change_is_saved_and_published(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """The event holds the whole order as saved, with who did it."""
    seen = order(demo, "42")
    answer = demo.put("/demo/orders/42", json={"version": seen["version"], "carrier": "UPS"}, headers=as_ana)
    assert answer.status_code == 200
    assert answer.get_json()["carrier"] == "UPS"
    assert answer.get_json()["by"] == "ana"
    assert order(demo, "42") == answer.get_json()
    assert gate.published == [("orders.42.updated", answer.get_json())]


@pytest.mark.parametrize(("status", "verb"), [("shipped", "shipped"), ("failed", "failed"), ("new", "updated")])
def test_a_move_is_published_under_its_verb(
    demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], status: str, verb: str
) -> None:
    """Statuses people want alerts for have a topic of their own."""
    demo.put("/demo/orders/42", json={"version": order(demo, "42")["version"], "status": status}, headers=as_ana)
    assert [topic for topic, _ in gate.published] == [f"orders.42.{verb}"]


def test_a_change_of_a_stale_version_is_a_conflict(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """The second of two people who edited the same version is told what the order is now."""
    version = order(demo, "42")["version"]
    demo.put("/demo/orders/42", json={"version": version, "note": "first"}, headers=as_ana)
    answer = demo.put("/demo/orders/42", json={"version": version, "note": "second"}, headers=as_ana)
    assert answer.status_code == 409
    assert answer.get_json()["error"]["current"]["note"] == "first"
    assert len(gate.published) == 1


def test_a_change_that_cannot_be_published_is_not_saved(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Everyone sees the same board, or the one who changed it is told that nobody does."""
    before = order(demo, "42")
    gate.error = BusUnavailable("gone")
    answer = demo.put("/demo/orders/42", json={"version": before["version"], "carrier": "UPS"}, headers=as_ana)
    assert answer.status_code == 503
    assert order(demo, "42") == before


def test_a_version_is_never_used_twice(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Not even when the publish that carried it raised: boards may have seen it."""
    version = order(demo, "42")["version"]
    gate.error = BusUnavailable("answer lost")
    demo.put("/demo/orders/42", json={"version": version, "note": "maybe seen"}, headers=as_ana)
    gate.error = None
    first = demo.put("/demo/orders/42", json={"version": version, "note": "saved"}, headers=as_ana).get_json()["version"]
    assert first > max(each["version"] for each in demo.get("/demo/orders").get_json() if each["id"] != "42") + 1


def test_orders_are_created_and_deleted(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Both are events; a deleted order is gone."""
    made = demo.post("/demo/orders", headers=as_ana)
    assert made.status_code == 201
    number, version = made.get_json()["id"], made.get_json()["version"]
    gone = demo.delete(f"/demo/orders/{number}", json={"version": version}, headers=as_ana)
    assert (gone.status_code, gone.get_json()) == (200, gate.published[-1][1])
    assert [topic for topic, _ in gate.published] == [f"orders.{number}.created", f"orders.{number}.deleted"]
    assert demo.put(f"/demo/orders/{number}", json={"version": version, "note": "x"}, headers=as_ana).status_code == 404


def test_a_deleted_order_is_restored_for_everybody(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """With the version of the deletion; the log says that it was restored, and the order is what it was."""
    before = order(demo, "42")
    gone = demo.delete("/demo/orders/42", json={"version": before["version"]}, headers=as_ana).get_json()
    back = demo.post("/demo/orders/42/restore", json={"version": gone["version"]}, headers=as_ana)
    assert back.status_code == 200
    assert gate.published[-1] == ("orders.42.restored", back.get_json())
    assert order(demo, "42") == {**before, "version": back.get_json()["version"], "by": "ana"}
    again = demo.post("/demo/orders/42/restore", json={"version": gone["version"]}, headers=as_ana)
    assert (again.status_code, again.get_json()["error"]["current"]) == (409, back.get_json())


def test_an_order_that_was_never_deleted_cannot_be_restored(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """404, with what can be restored; without a version 400."""
    answer = demo.post("/demo/orders/4711/restore", json={"version": 1}, headers=as_ana)
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (404, "not_found")
    assert "can no longer be restored" in answer.get_json()["error"]["message"]
    assert demo.post("/demo/orders/4711/restore", json={}, headers=as_ana).status_code == 400


def test_a_session_tells_which_orders_the_server_has(demo: FlaskClient) -> None:
    """The first version of its book, the same for everybody as long as the server runs."""
    first, second = (demo.post("/demo/session", json={"user": user}).get_json() for user in ("ana", "ben"))
    assert first["since"] == second["since"] == min(each["version"] for each in demo.get("/demo/orders").get_json())


def test_the_book_is_bounded(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """The order after the last is refused with the limit's name."""
    room = orders.MAX_ORDERS - len(demo.get("/demo/orders").get_json())
    for _ in range(room):
        assert demo.post("/demo/orders", headers=as_ana).status_code == 201
    answer = demo.post("/demo/orders", headers=as_ana)
    assert (answer.status_code, answer.get_json()["error"]["name"]) == (409, "orders")


def test_a_burst_is_fifty_true_changes(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Every event is a saved change with a version of its own, newer than the one before."""
    assert demo.post("/demo/burst", headers=as_ana).get_json() == {"published": 50}
    versions = [data["version"] for _, data in gate.published]
    assert len(versions) == 50
    assert versions == sorted(set(versions))
    assert sum(each["scans"] for each in demo.get("/demo/orders").get_json()) == 50


def test_a_burst_cut_short_keeps_what_was_published(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """The caller gets the bus's error; book and events agree."""
    gate.error, gate.after = BusUnavailable("gone"), 7
    assert demo.post("/demo/burst", headers=as_ana).status_code == 503
    assert sum(each["scans"] for each in demo.get("/demo/orders").get_json()) == len(gate.published) == 7


@pytest.mark.parametrize(
    "edit",
    [
        {"status": "lost"}, {"carrier": 7}, {"carrier": "x" * 41}, {"note": "x" * 141}, {"total_cents": 1}, {},
        {"version": None, "note": "x"}, {"version": True, "note": "x"}, {"version": "1", "note": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_edit_is_refused(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], edit: dict[str, Any]) -> None:
    """Unknown fields, wrong types, too long, no version: 400 and nothing published."""
    answer = demo.put("/demo/orders/42", json={"version": order(demo, "42")["version"], **edit}, headers=as_ana)
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (400, "invalid_request")
    assert gate.published == []


CHANGES: list[Callable[[FlaskClient, dict[str, str]], Any]] = [
    lambda client, headers: client.post("/demo/orders", headers=headers),
    lambda client, headers: client.put("/demo/orders/42", json={"version": 4, "note": "x"}, headers=headers),
    lambda client, headers: client.delete("/demo/orders/42", json={"version": 4}, headers=headers),
    lambda client, headers: client.post("/demo/orders/42/restore", json={"version": 4}, headers=headers),
    lambda client, headers: client.post("/demo/burst", headers=headers),
]


@pytest.mark.parametrize("change", CHANGES, ids=["create", "change", "delete", "restore", "burst"])
@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer forged", "Basic YTpi", "Bearer " + "x" * 9000])
def test_changes_need_a_token(
    demo: FlaskClient, gate: RecordingGate, change: Callable[..., Any], authorization: str | None
) -> None:
    """Without a valid one: 401 with a challenge, and nothing happens."""
    answer = change(demo, {"Authorization": authorization} if authorization else {})
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert gate.published == []


@pytest.mark.parametrize("body", [{"user": "eve"}, {"user": ["ana"]}, {}, [], "ana"], ids=str)
def test_only_the_demos_users_get_a_token(demo: FlaskClient, body: Any) -> None:
    """Anyone else is refused."""
    assert demo.post("/demo/session", json=body).status_code == 400


def test_the_authenticator_grants_orders_and_the_users_own_messages() -> None:
    """A pattern in a grant, never beyond: not another user's, not everything, no publishing. The own topics are the gateway's."""
    tokens = DemoTokens(SECRET)
    handshake = Handshake("notifications", {"token": tokens.issue("ana")}, {})
    found = demo_authenticator(tokens, dev=False)(handshake)
    assert found is not None
    ana = found.with_own_topics()
    assert ana.user == "ana"
    assert all(map(ana.may_subscribe, ("orders.#", "orders.*.shipped", "users.ana.#")))
    assert not any(map(ana.may_subscribe, ("#", "users.ben.#", "users.#", "*.42.shipped")))
    assert not ana.may_publish("orders.42.shipped")


@pytest.mark.parametrize("auth", [{}, {"token": ""}, {"token": "forged"}, {"token": 7}, {"token": None}], ids=str)
@pytest.mark.parametrize("dev", [False, True])
def test_the_authenticator_refuses_bad_tokens(auth: dict[str, Any], dev: bool) -> None:
    """Development lets a client without a token in, but never one with a bad token."""
    authenticate = demo_authenticator(DemoTokens(SECRET), dev=dev)
    if dev and not auth:
        identity = authenticate(Handshake("notifications", auth, {}))
        assert identity is not None
        assert identity.may_subscribe("#")
    else:
        with pytest.raises(Unauthorized):
            authenticate(Handshake("notifications", auth, {}))


def test_a_token_is_good_with_its_own_secret_only() -> None:
    """The server that issued it may have ended; another secret makes it a stranger's."""
    token = DemoTokens(SECRET).issue("ana")
    assert DemoTokens(SECRET).verify(token) == "ana"
    with pytest.raises(Unauthorized, match="not one of ours"):
        DemoTokens(SECRET[::-1]).verify(token)


def test_a_token_outlives_the_server_that_issued_it(demo: FlaskClient, gate: RecordingGate, tmp_path: Path) -> None:
    """The secret is in the data folder: the next server takes the token, also with a Redis that is not ours."""
    token = demo.post("/demo/session", json={"user": "ana"}).get_json()["token"]
    settings = Settings(demo=True, data_dir=str(tmp_path), redis_url="redis://elsewhere:6379/0")
    answer = create_app(settings, gate=gate).test_client().post("/demo/orders", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 201


def test_without_the_demo_no_secret_is_made(gate: RecordingGate, tmp_path: Path) -> None:
    """A server that needs none leaves the folder alone."""
    create_app(Settings(data_dir=str(tmp_path / "data")), gate=gate)
    assert not (tmp_path / "data").exists()


def test_a_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """One issued longer ago than its lifetime is refused, and the refusal says how to get a new one."""
    tokens = DemoTokens(SECRET)
    token = tokens.issue("ana")
    monkeypatch.setattr(demo_tokens, "TOKEN_LIFETIME_S", -1)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.verify(token)


@pytest.fixture
def app_from_environment(monkeypatch: pytest.MonkeyPatch, gate: RecordingGate, tmp_path: Path) -> Flask:
    monkeypatch.setenv("HEADGATE_DEMO", "1")
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(tmp_path))
    return create_app(gate=gate)


def test_settings_come_from_the_environment_when_none_are_given(app_from_environment: Flask) -> None:
    """What a WSGI server that is given `create_app` gets."""
    assert app_from_environment.test_client().get("/demo/orders").status_code == 200
