"""The HTTP server: gevent's pywsgi, which accepts no more connections than the process can have, or one address may have.

In: a listening socket. Out: connections, each in the hands of a handler (http_handler.py). When there is one too many, the
connection that has waited longest for its peer is ended for it (http_connections.py). When clients have all descriptors that
they may have, a new connection gets one of a few reserved places: its one request is answered if it is for a health page, and
with 503 if not, and the connection is closed. When those places are taken, too, the ones in them that wait for their peer make
room. When the process has no descriptor at all, nothing is accepted for a while.

Private corners of pywsgi that are met here, each with a contract test: it accepts with `do_read`, and does so no more, without
closing, between `stop_accepting` and `start_accepting`; `do_close` follows each connection.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import gevent.socket
import structlog
from gevent import pywsgi

from headgate.metrics import ACCEPT_FAILURES, HTTP_CONNECTIONS, HTTP_ENDED
from headgate.runtime.epoll_set import leave_to_others
from headgate.runtime.loop import deadline, later

from .descriptors import HeldDescriptors, descriptor_limit, has_room, places
from .first_request import Beginning, FirstRequests
from .http_answers import Answer, no_room, retry_after_s
from .http_connections import HttpConnections
from .http_handler import HttpHandler
from .http_limits import BACKLOG, HttpLimits
from .http_routes import NeverWaits, Routes
from .peer_address import address_key, address_of
from .peer_socket import NativeSocket, PeerSocket, close_hard, native

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

# The pages that are answered when there is no room for anything else.
HEALTH_PATHS = frozenset({"/livez", "/healthz", "/metrics"})
# The connections in a reserved place count for this address.
RESERVED = "a reserved place"
# A request comes with its connection, or a moment later. Until it does, nobody in a reserved place is ended for another.
PLACES_TAKEN_PAUSE_S = 0.01
# No descriptor, or no memory, for one more connection. Peers wait in the kernel's queue, and are accepted after a while; without
# the pause the listener, which stays readable, would have us try for ever.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
ACCEPT_AGAIN_S = 0.5
EXHAUSTED_LOG_S = 10.0
# HTTP connections have at most this part of the descriptors, and one address that one. Each may hold a second descriptor, of the
# file that it is answered with, so WebSockets have half of them at least.
HTTP_SHARE = 4
ADDRESS_SHARE = 8
_READ_BYTES = 65536

log = structlog.get_logger("headgate.wsgi")


class HTTPServer(pywsgi.WSGIServer):  # type: ignore[misc]
    """pywsgi with deadlines, a bounded number of connections (in all, and per address), TCP_NODELAY and no access log."""

    handler_class = HttpHandler
    backlog = BACKLOG
    # In one turn of the loop: connections that are ended for others close theirs in the next.
    max_accept = 32
    _first: FirstRequests | None = None

    def __init__(
        self,
        listener: tuple[str, int] | socket.socket,
        application: WSGIApplication,
        *,
        limits: HttpLimits | None = None,
        routes: Routes | None = None,
        **options: object,
    ) -> None:
        """`routes` are requests that are answered below the application (http_routes.py)."""
        super().__init__(listener, application, log=None, **options)
        self.limits = limits or HttpLimits()
        self.routes = routes or {}
        # Behind the path comes the query, or the version.
        self.route_starts = tuple(f"{method} {path}{end}".encode() for method, path in self.routes for end in "? ")
        self.connections: HttpConnections[PeerSocket | NativeSocket] = HttpConnections()
        # With a pool, the hub would have to wait for a greenlet.
        below = (
            not self.ssl_enabled and self.pool is None and any(isinstance(route, NeverWaits) for route in self.routes.values())
        )
        if below:
            self._first = FirstRequests(self)
        HTTP_CONNECTIONS.set_function(lambda: len(self.connections))
        self._held = HeldDescriptors()
        self._places_were_taken = False
        self._told_s: dict[str, float] = {}
        # Where several processes share the port: the seconds for which to leave the next connection to the others, and the one
        # that takes a connection whose session is another process's.
        self.leave_s: Callable[[], float] | None = None
        self.to_owner: Callable[[bytes, int], bool] | None = None
        self.access_log: Callable[[HttpHandler], object] | None = None
        self._listens = True
        self._kind: tuple[int, int, int] | None = None  # of all its sockets: each look at the listener's makes three enums

    def start_accepting(self) -> None:
        """Accept connections from now on. Not after `stop_listening`."""
        if self._listens:
            self._hold()
            super().start_accepting()

    def stop_listening(self) -> None:
        """Close this process's end of the port for good; connections that are open, or adopted, go on. Idempotent."""
        if self._listens:
            self._listens = False
            self.stop_accepting()
            leave_to_others(self.socket.fileno())
            self.socket.close()

    def close(self) -> None:
        """Accept no connections any more. Idempotent."""
        if self._first is not None:
            self._first.close()
        if self._listens and "socket" in self.__dict__:  # until it was closed before
            self.stop_accepting()
            leave_to_others(self.socket.fileno())  # systemd, or a process manager, may hold it
        super().close()
        self._held.close()

    def do_read(self) -> tuple[NativeSocket, object] | None:
        """Accept a connection; None when there is none, or when there is nothing left to have it with."""
        if self.leave_s is not None and (pause_s := self.leave_s()):
            self._pause(pause_s)
            return None
        for _ in range(self.max_accept):
            self._hold()
            room = has_room(self.socket.fileno())
            if not room and not self._lend():
                return None
            try:
                descriptor, address = self.socket._accept()
            except BlockingIOError:
                self._hold()  # what was lent for nobody, before anything else of ours takes it
                return None
            except OSError as error:
                self._hold()
                if error.errno not in _EXHAUSTED:
                    raise
                self._back_off(error)
                return None
            if self._kind is None:
                self._kind = self.socket.family, self.socket.type, self.socket.proto
            sock = NativeSocket(*self._kind, descriptor)
            sock.setblocking(False)
            if self._take_in(sock, address) if room else self._take_reserved_place(sock):
                return sock, address
        return None

    def do_handle(self, sock: NativeSocket, address: object) -> None:
        """Serve a connection that `do_read` has accepted."""
        if self._first is not None:
            self._first.take(sock, address)
        else:
            self.to_handler(sock, address, Beginning())

    def to_handler(self, sock: NativeSocket, address: object, beginning: Beginning) -> None:
        """Give a connection to a handler, in a greenlet of its own."""
        family, kind, protocol = sock.family, sock.type, sock.proto
        ours = gevent.socket.socket(family, kind, protocol, fileno=sock.detach())
        self.connections.replace(sock, ours)
        super().do_handle(ours, address, *(() if self.ssl_enabled else (beginning,)))

    def handle(self, sock: PeerSocket, address: object, beginning: Beginning | None = None) -> None:
        """Serve a connection until it is over. Switches greenlets."""
        self.handler_class(sock, address, self, beginning or Beginning()).handle()

    def wrap_socket_and_handle(self, sock: PeerSocket, address: object) -> None:
        """Serve a connection over TLS: it counts, and is ended for another, by its TLS socket. Switches greenlets."""
        with self.wrap_socket(sock, **{**self.ssl_args, "do_handshake_on_connect": False}) as tls:
            self.connections.replace(sock, tls)
            try:
                with suppress(OSError):  # nobody there who speaks TLS, or not in time
                    with deadline(self.limits.header_deadline_s):
                        tls.do_handshake()
                    self.handle(tls, address)
            finally:
                self.connections.close(tls)

    def drop(self, sock: NativeSocket) -> None:
        """Forget a connection that is over, and close it."""
        self.connections.close(sock)
        sock.close()

    def adopt(self, descriptor: int, received: bytes) -> None:
        """Take a connection that another process has accepted, with what was read of it, as if it had been accepted here."""
        sock = NativeSocket(fileno=descriptor)
        sock.setblocking(False)
        try:
            address = sock.getpeername()
        except OSError:  # its peer has gone
            sock.close()
            return
        if self.full():
            self._refuse(sock, "too many", no_room("connections", _most_connections(), retry_after_s()))
        elif self._take_in(sock, address):
            self.to_handler(sock, address, Beginning(received, is_adopted=True))

    def hand_over(self, sock: PeerSocket, received: bytes) -> bool:
        """Hand a connection whose next request is another process's to that one; return whether it was. Switches greenlets."""
        return self.to_owner is not None and self.to_owner(received, sock.fileno())  # type: ignore[attr-defined]

    def log_access(self, handler: HttpHandler) -> None:
        """Log a request that was answered, where the operator asked for it."""
        if self.access_log is not None:
            self.access_log(handler)

    def do_close(self, sock: PeerSocket, *args: object) -> None:
        """The handler of a connection is done with it: it is over, or has been detached."""
        self.connections.close(sock)
        super().do_close(sock, *args)
        if self.started:
            self._hold()  # at once: a connection of ours to Redis would take a descriptor of the reserve, and keep it

    def between_requests(self, sock: PeerSocket) -> None:
        """A connection waits for its next request, which may be another client's when a proxy of ours sends it."""
        self.connections.wait(sock)
        if self.limits.proxies:
            self.connections.attribute(sock, None)

    def has_reserved_place(self, sock: PeerSocket | NativeSocket) -> bool:
        """Return whether a connection has a reserved place: for one request."""
        return self.connections.address_of(sock) == RESERVED

    def refusal(self, sock: PeerSocket | NativeSocket, environ: WSGIEnvironment) -> Answer | None:
        """Let a request count; return the answer that refuses it if there is no room for it.

        Behind a proxy of ours it counts for the client that the proxy names.
        """
        if self.has_reserved_place(sock):
            if environ.get("PATH_INFO") in HEALTH_PATHS:
                return None
            HTTP_ENDED.labels("no descriptor").inc()
            return no_room("connections", _most_connections(), retry_after_s())
        if not self.limits.proxies or not (limit := self._per_address()):
            return None
        address = address_of(environ, self.limits.proxies)
        self.connections.attribute(sock, address)
        if address is None or self.connections.count_at(address) <= limit or self._end_longest_waiting("of address", address):
            return None
        self.connections.attribute(sock, None)
        HTTP_ENDED.labels("too many of address").inc()
        return no_room("connections_per_address", limit, 1)

    def _take_in(self, sock: NativeSocket, address: object) -> bool:
        """Count a connection, if need be in place of another that waits for its peer; refuse it when there is no such one.

        Behind a proxy all connections come from the proxy, so an address of its own tells nothing: `refusal` asks for each
        request instead.
        """
        key = address_key(str(address[0])) if isinstance(address, tuple) and not self.limits.proxies else None
        per_address = self._per_address()
        connections = self.connections
        if len(connections) >= _most_connections() and not self._end_longest_waiting("in all"):
            if connections.count_at(RESERVED) < places():
                return self._take_reserved_place(sock)
            return self._refuse(sock, "too many", no_room("connections", _most_connections(), retry_after_s()))
        if (
            key is not None
            and per_address
            and connections.count_at(key) >= per_address
            and not self._end_longest_waiting("of address", key)
        ):
            answer = no_room("connections_per_address", per_address, retry_after_s())
            return self._refuse(sock, "too many of address", answer)
        connections.open(sock, key)
        return True

    def _take_reserved_place(self, sock: NativeSocket) -> bool:
        self._tell("no room for new clients", descriptors=descriptor_limit(), http_connections=len(self.connections))
        self.connections.open(sock, RESERVED)
        return True

    def _hold(self) -> None:
        self._held.hold(self.connections.count_at(RESERVED))

    def _lend(self) -> bool:
        """Give a held descriptor away for the next connection; return False, and pause, when there is none.

        There may be fewer than there should be. Those that are lent are free again in a moment; the long pause is for none.
        """
        taken = self.connections.count_at(RESERVED)
        if taken < max(1, places()) and self._held.lend():
            self._places_were_taken = False
            return True
        if not taken:
            self._back_off(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
            return False
        if self._places_were_taken:
            # Half of them, so that the next ones find room; their greenlets close them while we pause.
            while self.connections.count_at(RESERVED) > taken // 2 and self._end_longest_waiting("in a reserved place", RESERVED):
                pass
        self._places_were_taken = not self._places_were_taken
        self._pause(PLACES_TAKEN_PAUSE_S)
        return False

    def _per_address(self) -> int:
        """Return how many HTTP connections one address may have; 0 for any number."""
        limit = self.limits.max_connections_per_address
        descriptors = descriptor_limit() if limit else None
        return limit if descriptors is None else min(limit, max(1, descriptors // ADDRESS_SHARE))

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

    def _refuse(self, sock: NativeSocket, reason: str, answer: Answer) -> bool:
        HTTP_ENDED.labels(reason).inc()
        with suppress(OSError):
            sock.send(answer.to_bytes(time.time(), close=True))
            sock.recv(_READ_BYTES)  # closing it with a request unread would take the answer back
        sock.close()
        return False

    def _back_off(self, error: OSError) -> None:
        """Accept nothing for a while: there is nothing left to have a connection with."""
        ACCEPT_FAILURES.inc()
        self._tell("cannot accept connections", reason=error.strerror, again_in_s=ACCEPT_AGAIN_S)
        self._pause(ACCEPT_AGAIN_S)

    def _tell(self, event: str, **fields: object) -> None:
        """Log an event, at most every ten seconds."""
        now_s = time.monotonic()
        if now_s - self._told_s.get(event, -EXHAUSTED_LOG_S) >= EXHAUSTED_LOG_S:
            self._told_s[event] = now_s
            log.error(event, **fields)

    def _pause(self, seconds: float) -> None:
        self.stop_accepting()
        later(seconds, self._accept_again)

    def _accept_again(self) -> None:
        if self.started:
            self.start_accepting()


def _most_connections() -> int:
    """Return how many HTTP connections the process may have."""
    descriptors = descriptor_limit()
    return sys.maxsize if descriptors is None else descriptors // HTTP_SHARE
