"""The real python-socketio client, connected to the namespace `/room` of the application under test."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import socketio

from tests.integration.transport.server_process import DEADLINE_S

# Its writer may stop before it has sent the goodbye; a poll of its then ends with the next ping, and the session without a pong.
SOON: dict[str, Any] = {"ping_interval_s": 2.0, "ping_timeout_s": 10.0}

POLLING, WEBSOCKET, UPGRADED = ("polling",), ("websocket",), ("polling", "websocket")


@contextmanager
def in_the_room(
    port: int, transports: Sequence[str], user: str, *, serializer: Any = "default", **auth: Any
) -> Iterator[socketio.Client]:
    """Connect, for the time of the block."""
    client = socketio.Client(reconnection=False, serializer=serializer)
    join(client, port, transports, user, **auth)
    try:
        yield client
    finally:
        client.disconnect()


def join(client: socketio.Client, port: int, transports: Sequence[str], user: str, **auth: Any) -> None:
    """Connect a client with handlers in place."""
    client.connect(
        f"http://127.0.0.1:{port}",
        auth={"user": user, **auth},
        transports=list(transports),
        namespaces=["/room"],
        wait_timeout=DEADLINE_S,
    )


def cut(client: socketio.Client) -> None:
    """Cut the client's WebSocket, as a network does, without a close frame."""
    client.eio.ws.sock.shutdown(socket.SHUT_RDWR)
