"""`GET /api/events` over a recording gate: who may not read. tests/integration/server/test_http_api.py reads a real log."""

from __future__ import annotations

from flask.testing import FlaskClient

from headgate.auth.identity import Identity
from tests.support.recording_gate import RecordingGate


def test_a_pattern_must_be_granted_and_allowed_by_the_application(dev: FlaskClient, gate: RecordingGate) -> None:
    """In this order: the application is not asked about what is not granted."""
    gate.identity = Identity("ana", subscribe=("a.#",))
    gate.unauthorized = {"a.1"}
    refusals = [dev.get(f"/api/events?pattern={pattern}").get_json()["error"] for pattern in ("b", "a.1")]
    assert [(refusal["code"], refusal["action"]) for refusal in refusals] == [("forbidden", "read"), ("forbidden", "replay")]
