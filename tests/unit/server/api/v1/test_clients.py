"""Clients over /api/v1: the questions to all gateways, and how their answers are reported. With recorded questions."""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from structlog.testing import capture_logs

from headgate.auth.identity import Identity
from headgate.errors import HeadgateError, InvalidPattern, NotSerializable
from headgate.services.clients import Clients, ClientsPage, ConnectedClient, Reached
from headgate.settings.settings import Settings
from headgate_server.api.v1.services import Services
from tests.support.api_client import api_client, connected
from tests.support.recording_gate import RecordingGate

As = Callable[..., FlaskClient]


class Asked:
    """Keeps the questions, and answers as configured."""

    def __init__(self) -> None:
        self.questions: list[tuple[Any, ...]] = []
        self.reached = Reached(1, ())
        self.there: ConnectedClient | None = None
        self.error: HeadgateError | None = None

    def page(self, *words: Any, within: Any) -> ClientsPage:
        self.questions.append((*words, within))
        return ClientsPage((), 0, None, ("host/7",))

    def client(self, session: str, within: Any) -> ConnectedClient | None:
        self.questions.append((session, within))
        return self.there

    def disconnect(self, **wish: Any) -> Reached:
        self.questions.append(tuple(sorted(wish.items())))
        return self.reached

    def send(self, session: str, topic: str, data: Any, event_id: str | None, within: Any) -> bool:
        if self.error is not None:
            raise self.error
        self.questions.append((session, topic, bytes(data), event_id, within))
        return False

    def regrant(self, user: str, **wish: Any) -> Reached:
        if self.error is not None:
            raise self.error
        self.questions.append((user, *sorted(wish.items())))
        return self.reached


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def with_scopes(gate: RecordingGate, asked: Asked) -> As:
    def make(*scopes: str, namespaces: tuple[str, ...] = ("*",)) -> FlaskClient:
        gate.identity = Identity("\0key:k1", scopes=scopes, namespaces=namespaces)
        return api_client(Services(gate, Settings(), clients=cast(Clients, asked)))

    return make


def test_a_page_is_asked_for_as_the_parameters_say(with_scopes: As, asked: Asked) -> None:
    """Gateways that did not answer are named."""
    client = with_scopes("clients")
    assert client.get("/api/v1/clients?user=ana&sort=queue&limit=5&after=x").get_json()["silent"] == ["host/7"]
    client.get("/api/v1/clients?namespace=other")
    assert asked.questions == [(None, "ana", "queue", 5, "x", None), ("other", None, "trouble", 100, None, None)]
    client.get("/api/v1/clients", query_string={"user": "Ana M\u00fcller"})
    assert asked.questions[-1][1] == "Ana M\u00fcller"
    assert client.get("/api/v1/clients", query_string={"user": "a\u200bb"}).get_json()["clients"] == []
    for query in ("sort=odd", "limit=0", "limit=1001", "namespace=a%20b", "user="):
        assert client.get(f"/api/v1/clients?{query}").status_code == 400, query


def test_a_client_that_nobody_has_is_404(with_scopes: As, asked: Asked) -> None:
    """To look up and to disconnect; not if a gateway has said nothing, which may have had it."""
    client = with_scopes("clients:write")
    asked.reached = Reached(0, ())
    assert client.get("/api/v1/clients/s1").status_code == 404
    assert client.delete("/api/v1/clients/s1").status_code == 404
    asked.reached = Reached(0, ("host/7",))
    answer = client.delete("/api/v1/clients/s1?reason=enough")
    assert (answer.status_code, answer.get_json()) == (200, {"count": 0, "silent": ["host/7"]})
    assert asked.questions[-1] == (("by", "key k1"), ("reason", "enough"), ("session", "s1"), ("within", None))
    assert client.get(f"/api/v1/clients/{'x' * 65}").status_code == 404


def test_one_who_may_look_at_clients_may_not_disconnect_them(with_scopes: As, asked: Asked) -> None:
    """One client, or all of a user."""
    client = with_scopes("clients")
    for path in ("/clients/s1", "/users/ana/clients"):
        assert client.delete(f"/api/v1{path}").get_json()["scope"] == "clients:write"
    assert asked.questions == []
    assert with_scopes("clients:write").delete("/api/v1/users/ana/clients").get_json()["count"] == 1


