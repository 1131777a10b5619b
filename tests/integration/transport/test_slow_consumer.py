"""Clients that read slowly or not at all: bounded, cut at the deadline, freed; and healthy ones, never cut (F6, F7, F8).

The rules are proven where they are decided, in tests/unit/transport: the queue's bounds (test_send_queue.py, test_engine.py), the
lanes (test_outbox.py), the write deadline (test_websocket.py), acknowledgements without room
(tests/unit/socketio/test_sessions.py).
"""

import json

import pytest

from tests.integration.transport.clients import WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer

# The kernel keeps so much for a client that reads nothing. These are the smallest buffers of both ends (tcp(7)), for quick tests.
SMALL_BUFFER_BYTES = 4096


def stopped(server: ServerProcess) -> WebSocket:
    """Return a joined client that will not read any more."""
    client = WebSocket(server.port, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    client.join()
    return client


@pytest.mark.timeout(240)
def test_a_stopped_client_is_closed_at_the_write_deadline_and_everything_is_freed(start_server: StartServer) -> None:
    """File descriptor, watchers, greenlets, the session and its queue; the witness notices nothing."""
    server = start_server(write_deadline_s=1, send_buffer_bytes=SMALL_BUFFER_BYTES)
    names = ("fds", "watchers", "greenlets", "wires", "connections", "sessions", "environs")
    witness = WebSocket(server.port)
    with closing(witness):
        witness.join()
        before = server.state()
        clients = [stopped(server) for _ in range(5)]
        with closing(*clients):
            # More than the stopped ones' kernel holds, less than the witness's, because that one need not be quick.
            server.debug("emit", count=20, size=2000)
            received = [witness.text() for _ in range(20)]
            ends = server.until(lambda state: len(state["ends"]) == 5, "the write deadline")["ends"]
            server.debug("forget")
            server.until(lambda state: all(state[name] == before[name] for name in names), f"as before: {before}")
            server.debug("emit", count=1, first=20)
            received.append(witness.text())

    assert [json.loads(packet[2:])[1] for packet in received] == list(range(21))
    assert ends == ["write deadline"] * 5
