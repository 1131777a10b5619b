"""Publishing over HTTP: the grant, the receipt, and refused bodies and callers."""

import pytest
from flask.testing import FlaskClient

from headgate.auth.identity import Identity
from headgate.errors import BusRefused, BusUnavailable
from headgate.events.traceparent import DROPPED
from headgate.settings.settings import Settings
from headgate_server.api.v1.publishing import ENVELOPE_BYTES, MAX_BATCH_BYTES, MAX_BATCH_EVENTS
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate

EVENT = {"topic": "a", "data": 1}


def test_publishing_over_http_needs_a_grant(gate: RecordingGate) -> None:
    """A caller without a grant that contains the topic is refused with that reason, and nothing is published."""
    gate.identity = Identity("ana", publish=("orders.*.noted",))
    client = create_app(Settings(), gate=gate).test_client()
    refused = client.post("/api/v1/events", json={"topic": "orders.42.shipped", "data": 1})
    assert (refused.status_code, refused.get_json()["code"]) == (403, "forbidden")
    assert gate.published == []
    assert client.post("/api/v1/events", json={"topic": "orders.42.noted", "data": 1}).status_code == 201


def test_publishing_in_development_returns_the_receipt(dev: FlaskClient, gate: RecordingGate) -> None:
    """201 with epoch, offset, duplicate and id; the data arrives as it was sent."""
    answer = dev.post("/api/v1/events", json={"topic": "orders.42.shipped", "data": {"carrier": "UPS"}, "id": "e-1"})
    assert answer.status_code == 201
    assert answer.get_json() == {"epoch": "0123456789abcdef", "offset": 1, "duplicate": False, "id": "e-1"}
    assert gate.published == [("orders.42.shipped", {"carrier": "UPS"})]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("", b'{"topic": "a"}', 422, "invalid_request"),
        ("", b'{"topic": 7, "data": 1}', 422, "invalid_request"),
        ("", b'{"topic": "a", "data": 1, "tpoic": 2}', 422, "invalid_request"),
        ("", b'{"topic": "a", "data": "\xff"}', 422, "not_serializable"),
        ("", b"", 400, "invalid_request"),
        ("", b"[" * 5000, 422, "invalid_request"),
        ("", b'{"topic": 0.0, "\\ud800": null}', 400, "invalid_request"),  # the second fault makes it unreadable
        ("/batch", b"[]", 422, "invalid_request"),
        ("/batch", b"{}", 422, "invalid_request"),
        ("/batch", b'{"events": [{"topic": "a"}]}', 422, "invalid_request"),
        ("/batch", b'{"events": [{"topic": "a", "data": 1, "namespace": "b"}]}', 422, "invalid_request"),
        ("/batch", b'{"events": {}}', 422, "invalid_request"),
    ],
)
def test_a_malformed_publish_is_refused(
    dev: FlaskClient, gate: RecordingGate, path: str, body: bytes, status: int, code: str
) -> None:
    """400 for unreadable ones, 422 for JSON of another form; nothing is published."""
    answer = dev.post(f"/api/v1/events{path}", data=body, content_type="application/json")
    assert (answer.status_code, answer.get_json()["code"]) == (status, code)
    other = dev.post(f"/api/v1/events{path}", data=body, content_type="text/plain")
    assert (other.status_code, other.get_json()["code"]) == (415, "unsupported_media_type")
    assert gate.published == []


def test_a_payload_over_the_limit_is_refused_with_its_size(gate: RecordingGate) -> None:
    """payload_too_large {size, limit, where} at one byte above, and for a huge body, unread; at the limit it goes through."""
    client = create_app(Settings(dev=True, max_payload_bytes=100), gate=gate).test_client()
    fits = client.post("/api/v1/events", json={"topic": "a", "data": "x" * 98})
    above = client.post("/api/v1/events", json={"topic": "a", "data": "x" * 99})
    assert fits.status_code == 201
    assert above.status_code == 413
    parts = {"code": "payload_too_large", "retry": False, "size": 101, "limit": 100, "where": "http"}
    assert above.get_json().items() >= parts.items()
    huge = client.post("/api/v1/events", data=b"x" * (100 + ENVELOPE_BYTES + 1), content_type="application/json")
    assert (huge.status_code, huge.get_json()["code"], huge.get_json()["where"]) == (413, "payload_too_large", "http")


