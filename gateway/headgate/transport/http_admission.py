"""The room for HTTP connections and their requests, in all and for each address.

One connection too many ends the one that has waited longest for its peer. When clients have used up their
descriptors, a new connection gets one of a few reserved places for one request: a health page is answered, anything else gets
503. When those are taken, too, the ones in them that wait for their peer make room.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import structlog

from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.metrics import ACCEPT_FAILURES, HTTP_ENDED

from .descriptors import HeldDescriptors, descriptor_limit, has_room, places
from .http_answers import Answer, no_room
from .http_limits import HttpLimits
from .peer_address import address_key, address_of
from .peer_socket import end

# Answered when there is no room for anything else.
HEALTH_PATHS = frozenset({"/livez", "/healthz", "/metrics"})
# The address for which connections in a reserved place count.
RESERVED = "a reserved place"
# A request comes with its connection, or a moment later. Until then no connection in a reserved place is ended.
PLACES_TAKEN_PAUSE_S = 0.01
# No descriptor, or no memory, for one more connection. Peers wait in the kernel's queue. Without a pause the listener, which
# stays readable, would have us try for ever.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ACCEPT_AGAIN_S = 0.5
EXHAUSTED_LOG_S = 10.0
# The descriptors are divided by these for the most HTTP connections, in all and of one address. Each may hold a second one, of
# a file that is its answer, so WebSockets have half of all at least.
HTTP_SHARE = 4
ADDRESS_SHARE = 8

log = structlog.get_logger("headgate.wsgi")


class Admitted(Protocol):
    """A connection (http_connection.py)."""

    is_reserved: bool
    """Whether it has a reserved place."""

    @property
    def has_answered(self) -> bool:
        """Whether it has sent anything."""

    def fileno(self) -> int: ...


class HttpConnections:
    """The open connections, with their addresses, in the order in which they began to wait for their peers.

    A connection waits until the head of its request is complete, between two requests, and from the first time that its peer
    keeps us waiting with a body or with reading an answer. Every method ignores a connection that is not open.
    """

    def __init__(self) -> None:
        self._address_of: dict[Admitted, str | None] = {}
        # A dict is slow to find its first key after many removals.
        self._waiting: OrderedDict[Admitted, None] = OrderedDict()
        # In that order, too, and with those that do not wait.
        self._at: dict[str, OrderedDict[Admitted, None]] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def __iter__(self) -> Iterator[Admitted]:
        return iter(self._address_of)

    def open(self, connection: Admitted, address: str | None) -> None:
        """Take in a connection, which waits for its peer. With `address` None it counts for no address."""
        self._address_of[connection] = None
        self.wait(connection)
        self.attribute(connection, address)

    def attribute(self, connection: Admitted, address: str | None) -> None:
        """Count a connection for another address. After a proxy each request may be another client's."""
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

    def wait(self, connection: Admitted) -> None:
        """Called when it begins to wait for its peer, or does already."""
        if connection in self._address_of and connection not in self._waiting:
            self._waiting[connection] = None
            if (address := self._address_of[connection]) is not None:
                self._at[address].move_to_end(connection)

    def work(self, connection: Admitted) -> None:
        """Called when the application begins to work for it."""
        self._waiting.pop(connection, None)

    def close(self, connection: Admitted) -> None:
        """Called when it is over. Idempotent."""
        if connection in self._address_of:
            self.attribute(connection, None)
            self._waiting.pop(connection, None)
            del self._address_of[connection]

    def count_at(self, address: str) -> int:
        """Return the number of connections of an address."""
        return len(self._at.get(address, ()))

    def longest_waiting(self, address: str | None = None) -> Admitted | None:
        """Return the connection (of an address) that has waited longest; None when none waits."""
        if address is None:
            return next(iter(self._waiting), None)
        return next((connection for connection in self._at.get(address, ()) if connection in self._waiting), None)


