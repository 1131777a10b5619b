"""The console's routes over Flask's own client: off by default, the page to sign in, the page, actions, and their audit."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from structlog.testing import capture_logs

from headgate.auth.identity import Identity
from headgate.errors import BusUnavailable
from headgate.settings.settings import Settings
from headgate_server.api.console import add_console
from headgate_server.api.console.access import COOKIE, WRONG_KEYS
from headgate_server.api.console.acts import MAX_KEY_S
from headgate_server.api.console.pages import VIEWS
from tests.support.api_client import connected
from tests.support.console_gate import ConsoleGate
from tests.support.schema_files import write

KEY = "the-admin-key-of-this-test-0123456789"
ORIGIN = {"Origin": "http://localhost"}
ACT = {**ORIGIN, "X-Headgate-Console": "1"}


def application(gate: ConsoleGate, **settings: Any) -> FlaskClient:
    app, gate.settings = Flask(__name__), Settings(**settings)
    add_console(app, gate, gate.settings)
    return app.test_client()


def signed_in(gate: ConsoleGate | None = None, **settings: Any) -> FlaskClient:
    client = application(gate or ConsoleGate(), admin_key=KEY, **settings)
    assert client.post("/console/sign-in", data={"key": KEY}, headers=ORIGIN).status_code == 303
    return client


READS = ["redis", "consumers", "letters", "trace", "presence", "schemas", "clients", "client", "topics", "keys"]
ACTS = ["publish", "disconnect", "letters/retry", "letters/discard", "keys/make", "keys/revoke"]
REST = ("", "tail", "session", "api/redis", "sign-in")
PATHS = ["/console", *(f"/console/{rest}" for rest in REST)]


@pytest.mark.parametrize("path", PATHS)
def test_without_key_and_authenticator_there_is_no_console(path: str) -> None:
    """Nothing says that there could be one."""
    gate = ConsoleGate()
    assert application(gate).get(path).status_code == 404
    assert gate.admitted == []


@pytest.mark.parametrize("path", PATHS)
def test_where_only_the_application_lets_in_others_find_nothing(path: str) -> None:
    """404, as for an unknown path; and nothing to sign in with."""
    client = application(ConsoleGate(identities={"ben": Identity("ben", ("#",))}))
    client.set_cookie("app", "ben")
    assert client.get(path).status_code in (404, 405)
    assert client.post("/console/sign-in", data={"key": KEY}, headers=ORIGIN).status_code == 404
    assert client.post("/console/api/publish", json={}, headers=ACT).status_code == 404


def test_one_whom_the_application_marks_finds_it() -> None:
    """Without a key or a cookie of ours."""
    client = application(ConsoleGate(identities={"ann": Identity("ann", admin="read")}))
    client.set_cookie("app", "ann")
    page = client.get("/console")
    assert (page.status_code, "Set-Cookie" in page.headers) == (200, False)
    assert 'data-may="read"' in page.text
    assert client.get("/console/session").get_json() == {"user": "ann", "may": "read", "ticket": None}


def test_with_a_key_a_stranger_sees_the_page_to_sign_in_and_nothing_else() -> None:
    """Every other route refuses."""
    client = application(ConsoleGate(), admin_key=KEY)
    page = client.get("/console/tail")
    assert page.status_code == 200
    assert "Sign in to the console" in page.text
    assert "data-namespaces" not in page.text
    for path in ("session", *(f"api/{name}" for name in READS)):
        assert client.get(f"/console/{path}").status_code == 401
    for path in ACTS:
        assert client.post(f"/console/api/{path}", json={}, headers=ACT).status_code == 401
    assert client.post("/console/sign-out", headers=ORIGIN).status_code == 401


def test_the_right_key_signs_in() -> None:
    """With a cookie that no script reads, that no other site has sent, and for the console only."""
    client = application(ConsoleGate(), admin_key=KEY)
    with capture_logs() as lines:
        response = client.post("/console/sign-in", data={"key": KEY}, headers=ORIGIN, base_url="https://localhost")
    response = client.post(
        "/console/sign-in", data={"key": KEY}, headers={"Origin": "https://localhost"}, base_url="https://localhost"
    )
    cookie = response.headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/console", "Secure", f"{COOKIE}="))
    assert KEY not in cookie
    assert [line["event"] for line in lines] == ["sign in"]


def test_a_wrong_key_is_told_so_on_the_page() -> None:
    """The address is not heard any more after a while."""
    client = application(ConsoleGate(), admin_key=KEY)
    for _ in range(WRONG_KEYS):
        response = client.post("/console/sign-in", data={"key": "wrong"}, headers=ORIGIN)
        assert (response.status_code, "This is not the admin key." in response.text) == (401, True)
    response = client.post("/console/sign-in", data={"key": KEY}, headers=ORIGIN)
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) > 0
    assert "Set-Cookie" not in response.headers


def test_another_site_signs_nobody_in_or_out() -> None:
    """Its Origin is not ours."""
    client = signed_in()
    for path in ("sign-in", "sign-out"):
        response = client.post(f"/console/{path}", data={"key": KEY}, headers={"Origin": "http://evil.example"})
        assert (response.status_code, "Set-Cookie" in response.headers) == (403, False)


def test_every_view_has_an_address() -> None:
    """One heading, its name, and the current view marked. A slash at the end of the first address does not matter."""
    client = signed_in()
    for path, title in [("", VIEWS[""]), *((f"/{view}", title) for view, title in VIEWS.items())]:
        page = client.get(f"/console{path}").text
        assert f'<h1 id="title">{title}</h1>' in page
        assert len(re.findall(r'aria-current="page"', page)) == 1
    assert client.get("/console/nothing").status_code == 404


def test_the_page_is_as_strict_as_the_demos() -> None:
    """No inline script or style, no frame around it, nothing kept by caches."""
    headers = signed_in().get("/console").headers
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["X-Frame-Options"], headers["Cache-Control"]) == ("DENY", "no-store")
    assert not re.search(r"<script(?![^>]*src=)|style=|onclick", signed_in().get("/console").text)


def test_its_files_are_kept_by_browsers_and_compressed() -> None:
    """By their version; a stranger with a page to sign in gets them, too."""
    client = application(ConsoleGate(), admin_key=KEY)
    (address,) = re.findall(r'href="(/headgate/console.css[^"]+)"', client.get("/console").text)
    response = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert "immutable" in response.headers["Cache-Control"]
    assert response.headers["Content-Type"].startswith("text/css")
    assert client.get("/headgate/../pages.py").status_code == 404


def test_an_operator_publishes() -> None:
    """It is audited with the topic, and without its data."""
    gate = ConsoleGate()
    client = signed_in(gate, console_actions=True)
    with capture_logs() as lines:
        body = {"topic": "orders.42.shipped", "data": {"carrier": "secret"}, "id": "one"}
        response = client.post("/console/api/publish", json=body, headers=ACT)
    assert (response.status_code, response.get_json()["offset"]) == (200, 1)
    assert gate.published == [("orders.42.shipped", {"carrier": "secret"})]
    (line,) = lines
    assert (line["event"], line["by"], line["name"], line["event_id"]) == ("publish", "console", "orders.42.shipped", "one")
    assert "secret" not in str(lines)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], "invalid_request"),
        ({"topic": "orders"}, "invalid_request"),
        ({"topic": "not a topic", "data": 1}, "invalid_topic"),
        ({"topic": 7, "data": 1}, "invalid_topic"),
        ({"topic": "orders", "data": 1, "id": "no good id\n"}, "invalid_event"),
        ({"topic": "orders", "data": 1, "namespace": "elsewhere"}, "unknown_namespace"),
        ({"topic": "orders", "data": 1, "namespace": 3}, "invalid_request"),
    ],
)
def test_a_publish_that_may_not_be_is_refused_and_audited(body: Any, code: str) -> None:
    """With the wire's code."""
    gate = ConsoleGate()
    client = signed_in(gate, console_actions=True)
    with capture_logs() as lines:
        response = client.post("/console/api/publish", json=body, headers=ACT)
    assert response.get_json()["code"] == code
    assert gate.published == []
    assert [line["outcome"] for line in lines if line.get("via") == "console"] == [code]


