"""One namespace of the gateway: its clients, their subscriptions, and the path from its bus to them.

In: joins, subscribes and leaves from the gateway; events and news from the bus. Out: passes over the clients; notices to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from .bus import Bus
from .catch_up import CatchUp
from .client import Client, ClientConnection
from .errors import BusUnavailable, Forbidden, HeadgateError, InvalidEvent, LimitReached, Unauthorized
from .event import Event
from .event_log import PAGE_EVENTS, Entry, EventLog, Head
from .fanout import Matched, Pass
from .identity import Identity
from .log_pages import LogPages
from .loop import Turn, sleep
from .metrics import CLIENTS, CONFLATED, DELIVERIES, DISCARDED, FAN_OUT_SECONDS, SUBSCRIPTIONS
from .protocol import CURSOR, STATUS, GapReason, notice_packet
from .requests import Replay, Resume, Since, read_replay, read_subscription
from .router import Router
from .settings import Settings
from .topic import is_wildcard, matches
from .transport.frames import Frame, message_frame
from .trie import SubscriptionTrie

# How often an idle client is told its position, so that its point of resume stays inside the log's retention.
CURSOR_INTERVAL_S = 10.0
# One acknowledgement of `replay` carries at most about this much payload.
REPLAY_BYTES = 65536
# Searches of the log go one at a time. Who has not had a turn by then is refused, and may ask again: each search may take as long
# as a dead Redis takes to be noticed.
SEARCH_TURN_S = 10.0
# Notices to everyone: let the loop run after so many clients.
_NOTICE_STRIDE = 256


class Namespace:
    """See the module. Implements `bus.Feed`. `on_log_lost` is called when the log is another one, and must not wait."""

    def __init__(self, name: str, redis_url: str, settings: Settings, on_log_lost: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self._on_log_lost = on_log_lost
        self._settings = settings
        self.clients: dict[str, Client] = {}
        self._arriving: set[Client] = set()  # not resumed yet, so not welcomed either
        self._trie: SubscriptionTrie[Client] = SubscriptionTrie()
        self._router = Router(name, self._trie)
        self.bus = Bus(name, redis_url, settings, self)
        self._search_log, pages_log = self._logs = self.bus.open_log(), self.bus.open_log()
        self._catch_up = CatchUp(LogPages(name, pages_log), self)
        self._searching = Turn()
        self._routing = False
        self._between: list[Callable[[], None]] = []
        self._floored: set[Client] = set()
        self._cursor_told_s = monotonic()
        self._losses_counted: dict[Client, tuple[int, int]] = {}  # of whom: discarded, conflated
        CLIENTS.labels(name).set_function(lambda: len(self.clients))
        SUBSCRIPTIONS.labels(name).set_function(lambda: self._trie.subscriptions)

    # -- clients --------------------------------------------------------------------------------------------------

    def join(self, session: str, identity: Identity, connection: ClientConnection) -> Client:
        """Take a client in and return it."""
        client = Client(self.name, session, identity, connection, self._catch_up)
        self.clients[session] = client
        self._arriving.add(client)
        return client

    def leave(self, session: str) -> Client | None:
        """Forget a client and its subscriptions. Idempotent."""
        client = self.clients.pop(session, None)
        if client is not None:
            for pattern in client.subscriptions:
                self._remove(pattern, client)
            client.subscriptions.clear()
            self._floored.discard(client)
            self._arriving.discard(client)
            client.leave()
            self._count_losses(client)
            self._losses_counted.pop(client, None)
        return client

    def subscribe(self, client: Client, request: object) -> str:
        """Put a subscription `{pattern, overflow?, since?}` in force, or change its policy; return the pattern.

        From then on every matching event above the bus's position comes. With `since`, the events of the pattern after that point
        come first, out of the log. May switch greenlets: until Redis has confirmed a pattern that nobody here had.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, LimitReached, BusUnavailable: nothing has changed.
        """
        subscription = read_subscription(request)
        pattern = subscription.pattern
        if not client.identity.may_subscribe(pattern):
            raise Forbidden("subscribe to", pattern)
        if pattern not in client.subscriptions:
            if len(client.subscriptions) >= self._settings.max_subscriptions:
                raise LimitReached("subscriptions", self._settings.max_subscriptions)
            if is_wildcard(pattern) and client.wildcards >= self._settings.max_wildcards:
                raise LimitReached("wildcards", self._settings.max_wildcards)
        with self._wanted([pattern]):
            self.bus.wait_for(pattern)
            start = self._start_of(pattern, subscription.since) if subscription.since is not None else None
            self._check_in(client)
            client.subscribe(pattern, subscription.overflow)
            if self._trie.add(pattern, client, subscription.overflow):
                self.bus.want(pattern)
        if start is not None:
            self._read_back(client, pattern, start)
        return pattern

    @contextmanager
    def expecting(self, client: Client, requests: Iterable[object]) -> Iterator[None]:
        """Let Redis be asked for all of these subscriptions at once, as the first is put in force in the block. Refuses none."""
        patterns: list[str] = []
        for request in requests:
            with suppress(HeadgateError):
                pattern = read_subscription(request).pattern
                if client.identity.may_subscribe(pattern):
                    patterns.append(pattern)
        wildcards = [pattern for pattern in patterns if is_wildcard(pattern)]
        beyond = set(wildcards[self._settings.max_wildcards :])
        with self._wanted([pattern for pattern in patterns if pattern not in beyond]):
            yield

    def unsubscribe(self, client: Client, request: object) -> str:
        """End a subscription `{pattern}`; ending one that is not there is no fault. Returns the pattern.

        Raises:
            InvalidRequest, InvalidPattern.
        """
        pattern = read_subscription(request).pattern
        if client.unsubscribe(pattern):
            self._remove(pattern, client)
        return pattern

    def end_subscriptions(self, client: Client, ends: Callable[[str], bool]) -> list[str]:
        """End a client's subscriptions to patterns of which `ends` is true; return them."""
        ended = [pattern for pattern in client.subscriptions if ends(pattern)]
        for pattern in ended:
            client.unsubscribe(pattern)
            self._remove(pattern, client)
        return ended

    def resume(self, client: Client, point: Resume | None) -> bool | None:
        """Let a client that has just joined go on where it was; its subscriptions are in force already.

        Returns:
            None: there was nothing to resume. True: everything since was in the log a second ago. False: the log was lost, or no
            longer reaches back that far; a gap says which, and the client goes on from what there is.

        Raises:
            BusUnavailable, BusRefused: the point is ahead of this gateway and Redis could not be asked.
            Unauthorized: `left`, while Redis was asked.
        """
        self._check_in(client)
        if point is None:
            self._arriving.discard(client)
            return None
        bus = self.bus
        if point.epoch == bus.epoch and point.offset > max(bus.offset, bus.head):
            # Another gateway may be a little ahead of this one; only the log knows whether that is it.
            with self._turn_to_search() as log:
                ahead = point.offset <= log.head().offset
            self._check_in(client)
        else:
            ahead = True
        self._arriving.discard(client)
        # Its subscriptions are in force, so live events may wait for it already (the connection is corked until `welcome`).
        waiting = client.take_back()
        if point.epoch != bus.epoch or not ahead:
            client.miss(None, None, GapReason.LOG_LOST)
            client.put_back(waiting)
            return False
        if point.offset != bus.offset or self._routing or client.reading or waiting:
            client.read_from(point.offset, client.starts)  # a `since` of the handshake keeps its own start
        # The head was read at the last fence; trimming by count has gone on since, and needs no reading.
        return point.offset + 1 >= max(bus.first, bus.offset - self._settings.log_max_events + 1)

    def replay(self, client: Client, request: object) -> dict[str, object]:
        """Return a page of `{pattern, from, to}` out of the log: `{events: [[topic, data, meta]…], next}`.

        `next` is the offset to ask from for the rest, or None. May switch greenlets.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, BusUnavailable, BusRefused.
        """
        wanted = read_replay(request)
        if not client.identity.may_subscribe(wanted.pattern):
            raise Forbidden("replay", wanted.pattern)
        events, next_ = self.page(wanted)
        return {
            "events": [
                [event.topic, event.value(), {"id": event.id, "time": event.time_ms, "offset": event.offset, "replayed": True}]
                for event in events
            ],
            "next": next_,
        }

    def page(self, wanted: Replay) -> tuple[list[Event], int | None]:
        """Return the matching events of a range of the log, about REPLAY_BYTES of them, and the offset to go on from, if any.

        May switch greenlets.

        Raises:
            BusUnavailable, BusRefused: as redis_link.call.
        """
        with self._turn_to_search() as log:
            entries = log.page(wanted.first - 1, wanted.last)
        events: list[Event] = []
        size = 0
        upto = wanted.last if len(entries) < PAGE_EVENTS else entries[-1].offset
        for entry in entries:
            event = entry.event
            if event is None or not matches(wanted.pattern, event.topic):
                continue
            if events and size + len(event.data) > REPLAY_BYTES:
                upto = entry.offset - 1
                break
            size += len(event.data)
            events.append(event)
        return events, upto + 1 if upto < wanted.last else None

    # -- catch_up.LiveFeed ----------------------------------------------------------------------------------------

    def position(self) -> int:
        """The offset up to which events have been handed to the fan-out."""
        return self.bus.offset

    def epoch(self) -> str:
        """The log that this offset is in."""
        return self.bus.epoch or ""

    def oldest(self) -> int:
        """An offset below which that log holds nothing any more: its first one at the last fence."""
        return self.bus.first

    def went_live(self, client: Client) -> None:
        """Release the client's direct writes when the feed has reached it, and no pass that began before is under way."""
        if not self._routing and client.position <= self.bus.offset:
            self._floored.discard(client)
            self._release_one(client)
        else:
            self._floored.add(client)

    def quarantine(self, entry: Entry) -> None:
        """An entry of the log that cannot be delivered was met."""
        self.bus.quarantine(entry.error or InvalidEvent("entry", "unreadable"))

    # -- bus.Feed -------------------------------------------------------------------------------------------------

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]] = list) -> None:
        """Hand events to their clients, in order; lets the loop run between slices and every few milliseconds.

        What has come in by then joins the pass that is under way: clients that have not been written to yet get it in the
        same write, the others behind them.
        """
        self._routing = True
        try:
            matched = self._router.match(events)
            while matched:
                matched = self._run(self._router.passes(matched), more)
        finally:
            self._routing = False
            if self._floored:
                self._release()
            between, self._between = self._between, []
            for act in between:
                act()

    def _run(self, passes: Iterator[Pass], more: Callable[[], list[Event]]) -> list[Matched]:
        """Run passes to their end; return what came in meanwhile and did not join the last one."""
        left: list[Matched] = []
        pass_ = next(passes, None)
        while pass_ is not None:
            following = next(passes, None)
            began_s = monotonic()
            while not pass_.advance():
                sleep()
                if following is None and not left:
                    fresh = self._router.match(more())
                    joined = pass_.extend(fresh)
                    left = fresh[joined:]
            DELIVERIES.labels(self.name).inc(pass_.writes)
            FAN_OUT_SECONDS.labels(self.name).observe(monotonic() - began_s)
            pass_ = following
        return left

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        """Tell every client of a range that will not come, but for readers, who meet it in the log, or have."""
        # One that was reading and is live has met what lies below its position. All at once: who begins to read while others are
        # told begins above the range.
        begins = {
            client: first if client.live else max(first, client.position + 1)
            for client in self.clients.values()
            if not client.reading
        }
        for client in self._each_client():
            if (begin := begins.get(client, last + 1)) <= last:
                client.miss(begin, last, reason)

    def log_lost(self, head: Head) -> None:
        """Tell every client once that the log is another one, and where the new one stands.

        One that is still arriving is told by `resume`, or has nothing to lose; what waits for it is of the old log.
        """
        self._on_log_lost()
        cursor = self._cursor_frame(head)
        self._catch_up.pages.clear()
        # All at once, before anyone else's turn: positions in the old log mean nothing in the new one.
        readers = [client for client in self.clients.values() if not client.live]
        for client in readers:
            client.live_from(head.offset)
            self._floored.add(client)
        arriving = frozenset(self._arriving)
        for client in arriving:
            client.take_back()
        for client in self._each_client():
            if client not in arriving:
                client.lose_log(cursor)
        self._release()

    def bus_changed(self, up: bool) -> None:
        """Tell every client whether live delivery is proven; read over new connections from then on."""
        for log in self._logs:
            log.drop_idle()
        frame = message_frame(notice_packet(self.name, STATUS, {"bus": "up" if up else "down"}))
        for client in self._each_client():
            client.connection.offer_control(frame)

    def fenced(self) -> None:
        """Now and then, tell idle clients where they stand, and count what full queues left out. Nothing is under way, so the
        position is theirs.

        Not those that are still arriving: they may have missed what lies below it, and have not been told so by a welcome.
        """
        if self._floored:
            self._release()
        now_s = monotonic()
        if now_s - self._cursor_told_s < CURSOR_INTERVAL_S or self.bus.epoch is None:
            return
        self._cursor_told_s = now_s
        frame = self._cursor_frame(Head(self.bus.epoch, self.bus.offset, 0))
        for client in self._each_client():
            # Someone with events waiting learns the position from them; a cursor must not overtake them.
            if client.live and client not in self._arriving and client.connection.idle:
                client.connection.offer_control(frame)
            self._count_losses(client)

    # -- private --------------------------------------------------------------------------------------------------

    @contextmanager
    def _wanted(self, patterns: Iterable[str]) -> Iterator[None]:
        """Let the bus listen to patterns for the time of the block."""
        for pattern in patterns:
            self.bus.want(pattern)
        try:
            yield
        finally:
            for pattern in patterns:
                self.bus.unwant(pattern)

    def _remove(self, pattern: str, client: Client) -> None:
        if self._trie.remove(pattern, client):
            self.bus.unwant(pattern)

    def close(self) -> None:
        """Stop listening and reading. Idempotent."""
        self.bus.close()
        self._catch_up.close()

    def _release(self) -> None:
        reached = [client for client in self._floored if client.position <= self.bus.offset]
        for client in reached:
            self._floored.discard(client)
            self._release_one(client)

    def _release_one(self, client: Client) -> None:
        if not client.reading:
            client.release()
            if client.connection.idle and self.bus.epoch is not None:
                client.connection.offer_control(self._cursor_frame(Head(self.bus.epoch, self.bus.offset, 0)))

    def _start_of(self, pattern: str, since: Since) -> int:
        """Return the offset after which the events begin that a `since` asks for. Waits for Redis, one search at a time."""
        if since.offset is not None and since.offset <= self.bus.offset:
            return since.offset
        with self._turn_to_search() as log:
            while True:
                epoch = self.bus.epoch
                start = _found(log, pattern, since)
                if epoch == self.bus.epoch:
                    return start  # and not a place in a log that has just been lost

    @contextmanager
    def _turn_to_search(self) -> Iterator[EventLog]:
        """Wait for a turn, and have the log that is searched for the time of the block.

        Raises:
            BusUnavailable: no turn within SEARCH_TURN_S.
        """
        if not self._searching.acquire(timeout=SEARCH_TURN_S):
            raise BusUnavailable(f"the log could not be searched within {SEARCH_TURN_S:g} s: others wait for Redis too")
        try:
            yield self._search_log
        finally:
            self._searching.release()

    def _check_in(self, client: Client) -> None:
        """Refuse a client that was put out, or has left, while Redis was asked."""
        if self.clients.get(client.session) is not client:
            raise Unauthorized("left", "this session has left")

    def _read_back(self, client: Client, pattern: str, start: int) -> None:
        """Make the client a reader from `start` for this pattern, and from where it is for its others.

        Where a live client is, is only exact between passes, so the change waits for the end of one that is under way.
        """

        def change() -> None:
            if client.connection.closed or pattern not in client.subscriptions:
                return
            if client.live:
                client.read_from(self.bus.offset, {pattern: start})
            else:
                # What it has had, it has had: only the new pattern goes further back than its position.
                here = client.position
                starts = {other: max(begin, here) for other, begin in client.starts.items()} if client.reading else {}
                base = max(client.base, here) if client.reading else here
                client.read_from(base, {**starts, pattern: start})

        if self._routing:
            self._between.append(change)
        else:
            change()

    def _each_client(self) -> Iterable[Client]:
        for index, client in enumerate(tuple(self.clients.values()), 1):
            if not client.connection.closed:
                yield client
            if not index % _NOTICE_STRIDE:
                sleep()

    def _count_losses(self, client: Client) -> None:
        """Add to the metrics what this client has lost since the last time: one that stays slow shows while it is there."""
        losses = (client.discarded, client.conflated)
        if any(losses):
            discarded, conflated = self._losses_counted.get(client, (0, 0))
            DISCARDED.labels(self.name).inc(losses[0] - discarded)
            CONFLATED.labels(self.name).inc(losses[1] - conflated)
            self._losses_counted[client] = losses

    def _cursor_frame(self, head: Head) -> Frame:
        return message_frame(notice_packet(self.name, CURSOR, {"epoch": head.epoch, "offset": head.offset}))


def _found(log: EventLog, pattern: str, since: Since) -> int:
    if since.offset is not None:
        # Another gateway may be ahead of this one, but nothing is ahead of the log: what comes next is news.
        return min(since.offset, log.head().offset)
    if since.time_ms is not None:
        return log.offset_before_time(since.time_ms)
    return log.offset_before_last(since.last or 0, pattern)
