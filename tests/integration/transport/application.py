"""The program under test: headgate.socketio.Server and a bare DropInEngine in a separate process.

`/socket.io/` is the application of tests/support/socketio_application.py. `/engine.io/` echoes as the Engine.IO v4 suite
expects. `/debug/<name>` takes a JSON object and gives a test, inside the process, more than any client could: emit, end
sessions, count file descriptors, greenlets, watchers.

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
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gevent
import structlog

from headgate.socketio import HTTPServer, WSGIApp
from headgate.socketio.engine import DropInEngine
from headgate.transport import long_poll
from headgate.transport.heartbeat import Heartbeat
from headgate.transport.limits import TransportLimits
from headgate.transport.long_poll import LongPoll
from headgate.transport.session import Session
from headgate.transport.websocket import WebSocket
from tests.support import packet_classes as packets
from tests.support import socketio_application

JSON = dict[str, Any]


class Application(socketio_application.Application):
    """Both servers and the debug commands."""

    def __init__(self, limits: JSON, options: JSON) -> None:
        # The gateway's limits, which are the narrower ones.
        super().__init__(**{"transport_limits": TransportLimits(**limits), "max_handlers": 64, **options})
        # No client sends a Socket.IO CONNECT to the bare Engine.IO server, and its handshake deadline would end every session.
        self.eio = DropInEngine(transport_limits=TransportLimits(**{**limits, "handshake_deadline_s": 3600}))
        self.eio.on("connect", lambda sid, environ: None)
        self.eio.on("message", lambda sid, message: self.eio.send(sid, message))
        self.eio.on("disconnect", self.end)
        self.reasons: dict[str, str] = {}
        self.waiting = 0
        self.http = HTTPServer(("127.0.0.1", 0), WSGIApp(self.sio, self))

    def end(self, sid: str, reason: str) -> None:
        """Remember how a session ended."""
        super().end(sid, reason)
        self.reasons[sid] = reason

    def __call__(self, environ: JSON, start_response: Any) -> Any:
        """Route: the bare Engine.IO server, debug commands."""
        path = environ["PATH_INFO"]
        if path.startswith("/engine.io"):
            return self.eio.handle_request(environ, start_response)
        command: Callable[..., Any] | None = getattr(self, "debug_" + path.removeprefix("/debug/"), None)
        if command is None:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        if path == "/debug/echo":
            return command(environ, start_response)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = json.dumps(command(**json.loads(environ["wsgi.input"].read(length) or b"{}"))).encode()
        start_response("200 OK", [("Content-Length", str(len(body))), ("Content-Type", "application/json")])
        return [body]

    # -- debug commands -------------------------------------------------------------------------------------------

    def debug_state(self) -> JSON:
        """Return the present objects of the process; sessions, and the polling ones, by their ids."""
        gc.collect()
        objects = gc.get_objects()
        sessions = [*self.sio.eio.sockets.values(), *self.eio.sockets.values()]
        polls = [thing for thing in objects if isinstance(thing, LongPoll)]
        return {
            "fds": len(os.listdir("/proc/self/fd")),
            "greenlets": sum(isinstance(thing, gevent.Greenlet) and not thing.dead for thing in objects),
            "polls": [poll._session.sid for poll in polls if poll._wake is not None],
            "watchers": gevent.get_hub().loop.activecnt,
            "wires": sum(isinstance(thing, WebSocket) for thing in objects),
            "connections": sum(isinstance(thing, Session) for thing in objects),
            "sessions": [connection.sid for connection in sessions],
            "inbox": max((waiting_messages(session) for session in self.sio.eio.sockets.values()), default=0),
            "environs": len(self.sio.environ),
            "half_binary": len(self.sio._begun),
            "ends": self.ends,
            "reasons": self.reasons,
            "most_running": self.most_running,
            "waiting": self.waiting,
            "members": sum(len(rooms.get(None, ())) for rooms in self.sio.manager.rooms.values()),
            "in_the_room": self.members(),
            "half_gone": sum(map(len, self.sio.manager.pending_disconnect.values())) + len(self.sio._leaving),
            "handlers": len(self.sio._running),
            "leavings": self.room.leavings,
        }

    def debug_sessions(self) -> list[tuple[int, int]]:
        """Return TCP_NODELAY and the send buffer of each Socket.IO session's WebSocket."""
        socks = [session.wire._sock for session in self.sio.eio.sockets.values() if session.wire is not None]
        return [
            (sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            for sock in socks
        ]

    def debug_emit(self, count: int, size: int = 0, namespace: str = "/", first: int = 0) -> int:
        """Emit `count` numbered events to everyone."""
        for number in range(first, first + count):
            self.sio.emit("event", (number, "x" * size), namespace=namespace)
        return count

    def debug_start_pace(self, count: int, sizes: list[int]) -> None:
        """Begin to emit numbered events of these sizes, each only while everyone's queue has room."""
        gevent.spawn(self._pace, count, ["x" * size for size in sizes])

    def _pace(self, count: int, paddings: list[str]) -> None:
        for number in range(count):
            while any(connection.queue.level >= 0.5 for connection in self.sio.eio.sockets.values()):
                gevent.sleep(0.001)
            self.sio.emit("event", (number, paddings[number % len(paddings)]))
            if not number % 64:
                gevent.sleep(0)

    def debug_disconnect(self) -> None:
        """End every session, straight at Engine.IO."""
        for eio_sid in list(self.sio.eio.sockets):
            self.sio.eio.disconnect(eio_sid)

    def debug_ping(self) -> None:
        """Ping everyone now, whatever the interval."""
        for connection in [*self.sio.eio.sockets.values(), *self.eio.sockets.values()]:
            connection.heartbeat.ping()

    def debug_ping_and_stop(self) -> None:
        """Ping everyone, and have the whole process stopped (SIGSTOP) in the same breath."""
        self.debug_ping()
        os.kill(os.getpid(), signal.SIGSTOP)

    def debug_forget(self) -> None:
        """Take off the timer the rest of finished sessions, as when its deadlines have passed."""
        for due in self.sio.eio.deadlines._slots.values():
            due[:] = [entry for entry in due if not is_over(getattr(entry[0], "__self__", None))]

    def debug_limit(self, **limits: float) -> None:
        """Have other limits from now on."""
        self.sio.eio.limits = replace(self.sio.eio.limits, **limits)

    def debug_hasten(self, **limits: Any) -> None:
        """Have other limits for HTTP messages that begin from now on."""
        self.http.admission.limits = replace(self.http.admission.limits, **limits)

    def debug_echo(self, environ: JSON, start_response: Any) -> list[bytes]:
        """Answer with the request's body, as JSON."""
        body = json.dumps(environ["wsgi.input"].read().decode("latin-1")).encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    def debug_wait(self) -> None:
        """Answer when the slow handlers may go on."""
        self.waiting += 1
        self.gate.wait()
        self.waiting -= 1

    def debug_release(self) -> None:
        """Let the slow handlers go on."""
        self.gate.set()
        self.room.gate.set()


def is_over(owner: object) -> bool:
    """Return whether a deadline's owner has ended, which is a session, a WebSocket, or the heartbeat of a session."""
    return getattr(owner, "closed", False) or (isinstance(owner, Heartbeat) and owner._session is None)


def waiting_messages(session: Session) -> int:
    """Return how many messages of a session wait for the application."""
    return 0 if session.inbox is None else len(session.inbox._messages or ())


def main(configuration: JSON) -> None:
    """Serve until standard input ends. Logs go to standard error, where the test looks for tracebacks."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    long_poll.STORED_S = 60.0  # a poll of a test may be on its way for longer than a living browser's
    faulthandler.register(signal.SIGUSR1)  # `kill -USR1` shows where it is, on its standard error
    options = configuration.get("options", {})
    serializer = options.get("serializer", "")
    if serializer[:1].isupper():
        options["serializer"] = getattr(packets, serializer)
    application = Application(configuration.get("limits", {}), options)
    server = application.http
    gc.collect()
    gc.freeze()  # objects of interest are made from here on, so the modules' need not be searched each time
    server.start()
    print(server.server_port, flush=True)
    gevent.get_hub().threadpool.apply(sys.stdin.read)
    server.stop(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
