"""`GET /api/v1/presence` over a recording gate."""

from types import SimpleNamespace

import pytest
from flask.testing import FlaskClient

from headgate.services.publisher import PresentUser
from tests.support.recording_gate import RecordingGate


def test_members_come_by_name_in_parts(dev: FlaskClient, gate: RecordingGate) -> None:
    """Each part names the user after whom the next begins."""
    gate.present = [PresentUser(name, 2, 1000, {"at": "door"}) for name in ("ana", "ben", "eve")]
    first = dev.get("/api/v1/presence?topic=rooms.7&limit=2").get_json()
    assert (first["topic"], first["count"], first["next"]) == ("rooms.7", 3, "ben")
    assert first["members"][0] == {"user": "ana", "connections": 2, "since": 1000, "meta": {"at": "door"}}
    rest = dev.get("/api/v1/presence?topic=rooms.7&limit=2&after=ben").get_json()
    assert ([member["user"] for member in rest["members"]], rest["next"]) == (["eve"], None)


def test_the_application_may_refuse_a_topic_that_is_granted(dev: FlaskClient, gate: RecordingGate) -> None:
    """As for a page."""
    gate.unauthorized = {"rooms.7"}
    answer = dev.get("/api/v1/presence?topic=rooms.7")
    assert (answer.status_code, answer.get_json()["code"]) == (403, "forbidden")


def test_a_large_topics_page_costs_more_reads(dev: FlaskClient, gate: RecordingGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of all members are read for it, one read for each thousand, or for each hundred on the page."""
    monkeypatch.setattr("headgate_server.api.v1.dispatch.time", SimpleNamespace(monotonic=lambda: 100.0))
    gate.present = [PresentUser(f"user{number}", 1, 1, None) for number in range(20_000)]
    answers = [dev.get("/api/v1/presence?topic=a&limit=1") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429]
