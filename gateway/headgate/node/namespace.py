"""One namespace of the gateway: its clients, their subscriptions, and the path from its bus to them.

In: joins, subscribes and leaves from the gateway; events and news from the bus. Out: passes over the clients; notices to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from headgate.auth.identity import ANONYMOUS, Identity
from headgate.bus.listener import Bus
from headgate.delivery.catch_up import CatchUp
from headgate.delivery.client import Client, ClientConnection
from headgate.delivery.fanout import Matched, Pass
from headgate.delivery.log_topics import LogTopics
from headgate.delivery.page_cache import LogPages
from headgate.delivery.past import TopicPage, find_starts
from headgate.delivery.router import Router
from headgate.delivery.trie import SubscriptionTrie
from headgate.errors import BusUnavailable, Forbidden, HeadgateError, InvalidEvent, LimitReached, Unauthorized, UnauthorizedReason
from headgate.event import Event
from headgate.metrics import CLIENTS, CONFLATED, DELIVERIES, DISCARDED, FAN_OUT_SECONDS, SUBSCRIPTIONS
from headgate.protocol.frames import Frame, message_frame
from headgate.protocol.packets import CURSOR, STATUS, GapReason, notice_packet
from headgate.protocol.requests import Replay, Resume, Since, Subscription, read_replay, read_subscription
from headgate.redis.log import PAGE_EVENTS, Entry, EventLog, Head
from headgate.runtime.loop import Lock, Share, sleep
from headgate.runtime.rates import Rates
from headgate.settings import Settings
from headgate.topic import is_wildcard, matches

# How often an idle client is told its position, so that its point of resume stays inside the log's retention.
CURSOR_INTERVAL_S = 10.0
# One acknowledgement of `replay` carries at most about this much payload.
REPLAY_BYTES = 65536
# Searches of the log go one at a time. Who has not had a turn by then is refused, and may ask again: each search may take as long
# as a dead Redis takes to be noticed.
SEARCH_TURN_S = 10.0
# A client that has used up what it may read of the log waits for its next page up to this long in all, and is then refused.
READ_WAIT_S = 10.0
# How long subscriptions are worked on, whosever they are, before everybody else has a turn: 128 thought out ones take 60 ms.
SHARE_S = 0.001
# Notices to everyone: let the loop run after so many clients.
_NOTICE_STRIDE = 256


class Namespace:
    """See the module. Implements `bus.Receiver`. `on_log_lost` is called when the log is another one, and must not wait."""

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
        self._log_topics = LogTopics()
        self._searching = Lock()
        self._share = Share(SHARE_S)
        self._reads = Rates(settings.read_per_s, settings.read_burst)
        self._routing = False
        self._between: list[Callable[[], None]] = []
        self._floored: set[Client] = set()
        self._cursor_told_s = monotonic()
        self._losses_counted: dict[Client, tuple[int, int]] = {}  # of whom: discarded, conflated
        CLIENTS.labels(name).set_function(lambda: len(self.clients))
        SUBSCRIPTIONS.labels(name).set_function(lambda: self._trie.subscriptions)

    # -- clients --------------------------------------------------------------------------------------------------

    def join(self, session: str, identity: Identity, connection: ClientConnection, address: str | None = None) -> Client:
        """Take a client in and return it. What it reads counts for its user, or for its address when it is anonymous."""
        account = identity.user if identity.user != ANONYMOUS else f"\0{address or session}"  # no user's name
        client = Client(self.name, session, identity, connection, self._catch_up, account)
        self.clients[session] = client
        self._arriving.add(client)
        return client

    def leave(self, session: str) -> Client | None:
        """Forget a client and its subscriptions. Idempotent. Lets the loop run, when it is out already."""
        client = self.clients.pop(session, None)
        if client is not None:
            self._floored.discard(client)
            self._arriving.discard(client)
            client.leave()
            self._count_losses(client)
            self._losses_counted.pop(client, None)
            # Until then it is still found among those who get an event, and takes none.
            with self._share:
                for pattern in tuple(client.subscriptions):
                    self._remove(pattern, client)
                    self._share.pause()
            client.subscriptions.clear()
        return client

    def subscribe(self, client: Client, request: object) -> str:
        """Put a subscription `{pattern, overflow?, since?}` in force, or change its policy; return the pattern.

        From then on every matching event above the bus's position comes. With `since`, the events of the pattern after that point
        come first, out of the log. May switch greenlets: until Redis has confirmed a pattern that nobody here had.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, LimitReached, BusUnavailable, BusRefused: nothing has changed.
            Unauthorized: the client has left meanwhile.
        """
        (outcome,) = self.subscribe_all(client, [request])
        if isinstance(outcome, HeadgateError):
            raise outcome
        return outcome

    def subscribe_all(self, client: Client, requests: Iterable[object]) -> list[str | HeadgateError]:
        """Put subscriptions in force, as `subscribe` does each; return for each its pattern, or the error that refused it.

        Redis is asked for all of them at once, and the log is read once for all that have a `since`. What is beyond a limit is
        refused before anything is decided about it, so a pattern that turns out to be forbidden counts as well.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        outcomes = self._admit(client, requests)
        with self._wanted([wanted.pattern for wanted in outcomes if isinstance(wanted, Subscription)]):
            for index, wanted in enumerate(outcomes):
                if isinstance(wanted, Subscription):
                    try:
                        self.bus.wait_for(wanted.pattern)
                    except HeadgateError as error:
                        outcomes[index] = error
            pending = deque(index for index, wanted in enumerate(outcomes) if isinstance(wanted, Subscription))
            while pending:
                epoch, starts = self._find_starts(client, outcomes, pending)
                with self._share, self._held_back(client):
                    # Offsets of a log that has just been lost mean nothing in the next one: look again.
                    while pending and (not starts or epoch == self.bus.epoch):
                        self._check_in(client)
                        index = pending.popleft()
                        wanted = outcomes[index]
                        if isinstance(wanted, Subscription):
                            self._put_in_force(client, wanted, starts.get(index))
                        self._share.pause()
                    self._check_in(client)
        return [wanted.pattern if isinstance(wanted, Subscription) else wanted for wanted in outcomes]

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
        """End a client's subscriptions to patterns of which `ends` is true; return them. Lets the loop run.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        ended = []
        with self._share:
            for pattern in tuple(client.subscriptions):
                self._check_in(client)
                if ends(pattern) and client.unsubscribe(pattern):
                    self._remove(pattern, client)
                    ended.append(pattern)
                self._share.pause()
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
        if point.epoch == bus.epoch and point.offset > max(bus.reached, bus.head):
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
        if point.offset != bus.reached or self._routing or client.reading or waiting:
            client.read_from(point.offset, client.starts)  # a `since` of the handshake keeps its own start
        # The head was read at the last fence; trimming by count has gone on since, and needs no reading.
        return point.offset + 1 >= max(bus.first, bus.reached - self._settings.log_max_events + 1)

    def replay(self, client: Client, request: object) -> dict[str, object]:
        """Return a page of `{pattern, from, to}` out of the log: `{events: [[topic, data, meta]…], next}`.

        `next` is the offset to ask from for the rest, or None. May switch greenlets.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, LimitReached, BusUnavailable, BusRefused.
        """
        wanted = read_replay(request)
        if not client.identity.may_subscribe(wanted.pattern):
            raise Forbidden("replay", wanted.pattern)
        if (wait_s := self._borrow_read(client, READ_WAIT_S)) > 0:
            sleep(wait_s)
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
            BusUnavailable, BusRefused: as `redis.client.call`.
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
        return self.bus.reached

    def epoch(self) -> str:
        """The log that this offset is in."""
        return self.bus.epoch or ""

    def oldest(self) -> int:
        """An offset below which that log holds nothing any more: its first one at the last fence."""
        return self.bus.first

    def went_live(self, client: Client) -> None:
        """Release the client's direct writes when the feed has reached it, and no pass that began before is under way."""
        if not self._routing and client.position <= self.bus.reached:
            self._floored.discard(client)
            self._release_one(client)
        else:
            self._floored.add(client)

    def quarantine(self, entry: Entry) -> None:
        """An entry of the log that cannot be delivered was met."""
        self.bus.quarantine(entry.error or InvalidEvent("entry", "unreadable"))

    # -- bus.Receiver ---------------------------------------------------------------------------------------------

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
        self._log_topics.clear()
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
        frame = self._cursor_frame(Head(self.bus.epoch, self.bus.reached, 0))
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
            self.bus.acquire(pattern)
        try:
            yield
        finally:
            for pattern in patterns:
                self.bus.release(pattern)

    def _remove(self, pattern: str, client: Client) -> None:
        if self._trie.remove(pattern, client):
            self.bus.release(pattern)

    def close(self) -> None:
        """Stop listening and reading. Idempotent."""
        self.bus.close()
        self._catch_up.close()

    def _release(self) -> None:
        reached = [client for client in self._floored if client.position <= self.bus.reached]
        for client in reached:
            self._floored.discard(client)
            self._release_one(client)

    def _release_one(self, client: Client) -> None:
        if not client.reading:
            client.release()
            if client.connection.idle and self.bus.epoch is not None:
                client.connection.offer_control(self._cursor_frame(Head(self.bus.epoch, self.bus.reached, 0)))

    def _admit(self, client: Client, requests: Iterable[object]) -> list[Subscription | HeadgateError]:
        """Read requests, and hold them against the limits and then against what the client is granted. Lets the loop run."""
        outcomes: list[Subscription | HeadgateError] = []
        fresh: set[str] = set()
        wildcards = client.wildcards
        with self._share:
            for request in requests:
                self._share.pause()
                try:
                    wanted = read_subscription(request)
                    pattern = wanted.pattern
                    if pattern not in client.subscriptions and pattern not in fresh:
                        if len(client.subscriptions) + len(fresh) >= self._settings.max_subscriptions:
                            raise LimitReached("subscriptions", self._settings.max_subscriptions)
                        if is_wildcard(pattern) and wildcards >= self._settings.max_wildcards:
                            raise LimitReached("wildcards", self._settings.max_wildcards)
                        fresh.add(pattern)
                        wildcards += is_wildcard(pattern)
                    if not client.identity.may_subscribe(pattern):
                        raise Forbidden("subscribe to", pattern)
                    outcomes.append(wanted)
                except HeadgateError as error:
                    outcomes.append(error)
        return outcomes

    @contextmanager
    def _held_back(self, client: Client) -> Iterator[None]:
        """Let a client read from the log behind the block only: all pasts that begin in it come in one reading, in order."""
        client.held_back = True
        try:
            yield
        finally:
            client.held_back = False
            if client.reading:
                self._catch_up.add(client)

    def _put_in_force(self, client: Client, wanted: Subscription, start: int | None) -> None:
        """Let a client have what its subscription matches: live, and from an offset on, if any, out of the log.

        Both in one step: what came live between the two would come out of the log again.
        """
        client.subscribe(wanted.pattern, wanted.overflow)
        if self._trie.add(wanted.pattern, client):
            self.bus.acquire(wanted.pattern)
        if start is not None:
            self._read_back(client, wanted.pattern, start)

    def _find_starts(
        self, client: Client, outcomes: list[Subscription | HeadgateError], indexes: Iterable[int]
    ) -> tuple[str | None, dict[int, int]]:
        """Return the epoch of the log, and the offsets after which the events begin that subscriptions with a `since` ask for.

        Where they cannot be found, such a subscription's outcome becomes the error. Waits for Redis, and lets the loop run.
        """
        asking: dict[int, tuple[str, Since]] = {}
        for index in indexes:
            wanted = outcomes[index]
            if isinstance(wanted, Subscription) and wanted.since is not None:
                asking[index] = (wanted.pattern, wanted.since)
        if all(since.offset is not None and since.offset <= self.bus.reached for _, since in asking.values()):
            return self.bus.epoch, {index: since.offset or 0 for index, (_, since) in asking.items()}
        try:
            while True:
                epoch = self.bus.epoch
                found = self._look_back(client, list(asking.values()))
                if epoch == self.bus.epoch:  # and not a place in a log that has just been lost
                    return epoch, dict(zip(asking, found, strict=True))
        except HeadgateError as error:
            for index in asking:
                outcomes[index] = error
            return self.bus.epoch, {}

    def _look_back(self, client: Client, asked: Sequence[tuple[str, Since]]) -> list[int]:
        """Return where the pasts begin that are asked for, out of one reading of the log."""
        give_up_s = monotonic() + READ_WAIT_S
        with self._turn_to_search() as log:
            head = log.head()

        pages: dict[int, TopicPage] = {}

        def read(number: int) -> TopicPage:
            if number in pages:
                return pages[number]
            wait_s = self._borrow_read(client, give_up_s - monotonic())
            page = self._log_topics.known(number, head.offset)
            if wait_s > 0 or page is None:
                with self._share.outside():
                    sleep(wait_s)
                    with self._turn_to_search() as log:
                        page = self._log_topics.read(number, head.offset, log)
            pages[number] = page
            return page

        with self._share:
            return find_starts(asked, head.first, head.offset, read, self._share.pause)

    def _borrow_read(self, client: Client, max_wait_s: float) -> float:
        """Count one page of the log as read by a client; return for how long it is to wait for it.

        Raises:
            LimitReached: `read_per_s`: longer than `max_wait_s`.
        """
        wait_s = self._reads.borrow(client.account, monotonic(), max_wait_s)
        if wait_s is None:
            raise LimitReached("read_per_s", self._settings.read_per_s, max_wait_s)
        return wait_s

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
        """Refuse a client that was disconnected, or has left, while Redis was asked."""
        if self.clients.get(client.session) is not client:
            raise Unauthorized(UnauthorizedReason.LEFT)

    def _read_back(self, client: Client, pattern: str, start: int) -> None:
        """Make the client a reader from `start` for this pattern, and from where it is for its others.

        Where a live client is, is only exact between passes, so the change waits for the end of one that is under way.
        """

        def change() -> None:
            if client.connection.closed or pattern not in client.subscriptions:
                return
            if client.live:
                client.read_from(self.bus.reached, {pattern: start})
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
