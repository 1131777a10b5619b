"""Admits HTTP connections and their requests within limits for the process and for each address.

A connection beyond the limit ends the one that has waited longest for its peer. When clients have used up their descriptors, a
new connection gets one of a few reserved places for one request, which is answered if it asks for a health page and gets 503
otherwise. When the places are taken, too, connections in them that wait for their peer are ended.
"""

from __future__ import annotations

import errno
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import structlog

from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.metrics import ACCEPT_FAILURES, HTTP_ENDED

from .descriptors import descriptor_limit, is_for_clients, places
from .http_answers import Answer, no_room
from .http_limits import HttpLimits
from .peer_address import address_key, address_of
from .peer_socket import end

if TYPE_CHECKING:
    from .http_connection import HttpConnection

# Answered even without room for anything else.
HEALTH_PATHS = frozenset({"/livez", "/healthz", "/metrics"})
# Connections in a reserved place are counted for this address.
RESERVED = "a reserved place"
# A connection in a reserved place has this long to send its request before it may be ended.
PLACES_TAKEN_PAUSE_S = 0.01
# No descriptor, or no memory, for one more connection. Peers wait in the kernel's queue. Without a pause we would retry at once
# for ever, because the listener stays readable.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ACCEPT_AGAIN_S = 0.5
EXHAUSTED_LOG_S = 10.0
# The descriptors are divided by these for the limits of HTTP connections, in all and for each address. A connection may hold a
# second descriptor, of a file in its answer, so at least half of all remain for WebSockets.
HTTP_SHARE = 4
ADDRESS_SHARE = 8

log = structlog.get_logger("headgate.wsgi")


