"""Engine.IO 4 over real connections, with a case for each thing that only a socket, or the real loop, can show.

The rules are proven where they are decided, in tests/unit/transport: answers to requests (test_engine.py), frames
(test_frame_parser.py), heartbeat, upgrade and end (test_session.py and the files beside it).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer

PATH = "/engine.io/"


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server with the default limits, but for a heartbeat and a refill of tokens that never come into a test's way."""
    return start_shared_server(ping_interval_s=60, ping_timeout_s=20, inbound_per_s=1)


def test_a_client_is_pinged_again_and_again(start_server: StartServer) -> None:
    """By the timer of the real loop."""
    server = start_server(ping_interval_s=0.3, ping_timeout_s=60)
    client = WebSocket(server.port, PATH)

    with closing(client):
        assert client.receive() == "2"
        client.send("3")
        assert client.receive() == "2"


def test_a_server_that_stood_still_does_not_blame_its_clients(start_server: StartServer) -> None:
    """Its timers are late, and the old pong in its socket is read first."""
    ping_timeout_s = 0.5
    server = start_server(ping_interval_s=3600, ping_timeout_s=ping_timeout_s)
    client = WebSocket(server.port, PATH)
    with closing(client), ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(server.debug, "ping_and_stop")
        assert client.receive() == "2"
        client.send("3")
        time.sleep(3 * ping_timeout_s)  # the stall itself, in which the pong's deadline passes
        server.resume()
        stopped.result()
        client.send("4still here")

        assert client.receive() == "4still here"
        assert client.opening["sid"] not in server.state()["reasons"]


def test_the_kernel_is_told_to_send_at_once_and_to_hold_little(start_server: StartServer) -> None:
    """TCP_NODELAY (without it an answer may wait 40 ms) and SO_SNDBUF (Linux doubles it, socket(7)), after a direct handshake
    and after an upgrade."""
    server = start_server(send_buffer_bytes=32768)
    direct = WebSocket(server.port)
    session = Polling(server.port)
    moved = WebSocket(server.port, sid=session.sid)
    with closing(direct, moved):
        moved.send("2probe")
        assert moved.receive() == "3probe"
        moved.send("5", "2done")
        assert moved.receive() == "3done"

        assert server.debug("sessions") == [[1, 65536]] * 2
