"""Stock socket.io-client from Node against a gateway, over WebSocket, over long-polling, and on its way from one to the other."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.redis_server import wait_until

PROGRAM = Path(__file__).with_name("plain_client.mjs")
EVENTS = 300
DEADLINE_S = 30.0


class NodeClient:
    """The program of plain_client.mjs. `told` holds its lines: [name, body]."""

    def __init__(self, url: str, transports: str, count: int, *token: str) -> None:
        node = shutil.which("node")
        assert node is not None, "Node is not installed"
        self._process = subprocess.Popen([node, PROGRAM, url, transports, str(count), *token], stdout=subprocess.PIPE, text=True)
        self.told: list[tuple[str, Any]] = []
        threading.Thread(target=self._collect, daemon=True).start()

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def bodies(self, wanted: str) -> list[Any]:
        """Return the bodies that were reported under a name, in order."""
        return [body for name, body in list(self.told) if name == wanted]

    def wait_for(self, wanted: str) -> Any:
        """Wait until a name was reported; return its last body."""
        wait_until(lambda: self.bodies(wanted), f"{wanted}; told: {self.told[-3:]}", DEADLINE_S)
        return self.bodies(wanted)[-1]

    def wait_for_end(self) -> int:
        """Return its exit status."""
        return self._process.wait(DEADLINE_S)

    def _collect(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                name, body = json.loads(line)
                self.told.append((name, body))


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
    last = transports.rpartition(",")[2]
    with NodeClient(gateway.url, transports, EVENTS + 1) as client:
        welcome = client.wait_for("welcome")
        offsets = []
        for n in range(EVENTS // 10):
            receipts = publisher.publish_many([(f"orders.{n}", {"n": 10 * n + k}) for k in range(10)])
            offsets += [receipt.offset for receipt in receipts]
        client.wait_for("disconnect")
        client.wait_for_end()

    orders = [(data["n"], meta["offset"]) for topic, data, meta in client.bodies("event") if topic.startswith("orders.")]
    assert orders == list(zip(range(EVENTS), offsets, strict=True))
    assert client.bodies("transport") == [last]
    assert client.bodies("gap") == client.bodies("connect_error") == []
    assert client.bodies("disconnect") == ["io client disconnect"]
    assert [result["ok"] for result in welcome["subscriptions"]] == [True, False]

    refused, subscribed, published = (client.bodies(name)[0] for name in ("refused", "subscribed", "published"))
    assert (refused["ok"], refused["error"]["code"], refused["error"]["pattern"]) == (False, "invalid_pattern", "a.b*")
    assert (subscribed["ok"], subscribed["pattern"]) == (True, "stock.#")
    ((topic, data, meta),) = [event for event in client.bodies("event") if not event[0].startswith("orders.")]
    assert (topic, data) == ("stock.1", {"left": 3, "note": "ä\u2028<script>"})
    assert (meta["offset"], meta["id"]) == (published["offset"], published["id"])


def test_a_client_that_is_not_let_in_gets_a_connect_error_with_its_code(gateway: GatewayProcess) -> None:
    """socket.io-client has the refusal in `error.data`."""
    with NodeClient(gateway.url, "websocket", 1, "no.such.token") as client:
        error = client.wait_for("connect_error")

    assert error["data"]["code"] == "unauthorized"
    assert error["data"]["retry"] is False
    assert error["message"] == error["data"]["message"]
