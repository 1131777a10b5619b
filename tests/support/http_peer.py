"""A peer of the HTTP server by a script, on a clock that its pauses move: no socket, no process, no waiting.

    peer = Peer([b"GET / HTTP/1.1\r\n", Pause(60), b"\r\n"])
    peer.served_by(application, HttpLimits(header_deadline_s=5), monkeypatch)
    assert peer.received.startswith(b"HTTP/1.1 408 ")

The handler of the connection is the real one (headgate/transport/http_handler.py), and so is the pywsgi below it.
"""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from headgate.transport import http_handler
from headgate.transport.http_handler import HttpHandler
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import Routes
from headgate.transport.http_server import HTTPServer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Pause(NamedTuple):
    """So long the peer does nothing: it sends nothing, or accepts nothing."""

    seconds: float


class Reset(NamedTuple):
    """The peer resets the connection."""


FOREVER = Pause(math.inf)
# So much comes in at once, however much the peer has sent.
SEGMENT_BYTES = 65536


class Peer:
    """The socket of a connection, as the handler sees it.

    Attributes:
        now_s: the clock.
        received: every byte that the server has written.
        shut: whether the server has said that its answer was all (`shutdown(SHUT_WR)`).
        options: the socket options that the server has set, by level and name.
    """

    family = socket.AF_INET

    def __init__(self, sends: Iterable[bytes | Pause | Reset], accepts: Iterable[int | Pause] = ()) -> None:
        """`sends` in this order, and then the end of its stream; `accepts` so many bytes at a time, and then any number."""
        self.now_s = 1000.0
        self.received = b""
        self.sent_bytes = 0
        self.shut = self.closed = False
        self.options: dict[tuple[int, int], object] = {}
        self._sends, self._accepts = list(sends), list(accepts)
        self._timeout_s: float | None = None
        self._sends_again_s = self._accepts_again_s = 0.0

    def served_by(
        self,
        application: Application,
        limits: HttpLimits,
        monkeypatch: pytest.MonkeyPatch,
        address: tuple[str, int] = ("192.0.2.1", 5),
        routes: Routes | None = None,
        to_owner: Callable[[bytes, int], bool] | None = None,
    ) -> HTTPServer:
        """Serve the connection until it is over; return the server."""
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: self.now_s)
        monkeypatch.setattr(http_handler, "time", clock)
        server = HTTPServer(("127.0.0.1", 0), application, limits=limits, routes=routes)
        server.to_owner = to_owner
        server.connections.open(self, address[0])
        HttpHandler(self, address, server).handle()
        return server

    # -- the socket's own interface -------------------------------------------------------------------------------

    def setsockopt(self, level: int, name: int, value: object, /) -> None:
        self.options[level, name] = value

    def settimeout(self, seconds: float | None, /) -> None:
        self._timeout_s = seconds

    def recv_into(self, buffer: WriteableBuffer, /) -> int:
        while self._sends and isinstance(self._sends[0], Pause):
            if not self._sends_again_s:
                self._sends_again_s = self.now_s + self._sends[0].seconds
            self._wait_until(self._sends_again_s)
            self._sends_again_s = 0.0
            del self._sends[0]
        if not self._sends:
            return 0
        data = self._sends.pop(0)
        if isinstance(data, Reset):
            raise ConnectionResetError(errno.ECONNRESET, "reset by peer")
        assert isinstance(data, bytes)
        view = memoryview(buffer)
        size = min(len(view), len(data), SEGMENT_BYTES)
        view[:size] = data[:size]
        if size < len(data):
            self._sends.insert(0, data[size:])
        self.sent_bytes += size
        return size

    def send(self, data: ReadableBuffer, /) -> int:
        while self._accepts and isinstance(self._accepts[0], Pause):
            if not self._accepts_again_s:
                self._accepts_again_s = self.now_s + self._accepts[0].seconds
            self._wait_until(self._accepts_again_s)
            self._accepts_again_s = 0.0
            del self._accepts[0]
        size = len(memoryview(data))
        if self._accepts:
            size = min(size, int(self._accepts.pop(0)))  # type: ignore[arg-type]
        self.received += bytes(memoryview(data)[:size])
        return size

    def sendall(self, data: ReadableBuffer, /) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    def shutdown(self, how: int, /) -> None:
        assert how == socket.SHUT_WR
        self.shut = True

    def close(self) -> None:
        self.closed = True

    def _wait_until(self, time_s: float) -> None:
        left_s = time_s - self.now_s
        if left_s <= 0:
            return
        if self._timeout_s == 0:
            raise BlockingIOError
        assert self._timeout_s is not None, "the handler would wait for ever"
        if left_s > self._timeout_s:
            self.now_s += self._timeout_s
            raise TimeoutError("timed out")
        self.now_s = time_s
