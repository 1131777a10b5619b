"""The program under test: headgate.socketio.Server and a bare DropInEngine in a separate process.

`/socket.io/` is the application of tests/support/socketio_application.py. `/engine.io/` echoes. `/debug/<name>` takes a JSON
object and gives a test, inside the process, more than any client could: emit, and count file descriptors, greenlets, watchers.

Run as `python -m tests.integration.transport.application '<json>'`; prints its port, ends with its standard input.
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import faulthandler
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import gevent
import structlog

from headgate.socketio import HTTPServer, WSGIApp
from headgate.socketio.engine import DropInEngine
from headgate.transport import long_poll
from headgate.transport.heartbeat import Heartbeat
from headgate.transport.limits import TransportLimits
from headgate.transport.session import Session
from headgate.transport.websocket import WebSocket
from tests.support import socketio_application

JSON = dict[str, Any]


class Application(socketio_application.Application):
    """The server and the debug commands."""

    def __init__(self, limits: JSON) -> None:
        # The gateway's limits, which are the narrower ones.
        super().__init__(transport_limits=TransportLimits(**limits), max_handlers=64)
        # No client sends a Socket.IO CONNECT to the bare Engine.IO server, and its handshake deadline would end every session.
        self.eio = DropInEngine(transport_limits=TransportLimits(**{**limits, "handshake_deadline_s": 3600}))
        self.eio.on("connect", lambda sid, environ: None)
        self.eio.on("message", lambda sid, message: self.eio.send(sid, message))
        self.http = HTTPServer(("127.0.0.1", 0), WSGIApp(self.sio, self))

    def __call__(self, environ: JSON, start_response: Any) -> Any:
        """Route: the bare Engine.IO server, debug commands."""
        path = environ["PATH_INFO"]
        if path.startswith("/engine.io"):
            return self.eio.handle_request(environ, start_response)
        command: Callable[..., Any] | None = getattr(self, "debug_" + path.removeprefix("/debug/"), None)
        if command is None:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = json.dumps(command(**json.loads(environ["wsgi.input"].read(length) or b"{}"))).encode()
        start_response("200 OK", [("Content-Length", str(len(body))), ("Content-Type", "application/json")])
        return [body]

    # -- debug commands -------------------------------------------------------------------------------------------

    def debug_state(self) -> JSON:
        """Return the present objects of the process; sessions by their ids."""
        gc.collect()
        objects = gc.get_objects()
        return {
            "fds": len(os.listdir("/proc/self/fd")),
            "greenlets": sum(isinstance(thing, gevent.Greenlet) and not thing.dead for thing in objects),
            "watchers": gevent.get_hub().loop.activecnt,
            "wires": sum(isinstance(thing, WebSocket) for thing in objects),
            "connections": sum(isinstance(thing, Session) for thing in objects),
            "sessions": [connection.sid for connection in self.sio.eio.sockets.values()],
            "environs": len(self.sio.environ),
            "ends": self.ends,
        }

    def debug_emit(self, count: int, size: int = 0, namespace: str = "/", first: int = 0) -> int:
        """Emit `count` numbered events to everyone."""
        for number in range(first, first + count):
            self.sio.emit("event", (number, "x" * size), namespace=namespace)
        return count

    def debug_forget(self) -> None:
        """Take off the timer the rest of finished sessions, as when its deadlines have passed."""
        for due in self.sio.eio.deadlines._slots.values():
            due[:] = [entry for entry in due if not is_over(getattr(entry[0], "__self__", None))]


def is_over(owner: object) -> bool:
    """Return whether a deadline's owner has ended, which is a session, a WebSocket, or the heartbeat of a session."""
    return getattr(owner, "closed", False) or (isinstance(owner, Heartbeat) and owner._session is None)


def main(configuration: JSON) -> None:
    """Serve until standard input ends. Logs go to standard error, where the test looks for tracebacks."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    long_poll.STORED_S = 60.0  # a poll of a test may be on its way for longer than a living browser's
    faulthandler.register(signal.SIGUSR1)  # `kill -USR1` shows where it is, on its standard error
    server = Application(configuration.get("limits", {})).http
    gc.collect()
    gc.freeze()  # objects of interest are made from here on, so the modules' need not be searched each time
    server.start()
    print(server.server_port, flush=True)
    gevent.get_hub().threadpool.apply(sys.stdin.read)
    server.stop(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
