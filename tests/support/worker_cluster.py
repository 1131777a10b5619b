"""Several workers of one application, and how they pass requests to each other.

Run as `python -m tests.support.worker_cluster '{"workers": 2, "port": 0, "limits":
{…}}'`. Prints the port, or with `"own_ports": true` that of each worker, and ends with its standard input. Its workers are
forks. The process that makes them imports their modules, once, and has no loop and no threads.
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import gevent.event
import gevent.socket
import structlog

from headgate.socketio import HTTPServer, WSGIApp
from headgate.workers.peer_workers import PeerWorkers, letters_of
from headgate.workers.scoreboard import Scoreboard, State
from tests.support.socketio_application import Application


def work(listener: socket.socket, scoreboard: Scoreboard, folder: Path, row: int, given: dict[str, Any], ready: int) -> None:
    """Be a worker, until a signal ends it."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    scoreboard.begin(row, os.getpid())
    application = Application(limits=given["limits"])
    application.sio.eio.owner = letters_of(row)
    inherited = gevent.socket.socket(listener.family, listener.type, fileno=os.dup(listener.fileno()))
    server = HTTPServer(inherited, WSGIApp(application.sio))
    peer_workers = PeerWorkers(scoreboard, folder, row, dict, server.adopt)
    server.to_owner = peer_workers.hand_over
    server.start()
    scoreboard.move(row, State.SERVING)
    os.write(ready, b".")
    gevent.event.Event().wait()


def main(given: dict[str, Any]) -> None:
    """Start all workers, print the ports, and wait for the end of standard input."""
    ports: list[int] = []
    children: list[int] = []
    heard, ready = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        scoreboard = Scoreboard()
        listeners: list[socket.socket] = []
        for age in range(1, given["workers"] + 1):
            if not listeners or given.get("own_ports"):
                listeners.append(socket.create_server(("127.0.0.1", given.get("port", 0)), backlog=1024))
                listeners[-1].setblocking(False)
                ports.append(listeners[-1].getsockname()[1])
            row = scoreboard.take(age).slot
            child = os.fork()
            if not child:
                try:
                    work(listeners[-1], scoreboard, Path(folder), row, given, ready)
                finally:
                    os._exit(1)
            children.append(child)
        for listener in listeners:
            listener.close()
        while len(children) > sum(len(os.read(heard, 1)) for _ in children):
            pass
        print(*ports, flush=True)
        sys.stdin.read()
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
