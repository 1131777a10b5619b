"""Lines for the operator: one write each, so that a killed process leaves a whole line or none."""

import socket
import subprocess
import sys

PROGRAM = """
from headgate.runtime.operator_lines import complain, say
say("ready")
complain("a worker has ended")
"""


def test_a_line_and_its_end_are_one_write_even_when_python_is_unbuffered() -> None:
    """A socket of type SOCK_SEQPACKET keeps the bounds of each write."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(60)
        subprocess.run(
            [sys.executable, "-u", "-c", PROGRAM], stdout=theirs.fileno(), stderr=theirs.fileno(), check=True, timeout=60
        )
        assert [ours.recv(1000), ours.recv(1000)] == [b"headgate: ready\n", b"headgate: a worker has ended\n"]


def test_lines_for_closed_streams_go_nowhere() -> None:
    """As under a gunicorn whose parent has closed its output."""
    opening = "from headgate.runtime.operator_lines import open_closed_streams\nopen_closed_streams()\n"
    shell = ["sh", "-c", 'exec "$0" -c "$1" >&- 2>&-', sys.executable]
    assert subprocess.run([*shell, PROGRAM], timeout=60).returncode == 1
    assert subprocess.run([*shell, opening + PROGRAM], timeout=60).returncode == 0
