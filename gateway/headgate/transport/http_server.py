"""The HTTP server: a listening socket (http_listener.py), and a connection (http_connection.py) for each admitted client.

Routes (http_routes.py) answer some requests, and a WSGI application the others.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from wsgiref.types import WSGIApplication

from headgate.runtime.loop import Signal, Watcher, repeat, sleep, spawn
from headgate.runtime.metrics import HTTP_CONNECTIONS, HTTP_ENDED

from .http_connection import HttpConnection
from .http_limits import BACKLOG, HttpLimits
from .http_listener import Listener
from .http_routes import NeverWaits, Routes
from .http_wsgi import WsgiExchange, base_environ
from .peer_socket import NativeSocket, PeerSocket, tls_context, with_tls

if TYPE_CHECKING:
    import ssl

_READ_BYTES = 65536
# The interval of the check for connections without their first byte.
_TICK_S = 0.25
_POLL_S = 0.02
# A process that ends gives each request, and each connection's first request, at least this long.
LAST_REQUESTS_S = 1.0


class HTTPServer:
    """See the module.

    Attributes:
        to_owner: hands a connection to the process that owns its session; returns whether that process took it.
        on_request: called before each request is answered.
        answering: how many requests are being answered.
        silent: the connections that wait in the hub for their first byte, in the order of their arrival.
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
        self.listener = Listener(listener, backlog, limits or HttpLimits(), self._take_in)
        self.admission, self.connections = self.listener.admission, self.listener.admission.connections
        HTTP_CONNECTIONS.set_function(lambda: len(self.connections))
        self._tls = ssl_context or (tls_context(**tls) if tls else None)
        self._asks_in_hub = any(isinstance(route, NeverWaits) for route in self.routes.values())
        self.answering = 0
        self.is_leaving = False
        self.to_owner: Callable[[bytes, int], bool] | None = None
        self.on_request: Callable[[], None] = lambda: None
        self.access_log: Callable[[WsgiExchange, int, float], object] | None = None
        self.base_environ = base_environ("", 0, "http", sys.stderr)
        self._timer: Watcher | None = None
        self.silent: dict[HttpConnection, None] = {}
        self._ended = Signal()

    # -- life -----------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> Any:
        """The address of the listening socket. Its port is known after `init_socket`."""
        return self.listener.address

    @property
    def server_port(self) -> int:
        """The port. Call `init_socket` before."""
        return int(self.address[1])

    def init_socket(self) -> None:
        """Listen, but accept nothing yet. Idempotent. Raises as `Listener.open`."""
        self.listener.open()
        host, port = self.address[:2] if isinstance(self.address, tuple) else ("", 0)
        scheme = "http" if self._tls is None else "https"
        self.base_environ = base_environ(socket.getfqdn(host) if host else "", port, scheme, sys.stderr)

    def start(self) -> None:
        """Accept connections, unless it is closed. Idempotent. Raises as `Listener.open`."""
        self.init_socket()
        self.listener.start()

    def serve_forever(self) -> None:
        """Serve until `close`. Switches greenlets."""
        self.start()
        try:
            self._ended.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Accept no more connections; open ones get one more answer. Idempotent."""
        self.listener.close()
        self.admission.close()
        self._ended.set()

    def leave(self) -> None:
        """Give each connection one more answer, and keep accepting, because a load balancer may still send some."""
        self.is_leaving = True

    def stop(self, timeout: float | None = None) -> None:
        """Same as `close`, for callers that expect a gevent server. Does not wait for requests."""
        self.close()

    # -- connections ----------------------------------------------------------------------------------------------------

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

    def await_first_byte(self, connection: HttpConnection) -> None:
        """Called when a connection begins to wait in the hub. It ends the wait by removing itself from `silent`."""
        self.silent[connection] = None
        if self._timer is None:
            self._timer = repeat(_TICK_S, self._end_late)

    def over(self, connection: HttpConnection) -> None:
        """Called when a connection is over, or taken by another owner. Idempotent."""
        self.connections.close(connection)
        if not connection.is_taken and not self.listener.is_closed:
            self.admission.hold()

    def _take_in(
        self, sock: NativeSocket, address: object, has_room: bool = True, *, received: bytes = b"", is_adopted: bool = False
    ) -> None:
        try:
            peer = PeerSocket(sock if self._tls is None else with_tls(sock, self._tls))
        except OSError:  # its peer has gone
            return
        connection = HttpConnection(self, peer, address, received, is_adopted=is_adopted)
        if (refusal := self.admission.take_in(connection, address, has_room=has_room)) is not None:
            with suppress(OSError):
                peer.send(refusal.to_bytes(time.time()))
                peer.recv(_READ_BYTES)  # closing with a request unread would discard the answer
            peer.close()
        elif self._asks_in_hub and has_room and not is_adopted and not connection.is_reserved:
            connection.read_first()
        else:
            spawn(connection.serve)

    def _end_late(self) -> None:
        """Close connections with a late first byte, without an answer."""
        since_s = time.monotonic() - self.admission.limits.header_deadline_s
        while self.silent and (connection := next(iter(self.silent))).waits_since_s <= since_s:
            HTTP_ENDED.labels("headers deadline").inc()
            connection.close()
        if not self.silent and self._timer is not None:
            self._timer.close()
            self._timer = None


def finish_requests(servers: Sequence[HTTPServer], within_s: float) -> None:
    """Wait until no request is being answered, for `within_s` or LAST_REQUESTS_S, whichever is longer. Switches greenlets.

    A connection without an answer gets LAST_REQUESTS_S for its request, because its client has just connected to send one.
    """
    began_s = time.monotonic()
    within_s = max(within_s, LAST_REQUESTS_S)
    while (elapsed_s := time.monotonic() - began_s) < within_s and any(
        server.answering or (elapsed_s < LAST_REQUESTS_S and not all(each.has_answered for each in server.connections))
        for server in servers
    ):
        sleep(_POLL_S)