class HttpConnections:
    """The open connections by address, in the order in which they began to wait for their peers.

    A connection waits for the head of a request, and once its peer has delayed a body or an answer. Every method ignores a closed
    connection.
    """

    def __init__(self) -> None:
        self._address_of: dict[HttpConnection, str | None] = {}
        # An OrderedDict, because a dict is slow to find its first key after many removals.
        self._waiting: OrderedDict[HttpConnection, None] = OrderedDict()
        # In the same order, including connections that do not wait.
        self._at: dict[str, OrderedDict[HttpConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter(self._address_of)

    def open(self, connection: HttpConnection, address: str | None) -> None:
        """Add a waiting connection. With `address` None it counts for no address."""
        self._address_of[connection] = self._waiting[connection] = None
        self.attribute(connection, address)

    def attribute(self, connection: HttpConnection, address: str | None) -> None:
        """Count a connection for another address. Through a proxy, each request may come from another client."""
        before = self._address_of.get(connection, address)
        if before == address:
            return
        if before is not None:
            at = self._at[before]
            del at[connection]
            if not at:
                del self._at[before]
        self._address_of[connection] = address
        if address is not None:
            self._at.setdefault(address, OrderedDict())[connection] = None

    def wait(self, connection: HttpConnection) -> None:
        """Called when it waits for its peer. Idempotent."""
        if connection in self._address_of and connection not in self._waiting:
            self._waiting[connection] = None
            if (address := self._address_of[connection]) is not None:
                self._at[address].move_to_end(connection)

    def work(self, connection: HttpConnection) -> None:
        """Called when the application begins to answer its request."""
        self._waiting.pop(connection, None)

    def close(self, connection: HttpConnection) -> None:
        """Called when it is over. Idempotent."""
        if connection in self._address_of:
            self.attribute(connection, None)
            self._waiting.pop(connection, None)
            del self._address_of[connection]

    def count_at(self, address: str) -> int:
        """Return the number of connections of an address."""
        return len(self._at.get(address, ()))

    def longest_waiting(self, address: str | None = None) -> HttpConnection | None:
        """Return the longest waiting connection, of an address if given; None when none waits."""
        if address is None:
            return next(iter(self._waiting), None)
        return next((connection for connection in self._at.get(address, ()) if connection in self._waiting), None)


class HttpAdmission:
    """See the module. `pause` stops accepting for some seconds."""

    def __init__(self, limits: HttpLimits, pause: Callable[[float], object]) -> None:
        self.limits, self._pause = limits, pause
        self.connections = HttpConnections()
        # Whether the last connection got a descriptor that is not for clients.
        self._is_short = self._places_were_taken = False
        self._log_throttle = LogThrottle(every_s=EXHAUSTED_LOG_S)

    def may_accept(self) -> bool:
        """Return whether to accept another connection; if not, accepts nothing for a moment, because all places are taken."""
        if self._is_short and (taken := self.connections.count_at(RESERVED)) >= max(places(), 1):
            self._free_places(taken)
            return False
        return True

    def take_in(self, connection: HttpConnection, address: object, *, is_for_clients: bool = True) -> Answer | None:
        """Count a connection, and end a waiting one for it if need be. Returns the answer that refuses it, or None.

        It gets a reserved place if its descriptor is not for clients.
        """
        self._is_short, self._places_were_taken = not is_for_clients, False
        if not is_for_clients:
            self._take_reserved_place(connection)
            return None
        key = address_key(str(address[0])) if isinstance(address, tuple) and not self.limits.proxies else None
        descriptors, connections = descriptor_limit(), self.connections
        limit, most = self._per_address(descriptors), self._most(descriptors)
        if len(connections) >= most and not self.end_longest_waiting("in all"):
            if connections.count_at(RESERVED) < places():
                self._take_reserved_place(connection)
                return None
            HTTP_ENDED.labels("too many").inc()
            return no_room("connections", most)
        if key is not None and limit and connections.count_at(key) >= limit and not self.end_longest_waiting("of address", key):
            HTTP_ENDED.labels("too many of address").inc()
            return no_room("connections_per_address", limit)
        connections.open(connection, key)
        return None

    def may_pass(self, descriptor: int, environ: Mapping[str, object]) -> bool:
        """Return whether the socket of a request may go to its route uncounted, because there is room for it."""
        descriptors = descriptor_limit()
        if not is_for_clients(descriptor) or len(self.connections) >= self._most(descriptors):
            return False
        self._is_short = False
        address, limit = address_of(environ, self.limits.proxies), self._per_address(descriptors)
        return not limit or address is None or self.connections.count_at(address) < limit

    def refusal(self, connection: HttpConnection, environ: Mapping[str, object]) -> Answer | None:
        """Return the answer that refuses a request, or None. With a declared proxy, counts it for its client's address."""
        if connection.is_reserved:
            if environ.get("PATH_INFO") in HEALTH_PATHS:
                return None
            HTTP_ENDED.labels("no descriptor").inc()
            return no_room("connections", self._most(descriptor_limit()))
        if not self.limits.proxies or not (limit := self._per_address(descriptor_limit())):
            return None
        address = address_of(environ, self.limits.proxies)
        self.connections.attribute(connection, address)
        if address is None or self.connections.count_at(address) <= limit or self.end_longest_waiting("of address", address):
            return None
        self.connections.attribute(connection, None)
        HTTP_ENDED.labels("too many of address").inc()
        return no_room("connections_per_address", limit)

    def between_requests(self, connection: HttpConnection) -> None:
        """Called when a connection begins to wait for its next request."""
        self.connections.wait(connection)
        if self.limits.proxies:
            self.connections.attribute(connection, None)

    def end_longest_waiting(self, why: str, address: str | None = None) -> bool:
        """End the longest waiting connection, of an address if given; return whether there was one."""
        if (connection := self.connections.longest_waiting(address)) is None:
            return False
        self.connections.close(connection)
        HTTP_ENDED.labels(f"longest waiting {why}").inc()
        end(connection.fileno())
        return True

    def exhausted(self, error: OSError) -> None:
        """Called when there is no descriptor or no memory. Accepts nothing for a while."""
        if taken := self.connections.count_at(RESERVED):
            self._free_places(taken)
            return
        ACCEPT_FAILURES.inc()
        if self._log_throttle.due("exhausted") is not None:
            log.error("cannot accept connections", reason=error.strerror, again_in_s=ACCEPT_AGAIN_S)
        self._pause(ACCEPT_AGAIN_S)

    def _free_places(self, taken: int) -> None:
        """Accept nothing for a moment, the second time in a row after ending half of the connections in reserved places."""
        if self._places_were_taken:
            while self.connections.count_at(RESERVED) > taken // 2 and self.end_longest_waiting("in a reserved place", RESERVED):
                pass
        self._places_were_taken = not self._places_were_taken
        self._pause(PLACES_TAKEN_PAUSE_S)

    def _take_reserved_place(self, connection: HttpConnection) -> None:
        if self._log_throttle.due("reserved") is not None:
            log.error("no room for new clients", descriptors=descriptor_limit(), http_connections=len(self.connections))
        connection.is_reserved = True
        self.connections.open(connection, RESERVED)

    def _per_address(self, descriptors: int | None) -> int:
        """Return how many HTTP connections one address may have; 0 for no limit."""
        limit = self.limits.max_connections_per_address
        return limit if descriptors is None else min(limit, max(1, descriptors // ADDRESS_SHARE))

    def _most(self, descriptors: int | None) -> int:
        """Return how many HTTP connections the process may have."""
        most = self.limits.max_connections
        return min(sys.maxsize if descriptors is None else descriptors // HTTP_SHARE, sys.maxsize if most is None else most)
