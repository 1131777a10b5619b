"""Sessions of several workers on one port, where a worker hands a connection to the one that owns its session."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.support.epoll_sets import children_of, stale
from tests.support.line_program import LineProgram

ECHO = "/engine.io/"
PATIENT = {"ping_interval_s": 3600, "handshake_deadline_s": 3600}


@contextmanager
def printing(*command: str) -> Iterator[list[int]]:
    """Run a program that ends with its standard input; yield the ports that it prints."""
    with LineProgram(*command) as program:
        yield [int(each) for each in program.line().split()]


def workers() -> list[int]:
    """Return the workers that this test has started."""
    found = [worker for started in children_of(os.getpid()) for worker in children_of(started)]
    assert len(found) >= 3
    return found


def upgrade(session: Polling, port: int) -> WebSocket:
    """Move a polling session to a WebSocket, asked for at this port."""
    socket = WebSocket(port, session.path, session.sid)
    assert socket.status == 101
    socket.send("2probe")
    assert socket.receive() == "3probe"
    socket.send("5")
    return socket


def test_a_polling_session_needs_no_sticky_worker() -> None:
    """Each request goes to any of three workers of one port. Every message comes back, also after an upgrade.

    No worker's kernel goes on watching a connection that lives on in another worker.
    """
    given = {"workers": 3, "limits": PATIENT}
    with printing(sys.executable, "-m", "tests.support.worker_cluster", json.dumps(given)) as (port,):
        sessions = [Polling(port, ECHO) for _ in range(12)]
        for number in range(3):
            for session in sessions:
                answer = session.post(f"4{number}", "bAQIDBA==", "4" + "x" * 100_000)
                assert (answer.status, answer.body) == (200, "ok")
                received: list[str] = []
                while len(received) < 3:
                    received += session.packets()
                assert received == [f"4{number}", "bAQIDBA==", "4" + "x" * 100_000]
        for session in sessions:
            socket = upgrade(session, port)
            with closing(socket):
                for message in ("4after", "4" + "y" * 200_000, b"\1\2\3"):
                    socket.send(message)
                    assert socket.receive() == message
                assert not any(stale(worker) for worker in workers())
