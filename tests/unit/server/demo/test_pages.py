"""The demo's routes: orders that users with a token change for all pages."""

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.errors import BusUnavailable
from headgate_server.demo.pages import STALL_S
from headgate_server.demo.trouble import MAX_BURST_EVENTS, MAX_OVER_S
from tests.support.recording_gate import RecordingGate

BURST = {"id": "abc", "events": 50, "over_s": 0}


def order(client: FlaskClient, number: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in client.get("/demo/orders").get_json() if each["id"] == number)
    return found


@pytest.mark.parametrize(("status", "verb"), [("shipped", "shipped"), ("failed", "failed"), ("new", "updated")])
def test_a_move_is_saved_and_published_under_its_verb(
    demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], status: str, verb: str
) -> None:
    """The event holds the whole order as saved; a status worth an alert also puts an item into the inboxes of the others."""
    answer = demo.put("/demo/orders/42", json={"status": status}, headers=as_ana)
    assert answer.status_code == 200
    assert order(demo, "42") == answer.get_json()
    assert (answer.get_json()["status"], answer.get_json()["by"]) == (status, "ana")
    item = {"order": "42", "customer": "Haruto Tanaka", "by": "ana"}
    items = [] if verb == "updated" else [(f"users.ben.inbox.orders.{verb}", item)]
    assert gate.published == [(f"orders.42.{verb}", answer.get_json()), *items]


def test_a_change_that_cannot_be_published_is_not_saved(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Everyone sees the same board, and the user who changed it gets the bus's error."""
    before = demo.get("/demo/orders").get_json()
    gate.error = BusUnavailable("gone")
    assert demo.put("/demo/orders/42", json={"status": "new"}, headers=as_ana).status_code == 503
    assert demo.post("/demo/orders", headers=as_ana).status_code == 503
    assert demo.get("/demo/orders").get_json() == before


def test_an_order_is_created(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """It is new, it has the next number, and it is published."""
    made = demo.post("/demo/orders", headers=as_ana)
    assert (made.status_code, made.get_json()["id"], made.get_json()["status"]) == (201, "45", "new")
    assert gate.published == [("orders.45.created", made.get_json())]


@pytest.mark.parametrize("body", [{}, {"status": "lost"}, {"status": None}, {"status": ["new"]}, [], None], ids=str)
def test_a_wrong_move_is_refused(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], body: Any) -> None:
    """No status, or none of the four: 400, and nothing is published."""
    answer = demo.put("/demo/orders/42", json=body, headers=as_ana)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "invalid_request")
    assert gate.published == []


def test_an_unknown_order_is_not_found(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """The error names it."""
    answer = demo.put("/demo/orders/4711", json={"status": "new"}, headers=as_ana)
    assert (answer.status_code, answer.get_json()["detail"]) == (404, "there is no order '4711' (any more)")


def test_a_burst_is_that_many_true_changes(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Each event is a saved change with a version above the one before, and has its number in the burst."""
    assert demo.post("/demo/burst", json=BURST, headers=as_ana).get_json() == {"published": 50}
    assert [data["burst"] for _, data in gate.published] == [{"id": "abc", "number": number} for number in range(1, 51)]
    versions = [data["version"] for _, data in gate.published]
    assert versions == sorted(set(versions))
    assert max(each["version"] for each in demo.get("/demo/orders").get_json()) == versions[-1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": 0}, {"events": MAX_BURST_EVENTS + 1}, {"events": True}, {"events": "5"}, {"events": None},
        {"over_s": -1}, {"over_s": MAX_OVER_S + 1}, {"over_s": "1"}, {"over_s": None},
        {"id": None}, {"id": ""}, {"id": "a b"}, {"id": 7}, {"id": "x" * 41},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_burst_is_refused(
    demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], wrong: dict[str, object]
) -> None:
    """The error names the part and the expected value, and nothing is published."""
    answer = demo.post("/demo/burst", json={**BURST, **wrong}, headers=as_ana)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "invalid_request")
    assert answer.get_json()["detail"].startswith(f"invalid request: {next(iter(wrong))}: expected ")
    assert gate.published == []


CHANGES: dict[str, Callable[[FlaskClient, dict[str, str]], Any]] = {
    "create": lambda client, headers: client.post("/demo/orders", headers=headers),
    "move": lambda client, headers: client.put("/demo/orders/42", json={"status": "new"}, headers=headers),
    "burst": lambda client, headers: client.post("/demo/burst", json=BURST, headers=headers),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer forged", "Basic YTpi", "Bearer " + "x" * 9000])
def test_changes_need_a_token(
    demo: FlaskClient, gate: RecordingGate, change: Callable[..., Any], authorization: str | None
) -> None:
    """Without a valid one the answer is 401 with a challenge, and nothing happens."""
    answer = change(demo, {"Authorization": authorization} if authorization else {})
    assert answer.status_code == 401
    assert "Bearer" in answer.headers["WWW-Authenticate"]
    assert gate.published == []


@pytest.mark.parametrize(
    "body",
    ["{}", '{"user":"eve"}', '{"user":null}', '{"user":["ana"]}', "[]", '"ana"', '{"user":' + "[" * 60_000],
    ids=lambda body: body[:16],
)
def test_nobody_else_gets_a_token(demo: FlaskClient, body: str) -> None:
    """The demo has two users."""
    assert demo.post("/demo/session", data=body, content_type="application/json").status_code == 400


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["Ana", "Ben"]),
        ("?user=ben", ["Ben"]),
        ("?user=ana&twice=1", ["Ana’s laptop", "Ana’s phone"]),
        ("?user=x", ["Ana", "Ben"]),
    ],
)
def test_the_page_has_a_pane_for_each_person_or_device(demo: FlaskClient, query: str, names: list[str]) -> None:
    """Both people by default, or the one that the address names."""
    page = demo.get(f"/{query}").text
    assert page.count('class="pane"') == len(names)
    assert all(f'data-name="{name}"' in page for name in names)


@pytest.mark.parametrize("asked", ["0", "600", "x", "-1", "nan"])
def test_a_stall_is_never_longer_than_ten_seconds(demo: FlaskClient, asked: str) -> None:
    """A value out of range counts as nothing."""
    assert f'data-stall-s="{STALL_S}"' in demo.get(f"/?stall_s={asked}").text
    assert 'data-stall-s="2.0"' in demo.get("/?stall_s=2").text