class Admission:
    """See the module. `pause` stops accepting for some seconds."""

    def __init__(self, limits: HttpLimits, pause: Callable[[float], object]) -> None:
        self.limits, self._pause = limits, pause
        self.connections = HttpConnections()
        self._held = HeldDescriptors()
        self._places_were_taken = False
        self._log_throttle = LogThrottle(every_s=EXHAUSTED_LOG_S)

    def room_for_next(self, listener_fd: int) -> bool | None:
        """Return whether the next connection has its own place: False for a reserved one, None when it cannot be accepted now."""
        self.hold()
        if has_room(listener_fd):
            return True
        return False if self._lend() else None

    def take_in(self, connection: Admitted, address: object, *, has_room: bool = True) -> Answer | None:
        """Count a connection, in place of a waiting one if need be; return the answer that refuses it, or None.

        With a proxy of ours, `refusal` counts each request instead.
        """
        if not has_room:
            self._take_reserved_place(connection)
            return None
        key = address_key(str(address[0])) if isinstance(address, tuple) and not self.limits.proxies else None
        limit, connections = self._per_address(), self.connections
        if len(connections) >= self._most() and not self.end_longest_waiting("in all"):
            if connections.count_at(RESERVED) < places():
                self._take_reserved_place(connection)
                return None
            HTTP_ENDED.labels("too many").inc()
            return no_room("connections", self._most())
        if key is not None and limit and connections.count_at(key) >= limit and not self.end_longest_waiting("of address", key):
            HTTP_ENDED.labels("too many of address").inc()
            return no_room("connections_per_address", limit)
        connections.open(connection, key)
        return None

    def refusal(self, connection: Admitted, environ: Mapping[str, object]) -> Answer | None:
        """Return the answer that refuses a request, or None; with a proxy of ours, it counts for the proxy's client."""
        if connection.is_reserved:
            if environ.get("PATH_INFO") in HEALTH_PATHS:
                return None
            HTTP_ENDED.labels("no descriptor").inc()
            return no_room("connections", self._most())
        if not self.limits.proxies or not (limit := self._per_address()):
            return None
        address = address_of(environ, self.limits.proxies)
        self.connections.attribute(connection, address)
        if address is None or self.connections.count_at(address) <= limit or self.end_longest_waiting("of address", address):
            return None
        self.connections.attribute(connection, None)
        HTTP_ENDED.labels("too many of address").inc()
        return no_room("connections_per_address", limit)

    def between_requests(self, connection: Admitted) -> None:
        """Called when a connection begins to wait for its next request."""
        self.connections.wait(connection)
        if self.limits.proxies:
            self.connections.attribute(connection, None)

    def end_longest_waiting(self, why: str, address: str | None = None) -> bool:
        """End the connection (of an address) that has waited longest; return whether there was one."""
        if (connection := self.connections.longest_waiting(address)) is None:
            return False
        self.connections.close(connection)
        HTTP_ENDED.labels(f"longest waiting {why}").inc()
        end(connection.fileno())
        return True

    def hold(self) -> None:
        """Hold the descriptors of reserved places as soon as they are free, before a connection to Redis takes them."""
        self._held.hold(self.connections.count_at(RESERVED))

    def close(self) -> None:
        """Release the held descriptors. Idempotent."""
        self._held.close()

    def exhausted(self, error: OSError) -> None:
        """Accept nothing for a while, as there is no descriptor or no memory."""
        ACCEPT_FAILURES.inc()
        if self._log_throttle.due("exhausted") is not None:
            log.error("cannot accept connections", reason=error.strerror, again_in_s=ACCEPT_AGAIN_S)
        self._pause(ACCEPT_AGAIN_S)

    def _take_reserved_place(self, connection: Admitted) -> None:
        if self._log_throttle.due("reserved") is not None:
            log.error("no room for new clients", descriptors=descriptor_limit(), http_connections=len(self.connections))
        connection.is_reserved = True
        self.connections.open(connection, RESERVED)

    def _lend(self) -> bool:
        """Release a held descriptor for the next connection; pause and return False when there is none."""
        taken = self.connections.count_at(RESERVED)
        if taken < max(1, places()) and self._held.lend():
            self._places_were_taken = False
            return True
        if not taken:
            self.exhausted(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
            return False
        if self._places_were_taken:
            # Half of them; they are closed while we pause.
            while self.connections.count_at(RESERVED) > taken // 2 and self.end_longest_waiting("in a reserved place", RESERVED):
                pass
        self._places_were_taken = not self._places_were_taken
        self._pause(PLACES_TAKEN_PAUSE_S)
        return False

    def _per_address(self) -> int:
        """Return how many HTTP connections one address may have; 0 for any number."""
        limit = self.limits.max_connections_per_address
        descriptors = descriptor_limit() if limit else None
        return limit if descriptors is None else min(limit, max(1, descriptors // ADDRESS_SHARE))

    def _most(self) -> int:
        """Return how many HTTP connections the process may have."""
        descriptors, most = descriptor_limit(), self.limits.max_connections
        return min(sys.maxsize if descriptors is None else descriptors // HTTP_SHARE, sys.maxsize if most is None else most)
