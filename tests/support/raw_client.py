"""A Socket.IO client made by hand over WebSocket. A test sees every packet, and can send more than a library would.

One namespace per client, as headgate's own client has it. A thread collects; the test waits for conditions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.socketio_client import SocketIOClient

DEADLINE_S = 30.0


class RawClient(SocketIOClient):
    """A client after its CONNECT.

    Attributes:
        closed: close code and reason of the WebSocket, or None while it is open.
    """

    def __init__(
        self, url: str, auth: object = None, namespace: str = "notifications", *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(namespace)
        self.closed: tuple[int, str] | None = None
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
        self.join(auth)
        threading.Thread(target=self._collect, daemon=True).start()

    def send_packet(self, packet: str) -> None:
        self._socket.send(packet)

    def wait_for(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Wait until `condition()` is true, looking again after each message; return what it returned."""
        give_up = time.monotonic() + deadline_s
        with self._grown:
            while not (found := condition()):
                left_s = give_up - time.monotonic()
                if left_s <= 0:
                    pytest.fail(f"not within {deadline_s:g} s: {what}; closed: {self.closed}; received: {self.received[-5:]}")
                self._grown.wait(left_s)
        return found

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _collect(self) -> None:
        try:
            for packet in self._socket:
                assert isinstance(packet, str), "a binary message"
                self.take(packet)
                with self._grown:
                    self._grown.notify_all()
        except ConnectionClosed:
            pass
        finally:
            with self._grown:
                self.closed = (self._socket.close_code or 1006, self._socket.close_reason or "")
                self._grown.notify_all()
