"""The health and metrics page of `headgate consume --listen`: a thread for each of a few requests at once, nothing but GET.

In: a function that tells each consumer's state. Out: `/healthz` (200 when every consumer is at work, else 503, with each one's
state as JSON) and `/metrics` in the Prometheus text format. No topic, payload or secret is on either.

A slow caller keeps no probe waiting: a connection is cut after REQUEST_DEADLINE_S, however slowly its bytes come and go, and
the oldest one at once when there would be more than MAX_CONNECTIONS.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

from headgate import metrics
from headgate.errors import InvalidRequest

# From the connection to the end of the answer.
REQUEST_DEADLINE_S = 5.0
MAX_CONNECTIONS = 16
# How often the page looks for connections whose time is over.
LOOK_S = 0.5

# A request as socketserver has it: a TCP server's is a socket.
_Request = socket.socket | tuple[bytes, socket.socket]


class HealthPage:
    """Listens from construction on, in a thread that ends with `close` or with the process.

    Args:
        place: host and port; port 0 picks a free one.
        states: what each consumer is doing, by name; `ready` is False when one is not at work.

    Raises:
        InvalidRequest: nobody can listen there.
    """

    def __init__(self, place: tuple[str, int], states: Callable[[], Mapping[str, object]]) -> None:
        class Handler(_Handler):
            report = staticmethod(states)

        try:
            self._server = _Server(place, Handler)
        except OSError as error:
            raise InvalidRequest(f"cannot listen on {place[0]}:{place[1]}: {error.strerror or error}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), name="health page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and disconnect every client."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    """Bounds how many are connected, and how long."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    # socketserver's own 5 are full in no time, and the kernel then has a client wait a second.
    request_queue_size = 128

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._lock = threading.Lock()
        # Oldest first, with when each is to end.
        self._ends_s: dict[socket.socket, float] = {}
        super().__init__(place, handler)

    def process_request(self, request: _Request, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        with self._lock:
            if len(self._ends_s) >= MAX_CONNECTIONS:
                self._cut(next(iter(self._ends_s)))
            self._ends_s[request] = time.monotonic() + REQUEST_DEADLINE_S
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called by `serve_forever` at least every LOOK_S."""
        now_s = time.monotonic()
        with self._lock:
            for request in [each for each, end_s in self._ends_s.items() if end_s <= now_s]:
                self._cut(request)

    def shutdown_request(self, request: _Request) -> None:
        assert isinstance(request, socket.socket)
        with self._lock:
            self._ends_s.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for request in list(self._ends_s):
                self._cut(request)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Write nothing of clients that left or were cut; anything else is a fault of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _cut(self, request: socket.socket) -> None:
        """End a connection: the thread that serves it sees the end of the stream, and closes it."""
        del self._ends_s[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "headgate", ""
    report: Callable[[], Mapping[str, object]]

    def do_GET(self) -> None:
        if self.path == "/healthz":
            found = self.report()
            self._answer(200 if found["ready"] else 503, "application/json", json.dumps(found).encode())
        elif self.path == "/metrics":
            self._answer(200, *metrics.exposition())
        else:
            self._answer(404, "text/plain; charset=utf-8", b"here are /healthz and /metrics\n")

    def log_message(self, format: str, *args: object) -> None:
        """Write no line per request."""

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
