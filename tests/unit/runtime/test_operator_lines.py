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
