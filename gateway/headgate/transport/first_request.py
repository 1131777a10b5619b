"""The first request of a connection, before there is a greenlet for it: most are for a WebSocket, and then there never is one.

In: connections that have just been accepted. Out: those whose first request a route has taken (http_routes.NeverWaits) are a
session's; any other goes to `FirstServer.to_handler` with the bytes that have come, and its handler (http_handler.py) goes on
from there as if it had read them itself.

Callbacks run in the hub: nothing here switches greenlets. A connection whose request does not come waits here for
PATIENCE_S, with a watcher and no more. Then its handler waits on, within the deadline for the headers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog

from headgate.runtime.loop import READ, Watcher, io_watcher, repeat

from .http_answers import ROUTE_FAILED, Answer, error_answer
from .http_connections import HttpConnections
from .http_routes import NeverWaits, Routes
from .peer_socket import NativeSocket, PeerSocket
from .request_head import Head, read_head

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

log = structlog.get_logger("headgate.wsgi")

READ_BYTES = 8192
# A request that names its session, which may be another process's where several share the port.
NAMES_SESSION = b"sid="
PATIENCE_S = 1.0
_TICK_S = 0.25


class Answered(NamedTuple):
    """A request that its route has answered; with None it has left it to the application."""

    head: Head
    environ: WSGIEnvironment
    answer: Answer | None


class Beginning(NamedTuple):
    """The beginning of a connection, for its handler.

    Attributes:
        received: what has come in, behind the request that was answered if there is one.
        waited_s: for how long its peer has kept us waiting.
        is_adopted: another process of this machine has accepted it, and may still hold it.
    """

    received: bytes = b""
    waited_s: float = 0.0
    answered: Answered | None = None
    is_adopted: bool = False


class FirstServer(Protocol):
    """The server that accepted the connections (http_server.py)."""

    connections: HttpConnections[PeerSocket | NativeSocket]
    routes: Routes
    route_starts: tuple[bytes, ...]
    to_owner: Callable[[bytes, int], bool] | None

    def get_environ(self) -> WSGIEnvironment:
        """Return a new WSGI environment, without a request."""

    def has_reserved_place(self, sock: NativeSocket) -> bool:
        """Return whether a connection has a place of those for health pages."""

    def refusal(self, sock: NativeSocket, environ: WSGIEnvironment) -> Answer | None:
        """Let a request count; return the answer that refuses it if there is no room for it."""

    def to_handler(self, sock: NativeSocket, address: object, beginning: Beginning) -> None:
        """Give a connection to a handler."""

    def drop(self, sock: NativeSocket) -> None:
        """Forget a connection that is over, and close it."""


class FirstRequest:
    """A request, as its route sees it (http_routes.RoutedRequest), and the socket that the route may take (detach.py)."""

    __slots__ = ("behind", "environ", "head", "known", "sock")

    def __init__(self, sock: NativeSocket, head: Head, environ: WSGIEnvironment, behind: bytes) -> None:
        self.head, self.environ, self.behind = head, environ, behind
        self.sock: NativeSocket | None = sock
        self.known: object = None

    def body(self) -> bytes:
        """Return the body: there is none."""
        return b""

    def detach(self, first_bytes: bytes) -> tuple[NativeSocket, bytes]:
        """Take the socket, and write `first_bytes` to it, if any; return it with the bytes that have come behind the request.

        Raises:
            OSError: the client is gone, or the kernel has no room for a connection's first answer.
        """
        sock = self.sock
        if sock is None:
            raise ConnectionResetError("this connection has been taken")
        if first_bytes and sock.send(first_bytes) < len(first_bytes):
            raise ConnectionResetError("no room for the first answer of a connection")
        self.sock = None
        return sock, self.behind


class _Waiting(NamedTuple):
    watcher: Watcher
    address: Any
    since_s: float


class FirstRequests:
    """See the module."""

    def __init__(self, server: FirstServer) -> None:
        self._server = server
        self._waiting: dict[NativeSocket, _Waiting] = {}  # in the order in which they came
        self._timer: Watcher | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, sock: NativeSocket, address: object) -> None:
        """Take a non-blocking connection, which is ours from now on."""
        if self._server.has_reserved_place(sock):
            self._server.to_handler(sock, address, Beginning())
        elif not self._read(sock, address, 0.0):
            watcher = io_watcher(sock.fileno(), READ)
            self._waiting[sock] = _Waiting(watcher, address, monotonic())
            watcher.start(self._readable, sock)
            if self._timer is None:
                self._timer = repeat(_TICK_S, self._look)

    def close(self) -> None:
        """Wait for none any more: handlers go on. Idempotent."""
        self._to_handlers_until(float("inf"))

    def _readable(self, sock: NativeSocket) -> None:
        waiting = self._waiting[sock]
        if self._read(sock, waiting.address, monotonic() - waiting.since_s, waiting):
            self._stop_timer()

    def _look(self) -> None:
        self._to_handlers_until(monotonic() - PATIENCE_S)

    def _to_handlers_until(self, since_s: float) -> None:
        now_s = monotonic()
        while self._waiting:
            sock, waiting = next(iter(self._waiting.items()))
            if waiting.since_s > since_s:
                break
            self._forget(sock, waiting)
            self._server.to_handler(sock, waiting.address, Beginning(waited_s=now_s - waiting.since_s))
        self._stop_timer()

    def _forget(self, sock: NativeSocket, waiting: _Waiting) -> None:
        del self._waiting[sock]
        waiting.watcher.stop()
        waiting.watcher.close()

    def _stop_timer(self) -> None:
        if not self._waiting and self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _read(self, sock: NativeSocket, address: object, waited_s: float, waiting: _Waiting | None = None) -> bool:
        """Read what there is, and see to it; return False when there is nothing yet."""
        try:
            received = sock.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if waiting is not None:
            self._forget(sock, waiting)
        if not received:
            self._server.drop(sock)
            return True
        ours = self._server.to_owner is None or NAMES_SESSION not in received
        end = received.find(b"\r\n\r\n") + 4 if ours and received.startswith(self._server.route_starts) else 0
        head = read_head(received[:end]) if end >= 4 else None
        route = None if head is None else self._server.routes.get((head.method, head.path))
        if head is None or head.body_bytes or not isinstance(route, NeverWaits):
            self._server.to_handler(sock, address, Beginning(received, waited_s))
        else:
            self._ask(route, sock, address, head, received[end:])
        return True

    def _ask(self, route: NeverWaits, sock: NativeSocket, address: object, head: Head, behind: bytes) -> None:
        server = self._server
        environ = head.environ(server.get_environ(), address)
        request = FirstRequest(sock, head, environ, behind)
        environ["headgate.handler"] = request
        server.connections.work(sock)  # or it would be ended itself, for one too many of its address
        try:
            answer = server.refusal(sock, environ) or route(request)
        except OSError:  # of the connection: nobody is there to be answered
            if request.sock is None:
                server.connections.close(sock)
            else:
                server.drop(sock)
            return
        except Exception:
            log.exception("route failed", path=head.path)
            if request.sock is None:  # it is the route's
                server.connections.close(sock)
                return
            with suppress(OSError):
                sock.send(error_answer("500 Internal Server Error", ROUTE_FAILED).to_bytes(time(), close=True))
            server.drop(sock)
            return
        if request.sock is None:
            server.connections.close(sock)
        else:
            server.to_handler(sock, address, Beginning(behind, 0.0, Answered(head, environ, answer)))