def test_an_action_whose_body_comes_after_the_session_has_ended_is_refused() -> None:
    """The body may take minutes, and signing out ends the session within one, not only in this browser."""
    gate = ConsoleGate()
    client, body = signed_in(gate, console_actions=True), b'{"topic": "a", "data": 1}'

    class Slow(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            assert client.post("/console/sign-out", headers=ORIGIN).status_code == 303
            return super().readinto(buffer)

    sent = {"input_stream": Slow(body), "content_length": len(body), "content_type": "application/json"}
    answer = client.post("/console/api/publish", headers=ACT, **sent)
    assert (answer.status_code, gate.published) == (401, [])


def test_a_publish_that_fails_is_audited_as_failed() -> None:
    """And the page is notified."""
    client = signed_in(ConsoleGate(error=BusUnavailable("gone")), console_actions=True)
    with capture_logs() as lines:
        response = client.post("/console/api/publish", json={"topic": "orders", "data": 1}, headers=ACT)
    assert (response.status_code, lines[-1]["outcome"]) == (503, "bus_unavailable")


@pytest.mark.parametrize("path", ACTS)
def test_one_who_only_looks_may_do_nothing(path: str) -> None:
    """Nor with a request without our page's header."""
    body = {"topic": "orders", "data": 1, "consumer": "mail", "ids": ["1-1"], "user": "ann"}
    gate = ConsoleGate()
    assert signed_in(gate).post(f"/console/api/{path}", json=body, headers=ACT).status_code == 403
    for headers in (ORIGIN, {"X-Headgate-Console": "1"}, {**ACT, "Origin": "http://evil.example"}):
        assert signed_in(gate, console_actions=True).post(f"/console/api/{path}", json=body, headers=headers).status_code == 403
    assert (gate.published, gate.asked) == ([], [])


@pytest.mark.parametrize("ids", [None, [], "1-1", [1], ["1-1"] * 101])
def test_letters_are_named_one_by_one(ids: Any) -> None:
    """As a list of bounded length."""
    client = signed_in(console_actions=True)
    response = client.post("/console/api/letters/retry", json={"consumer": "mail", "ids": ids}, headers=ACT)
    assert (response.status_code, response.get_json()["code"]) == (400, "invalid_request")


def test_without_redis_a_view_says_so() -> None:
    """Each by itself, with the wire's code."""
    client = signed_in()
    for path in ("redis", "consumers", "schemas", "trace?event=1", "letters?consumer=mail"):
        response = client.get(f"/console/api/{path}")
        assert (response.status_code, response.get_json()["code"]) == (503, "bus_unavailable"), path
    assert client.get("/console/api/trace").get_json()["code"] == "invalid_request"
    assert client.get("/console/api/letters?consumer=../x").get_json()["code"] == "invalid_request"
    assert client.get("/console/api/presence?topic=#").get_json()["code"] == "invalid_topic"
    assert client.get("/console/api/presence?topic=rooms.1").get_json() == {"topic": "rooms.1", "count": 0, "members": []}


ANN = connected(user="ann", patterns=("orders.#",), trouble=("queue full",))


def test_the_schemas_are_those_of_the_settings_in_force(tmp_path: Path) -> None:
    """Also after a reload, which may name another folder."""
    gate = ConsoleGate()
    client = signed_in(gate, schemas=str(tmp_path / "before"), schema_check="refuse")
    folder = str(write(tmp_path / "now", {"a.json": {"type": "integer"}}))
    gate.settings = replace(gate.settings, schemas=folder, schema_check="warn")
    shown = client.get("/console/api/schemas").get_json()
    assert (shown["check"], shown["source"], [each["name"] for each in shown["documents"]]) == ("warn", folder, ["a.json"])


def test_clients_are_listed_with_the_processes_that_did_not_answer() -> None:
    """As the gateways say; the order and the place are the page's wish, and how many are not."""
    gate = ConsoleGate(connected=[ANN])
    client = signed_in(gate)
    told = client.get("/console/api/clients?sort=queue&user=ann&limit=100000").get_json()
    assert (told["total"], told["silent"], told["clients"][0]["trouble"]) == (1, ["other/7"], ["queue full"])
    assert gate.asked == [{"namespace": None, "user": "ann", "after": None, "sort": "queue", "limit": 50}]
    assert client.get("/console/api/client?session=s1").get_json()["client"]["patterns"] == ["orders.#"]
    assert client.get("/console/api/client?session=gone").get_json() == {"client": None}


def test_an_operator_disconnects() -> None:
    """One client, or all of a user, in the operator's name; neither and both are refused."""
    gate = ConsoleGate(connected=[ANN])
    client = signed_in(gate, console_actions=True)
    with capture_logs() as lines:
        assert client.post("/console/api/disconnect", json={"session": "s1"}, headers=ACT).get_json()["disconnected"] == 1
        for body in ({}, {"session": "s1", "user": "ann"}):
            assert client.post("/console/api/disconnect", json=body, headers=ACT).status_code == 400
    assert gate.asked == [{"session": "s1", "user": None, "reason": "disconnected by an operator", "by": "console"}]
    refused = (None, "invalid_request")
    assert [(line.get("name"), line.get("outcome")) for line in lines] == [("s1", None), refused, refused]


def test_one_whom_the_application_lets_act_makes_no_keys() -> None:
    """A key would outlast the session; a user without a key makes none."""
    client = application(ConsoleGate(identities={"ann": Identity("ann", admin="act")}))
    client.set_cookie("app", "ann")
    body = {"name": "billing", "scopes": ["clients"]}
    assert client.post("/console/api/keys/make", json=body, headers=ACT).status_code == 403
    by_key = signed_in(console_actions=True)
    body["admin_key"] = KEY
    ends = ({"ttl_s": "1"}, {"ttl_s": True}, {"ttl_s": 0}, {"ttl_s": None}, {"ttl_s": MAX_KEY_S + 1})
    for wrong in ({"scopes": "clients"}, {"scopes": ["all"]}, {"name": ""}, *ends):
        response = by_key.post("/console/api/keys/make", json={**body, **wrong}, headers=ACT)
        assert (response.status_code, response.get_json()["code"]) == (400, "invalid_request"), wrong


def test_a_cookie_alone_makes_no_key() -> None:
    """The admin key is shown once more; wrong ones count as they do at the sign-in."""
    client = signed_in(console_actions=True)
    body = {"name": "billing", "scopes": ["admin"]}
    with capture_logs() as lines:
        for wrong in ({}, {"admin_key": "wrong"}):
            response = client.post("/console/api/keys/make", json={**body, **wrong}, headers=ACT)
            assert (response.status_code, response.get_json()["code"]) == (403, "forbidden")
    assert [line["outcome"] for line in lines if line["event"] == "key made"] == ["forbidden"] * 2
    for _ in range(WRONG_KEYS):
        last = client.post("/console/api/keys/make", json={**body, "admin_key": "wrong"}, headers=ACT).status_code
    assert last == 429
    assert client.post("/console/api/keys/make", json={**body, "admin_key": KEY}, headers=ACT).status_code == 429


def test_it_is_added_once() -> None:
    """However often an application asks."""
    app = Flask(__name__)
    for _ in range(2):
        add_console(app, ConsoleGate(), Settings(admin_key=KEY))
    assert app.test_client().get("/console").status_code == 200
