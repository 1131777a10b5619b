"""Publishing over HTTP: the grant, the receipt, and bodies and callers that are refused."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from headgate.auth.identity import Identity
from headgate.settings import Settings
from headgate_server.api.publish import ENVELOPE_BYTES
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate


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
