"""Every refusal over HTTP is a problem, with the status that fits its code."""

import pytest
from flask.testing import FlaskClient

from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidTopic, LimitReached
from tests.support.recording_gate import RecordingGate


def test_unknown_pages_and_methods_are_json_errors(demo: FlaskClient) -> None:
    """404 and 405 have the shape of every other refusal; 405 keeps the Allow that it owes."""
    missing, wrong = demo.get("/no/such/page"), demo.delete("/livez")
    assert (missing.status_code, missing.get_json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.get_json()["code"]) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["Allow"]


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (InvalidTopic("a..b", "empty word"), 400, None),
        (BusUnavailable("gone"), 503, "1"),
        (BusRefused("OOM"), 502, None),
        (LimitReached("x", 1, 7), 429, "7"),
        (LimitReached("failed_logins", 100, 7), 429, "7"),
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
