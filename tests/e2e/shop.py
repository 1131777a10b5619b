"""The demo's HTTP routes and the command line, as a test uses them from outside the browser."""

import json
import secrets
import urllib.request
from typing import Any

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess


class Shop:
    """One person's HTTP session with the demo. Raises urllib's HTTPError for a refusal of the server."""

    def __init__(self, url: str, user: str) -> None:
        self.url = url
        self._token = self._request("POST", "/demo/session", {"user": user})["token"]

    def create(self) -> str:
        return str(self._request("POST", "/demo/orders", {})["id"])

    def order(self, number: str) -> dict[str, Any]:
        orders: list[dict[str, Any]] = self._request("GET", "/demo/orders")
        return next(order for order in orders if order["id"] == number)

    def move(self, number: str, status: str) -> None:
        self._request("PUT", f"/demo/orders/{number}", {"status": status})

    def burst(self, events: int, over_s: float) -> None:
        self._request("POST", "/demo/burst", {"id": secrets.token_hex(8), "events": events, "over_s": over_s})

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if path != "/demo/session":
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None


def publish(gateway: GatewayProcess, topic: str, data: Any) -> None:
    """Publish as any program beside the gateway does, into its private Redis."""
    with Publisher(find_private_redis(gateway.folder / "data")) as publisher:
        publisher.publish(topic, data)
