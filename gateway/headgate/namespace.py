"""One namespace of the gateway: its clients, their subscriptions, and the path from its bus to them.

In: joins, subscribes and leaves from the gateway; events and news from the bus. Out: passes over the clients; notices to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

from .bus import Bus
from .client import Client
from .errors import Forbidden, InvalidRequest, LimitReached
from .event import Event
from .event_log import Head
from .loop import sleep
from .metrics import CLIENTS, CONFLATED, DELIVERIES, DISCARDED, FAN_OUT_SECONDS, SUBSCRIPTIONS
from .protocol import CURSOR, STATUS, GapReason, Overflow, notice_packet
from .router import Router
from .settings import Settings
from .topic import check_pattern, is_wildcard
from .transport.frames import Frame, message_frame
from .trie import SubscriptionTrie

# How often an idle client is told its position, so that its point of resume stays inside the log's retention.
CURSOR_INTERVAL_S = 10.0
# Notices to everyone: let the loop run after so many clients.
_NOTICE_STRIDE = 256


class Namespace:
    """See the module. Implements `bus.Feed`."""

    def __init__(self, name: str, redis_url: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings
        self.clients: dict[str, Client] = {}
        self._trie: SubscriptionTrie[Client] = SubscriptionTrie()
        self._router = Router(name, self._trie)
        self.bus = Bus(name, redis_url, settings, self)
        self._cursor_told_s = monotonic()
        CLIENTS.labels(name).set_function(lambda: len(self.clients))
        SUBSCRIPTIONS.labels(name).set_function(lambda: self._trie.subscriptions)

    # -- clients --------------------------------------------------------------------------------------------------

    def join(self, client: Client) -> None:
        """Take a client in."""
        self.clients[client.session] = client

    def leave(self, session: str) -> Client | None:
        """Forget a client and its subscriptions. Idempotent."""
        client = self.clients.pop(session, None)
        if client is not None:
            for pattern in client.subscriptions:
                self._trie.remove(pattern, client)
            client.subscriptions.clear()
            DISCARDED.labels(self.name).inc(client.discarded)
            CONFLATED.labels(self.name).inc(client.conflated)
        return client

    def subscribe(self, client: Client, request: object) -> str:
        """Put a subscription `{pattern, overflow?}` in force, or change its policy; return the pattern.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, LimitReached: nothing has changed.
        """
        pattern, overflow = _read_subscription(request)
        if not client.identity.may_subscribe(pattern):
            raise Forbidden("subscribe to", pattern)
        if pattern not in client.subscriptions:
            wildcard = is_wildcard(pattern)
            if len(client.subscriptions) >= self._settings.max_subscriptions:
                raise LimitReached("subscriptions", self._settings.max_subscriptions)
            if wildcard and client.wildcards >= self._settings.max_wildcards:
                raise LimitReached("wildcards", self._settings.max_wildcards)
            client.wildcards += wildcard
        client.subscriptions[pattern] = overflow
        self._trie.add(pattern, client, overflow)
        return pattern

    def unsubscribe(self, client: Client, request: object) -> str:
        """End a subscription `{pattern}`; ending one that is not there is no fault. Returns the pattern.

        Raises:
            InvalidRequest, InvalidPattern.
        """
        pattern, _ = _read_subscription(request)
        if client.subscriptions.pop(pattern, None) is not None:
            client.wildcards -= is_wildcard(pattern)
            self._trie.remove(pattern, client)
        return pattern

    # -- bus.Feed -------------------------------------------------------------------------------------------------

    def route(self, events: Iterable[Event]) -> None:
        """Hand events to their clients, in order; lets the loop run between slices and every few milliseconds."""
        for pass_ in self._router.passes(events):
            began_s = monotonic()
            while not pass_.advance():
                sleep()
            DELIVERIES.labels(self.name).inc(pass_.writes)
            FAN_OUT_SECONDS.labels(self.name).observe(monotonic() - began_s)

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        """Tell every client of a range that will not come."""
        for client in self._each_client():
            client.miss(first, last, reason)

    def log_lost(self, head: Head) -> None:
        """Tell every client once that the log is another one, and where the new one stands."""
        cursor = self._cursor_frame(head)
        for client in self._each_client():
            client.miss(None, None, GapReason.LOG_LOST)
            client.connection.offer(cursor, client)

    def bus_changed(self, up: bool) -> None:
        """Tell every client whether live delivery is proven."""
        frame = message_frame(notice_packet(self.name, STATUS, {"bus": "up" if up else "down"}))
        for client in self._each_client():
            client.connection.offer_control(frame)

    def fenced(self) -> None:
        """Now and then, tell idle clients where they stand. Nothing is under way, so the position is theirs."""
        now_s = monotonic()
        if now_s - self._cursor_told_s < CURSOR_INTERVAL_S or self.bus.epoch is None:
            return
        self._cursor_told_s = now_s
        frame = self._cursor_frame(Head(self.bus.epoch, self.bus.offset, 0))
        for client in list(self.clients.values()):
            # Someone with events waiting learns the position from them; a cursor must not overtake them.
            if client.connection.idle:
                client.connection.offer_control(frame)

    # -- private --------------------------------------------------------------------------------------------------

    def _each_client(self) -> Iterable[Client]:
        for index, client in enumerate(tuple(self.clients.values()), 1):
            if not client.connection.closed:
                yield client
            if not index % _NOTICE_STRIDE:
                sleep()

    def _cursor_frame(self, head: Head) -> Frame:
        return message_frame(notice_packet(self.name, CURSOR, {"epoch": head.epoch, "offset": head.offset}))


def _read_subscription(request: object) -> tuple[str, Overflow]:
    if not isinstance(request, Mapping):
        raise InvalidRequest("expected an object such as {pattern: 'orders.*'}")
    unknown = set(request) - {"pattern", "overflow", "since"}
    if unknown:
        raise InvalidRequest(f"unknown field {sorted(map(str, unknown))[0][:40]!r}; known: pattern, overflow")
    pattern = check_pattern(request.get("pattern"))
    overflow = request.get("overflow", Overflow.CATCH_UP)
    try:
        return pattern, Overflow(overflow)
    except ValueError:
        raise InvalidRequest(f"overflow: expected one of {', '.join(Overflow)}") from None
