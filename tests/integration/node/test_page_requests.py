"""Page requests without the JavaScript client, over HTTP and by hand, against a real gateway with an application."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

ROOT = str(Path(__file__).parents[3])
ANSWERED = 'headgate_page_requests_total{namespace="notifications",outcome="answered"}'
CANCELLED = 'headgate_page_requests_total{namespace="notifications",outcome="cancelled"}'
PRICE = {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway, tmp_path_factory: pytest.TempPathFactory) -> GatewayProcess:
    """The application of asked_application.py in development, with a schema for one of its requests."""
    schemas = tmp_path_factory.mktemp("schemas")
    (schemas / "orders.price.json").write_text(json.dumps(PRICE))
    settings = {"PYTHONPATH": ROOT, "HEADGATE_DEV": "1", "HEADGATE_SCHEMAS": str(schemas), "HEADGATE_SCHEMA_CHECK": "refuse"}
    return start_module_gateway(settings, "tests.support.asked_application:app")


def body_of(name: str, data: Any) -> dict[str, Any]:
    return {"name": "request", "body": {"name": name, "data": data}}


def posted(gateway: GatewayProcess, name: str, data: Any) -> Any:
    return gateway.ask("/api/v1/request", body_of(name, data))[1]


def metrics_of(gateway: GatewayProcess) -> dict[str, float]:
    """Return the value of each time series."""
    lines = [line for line in gateway.get("/metrics")[1].splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_the_answer_is_the_same_over_http_and_over_a_websocket(gateway: GatewayProcess) -> None:
    """The gateway knows the caller by the same rules."""
    wanted = {"ok": True, "data": {"data": {"sku": "a7"}, "user": "anonymous", "namespace": "notifications", "app": "shop"}}
    assert posted(gateway, "orders.price", {"sku": "a7"}) == wanted
    with RawClient(gateway.url) as client:
        assert client.welcome
        assert client.request("request", {"name": "orders.price", "data": {"sku": "a7"}}) == wanted


def test_data_that_breaks_its_schema_is_refused_before_the_function_runs(gateway: GatewayProcess) -> None:
    """With the place, as for an event."""
    error = posted(gateway, "orders.price", {"sku": 7})["error"]
    assert (error["code"], error["topic"], error["path"]) == ("schema_violation", "orders.price", "$.sku")


def test_a_caller_who_hangs_up_stops_the_function(gateway: GatewayProcess) -> None:
    """A proxy passes it on; the answer is not read any more."""
    with RawClient(gateway.url, {"subscriptions": [{"pattern": "orders.*"}]}) as client:
        assert client.welcome
        body, address = json.dumps(body_of("orders.wait", 600)).encode(), urlsplit(gateway.url)
        with socket.create_connection((address.hostname, address.port)) as caller:
            head = f"POST /api/v1/request HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            client.wait_for_events(1)
        events = client.wait_for_events(2)
    assert [(topic, data) for topic, data, _ in events][1:] == [("orders.ended", "stopped")]
    wait_until(lambda: metrics_of(gateway).get(CANCELLED), "the metrics")


def test_a_page_that_leaves_stops_nothing(gateway: GatewayProcess) -> None:
    """Its request is carried out and counted, and its answer is dropped."""
    before = metrics_of(gateway).get(ANSWERED, 0)
    with RawClient(gateway.url, {"subscriptions": [{"pattern": "orders.*"}]}) as client:
        assert client.welcome
        with RawClient(gateway.url) as page:
            assert page.welcome
            page.send_request(json.dumps(["request", {"name": "orders.wait", "data": 0.2}]))
            client.wait_for_events(1)
        events = client.wait_for_events(2)
    assert [(topic, data) for topic, data, _ in events][1:] == [("orders.ended", "answered")]

    def is_counted() -> bool:
        metrics = metrics_of(gateway)
        return metrics["headgate_page_requests_running"] == 0 and metrics.get(ANSWERED, 0) == before + 1

    wait_until(is_counted, "the metrics")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with start_private_redis(tmp_path) as server:
        yield server


@pytest.mark.parametrize("alone", [pytest.param(True, marks=pytest.mark.nightly), False], ids=["alone", "with another gateway"])
def test_a_gateway_that_stops_answers_what_runs_first(start_gateway: StartGateway, redis: EmbeddedRedis, alone: bool) -> None:
    """Within its time for that, the page hears the outcome, and nothing was done twice or half."""
    settings = {"PYTHONPATH": ROOT, "HEADGATE_DEV": "1", "HEADGATE_REDIS_URL": redis.url, "HEADGATE_DRAIN_S": "20"}
    leaving = start_gateway(settings, "tests.support.asked_application:app")
    staying = None if alone else start_gateway(settings, "tests.support.asked_application:app")
    with RawClient(leaving.url, {"subscriptions": [{"pattern": "orders.*"}]}) as client:
        assert client.welcome
        asked = client.send_request(json.dumps(["request", {"name": "orders.wait", "data": 2}]))
        client.wait_for_events(1)
        leaving.ask_to_stop()
        events = client.wait_for_events(2)
        assert [(topic, data) for topic, data, _ in events][1:] == [("orders.ended", "answered")]
        client.wait_for(lambda: client.closed, "the end of the connection")
        assert client.acknowledged[asked] == [{"ok": True, "data": "answered"}]
    assert leaving.wait_until_ended() == 0
    assert staying is None or staying.stop() == 0
