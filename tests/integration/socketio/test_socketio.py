"""Socket.IO 5 with the real socket.io-client, over each transport; and order across an upgrade, which only a socket can show.

tests/unit/socketio/test_sessions.py has the rules, packet by packet.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.integration.transport.server_process import ROOT, ServerProcess, StartServer

NODE = shutil.which("node") or "node"


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server with the default limits, but for a write deadline that never comes into a test's way."""
    return start_shared_server(write_deadline_s=60)


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], ["polling", "websocket"]], ids="+".join)
def test_the_real_client_does_everything(server: ServerProcess, transports: list[str]) -> None:
    """socket.io-client from Node: connect, events, acknowledgements, binary, order of 300 events, of 40 large ones and their
    acknowledgement, namespaces, disconnect."""
    script = Path(__file__).with_name("real_client.mjs")

    outcome = subprocess.run(
        [NODE, str(script), f"http://127.0.0.1:{server.port}", json.dumps(transports)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert json.loads(outcome.stdout.splitlines()[-1]) == {
        "transport": transports[-1],
        "auth": {"token": "abc"},
        "back": [1, "zwei", {"three": [None]}],
        "acknowledged": [1, 2],
        "binary": ["buffer:010203", "buffer:ff"],
        "inOrder": True,
        "acknowledgedInPlace": True,
        "refused": "Invalid namespace",
        "goodbye": True,
        "reason": "io server disconnect",
    }


def test_events_keep_their_order_across_an_upgrade_under_load(start_server: StartServer) -> None:
    """2,000 events while the client polls, probes and moves, each once, in order."""
    server = start_server(queue_frames=4000)
    session = Polling(server.port)
    session.join()
    received = [packet for packet in session.packets() if '"event"' in packet]
    server.debug("emit", count=500)
    received += session.packets()
    client = WebSocket(server.port, sid=session.sid)
    with closing(client):
        client.send("2probe")
        server.debug("emit", count=500, first=500)
        assert client.receive() == "3probe"
        server.debug("emit", count=500, first=1000)
        last = [packet for packet in session.packets() if packet != "6"]
        client.send("5")
        server.debug("emit", count=500, first=1500)
        received += last
        while len(received) < 2000:
            received.append(client.text())

    assert [json.loads(packet[2:])[1] for packet in received] == list(range(2000))