def test_an_event_for_one_client_needs_its_topics_scope(with_scopes: As, asked: Asked) -> None:
    """It is audited; the answer says whether it was taken, and an unknown session is 404."""
    client = with_scopes("send:hints.#")
    assert client.post("/api/v1/clients/s1/events", json={"topic": "hints.1", "data": 1}).status_code == 404
    asked.questions.clear()
    asked.there = connected()
    with capture_logs() as lines:
        answer = client.post("/api/v1/clients/s1/events", json={"topic": "hints.1", "data": {"a": 1}})
    assert (answer.status_code, answer.get_json()) == (200, {"taken": False})
    assert asked.questions == [("s1", "hints.1", b'{"a": 1}', None, None), ("s1", None)]
    assert [(line["event"], line["by"], line["topic"]) for line in lines] == [("event sent to a client", "key k1", "hints.1")]
    refused = client.post("/api/v1/clients/s1/events", json={"topic": "mail.1", "data": 1})
    assert (refused.status_code, refused.get_json()["scope"]) == (403, "send:mail.1")
    publisher = with_scopes("publish:#").post("/api/v1/clients/s1/events", json={"topic": "mail.1", "data": 1})
    assert publisher.get_json()["scope"] == "send:…"


def test_what_is_wrong_with_an_event_for_one_client_has_its_place(with_scopes: As, asked: Asked) -> None:
    """422, and a pointer to the member."""
    client = with_scopes("send:#")
    asked.error = NotSerializable("NaN")
    for body, pointer in (({"topic": "a..b", "data": 1}, "/topic"), ({"topic": "a", "data": 1}, "/data")):
        answer = client.post("/api/v1/clients/s1/events", json=body)
        assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, pointer)


def test_other_grants_are_asked_for_by_name(with_scopes: As, asked: Asked) -> None:
    """Absent lists stay so; an invalid pattern is reported."""
    client = with_scopes("users:write")
    assert client.put("/api/v1/users/ana/grants", json={"subscribe": ["mail.#"], "for_s": 60}).get_json()["count"] == 1
    assert asked.questions == [("ana", ("by", "key k1"), ("for_s", 60), ("publish", None), ("subscribe", ["mail.#"]))]
    asked.error = InvalidPattern("a..b", "empty word")
    assert client.put("/api/v1/users/ana/grants", json={"subscribe": ["a..b"]}).status_code == 422


def test_a_key_asks_for_the_clients_of_its_namespaces_only(with_scopes: As, asked: Asked) -> None:
    """Whatever it asks, gateways leave out the others (tests/unit/node/population/test_client_list.py)."""
    client = with_scopes("clients:write", "send:#", namespaces=("shop", "mail"))
    client.get("/api/v1/clients")
    client.get("/api/v1/clients/s1")
    client.delete("/api/v1/clients/s1")
    client.delete("/api/v1/users/ana/clients")
    client.post("/api/v1/clients/s1/events", json={"topic": "a", "data": 1})
    assert len(asked.questions) == 6  # the event was not taken, so whether the session is there is asked too
    assert all(("shop", "mail") in question or ("within", ("shop", "mail")) in question for question in asked.questions)
    assert client.get("/api/v1/clients?namespace=other").status_code == 403
    assert client.get("/api/v1/clients?namespace=mail").status_code == 200


@pytest.mark.parametrize("name", ["auth0|1", "Ana Müller", "tenant/ana", "a?b#c", "100%", "..", "👨‍👩‍👧", "#"])
def test_a_user_of_any_name_is_found_by_its_path_and_in_the_query(with_scopes: As, asked: Asked, name: str) -> None:
    """Percent-encoded, as any address; an impossible name is no user's."""
    client = with_scopes("clients", "clients:write")
    assert client.delete(f"/api/v1/users/{quote(name, safe='')}/clients").status_code == 200
    assert ("user", name) in asked.questions[-1]
    assert client.get(f"/api/v1/clients?user={quote(name, safe='')}").status_code == 200
    assert client.delete("/api/v1/users/a%0Ab/clients").status_code == 404
    assert client.get(f"/api/v1/clients?user={'%C3%A9' * 62}").get_json()["total"] == 0
