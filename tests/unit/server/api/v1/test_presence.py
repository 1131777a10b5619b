"""`GET /api/v1/presence` over a recording gate."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from flask.testing import FlaskClient

from headgate.auth.identity import Identity
from headgate.services.publisher import PresentUser
from tests.support.recording_gate import RecordingGate


def test_members_come_by_name_in_parts(dev: FlaskClient, gate: RecordingGate) -> None:
    """Each part names the user behind whom the next begins."""
    gate.present = [PresentUser(name, 2, 1000, {"at": "door"}) for name in ("ana", "ben", "eve")]
    first = dev.get("/api/v1/presence?topic=rooms.7&limit=2").get_json()
    assert (first["topic"], first["count"], first["next"]) == ("rooms.7", 3, "ben")
    assert first["members"][0] == {"user": "ana", "connections": 2, "since": 1000, "meta": {"at": "door"}}
    rest = dev.get("/api/v1/presence?topic=rooms.7&limit=2&after=ben").get_json()
    assert ([member["user"] for member in rest["members"]], rest["next"]) == (["eve"], None)


def test_a_topic_outside_the_grants_is_refused(dev: FlaskClient, gate: RecordingGate) -> None:
    """As a subscription to it is."""
    gate.identity = Identity("ana", subscribe=("rooms.8",))
    answer = dev.get("/api/v1/presence?topic=rooms.7")
    assert (answer.status_code, answer.get_json()["code"]) == (403, "forbidden")


def test_bad_parameters_are_named(dev: FlaskClient) -> None:
    """A topic that is none, a limit beyond the largest, a parameter that nobody knows."""
    for query, code in {
        "topic=rooms.*": "invalid_topic",
        "limit=1": "invalid_request",
        "topic=a&limit=1001": "invalid_request",
        "topic=a&limit=-1": "invalid_request",
        "topic=a&colour=red": "invalid_request",
    }.items():
        answer = dev.get(f"/api/v1/presence?{query}")
        assert (answer.status_code, answer.get_json()["code"]) == (400, code), query


def test_one_that_asks_too_fast_is_told_when_to_come_back(dev: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is that of reading the log."""
    monkeypatch.setattr("headgate_server.api.v1.dispatch.time", SimpleNamespace(monotonic=lambda: 100.0))
    answers = [dev.get("/api/v1/presence?topic=a") for _ in range(201)]
    assert [answer.status_code for answer in answers] == [200] * 200 + [429]
    assert answers[-1].get_json()["name"] == "read_per_s"


def test_the_application_may_refuse_a_topic_that_is_granted(dev: FlaskClient, gate: RecordingGate) -> None:
    """As for a page."""
    gate.unauthorized = {"rooms.7"}
    answer = dev.get("/api/v1/presence?topic=rooms.7")
    assert (answer.status_code, answer.get_json()["code"]) == (403, "forbidden")


def test_a_page_of_a_large_topic_costs_more_than_one_read(
    dev: FlaskClient, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of all members are read for it: one for each thousand, or for each hundred that are shown."""
    monkeypatch.setattr("headgate_server.api.v1.dispatch.time", SimpleNamespace(monotonic=lambda: 100.0))
    gate.present = [PresentUser(f"user{number}", 1, 1, None) for number in range(20_000)]
    answers = [dev.get("/api/v1/presence?topic=a&limit=1") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429]
