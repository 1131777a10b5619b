"""Every refusal over HTTP is a problem, with the status that fits its code."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from headgate.auth.admission import LoginsThrottled
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidTopic, LimitReached
from headgate.settings.settings import Settings
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate


def test_unknown_pages_and_methods_are_json_errors(demo: FlaskClient) -> None:
    """404 and 405 have the shape of every other refusal; 405 keeps the Allow that it owes."""
    missing, wrong = demo.get("/no/such/page"), demo.delete("/livez")
    assert (missing.status_code, missing.get_json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.get_json()["code"]) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["Allow"]


def test_an_unforeseen_exception_tells_the_caller_nothing(gate: RecordingGate) -> None:
    """Its text may hold a secret."""
    app = create_app(Settings(dev=True), gate=gate)
    gate.error = RuntimeError("password=hunter2")
    answer = app.test_client().post("/api/v1/events", json={"topic": "a", "data": 1})
    assert (answer.status_code, answer.get_json()["code"]) == (500, "internal_error")
    assert "hunter2" not in answer.text


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
    """Same code and parts as on the wire; a retryable one says when."""
    gate.error = error
    answer = dev.post("/api/v1/events", json={"topic": "a", "data": 1})
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_after)
    wire = error.to_wire()
    assert answer.get_json().items() >= {"detail": wire.pop("message"), **wire}.items()


def test_an_error_of_the_bus_does_not_name_its_address(dev: FlaskClient, gate: RecordingGate) -> None:
    """Over HTTP as on the wire."""
    gate.error = BusUnavailable("10.1.2.3:6379 did not answer in time", shown="it does not answer")
    answer = dev.post("/api/v1/events", json={"topic": "a", "data": 1})
    assert answer.get_json()["reason"] == "it does not answer"
    assert "10.1.2.3" not in answer.text


def test_a_caller_who_failed_to_log_in_too_often_is_told_when_to_come_back(gate: RecordingGate) -> None:
    """By the header that every HTTP client knows, and not after the second that other limits take."""
    gate.error = LoginsThrottled(100, 7)
    client = create_app(Settings(), gate=gate).test_client()
    answer = client.post("/api/v1/events", json={"topic": "a", "data": 1}, headers={"Authorization": "Bearer x"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.get_json()["retry_after_s"] == 7
