"""Stock socket.io-client from Node against a gateway, over WebSocket, over long-polling, and on its way from one to the other."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.line_program import LineProgram

PROGRAM = str(Path(__file__).with_name("plain_client.mjs"))
EVENTS = 300


def bodies(lines: list[tuple[str, Any]], wanted: str) -> list[Any]:
    """Return the bodies that were reported under a name, in order."""
    return [body for name, body in lines if name == wanted]


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway in development with a private Redis."""
    return start_module_gateway(None, "--dev")


@pytest.fixture(scope="module")
def publisher(gateway: GatewayProcess) -> Iterator[Publisher]:
    url = find_private_redis(gateway.folder / "data")
    assert url is not None
    with closing(Publisher(url)) as publisher:
        yield publisher


@pytest.mark.parametrize("transports", ["websocket", "polling", "polling,websocket"])
def test_every_event_comes_once_and_in_order_and_requests_are_acknowledged(
    gateway: GatewayProcess, publisher: Publisher, transports: str
) -> None:
    """Events are published while the client joins, asks for things and, with both transports, upgrades.

    A request is answered with its result or an error of the one tree; an event of the client's own comes back like any other.
    """
    lines: list[tuple[str, Any]] = []
    with LineProgram("node", PROGRAM, gateway.url, transports, str(EVENTS + 1)) as client:
        while not bodies(lines, "welcome"):
            lines.append(json.loads(client.line()))
        offsets = []
        for n in range(EVENTS // 10):
            receipts = publisher.publish_many([(f"orders.{n}", {"n": 10 * n + k}) for k in range(10)])
            offsets += [receipt.offset for receipt in receipts]
        lines += map(json.loads, client.end().strip().split("\n"))

    orders = [(data["n"], meta["offset"]) for topic, data, meta in bodies(lines, "event") if topic.startswith("orders.")]
    assert orders == list(zip(range(EVENTS), offsets, strict=True))
    assert bodies(lines, "transport") == [transports.rpartition(",")[2]]
    assert bodies(lines, "gap") == bodies(lines, "connect_error") == []
    assert bodies(lines, "disconnect") == ["io client disconnect"]
    assert [result["ok"] for result in bodies(lines, "welcome")[0]["subscriptions"]] == [True, False]

    refused, subscribed, published = (bodies(lines, name)[0] for name in ("refused", "subscribed", "published"))
    assert (refused["ok"], refused["error"]["code"], refused["error"]["pattern"]) == (False, "invalid_pattern", "a.b*")
    assert (subscribed["ok"], subscribed["pattern"]) == (True, "stock.#")
    ((topic, data, meta),) = [event for event in bodies(lines, "event") if not event[0].startswith("orders.")]
    assert (topic, data) == ("stock.1", {"left": 3, "note": "ä\u2028<script>"})
    assert (meta["offset"], meta["id"]) == (published["offset"], published["id"])


def test_a_client_that_is_not_let_in_gets_a_connect_error_with_its_code(gateway: GatewayProcess) -> None:
    """socket.io-client has the refusal in `error.data`."""
    with LineProgram("node", PROGRAM, gateway.url, "websocket", "1", "no.such.token") as client:
        name, error = json.loads(client.line())

    assert name == "connect_error"
    assert error["data"]["code"] == "unauthorized"
    assert error["data"]["retry"] is False
    assert error["message"] == error["data"]["message"]
