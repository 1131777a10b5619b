"""The health and metrics page of `headgate consume --listen`, for a few concurrent GET requests, each in its thread.

In: a function that returns each consumer's state. Out: `/healthz` (200 if every consumer is at work, else 503, with each one's
state as JSON) and `/metrics` in the Prometheus text format. Neither contains a topic, payload or secret.

A slow caller cannot block a probe. The server cuts a connection after REQUEST_DEADLINE_S, even if bytes trickle, and the oldest
one at once if there would be more than MAX_CONNECTIONS.
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
from typing import Any

from headgate.errors import InvalidRequest
from headgate.runtime import metrics

# From the connection to the end of the answer.
REQUEST_DEADLINE_S = 5.0
MAX_CONNECTIONS = 16
# Interval between checks for expired connections.
POLL_S = 0.5


class HealthPage(socketserver.ThreadingTCPServer):
    """Listens from its construction, in a thread that ends with `close` or with the process.

    Args:
        place: host and port. Port 0 picks a free one.
        states: returns the state of each consumer by name; `ready` is False if one is not at work.

    Raises InvalidRequest if the address is not available.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    # socketserver's default of 5 fills quickly, after which the kernel makes a client wait a second.
    request_queue_size = 128

    def __init__(self, place: tuple[str, int], states: Callable[[], Mapping[str, object]]) -> None:
        self.states = states
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._lock = threading.Lock()
        # Deadlines by connection, oldest first.
        self._ends_s: dict[socket.socket, float] = {}
        try:
            super().__init__(place, _Handler)
        except OSError as error:
            raise InvalidRequest(f"cannot listen on {place[0]}:{place[1]}: {error.strerror or error}") from error
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name="health page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and disconnect every client."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: object) -> None:
        with self._lock:
            if len(self._ends_s) >= MAX_CONNECTIONS:
                self._cut(next(iter(self._ends_s)))
            self._ends_s[request] = time.monotonic() + REQUEST_DEADLINE_S
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called by `serve_forever` at least every POLL_S."""
        now_s = time.monotonic()
        with self._lock:
            for request in [each for each, end_s in self._ends_s.items() if end_s <= now_s]:
                self._cut(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._ends_s.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for request in list(self._ends_s):
                self._cut(request)

    def handle_error(self, request: Any, client_address: object) -> None:
        """Ignore the errors of clients that left or were cut; report any other as a fault of this program."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _cut(self, request: socket.socket) -> None:
        """End a connection. Its thread sees the end of the stream, and closes it."""
        del self._ends_s[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "headgate", ""
    server: HealthPage

    def do_GET(self) -> None:
        if self.path == "/healthz":
            states = self.server.states()
            self._answer(200 if states["ready"] else 503, "application/json", json.dumps(states).encode())
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
