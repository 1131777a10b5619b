"""A real HTTP server that keeps its requests, and answers as a test wants, well, badly, slowly or never."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request: its path, its headers (names in lower case) and its body."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Listens on 127.0.0.1 until it is closed. `answer` may be changed at any time; the entries of `requests` have had their own.

    Args:
        tls: speak TLS with this context.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.answer: Answer = status(200)
        self.closing = threading.Event()
        counting = threading.Lock()
        self._tls = tls
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                with counting:
                    receiver.connections += 1
                if receiver._tls is not None:
                    self.request = receiver._tls.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = receiver.answer  # before a test sees the request, and changes it for the next one
                receiver.requests.append(Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                answer(self, receiver.closing)

            do_GET = do_POST

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                # Clients that leave in the middle, or do not like our certificate, are the subject of the tests.
                if not isinstance(sys.exception(), OSError | ValueError):
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http{'s' if self._tls else ''}://{host}:{self.port}{path}"

    def close(self) -> None:
        """Let go of the waiting ones, and stop listening. Idempotent."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


Answer = Callable[[BaseHTTPRequestHandler, threading.Event], None]


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    """Answer like this, at once."""

    def answer(request: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        request.send_response(code)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        if code != 204:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def say(*parts: bytes) -> Answer:
    def answer(request: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        for part in parts:
            request.wfile.write(part)
        request.close_connection = True

    return answer


def hang(first: bytes = b"") -> Answer:
    def answer(request: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        request.wfile.write(first)
        closing.wait()

    return answer


def trickle(first: bytes) -> Answer:
    """Write this, and then a letter at a time for ever."""

    def answer(request: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        request.wfile.write(first)
        while not closing.wait(0.02):
            request.wfile.write(b"x")

    return answer


def reset(request: BaseHTTPRequestHandler, closing: threading.Event) -> None:
    request.close_connection = True
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for open_end in (request.rfile, request.wfile, request.connection):
        open_end.close()
