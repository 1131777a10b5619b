"""The HTTP server: a listening socket, and a connection (http_connection.py) for each client that finds room (http_admission.py).
Routes (http_routes.py) answer some requests, and a WSGI application the others.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import gevent.ssl
from gevent import monkey

from headgate.installation import is_pure
from headgate.runtime.loop import READ, Signal, Watcher, in_hub_after, io_watcher, repeat, sleep, spawn
from headgate.runtime.metrics import HTTP_CONNECTIONS, HTTP_ENDED

from .http_admission import EXHAUSTED, Admission
from .http_answers import Answer
from .http_connection import HttpConnection
from .http_limits import BACKLOG, HttpLimits
from .http_routes import NeverWaits, Routes
from .http_wsgi import WsgiExchange, base_environ
from .peer_socket import NativeSocket, PeerSocket, PlainPeer, TlsPeer

if TYPE_CHECKING:
    import ssl
    from wsgiref.types import WSGIApplication

try:
    from headgate._native import accept as _accept_in_c
except ImportError:  # it was not built
    _accept_in_c = None  # type: ignore[assignment]

_ACCEPTS_IN_C: Final = _accept_in_c is not None and not is_pure()
# The standard library's own: accepting never waits.
_Listener: type[socket.socket] = monkey.get_original("socket", "socket")
_READ_BYTES = 65536
# How often connections without their first byte are checked.
_TICK_S = 0.25
_POLL_S = 0.02


class HTTPServer:
    """See the module.

    Attributes:
        leave_s: with several processes on the port, returns the seconds for which to leave the next connection to the others.
        to_owner: hands a connection to the process that owns its session; returns whether that has taken it.
        on_request: called at each request, before it is answered.
        base_environ: the WSGI environment, without a request; to be copied.
        max_accept: connections that are accepted in one turn of the loop. The ones ended for them close in the next.
        address: of the listening socket; its port is known after `init_socket`.
        answering: how many requests are being answered.
        is_leaving: whether the port is left, so that each connection ends with its next answer.
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
        """`tls`, where there is no context: `certfile` and `keyfile`, and perhaps `ca_certs`, `cert_reqs` and `ciphers`."""
        self.application, self.routes, self._backlog = application, routes or {}, backlog
        self.admission = Admission(limits or HttpLimits(), self._pause)
        self.connections = self.admission.connections
        HTTP_CONNECTIONS.set_function(lambda: len(self.connections))
        self._tls = ssl_context or (_tls_context(**tls) if tls else None)
        self._asks_in_hub = self._tls is None and any(isinstance(route, NeverWaits) for route in self.routes.values())
        self.max_accept, self.answering = 32, 0
        self.leave_s: Callable[[], float] | None = None
        self.to_owner: Callable[[bytes, int], bool] | None = None
        self.on_request: Callable[[], None] = lambda: None
        self.access_log: Callable[[WsgiExchange, int, float], object] | None = None
        self.address: Any = listener if isinstance(listener, tuple) else listener.getsockname()
        self._given = None if isinstance(listener, tuple) else listener
        self._socket: socket.socket | None = None
        self._kind = (0, 0, 0)
        self._scheme = "http" if self._tls is None else "https"
        self.base_environ = base_environ("", 0, self._scheme, sys.stderr)
        self._watcher: Watcher | None = None
        self._timer: Watcher | None = None
        self._silent: dict[HttpConnection, None] = {}  # in the order in which they came
        self.is_leaving = self._is_started = False
        self._ended = Signal()

    # -- life -----------------------------------------------------------------------------------------------------------

    @property
    def socket(self) -> socket.socket:
        """The listening socket, after `init_socket`."""
        assert self._socket is not None
        return self._socket

    @property
    def server_port(self) -> int:
        """The port, after `init_socket`."""
        return int(self.address[1])

    def init_socket(self) -> None:
        """Listen, and accept nothing yet. Idempotent. Raises OSError for an address that is taken, or not of this machine."""
        if self._socket is not None:
            return
        if self._given is not None:
            sock = _Listener(fileno=self._given.detach())
        else:
            family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
            sock = _Listener(family, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(self.address)
                sock.listen(self._backlog)
            except OSError:
                sock.close()
                raise
        sock.setblocking(False)
        self._socket, self.address = sock, sock.getsockname()
        self._kind = (sock.family, sock.type, sock.proto)
        host, port = self.address[:2] if isinstance(self.address, tuple) else ("", 0)
        self.base_environ = base_environ(socket.getfqdn(host) if host else "", port, self._scheme, sys.stderr)

    def start(self) -> None:
        """Accept connections, unless `stop_listening` was called. Idempotent. Raises as `init_socket`."""
        self.init_socket()
        self._is_started = True
        self._accept_again()

    def serve_forever(self) -> None:
        """Serve until `close`. Switches greenlets."""
        self.start()
        try:
            self._ended.wait()
        finally:
            self.close()

    def stop_listening(self) -> None:
        """Close this process's end of the port for good; open and adopted connections have one more answer. Idempotent."""
        self.is_leaving = True
        self._stop_accepting()
        if self._socket is not None:
            self._socket.close()

    def close(self) -> None:
        """Accept no more connections; open ones have one more answer. Idempotent."""
        self.stop_listening()
        self.admission.close()
        self._ended.set()

    def stop(self, timeout: float | None = None) -> None:
        """As `close`, for callers of gevent's servers. Waits for no request."""
        self.close()

    # -- connections ----------------------------------------------------------------------------------------------------

    def accept(self) -> None:
        """Accept the waiting connections. In the hub; never waits."""
        for _ in range(self.max_accept):
            if self._watcher is None:
                return  # paused, or closed
            if self.leave_s is not None and (pause_s := self.leave_s()):
                self._pause(pause_s)
                return
            has_room = self.admission.room_for_next(self.socket.fileno())
            if has_room is None:
                return
            try:
                descriptor, address = _accept(self.socket)
            except BlockingIOError:
                self.admission.hold()  # what was lent, before anything else of ours takes it
                return
            except OSError as error:
                self.admission.hold()
                if error.errno in EXHAUSTED:
                    self.admission.exhausted(error)
                    return
                continue  # the client has gone, or a packet filter refuses it
            sock = NativeSocket(*self._kind, descriptor)
            sock.setblocking(False)
            self._take_in(sock, address, has_room=has_room)

    def adopt(self, descriptor: int, received: bytes) -> None:
        """Take a connection that another process has accepted, with the bytes that it has read."""
        sock = NativeSocket(fileno=descriptor)
        sock.setblocking(False)
        try:
            address = sock.getpeername()
        except OSError:  # its peer has gone
            sock.close()
            return
        self._take_in(sock, address, received, is_adopted=True)

    def silent(self, connection: HttpConnection) -> None:
        """Called when a connection begins to wait in the hub for its first byte."""
        self._silent[connection] = None
        if self._timer is None:
            self._timer = repeat(_TICK_S, self._end_late)

    def speaks(self, connection: HttpConnection) -> None:
        """Called when it waits no more."""
        self._silent.pop(connection, None)

    def over(self, connection: HttpConnection) -> None:
        """Called when a connection is over, or taken by another owner. Idempotent."""
        self.connections.close(connection)
        if not connection.is_taken and not self.is_leaving:
            self.admission.hold()

    def _take_in(
        self, sock: NativeSocket, address: object, received: bytes = b"", *, has_room: bool = True, is_adopted: bool = False
    ) -> None:
        try:
            peer: PeerSocket = PlainPeer(sock) if self._tls is None else TlsPeer(sock, self._tls)
        except OSError:  # its peer has gone
            return
        connection = HttpConnection(self, peer, address, received, is_adopted=is_adopted)
        refusal: Answer | None = self.admission.take_in(connection, address, has_room=has_room)
        if refusal is not None:
            with suppress(OSError):
                sock.send(refusal.to_bytes(time.time(), close=True))
                sock.recv(_READ_BYTES)  # closing it with a request unread would take the answer back
            peer.close()
        elif self._asks_in_hub and has_room and not is_adopted and not connection.is_reserved:
            connection.read_first()
        else:
            spawn(connection.serve)

    def _end_late(self) -> None:
        """Close, without an answer, the connections whose first byte is late."""
        since_s = time.monotonic() - self.admission.limits.header_deadline_s
        while self._silent and (connection := next(iter(self._silent))).waits_since_s <= since_s:
            HTTP_ENDED.labels("headers deadline").inc()
            connection.close()
        if not self._silent and self._timer is not None:
            self._timer.close()
            self._timer = None

    def _stop_accepting(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _accept_again(self) -> None:
        if self._is_started and not self.is_leaving and self._watcher is None:
            self.admission.hold()
            self._watcher = io_watcher(self.socket.fileno(), READ)
            self._watcher.start(self.accept)

    def _pause(self, seconds: float) -> None:
        self._stop_accepting()
        in_hub_after(seconds, self._accept_again)


def finish_requests(servers: Sequence[HTTPServer], within_s: float) -> None:
    """Wait until no request is being answered, at most `within_s`. Switches greenlets."""
    until_s = time.monotonic() + within_s
    while any(server.answering for server in servers) and time.monotonic() < until_s:
        sleep(_POLL_S)


def _accept(listener: socket.socket) -> tuple[int, Any]:
    """Return the next connection's descriptor and address.

    Raises:
        BlockingIOError: there is none.
        OSError: it has gone, or there is no descriptor for it.
    """
    if _ACCEPTS_IN_C:
        return _accept_in_c(listener.fileno())
    accepted, address = listener.accept()  # makes a cooperative socket that is thrown away (9 µs)
    return accepted.detach(), address


def _tls_context(certfile: str, keyfile: str | None = None, **options: Any) -> ssl.SSLContext:
    """Return the context for the options that Python's `ssl.wrap_socket` had."""
    context = gevent.ssl.SSLContext(options.pop("ssl_version", gevent.ssl.PROTOCOL_TLS_SERVER))
    context.load_cert_chain(certfile, keyfile)
    if (ca_certs := options.pop("ca_certs", None)) is not None:
        context.load_verify_locations(ca_certs)
    context.verify_mode = options.pop("cert_reqs", context.verify_mode)
    if (ciphers := options.pop("ciphers", None)) is not None:
        context.set_ciphers(ciphers)
    if options:
        raise TypeError(f"unknown options {', '.join(sorted(options))}")
    return context  # type: ignore[no-any-return]
