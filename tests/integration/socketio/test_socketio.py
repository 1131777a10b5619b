"""Socket.IO 5 with the real socket.io-client, over each transport.

tests/unit/socketio/test_sessions.py has the rules, packet by packet.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

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
