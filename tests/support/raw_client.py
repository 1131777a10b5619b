"""A Socket.IO client made by hand over WebSocket: a test sees every packet, and can send what no library would.

One namespace per client, as headgate's own client has it. A thread collects; the test waits for conditions.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

DEADLINE_S = 30.0


class RawClient:
    """A client that has sent its CONNECT.

    Attributes:
        received: every event packet's array, in order: `["welcome", {…}]`, `["event", topic, data, meta]`, …
        refusal: what connect_error carried, or None.
        disconnected: whether the gateway has put it out of the namespace.
        closed: close code and reason of the WebSocket, or None while it is open.
    """

    def __init__(
        self,
        url: str,
        auth: object = None,
        namespace: str = "notifications",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.namespace = namespace
        self.received: list[list[Any]] = []
        self.refusal: Any = None
        self.connected = self.disconnected = False
        self.closed: tuple[int, str] | None = None
        self._acks: dict[int, list[Any]] = {}
        self._last_id = 0
        self._grown = threading.Condition()
        self._open = ExitStack()
        self._socket = self._open.enter_context(
            connect(
                f"{url.replace('http', 'ws', 1)}/socket.io/?EIO=4&transport=websocket",
                additional_headers=dict(headers or {}),
                compression=None,
                max_size=None,
                open_timeout=DEADLINE_S,
            )
        )
        opening = self._socket.recv(DEADLINE_S)
        assert isinstance(opening, str)
        assert opening[0] == "0", opening
        self.send_packet(f"40/{namespace}," + ("" if auth is None else json.dumps(auth)))
        threading.Thread(target=self._collect, daemon=True).start()

    @property
    def welcome(self) -> Any:
        """The body of the welcome, waited for."""
        return self.wait_for(lambda: self.named("welcome"), "the welcome")[0][0]

    @property
    def events(self) -> list[list[Any]]:
        """Every event: [topic, data, meta]."""
        return self.named("event")

    def named(self, name: str) -> list[list[Any]]:
        """Return the arguments of every message of this name."""
        with self._grown:
            return [rest for kind, *rest in self.received if kind == name]

    def request(self, name: str, *arguments: Any) -> Any:
        """Send a request and return the one argument of its acknowledgement."""
        return self.request_text(json.dumps([name, *arguments]))

    def request_text(self, text: str) -> Any:
        """Send a request whose JSON the test has written itself; return the acknowledgement."""
        self._last_id += 1
        number = self._last_id
        self.send_packet(f"42/{self.namespace},{number}{text}")
        (answer,) = self.wait_for(lambda: self._acks.get(number), f"the acknowledgement of {text[:80]}")
        return answer

    def subscribe(self, pattern: str, **options: Any) -> Any:
        """Subscribe, and return the acknowledgement, which must be positive."""
        answer = self.request("subscribe", {"pattern": pattern, **options})
        assert answer["ok"] is True, answer
        return answer

    def send_packet(self, packet: str) -> None:
        """Send an Engine.IO packet as it is."""
        self._socket.send(packet)

    def wait_for(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Wait until `condition()` is true, looking again whenever something came; return what it returned."""
        give_up = time.monotonic() + deadline_s
        with self._grown:
            while not (found := condition()):
                left_s = give_up - time.monotonic()
                if left_s <= 0:
                    pytest.fail(f"not within {deadline_s:g} s: {what}; closed: {self.closed}; received: {self.received[-5:]}")
                self._grown.wait(left_s)
        return found

    def wait_for_events(self, count: int) -> list[list[Any]]:
        """Wait until so many events came, and return all."""
        self.wait_for(lambda: len(self.events) >= count, f"{count} events")
        return self.events

    def close(self) -> None:
        """Close the WebSocket. Idempotent."""
        self._open.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _collect(self) -> None:
        try:
            for message in self._socket:
                assert isinstance(message, str), "a binary message"
                self._take(message)
        except ConnectionClosed:
            pass
        finally:
            with self._grown:
                self.closed = (self._socket.close_code or 1006, self._socket.close_reason or "")
                self._grown.notify_all()

    def _take(self, message: str) -> None:
        if message == "2":
            self.send_packet("3")
            return
        if not message.startswith("4"):
            return
        kind, rest = message[1], message[2:]
        address, comma, body = rest.partition(",")
        assert (address, comma) == (f"/{self.namespace}", ","), message[:200]
        with self._grown:
            if kind == "0":
                self.connected = True
            elif kind == "1":
                self.disconnected = True
            elif kind == "2":
                self.received.append(json.loads(body))
            elif kind == "3":
                at = body.index("[")
                self._acks[int(body[:at])] = json.loads(body[at:])
            elif kind == "4":
                self.refusal = json.loads(body)
            self._grown.notify_all()
