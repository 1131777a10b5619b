"""The demo's routes: orders that are changed for everybody, by users with a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.auth.identity import Handshake
from headgate.errors import BusUnavailable, Unauthorized
from headgate_server.demo import orders
from headgate_server.demo.pages import demo_authenticator
from headgate_server.demo.tokens import DemoTokens
from tests.support.recording_gate import RecordingGate

SECRET = bytes(range(32))


def order(client: FlaskClient, number: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in client.get("/demo/orders").get_json() if each["id"] == number)
    return found


def test_a_change_is_saved_and_published(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """The event holds the whole order as saved, with who did it."""
    seen = order(demo, "42")
    answer = demo.put("/demo/orders/42", json={"version": seen["version"], "note": "UPS"}, headers=as_ana)
    assert answer.status_code == 200
    assert answer.get_json()["note"] == "UPS"
    assert answer.get_json()["by"] == "ana"
    assert order(demo, "42") == answer.get_json()
    assert gate.published == [("orders.42.updated", answer.get_json())]


@pytest.mark.parametrize(("status", "verb"), [("shipped", "shipped"), ("failed", "failed"), ("new", "updated")])
def test_a_move_is_published_under_its_verb(
    demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], status: str, verb: str
) -> None:
    """Statuses people want alerts for have a topic of their own, and put an item into the inboxes of the others."""
    demo.put("/demo/orders/42", json={"version": order(demo, "42")["version"], "status": status}, headers=as_ana)
    items = [] if verb == "updated" else [f"users.ben.inbox.orders.{verb}"]
    assert [topic for topic, _ in gate.published] == [f"orders.42.{verb}", *items]


def test_a_change_of_a_stale_version_is_a_conflict(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """The second of two people who edited the same version is told what the order is now."""
    version = order(demo, "42")["version"]
    demo.put("/demo/orders/42", json={"version": version, "note": "first"}, headers=as_ana)
    answer = demo.put("/demo/orders/42", json={"version": version, "note": "second"}, headers=as_ana)
    assert answer.status_code == 409
    assert answer.get_json()["current"]["note"] == "first"
    assert len(gate.published) == 1


def test_a_change_that_cannot_be_published_is_not_saved(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Everyone sees the same board, or the one who changed it is told that nobody does."""
    before = order(demo, "42")
    gate.error = BusUnavailable("gone")
    answer = demo.put("/demo/orders/42", json={"version": before["version"], "note": "UPS"}, headers=as_ana)
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
    assert (again.status_code, again.get_json()["current"]) == (409, back.get_json())


def test_an_order_that_was_never_deleted_cannot_be_restored(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """404, with what can be restored; without a version 400."""
    answer = demo.post("/demo/orders/4711/restore", json={"version": 1}, headers=as_ana)
    assert (answer.status_code, answer.get_json()["code"]) == (404, "not_found")
    assert "can no longer be restored" in answer.get_json()["detail"]
    assert demo.post("/demo/orders/4711/restore", json={}, headers=as_ana).status_code == 400


def test_the_book_is_bounded(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """The order after the last is refused with the limit's name."""
    room = orders.MAX_ORDERS - len(demo.get("/demo/orders").get_json())
    for _ in range(room):
        assert demo.post("/demo/orders", headers=as_ana).status_code == 201
    answer = demo.post("/demo/orders", headers=as_ana)
    assert (answer.status_code, answer.get_json()["name"]) == (409, "orders")


def test_a_burst_is_fifty_true_changes(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]) -> None:
    """Every event is a saved change with a version of its own, newer than the one before."""
    assert demo.post("/demo/burst", headers=as_ana).get_json() == {"published": 50}
    versions = [data["version"] for _, data in gate.published]
    assert len(versions) == 50
    assert versions == sorted(set(versions))
    assert max(each["version"] for each in demo.get("/demo/orders").get_json()) == versions[-1]


def test_a_burst_cut_short_keeps_the_changes_that_were_published(
    demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str]
) -> None:
    """The caller gets the bus's error; book and events agree."""
    gate.error, gate.after = BusUnavailable("gone"), 7
    assert demo.post("/demo/burst", headers=as_ana).status_code == 503
    assert len(gate.published) == 7
    assert max(each["version"] for each in demo.get("/demo/orders").get_json()) == gate.published[-1][1]["version"]


@pytest.mark.parametrize(
    "edit",
    [
        {"status": "lost"}, {"note": 7}, {"carrier": "UPS"}, {"note": "x" * 141}, {"total_cents": 1}, {},
        {"version": None, "note": "x"}, {"version": True, "note": "x"}, {"version": "1", "note": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_edit_is_refused(demo: FlaskClient, gate: RecordingGate, as_ana: dict[str, str], edit: dict[str, Any]) -> None:
    """Unknown fields, wrong types, too long, no version: 400 and nothing published."""
    answer = demo.put("/demo/orders/42", json={"version": order(demo, "42")["version"], **edit}, headers=as_ana)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "invalid_request")
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
    assert (answer.status_code, answer.get_json()["code"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert gate.published == []


@pytest.mark.parametrize("body", [{"user": "eve"}, {"user": ["ana"]}, {}, [], "ana"], ids=str)
def test_only_the_demos_users_get_a_token(demo: FlaskClient, body: Any) -> None:
    """Anyone else is refused."""
    assert demo.post("/demo/session", json=body).status_code == 400


def test_the_authenticator_grants_orders_and_the_users_own_messages() -> None:
    """A pattern in a grant, never beyond: not another user's, not everything, no publishing. The own topics are the gateway's."""
    tokens = DemoTokens(lambda: SECRET)
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
    authenticate = demo_authenticator(DemoTokens(lambda: SECRET), dev=dev)
    if dev and not auth:
        identity = authenticate(Handshake("notifications", auth, {}))
        assert identity is not None
        assert identity.may_subscribe("#")
    else:
        with pytest.raises(Unauthorized):
            authenticate(Handshake("notifications", auth, {}))
