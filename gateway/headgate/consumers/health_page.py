"""The health and metrics page of `headgate consume --listen`: one thread, one request at a time, nothing but GET.

In: a function that tells each consumer's state. Out: `/healthz` (200 when every consumer is at work, else 503, with each one's
state as JSON) and `/metrics` in the Prometheus text format. No topic, payload or secret is on either.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from headgate import metrics
from headgate.errors import InvalidRequest

# One request at a time: whoever dawdles is sent away, or the next one would wait.
REQUEST_DEADLINE_S = 5.0


class HealthPage:
    """Listens from construction on, in a thread that ends with `close` or with the process.

    Args:
        place: host and port; port 0 picks a free one.
        states: what each consumer is doing, by name; `ready` is False when one is not at work.

    Raises:
        InvalidRequest: nobody can listen there.
    """

    def __init__(self, place: tuple[str, int], states: Callable[[], Mapping[str, Any]]) -> None:
        class Handler(_Handler):
            report = staticmethod(states)

        class Server(socketserver.TCPServer):
            address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            allow_reuse_address = True

        try:
            self._server = Server(place, Handler)
        except OSError as error:
            raise InvalidRequest(f"cannot listen on {place[0]}:{place[1]}: {error.strerror or error}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="health page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_DEADLINE_S
    server_version, sys_version = "headgate", ""
    report: Callable[[], Mapping[str, Any]]

    def do_GET(self) -> None:
        if self.path == "/healthz":
            found = self.report()
            self._answer(200 if found["ready"] else 503, "application/json", json.dumps(found).encode())
        elif self.path == "/metrics":
            content_type, text = metrics.exposition()
            self._answer(200, content_type, text)
        else:
            self._answer(404, "text/plain; charset=utf-8", b"here are /healthz and /metrics\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line per request."""

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
