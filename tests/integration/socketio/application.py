"""The application of socketio_application.py as a process, which prints its port and ends with its standard input."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import os
import sys

import gevent

from headgate.socketio import HTTPServer, WSGIApp
from tests.support.socketio_application import Application


def main() -> None:
    """Serve. Standard error goes to standard output, where the test looks for tracebacks."""
    os.dup2(1, 2)
    server = HTTPServer(("127.0.0.1", 0), WSGIApp(Application().sio))
    server.start()
    print(server.server_port, flush=True)
    gevent.get_hub().threadpool.apply(sys.stdin.read)
    server.stop(0)


if __name__ == "__main__":
    main()
