"""The HTTP server: a listening socket, and a connection (http_connection.py) for each client that it admits (http_admission.py).

It accepts connections in the hub and never waits there. Routes (http_routes.py) answer some requests, and a WSGI application
the others.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from wsgiref.types import WSGIApplication

from headgate.runtime.loop import READ, Signal, Watcher, in_hub_after, io_watcher, sleep
from headgate.runtime.metrics import HTTP_CONNECTIONS

from . import http_exchange
from .descriptors import is_for_clients
from .http_admission import EXHAUSTED, HttpAdmission
from .http_channel import READ_BYTES
from .http_connection import HttpConnection
from .http_limits import BACKLOG, HttpLimits
from .http_routes import Routes
from .http_wsgi import WsgiExchange, base_environ
from .peer_socket import NativeSocket, PeerSocket, tls_context, with_tls

if TYPE_CHECKING:
    import ssl

_READ_BYTES = 65536
_POLL_S = 0.02
# A process that ends gives each request, and each connection's first request, at least this long.
LAST_REQUESTS_S = 1.0


class HTTPServer:
    """See the module.

    Attributes:
        address: of the listening socket. Its port is known after `init_socket`.
        leave_s: with several processes on the port, returns for how many seconds to leave connections to the others.
        max_accept: the most connections accepted in one turn of the loop. Connections ended for them close in the next turn.
        is_closed: whether it has left the port for good.
        to_owner: hands a connection to the process that owns its session; returns whether that process took it.
        on_request: called before each request is answered.
        answering: how many requests are being answered.
        is_leaving: whether each connection ends with its next answer, because the process is about to end.
    """

    def __init__(
        self,
        listener: tuple[str, int] | socket.socket,
        application: WSGIApplication,
        *,
        limits: HttpLimits | None = None,
        routes: Routes | None = None,
        backlog: int = BACKLOG,
        ssl_context: ssl.SSLContext | None = None,
        **tls: Any,
    ) -> None:
        """Without a context, `tls` has `certfile` and `keyfile`, and optionally `ca_certs`, `cert_reqs` and `ciphers`."""
        self.application, self.routes = application, routes or {}
        self._listener, self._backlog = listener, backlog
        self.address: Any = listener if isinstance(listener, tuple) else listener.getsockname()
        self.socket: NativeSocket | None = None
        self._watcher: Watcher | None = None
        self.leave_s: Callable[[], float] | None = None
        self.max_accept = 32
        self.admission = HttpAdmission(limits or HttpLimits(), self._pause)
        self.connections = self.admission.connections
        HTTP_CONNECTIONS.set_function(lambda: len(self.connections))
        self._tls = ssl_context or (tls_context(**tls) if tls else None)
        self.answering = 0
        self.is_leaving = self.is_closed = False
        self.to_owner: Callable[[bytes, int], bool] | None = None
        self.on_request: Callable[[], None] = lambda: None
        self.access_log: Callable[[WsgiExchange, int, float], object] | None = None
        self.base_environ = base_environ("", 0, "http", sys.stderr)
        self._ended = Signal()

    # -- life -----------------------------------------------------------------------------------------------------------

    @property
    def server_port(self) -> int:
        """The port. Call `init_socket` before."""
        return int(self.address[1])

    def init_socket(self) -> None:
        """Listen, but accept nothing yet. Idempotent. Raises OSError if the address is in use or not of this machine."""
        if self.socket is not None:
            return
        if isinstance(self._listener, tuple):
            sock = NativeSocket(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(self.address)
                sock.listen(self._backlog)
            except OSError:
                sock.close()
                raise
        else:
            sock = NativeSocket(fileno=self._listener.detach())
        sock.setblocking(False)
        self.socket, self.address = sock, sock.getsockname()
        host, port = self.address[:2] if isinstance(self.address, tuple) else ("", 0)
        scheme = "http" if self._tls is None else "https"
        self.base_environ = base_environ(socket.getfqdn(host) if host else "", port, scheme, sys.stderr)

    def start(self) -> None:
        """Accept connections, unless it is closed. Idempotent. Raises as `init_socket`."""
        self.init_socket()
        self._accept_again()

    def serve_forever(self) -> None:
        """Serve until `close`. Switches greenlets."""
        self.start()
        try:
            self._ended.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Accept no more connections; open ones get one more answer. Idempotent."""
        self.is_closed = True
        self._stop_accepting()
        if self.socket is not None:
            self.socket.close()
        self._ended.set()

    def leave(self) -> None:
        """Give each connection one more answer, and keep accepting, because a load balancer may still send some."""
        self.is_leaving = True

    def stop(self, timeout: float | None = None) -> None:
        """Same as `close`, for callers that expect a gevent server. Does not wait for requests."""
        self.close()

    # -- connections ----------------------------------------------------------------------------------------------------

    def accept(self) -> None:
        """Accept the waiting connections. In the hub."""
        for _ in range(self.max_accept):
            if self.socket is None or self._watcher is None:
                return  # paused, or closed
            if self.leave_s is not None and (pause_s := self.leave_s()):
                self._pause(pause_s)
                return
            if not self.admission.may_accept():
                return
            try:
                # What `accept` calls. `accept` would put a cooperative socket around the descriptor, unused, for 9 µs.
                descriptor, address = self.socket._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self.admission.exhausted(error)
                    return
                continue  # the client is gone, or a packet filter refuses it
            sock = NativeSocket(self.socket.family, self.socket.type, self.socket.proto, descriptor)
            sock.setblocking(False)
            self._take_in(sock, address)

    def adopt(self, descriptor: int, received: bytes) -> None:
        """Take over a connection from the process that accepted it, with the bytes that it read."""
        sock = NativeSocket(fileno=descriptor)
        sock.setblocking(False)
        try:
            address = sock.getpeername()
        except OSError:  # its peer has gone
            sock.close()
            return
        self._take_in(sock, address, received=received, is_adopted=True)

    def _take_in(self, sock: NativeSocket, address: object, *, received: bytes = b"", is_adopted: bool = False) -> None:
        try:
            peer = PeerSocket(sock if self._tls is None else with_tls(sock, self._tls))
        except OSError:  # its peer has gone
            return
        asked: http_exchange.Asked | None = ()
        if not is_adopted:
            with suppress(OSError):  # nothing has come, or the connection gets the error again
                received = peer.recv(READ_BYTES)
            asked = http_exchange.ask_at_once(self, peer, address, received)
        if asked is None:
            return
        connection = HttpConnection(self, peer, address, received, is_adopted=is_adopted)
        may_stay = is_adopted or is_for_clients(connection.fileno())
        if (refusal := self.admission.take_in(connection, address, is_for_clients=may_stay)) is not None:
            with suppress(OSError):
                peer.send(refusal.to_bytes(time.time()))
                peer.recv(_READ_BYTES)  # closing with a request unread would discard the answer
            peer.close()
        else:
            connection.begin(asked)

    def _pause(self, seconds: float) -> None:
        """Accept nothing for a while."""
        self._stop_accepting()
        in_hub_after(seconds, self._accept_again)

    def _accept_again(self) -> None:
        if self.socket is not None and not self.is_closed and self._watcher is None:
            self._watcher = io_watcher(self.socket.fileno(), READ)
            self._watcher.start(self.accept)

    def _stop_accepting(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None


def finish_requests(servers: Sequence[HTTPServer], within_s: float) -> None:
    """Wait until no request is being answered, for `within_s` or LAST_REQUESTS_S, whichever is longer. Switches greenlets.

    A connection without an answer gets LAST_REQUESTS_S for its request, because its client has just connected to send one.
    """
    began_s = time.monotonic()
    within_s = max(within_s, LAST_REQUESTS_S)
    while (elapsed_s := time.monotonic() - began_s) < within_s and any(
        server.answering or (elapsed_s < LAST_REQUESTS_S and not all(each.sent_bytes for each in server.connections))
        for server in servers
    ):
        sleep(_POLL_S)
