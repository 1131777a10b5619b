"""Random frames to a real server (F17). Every connection survives or is closed with a code, and nothing is left.

tests/unit/transport/test_fuzz.py has the frames alone, and the packets.
"""

import random

import pytest

from tests.integration.transport.clients import WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer
from tests.support.random_frames import CODES, LIMIT, NIGHTLY, SCALE, SEED, random_frame
from tests.support.websocket_codec import masked


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server without a rate limit to speak of; its traceback-free standard error is checked at the end."""
    return start_shared_server(inbound_per_s=1e9, inbound_burst=10**9, max_message_bytes=LIMIT)


@pytest.mark.timeout(36_000 if NIGHTLY else 900)
def test_a_real_connection_survives_or_is_closed(server: ServerProcess) -> None:
    """Frames to a real server, then a last one that must be answered unless the connection was closed with a code."""
    source = random.Random(SEED)
    for number in range(40 * SCALE):
        client = WebSocket(server.port)
        with closing(client):
            client.send("40")
            frames = b"".join(random_frame(source) for _ in range(source.randint(1, 10)))
            client.sock.sendall(frames + masked(8, b"\x03\xe8"))

            closed = client.end()

        assert closed.code in CODES | {1000, None}, (SEED, number)


def test_the_server_is_as_before(server: ServerProcess) -> None:
    """After all of that no session, no half packet and no watcher is left, and a client is served."""
    left = ("sessions", "wires", "environs", "half_binary", "inbox")
    server.until(lambda state: not any(state[name] for name in left), "the end of all sessions")
    client = WebSocket(server.port)
    with closing(client):
        client.join()
        client.send('421["message-with-ack","alive"]')
        assert client.text() == '431["alive"]'
