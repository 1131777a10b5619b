"""Socket.IO 5 with the real socket.io-client, over each transport.

tests/unit/socketio/test_sessions.py has the rules, packet by packet.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.line_program import ROOT, LineProgram

NODE = shutil.which("node") or "node"


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], ["polling", "websocket"]], ids="+".join)
def test_the_real_client_does_everything(transports: list[str]) -> None:
    """socket.io-client from Node: connect, events, acknowledgements, binary, order of 300 events, of 40 large ones and their
    acknowledgement, namespaces, disconnect."""
    script = Path(__file__).with_name("real_client.mjs")

    with LineProgram(sys.executable, "-m", "tests.integration.socketio.application") as server:
        outcome = subprocess.run(
            [NODE, str(script), f"http://127.0.0.1:{server.line()}", json.dumps(transports)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert "Traceback" not in server.end()

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
