"""A peer of the HTTP server by a script, on a clock that its pauses move: no socket, no process, no waiting.

    peer = Peer([b"GET / HTTP/1.1\r\n", Pause(60), b"\r\n"])
    peer.served_by(application, HttpLimits(header_deadline_s=5))
    assert peer.received.startswith(b"HTTP/1.1 408 ")

The connection is the real one (headgate/transport/http_connection.py), with everything below it but the socket.
"""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import gevent

from headgate.runtime.loop import READ, WRITE, in_hub_after
from headgate.transport.http_connection import HttpConnection
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import Routes
from headgate.transport.http_server import HTTPServer
from headgate.transport.peer_socket import NativeSocket, PeerSocket

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve_on(server: HTTPServer, ours: socket.socket) -> gevent.Greenlet:
    """Serve a connection, which has been accepted; return a greenlet that waits for its end."""
    sock = NativeSocket(fileno=ours.detach())
    sock.setblocking(False)
    HttpConnection(server, PeerSocket(sock), "").begin()

    def end() -> None:
        while sock.fileno() >= 0:
            gevent.sleep(0.001)

    return gevent.spawn(end)


class Pause(NamedTuple):
    """So long the peer does nothing, which means that it sends nothing, or accepts nothing."""

    seconds: float


class Reset(NamedTuple):
    """The peer resets the connection."""


FOREVER = Pause(math.inf)
# So much comes in at once, however much the peer has sent.
SEGMENT_BYTES = 65536


class Peer:
    """The socket of a connection, as the connection sees it (peer_socket.PeerSocket).

    Attributes:
        now_s: the clock.
        received: every byte that the server has written.
        shut, reset: whether the server has said that its answer was all, and whether it threw the rest of it away.
    """

    def __init__(self, sends: Iterable[bytes | Pause | Reset], accepts: Iterable[int | Pause] = ()) -> None:
        """`sends` in this order, and then the end of its stream; `accepts` so many bytes at a time, and then any number."""
        self.now_s = 1000.0
        self.received = b""
        self.waited_s = 0.0
        self.sent_bytes = 0
        self.closed = False
        self._sends, self._accepts = list(sends), list(accepts)
        # The server's calls on the descriptor apply to this one.
        self.sock, self._far = socket.socketpair()
        self._far.setblocking(False)

    def served_by(
        self,
        application: Application,
        limits: HttpLimits,
        address: tuple[str, int] = ("192.0.2.1", 5),
        routes: Routes | None = None,
        to_owner: Callable[[bytes, int], bool] | None = None,
        server: HTTPServer | None = None,
        *,
        is_reserved: bool = False,
    ) -> HTTPServer:
        if server is None:
            server = HTTPServer(("127.0.0.1", 0), application, limits=limits, routes=routes)
        server.to_owner = to_owner
        connection = HttpConnection(server, self.as_socket(), address)
        server.connections.open(connection, None if limits.proxies else address[0])
        connection.is_reserved = is_reserved
        connection.begin()
        while not (self.closed or connection.is_taken):
            gevent.sleep(0)
        return server

    def as_socket(self) -> PeerSocket:
        return cast(PeerSocket, self)

    @property
    def answers(self) -> list[tuple[str, dict[str, str], bytes]]:
        found = []
        for each in self.received.split(b"HTTP/1.1 ")[1:]:
            head, _, body = each.partition(b"\r\n\r\n")
            status, *lines = head.decode("latin-1").split("\r\n")
            found.append((status, dict(line.split(": ", 1) for line in lines), body))
        return found

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the answers, each of which has the Content-Length that it says."""
        assert all(len(body) == int(headers["Content-Length"]) for _, headers, body in self.answers)
        return [body for *_, body in self.answers]

    @property
    def shut(self) -> bool:
        """Whether the server has said that its answer was all."""
        try:
            return self._far.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    @property
    def reset(self) -> bool:
        """Whether the server has the kernel throw away the unread bytes."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[:1] == b"\1"

    # -- the socket's own interface -------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        if self._sends and isinstance(self._sends[0], Pause):
            raise BlockingIOError
        if not self._sends:
            return b""
        data = self._sends.pop(0)
        if isinstance(data, Reset):
            raise ConnectionResetError(errno.ECONNRESET, "reset by peer")
        assert isinstance(data, bytes)
        size = min(size, SEGMENT_BYTES)
        if size < len(data):
            self._sends.insert(0, data[size:])
        self.sent_bytes += len(data[:size])
        return data[:size]

    def send(self, data: ReadableBuffer) -> int:
        if self._accepts and isinstance(self._accepts[0], Pause):
            raise BlockingIOError
        size = len(memoryview(data))
        if self._accepts:
            size = min(size, int(self._accepts.pop(0)))  # type: ignore[arg-type]
        self.received += bytes(memoryview(data)[:size])
        return size

    def wait(self, events: int, timeout_s: float) -> float | None:
        gevent.sleep(0)  # a turn of the loop goes by
        script = self._accepts if events == WRITE else self._sends
        if not script or not isinstance(script[0], Pause):
            return 0.0
        (pause_s,) = script[0]
        if pause_s > timeout_s:
            script[0] = Pause(pause_s - timeout_s)
            self.now_s += timeout_s
            return None
        del script[0]
        self.now_s += pause_s
        return pause_s

    def await_bytes(self, timeout_s: float, arrived: Callable[[bool], object]) -> None:
        def wait() -> None:
            waited_s = self.wait(READ, timeout_s)
            self.waited_s = waited_s or 0.0
            in_hub_after(0, lambda: arrived(waited_s is not None))

        gevent.spawn(wait)

    def stop(self) -> None:
        """Nothing is watched between two waits."""

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.closed = True
