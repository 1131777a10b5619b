"""The HTTP server: gevent's pywsgi, which accepts no more connections than the process can have, or one address may have.

In: a listening socket. Out: connections, each in the hands of a handler (http_handler.py). When there is one too many, the
connection that has waited longest for its peer is ended for it (http_connections.py); when the process has no descriptor left,
nothing is accepted for a while.

Private corners of pywsgi that are met here, each with a contract test: it accepts with `do_read`, and does so no more, without
closing, between `stop_accepting` and `start_accepting`; `do_close` follows each connection.
"""

from __future__ import annotations

import errno
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
from gevent import pywsgi

from headgate.metrics import ACCEPT_FAILURES, HTTP_CONNECTIONS, HTTP_ENDED
from headgate.runtime.loop import later, native_close

from .descriptors import descriptor_limit, keep_reserve
from .http_answers import error_answer, too_many_text
from .http_connections import HttpConnections
from .http_handler import HttpHandler
from .http_limits import HttpLimits
from .peer_address import address_key, address_of
from .peer_socket import AcceptedSocket, PeerSocket, close_hard, native

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

# No descriptor, or no memory, for one more connection. Peers wait in the kernel's queue, and are accepted after a while; without
# the pause the listener, which stays readable, would have us try for ever.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
ACCEPT_AGAIN_S = 0.5
EXHAUSTED_LOG_S = 10.0
# HTTP connections have at most this part of the descriptors, and one address that one. Each may hold a second descriptor, of the
# file that it is answered with, so WebSockets have half of them at least.
HTTP_SHARE = 4
ADDRESS_SHARE = 8

log = structlog.get_logger("headgate.wsgi")


class HTTPServer(pywsgi.WSGIServer):  # type: ignore[misc]
    """pywsgi with deadlines, a bounded number of connections (in all, and per address), TCP_NODELAY and no access log."""

    handler_class = HttpHandler
    # In one turn of the loop: connections that are ended for others close theirs in the next.
    max_accept = 32

    def __init__(
        self,
        listener: tuple[str, int] | socket.socket,
        application: WSGIApplication,
        *,
        limits: HttpLimits | None = None,
        **options: object,
    ) -> None:
        super().__init__(listener, application, log=None, **options)
        self.limits = limits or HttpLimits()
        self.connections: HttpConnections[PeerSocket] = HttpConnections()
        HTTP_CONNECTIONS.set_function(lambda: len(self.connections))
        self._exhausted_told_s = -EXHAUSTED_LOG_S
        self._newest_fd = sys.maxsize

    def do_read(self) -> tuple[AcceptedSocket, object] | None:
        """Accept a connection; None when there is none, or when there is nothing left to have it with."""
        for _ in range(self.max_accept):
            try:
                keep_reserve(self.socket.fileno(), self._newest_fd)
                accepted: tuple[AcceptedSocket, object] | None = super().do_read()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._back_off(error)
                return None
            if accepted is None:
                return None
            sock, address = accepted
            self._newest_fd = sock.fileno()
            if self._take_in(sock, address):
                return accepted
        return None

    def do_close(self, sock: PeerSocket, *args: object) -> None:
        """A connection is over, or has been detached."""
        self.connections.close(sock)
        super().do_close(sock, *args)

    def between_requests(self, sock: PeerSocket) -> None:
        """A connection waits for its next request, which may be another client's when a proxy of ours sends it."""
        self.connections.wait(sock)
        if self.limits.proxies:
            self.connections.attribute(sock, None)

    def one_too_many(self, sock: PeerSocket, environ: WSGIEnvironment) -> int | None:
        """Let a request count for the client that a proxy of ours names; return the limit if there is no room for one more."""
        limit = self._per_address()
        if not self.limits.proxies or not limit:
            return None
        address = address_of(environ, self.limits.proxies)
        self.connections.attribute(sock, address)
        if address is None or self.connections.count_at(address) <= limit or self._end_longest_waiting("of address", address):
            return None
        self.connections.attribute(sock, None)
        HTTP_ENDED.labels("too many of address").inc()
        return limit

    def _take_in(self, sock: AcceptedSocket, address: object) -> bool:
        """Count a connection, if need be in place of another that waits for its peer; refuse it when there is no such one.

        Behind a proxy all connections come from the proxy, so an address of its own tells nothing: `one_too_many` asks for each
        request instead.
        """
        key = address_key(str(address[0])) if isinstance(address, tuple) and not self.limits.proxies else None
        per_address = self._per_address()
        connections = self.connections
        descriptors = descriptor_limit()
        if descriptors is not None and len(connections) >= descriptors // HTTP_SHARE and not self._end_longest_waiting("in all"):
            return self._refuse(
                sock, "503 Service Unavailable", "too many", "this gateway has as many HTTP connections as it can"
            )
        if (
            key is not None
            and per_address
            and connections.count_at(key) >= per_address
            and not self._end_longest_waiting("of address", key)
        ):
            return self._refuse(sock, "429 Too Many Requests", "too many of address", too_many_text(per_address))
        connections.open(sock, key)
        return True

    def _per_address(self) -> int:
        """Return how many HTTP connections one address may have; 0 for any number."""
        limit, descriptors = self.limits.max_connections_per_address, descriptor_limit()
        return min(limit, max(1, descriptors // ADDRESS_SHARE)) if limit and descriptors is not None else limit

    def _end_longest_waiting(self, why: str, address: str | None = None) -> bool:
        """End the connection (of an address) that has waited longest for its peer; its greenlet closes it."""
        sock = self.connections.longest_waiting(address)
        if sock is None:
            return False
        self.connections.close(sock)
        HTTP_ENDED.labels(f"longest waiting {why}").inc()
        close_hard(sock)
        with suppress(OSError):
            native(sock).shutdown(socket.SHUT_RDWR)  # not the cooperative one, which raises in the greenlet that waits
        return True

    def _refuse(self, sock: AcceptedSocket, status: str, reason: str, told: str) -> bool:
        HTTP_ENDED.labels(reason).inc()
        with suppress(OSError):
            native(sock).send(error_answer(status, told))
        native_close(sock.detach())
        return False

    def _back_off(self, error: OSError) -> None:
        """Accept nothing for a while."""
        ACCEPT_FAILURES.inc()
        now_s = time.monotonic()
        if now_s - self._exhausted_told_s >= EXHAUSTED_LOG_S:
            self._exhausted_told_s = now_s
            log.error("cannot accept connections", reason=error.strerror, again_in_s=ACCEPT_AGAIN_S)
        self.stop_accepting()
        later(ACCEPT_AGAIN_S, self._accept_again)

    def _accept_again(self) -> None:
        if self.started:
            self.start_accepting()