# Batches -------------------------------------------------------------------------------------------------------------------


def test_a_batch_answers_a_receipt_for_each_event_in_order(dev: FlaskClient, gate: RecordingGate) -> None:
    """201 when all are published; the data arrives as it was sent."""
    events = [{"topic": f"orders.{number}", "data": {"n": number}, "id": f"e-{number}"} for number in range(3)]
    answer = dev.post("/api/v1/events/batch", json={"events": events, "namespace": "notifications"})
    assert answer.status_code == 201
    receipts = answer.get_json()["receipts"]
    assert [(receipt["offset"], receipt["id"], receipt["duplicate"]) for receipt in receipts] == [
        (1, "e-0", False),
        (2, "e-1", False),
        (3, "e-2", False),
    ]
    assert gate.published == [(f"orders.{number}", {"n": number}) for number in range(3)]


def test_an_event_of_a_batch_that_is_refused_keeps_no_other_out(gate: RecordingGate) -> None:
    """207, with an error of the tree in its place; all others are published, in order."""
    gate.identity = Identity("ana", publish=("orders.#",))
    client = create_app(Settings(max_payload_bytes=100), gate=gate).test_client()
    answer = client.post(
        "/api/v1/events/batch",
        json={
            "events": [
                {"topic": "orders.1", "data": 1},
                {"topic": "mail.1", "data": 2},
                {"topic": "orders..3", "data": 3},
                {"topic": "orders.4", "data": "x" * 100},
                {"topic": "orders.5", "data": 5},
            ]
        },
    )
    assert answer.status_code == 207
    receipts = answer.get_json()["receipts"]
    codes = [receipt.get("error", {}).get("code") for receipt in receipts]
    assert codes == [None, "forbidden", "invalid_topic", "payload_too_large", None]
    assert gate.published == [("orders.1", 1), ("orders.5", 5)]


def test_a_batch_of_which_all_failed_for_one_passing_reason_is_that_error(dev: FlaskClient, gate: RecordingGate) -> None:
    """503 and Retry-After, as for one event; other reasons stay in their places."""
    gate.error = BusUnavailable("no answer")
    answer = dev.post("/api/v1/events/batch", json={"events": [{"topic": "a", "data": 1}] * 2})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.get_json()["code"] == "bus_unavailable"
    gate.after = 1
    gate.published.append(("a", 0))
    gate.error = BusRefused("no memory")
    answer = dev.post("/api/v1/events/batch", json={"events": [{"topic": "a", "data": 1}] * 2})
    assert answer.status_code == 207
    assert [receipt["error"]["code"] for receipt in answer.get_json()["receipts"]] == ["bus_refused"] * 2


def test_a_batch_is_bounded_in_events_and_bytes(gate: RecordingGate) -> None:
    """One event too many is refused by name, too large a body from its size; the largest allowed one is published."""
    client = create_app(Settings(dev=True, publish_per_s=5_000), gate=gate).test_client()
    event = {"topic": "a", "data": 1}
    too_many = client.post("/api/v1/events/batch", json={"events": [event] * (MAX_BATCH_EVENTS + 1)})
    assert (too_many.status_code, too_many.get_json()["name"]) == (409, "batch_events")
    too_large = client.post("/api/v1/events/batch", data=b"x" * (MAX_BATCH_BYTES + 1), content_type="application/json")
    assert (too_large.status_code, too_large.get_json()["limit"]) == (413, MAX_BATCH_BYTES)
    assert gate.published == []
    fits = client.post("/api/v1/events/batch", json={"events": [{"topic": "a", "data": "x" * 2000}] * MAX_BATCH_EVENTS})
    assert fits.status_code == 201
    assert len(gate.published) == MAX_BATCH_EVENTS


