"""Health for operators of the gateway: alive, ready, and its figures; strangers learn no addresses."""

from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.settings.settings import Settings
from headgate_server.api.health import FRESH_S
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate


def test_healthz_is_200_when_the_gateway_is_ready(demo: FlaskClient) -> None:
    """Ready: nothing is missing."""
    answer = demo.get("/healthz")
    assert (answer.status_code, answer.get_json()) == (200, {"ready": True, "bus": "up", "missing": []})


def test_healthz_is_503_and_names_the_missing_part(demo: FlaskClient, gate: RecordingGate) -> None:
    """Not ready because the bus is down, and the answer says so."""
    gate.state = {"ready": False, "bus": "down", "clients": 3}
    answer = demo.get("/healthz")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.get_json() == {"ready": False, "bus": "down", "clients": 3, "missing": ["bus"]}


DOWN = {
    "ready": False,
    "bus": "down",
    "revocations": False,
    "namespaces": {"notifications": {"bus": "down", "clients": 3, "error": "the bus is unavailable: 10.1.2.3:6379: refused"}},
}


@pytest.mark.parametrize(
    "request_",
    [
        {"environ_base": {"REMOTE_ADDR": "192.0.2.7"}},
        {"headers": {"X-Forwarded-For": "127.0.0.1"}},
        {"headers": {"Forwarded": "x"}},
        {"headers": {"X-Real-IP": "127.0.0.1"}},
        {"headers": {"X-Forwarded-Proto": "https"}},
        {"headers": {"Via": "1.1 cache"}},
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/health"])
def test_strangers_are_told_that_it_is_not_ready_and_what_is_missing(
    demo: FlaskClient, gate: RecordingGate, request_: dict[str, Any], path: str
) -> None:
    """Neither namespaces, nor how many clients, nor the place of Redis. Only loopback gets that."""
    gate.state = DOWN
    answer = demo.get(path, **request_)
    assert (answer.status_code, answer.get_json()) == (503, {"ready": False, "missing": ["bus", "revocations"]})
    gate.state = {**DOWN, "ready": True, "bus": "up", "revocations": True}
    answer = demo.get(path, **request_)
    assert (answer.status_code, answer.get_json()) == (200, {"ready": True, "missing": []})
    assert demo.get(path).get_json()["namespaces"]["notifications"]["clients"] == 3
    assert "10.1.2.3" in demo.get("/healthz").text


def test_livez_does_not_depend_on_the_bus(demo: FlaskClient, gate: RecordingGate) -> None:
    """A gateway without a reachable Redis must not be restarted for it."""
    gate.state = {"ready": False, "bus": "down"}
    assert demo.get("/livez").status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/metrics", "/", "/api/v1/openapi.json", "/no/such/page"])
def test_no_cache_keeps_an_answer_of_the_gateway(demo: FlaskClient, path: str) -> None:
    """Neither its state, nor one caller's view; the files of pages say how long they are kept."""
    assert demo.get(path).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_metrics_are_prometheus_text_on_loopback(demo: FlaskClient, address: str) -> None:
    """The default registry, as text; a gateway that listens on `::` sees IPv4 addresses within IPv6 ones."""
    answer = demo.get("/metrics", environ_base={"REMOTE_ADDR": address})
    assert answer.status_code == 200
    assert answer.content_type.startswith("text/plain")
    assert "python_info" in answer.text


@pytest.mark.parametrize(
    "request_",
    [
        {"environ_base": {"REMOTE_ADDR": "192.0.2.7"}},
        {"headers": {"X-Forwarded-For": "127.0.0.1"}},
        {"environ_base": {"REMOTE_ADDR": ""}},
    ],
    ids=["another address", "through a proxy", "no address"],
)
def test_metrics_are_refused_to_others(demo: FlaskClient, request_: dict[str, Any]) -> None:
    """Metrics are for this machine unless the operator opens them."""
    assert demo.get("/metrics", **request_).status_code == 403


def test_open_metrics_are_served_to_others(gate: RecordingGate) -> None:
    """`HEADGATE_METRICS_OPEN` is the operator's word."""
    client = create_app(Settings(metrics_open=True), gate=gate).test_client()
    assert client.get("/metrics", environ_base={"REMOTE_ADDR": "192.0.2.7"}).status_code == 200
    # Not to the street, which comes through a proxy.
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert client.get("/metrics", headers={header: "198.51.100.1"}).status_code == 403


class Workers:
    """Workers that share a port, and how often they were asked."""

    asked = 0

    def health(self) -> dict[str, Any]:
        self.asked += 1
        return {"ready": self.asked == 1, "bus": "up"}


def test_workers_are_asked_once_for_all_who_ask_at_the_same_time(gate: RecordingGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may ask as often as they like, and each question goes to every worker. Loopback has the state of now."""
    now_s = 100.0
    monkeypatch.setattr("headgate_server.api.health.time", SimpleNamespace(monotonic=lambda: now_s))
    app, workers = create_app(Settings(), gate=gate), Workers()
    app.extensions["headgate.workers"] = workers.health, None
    client, stranger = app.test_client(), {"REMOTE_ADDR": "192.0.2.7"}
    paths = ("/healthz", "/api/v1/health", "/healthz")
    assert [client.get(path, environ_base=stranger).status_code for path in paths] == [200] * 3
    assert workers.asked == 1
    assert client.get("/healthz").status_code == 503
    assert client.get("/healthz", environ_base=stranger).status_code == 200
    now_s += FRESH_S
    assert client.get("/healthz", environ_base=stranger).status_code == 503
