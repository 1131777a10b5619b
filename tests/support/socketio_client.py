"""A Socket.IO client made by hand, without its connection, which writes requests and reads packets.

Two classes bring a connection: one over a real WebSocket (raw_client.py), one on a gateway in the test's own process
(gateway_here.py). Each sends a packet and waits for the next in its own way.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class SocketIOClient(ABC):
    """One client in one namespace.

    Attributes:
        received: every event packet's array, in order: `["welcome", {…}]`, `["event", topic, data, meta]`, …
        acknowledged: the arguments of each acknowledgement, by number.
        refusal: the body of connect_error, or None.
        connected, disconnected: whether CONNECT was accepted, and whether the gateway has sent DISCONNECT.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.received: list[list[Any]] = []
        self.acknowledged: dict[int, list[Any]] = {}
        self.refusal: Any = None
        self.connected = self.disconnected = False
        self._last_id = 0

    @abstractmethod
    def send_packet(self, packet: str) -> None:
        """Send an Engine.IO packet as it is."""

    @abstractmethod
    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until `condition()` is true; return what it returned."""

    @property
    def welcome(self) -> Any:
        return self.wait_for(lambda: self.named("welcome"), "the welcome")[0][0]

    @property
    def events(self) -> list[list[Any]]:
        """Every event: [topic, data, meta]."""
        return self.named("event")

    @property
    def offsets(self) -> list[int]:
        return [meta["offset"] for _, _, meta in self.events]

    def named(self, name: str) -> list[list[Any]]:
        return [rest for kind, *rest in tuple(self.received) if kind == name]

    def wait_for_events(self, count: int) -> list[list[Any]]:
        """Wait until so many events came, and return all."""
        self.wait_for(lambda: len(self.events) >= count, f"{count} events")
        return self.events

    def join(self, auth: object) -> None:
        self.send_packet(f"40/{self.namespace}," + ("" if auth is None else json.dumps(auth)))

    def request(self, name: str, *arguments: Any) -> Any:
        """Send a request and return the one argument of its acknowledgement."""
        return self.request_text(json.dumps([name, *arguments]))

    def request_text(self, text: str) -> Any:
        """Send a request with JSON that the test has written itself; return the acknowledgement."""
        number = self.send_request(text)
        (answer,) = self.wait_for(lambda: self.acknowledged.get(number), f"the acknowledgement of {text[:80]}")
        return answer

    def send_request(self, text: str) -> int:
        """Send a request, and wait for nothing; return its number."""
        self._last_id += 1
        self.send_packet(f"42/{self.namespace},{self._last_id}{text}")
        return self._last_id

    def subscribe(self, pattern: str, **options: Any) -> Any:
        """Subscribe, and return the acknowledgement, which must be positive."""
        answer = self.request("subscribe", {"pattern": pattern, **options})
        assert answer["ok"] is True, answer
        return answer

    def take(self, packet: str) -> None:
        """Take an Engine.IO packet of the gateway, by an answer to a ping, or a note of a message."""
        if packet == "2":
            self.send_packet("3")
            return
        if not packet.startswith("4"):
            return
        kind, rest = packet[1], packet[2:]
        address, _, body = rest.partition(",")
        assert address == f"/{self.namespace}", packet[:200]
        if kind == "0":
            self.connected = True
        elif kind == "1":
            self.disconnected = True
        elif kind == "2":
            self.received.append(json.loads(body))
        elif kind == "3":
            at = body.index("[")
            self.acknowledged[int(body[:at])] = json.loads(body[at:])
        elif kind == "4":
            self.refusal = json.loads(body)