def test_the_events_of_a_batch_count_one_by_one(gate: RecordingGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """429 for all of a batch beyond its user's present allowance; refused events do not count."""
    monkeypatch.setattr("headgate_server.api.v1.publishing.time.monotonic", lambda: 1000.0)
    gate.identity = Identity("ana", publish=("orders.#",))
    client = create_app(Settings(publish_per_s=2), gate=gate).test_client()
    good, bad = {"topic": "orders.1", "data": 1}, {"topic": "mail.1", "data": 1}

    def status(*events: dict[str, object]) -> tuple[int, str | None, str | None]:
        answer = client.post("/api/v1/events/batch", json={"events": events})
        return answer.status_code, answer.headers.get("Retry-After"), answer.headers.get("RateLimit")

    assert status(good, bad, good) == (207, None, None)
    assert status(good, good, good) == (429, "1", '"publish_per_s";r=0;t=1')
    assert len(gate.published) == 2
    assert status(good, good) == (201, None, None)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "rebound.example"},
        {"Origin": "http://localhost.evil.example"},
    ],
)
def test_other_sites_cannot_publish_through_a_browser(dev: FlaskClient, gate: RecordingGate, headers: dict[str, str]) -> None:
    """Development lets anyone on this machine publish, and no web page."""
    answer = dev.post("/api/v1/events", json={"topic": "a", "data": 1}, headers=headers)
    assert answer.status_code == 403
    assert gate.published == []


@pytest.mark.parametrize("origin", ["http://localhost", "http://localhost:5173", "http://[::1]:5173"])
def test_a_page_of_this_machine_may_publish_in_development(dev: FlaskClient, gate: RecordingGate, origin: str) -> None:
    """A development server such as Vite passes its pages' calls on, with its own port in the Origin."""
    answer = dev.post("/api/v1/events", json={"topic": "a", "data": 1}, headers={"Origin": origin})
    assert answer.status_code == 201


@pytest.mark.parametrize(("path", "body"), [("", EVENT), ("/batch", {"events": [EVENT]})], ids=["one", "batch"])
def test_the_trace_of_a_request_is_that_of_its_events(
    dev: FlaskClient, gate: RecordingGate, path: str, body: dict[str, object]
) -> None:
    """A malformed header is dropped and counted, and the event is published."""
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    before = DROPPED["http"]
    for headers in ({"traceparent": parent}, {"traceparent": "rubbish"}, {}):
        assert dev.post(f"/api/v1/events{path}", json=body, headers=headers).status_code == 201
    assert gate.traceparents == [parent, None, None]
    assert DROPPED["http"] == before + 1


@pytest.mark.parametrize("path", ["/events", "/events/batch"])
def test_a_whole_number_with_a_point_is_an_integer_and_the_data_stays_as_it_was_sent(gate: RecordingGate, path: str) -> None:
    """As the OpenAPI document says: 60.0 is an integer in JSON Schema; 1.5 and 1e300 are none."""
    gate.identity = Identity("key", publish=("#",), scopes=("publish:#",))
    client = create_app(Settings(), gate=gate).test_client()
    event = b'"topic": "a", "data": 27.0, "id": "e-1"'
    body = b"{%b, " % event if path == "/events" else b'{"events": [{%b}], ' % event
    for seconds, status in ((b"60.0", 201), (b"6e1", 201), (b"1.5", 422), (b"1e300", 422), (b'"60"', 422), (b"0.0", 422)):
        answer = client.post(f"/api/v1{path}", data=body + b'"id_for_s": %b}' % seconds, content_type="application/json")
        assert answer.status_code == status, seconds
    assert list(map(repr, gate.published)) == ["('a', 27.0)"] * 2
