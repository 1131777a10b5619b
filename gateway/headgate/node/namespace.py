"""One namespace of the gateway, with its clients, their subscriptions, and the path from its bus to them.

In: joins, requests and leaves from the gateway; events and notices of faults from the bus. Out: calls on the parts: the
subscriptions (subscriptions.py), searches of the log (log_search.py), the live feed and the clients that catch up (delivery),
presence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING

from headgate.auth.identity import ANONYMOUS, Identity
from headgate.delivery.bus.feed import Front
from headgate.delivery.bus.listener import Bus
from headgate.delivery.catch_up import CatchUp
from headgate.delivery.client import Client
from headgate.delivery.direct import Run, direct_writer
from headgate.delivery.fanout import Router
from headgate.delivery.ledger import DeliveryCounts, Ledger
from headgate.delivery.live_feed import LiveFeed, cursor_turns
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.page_cache import LogPages
from headgate.delivery.tally import Tallies, Traced
from headgate.errors import Forbidden, HeadgateError, InvalidRequest
from headgate.events.event import Event
from headgate.events.wire.frames import message_frame
from headgate.events.wire.packets import REPLAY, STATUS, GapReason, notice_packet
from headgate.events.wire.requests import MAX_OFFSET, Position, Subscription, read_history, read_replay
from headgate.node.presence.presence import Presence
from headgate.redis.inbox import InboxPage, read_current
from headgate.redis.lineage import Head
from headgate.runtime.loop import Greenlet, Share, Turns, one_round, sleep, spawn
from headgate.runtime.metrics import CLIENTS, DELIVERY, JOINS, SUBSCRIPTIONS
from headgate.settings.settings import MOST_LOG_EVENTS, Settings
from headgate.transport.outbox import Outbox

from .log_search import LogSearch
from .receipt_check import ReceiptCheck
from .subscriptions import SHARE_S, Subscriptions

if TYPE_CHECKING:
    from .access.authorizing import Authorizing

_JOIN_KINDS = {None: "fresh", True: "resumed", False: "not_resumed"}


class Namespace:
    """See the module. Implements `bus.Receiver`.

    Calls `on_log_lost`, which must not wait, when another log has replaced the log. `retention_s` is how long an event stays in
    the log at the present rate (cluster/log_maintenance.py sets it every few seconds).
    """

    def __init__(self, name: str, redis_url: str, settings: Settings, authorizing: Authorizing, presence: Presence) -> None:
        self.name, self.authorizing, self.presence = name, authorizing, presence
        self.on_log_lost: Callable[[], object] = lambda: None
        self._settings = settings
        self.clients: dict[str, Client] = {}
        matcher: SubscriptionMatcher[Client] = SubscriptionMatcher()
        self.bus = Bus(name, redis_url, settings, self)
        self.receipts = ReceiptCheck(name, self.bus)
        search_log, pages_log = self._logs = self.bus.open_log(verified=True), self.bus.open_log(verified=True)
        self.tallies = Tallies(settings.trace_every, lambda: self.bus.epoch)
        self._catch_up = CatchUp(LogPages(name, pages_log, self.bus.quarantine), self.tallies)
        self.traced = Traced() if settings.otel else None
        self._router = Router(name, matcher, self.tallies, self.traced)
        direct = direct_writer(name, matcher, settings.max_payload_bytes, self.tallies, self.bus.database)
        self._live = LiveFeed(name, self.bus, self.clients, self._router, self._catch_up.readers, direct=direct)
        self._catch_up.follow(self._live)
        self.search = LogSearch(name, self.bus, self._live, search_log, settings, Share(SHARE_S))
        self.subscriptions = Subscriptions(self.clients, matcher, self.search, authorizing, settings)
        self._ledger = Ledger(self.clients, self._router, self._catch_up.readers)
        self._due_cursors = cursor_turns(monotonic())
        self.retention_s = inf
        self._turns = Turns()  # for all other greenlets, between the slices of the bus's work
        self._round: Greenlet | None = None  # sends cursors to clients now
        self._count_join = {resumed: JOINS.labels(name, kind).inc for resumed, kind in _JOIN_KINDS.items()}
        self._matcher = matcher
        CLIENTS.labels(name).set_function(lambda: len(self.clients))
        SUBSCRIPTIONS.labels(name).set_function(lambda: matcher.subscriptions)
        DELIVERY.sources[name] = self._delivery_values

    # -- clients --------------------------------------------------------------------------------------------------

    def join(self, session: str, identity: Identity, connection: Outbox, address: str | None = None) -> Client:
        """Add a client and return it. Its reads count for its user, or for its address if it is anonymous."""
        account = identity.user if identity.user != ANONYMOUS else f"\0{address or session}"  # no user's name
        readers, now_ms = self._catch_up.readers, int(time() * 1000)
        client = self.clients[session] = Client(self.name, session, identity, connection, readers, account, now_ms)
        return client

    def leave(self, session: str, *, in_order: bool = True) -> None:
        """Remove a client, then forget its subscriptions and its part in presence. Idempotent. Lets the loop run at the end.

        `in_order` is True if the client disconnected by itself, and False if its connection broke.
        """
        if (client := self.clients.pop(session, None)) is not None:
            client.leave()
            self._ledger.depart(client)
            self.subscriptions.forget(client)
            self.presence.rooms.gone(session, in_order=in_order)

    def is_in(self, client: Client) -> bool:
        """Return whether a client has joined and not left since."""
        return self.clients.get(client.session) is client

    def subscribe(self, client: Client, request: object) -> Subscription:
        """Make a subscription active, and return it, as `Subscriptions.add_all` does for each.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, AuthorizeFailed, LimitReached, BusUnavailable, BusRefused: nothing has
                changed.
            Unauthorized: the client left during the call.
        """
        outcomes = self.subscriptions.add_all(client, [request])
        if isinstance(outcomes[0], HeadgateError):
            raise outcomes.pop()  # type: ignore[misc]  # pop: its traceback holds this frame, so keeping it here would be a cycle
        return outcomes[0]

    def place(self, client: Client) -> int:
        """Return the offset after which a subscription gets events if it is activated now."""
        return client.place(self._live.position())

    def audience(self, topic: str) -> tuple[Client, ...]:
        """Return the clients that would now get an event of this topic."""
        return self._matcher.match(topic).clients

    def had(self, client: Client) -> int:
        """Return the offset up to which a client's events were sent or are in transit. Requested pasts do not count."""
        return client.had(self._live.position())

    def resume(self, client: Client, point: Position | None) -> tuple[bool | None, Position | None]:
        """Let a newly joined client continue from its point. Its subscriptions are already active.

        The point may be of an earlier epoch. The lineage shows how much the two share.

        Returns whether it was resumed, and where it continues. None means that there was nothing to resume. True means that
        everything since was in the log a second ago. False means that the log was lost (then without a position), has lost its
        end, or no longer reaches back that far. A gap reports which, and the client continues with the remaining events.

        Raises:
            BusUnavailable, BusRefused: the point is ahead of this gateway, and Redis did not answer or is further ahead itself.
            Unauthorized: `left`, while Redis was asked.
        """
        if point is None:
            client.welcome()
            return self._resumed(None)
        end = self.search.end_of(point.epoch, point.offset)
        self.subscriptions.check_in(client)
        if end is None:
            client.welcome_to_another_log()
            self._live.between_passes(lambda: client.report_position(self._live.cursor()))
            return self._resumed(False)
        # Its subscriptions are active, so live events may be queued already (the connection is corked until `welcome`).
        bus, start = self.bus, self._live.resume(client, point.offset, end)
        # The head was read at the last fence. Trimming by count has continued since, and follows from `reached`.
        oldest = max(bus.first, bus.reached - (self._settings.log_max_events or MOST_LOG_EVENTS) + 1)
        return self._resumed(start == point.offset and start + 1 >= oldest, Position(bus.epoch or "", start))

    def position(self, client: Client, start: Position | None) -> int:
        """Return the offset for a welcome, which is the live feed's, or where a new client begins."""
        return self._live.position() if start is not None else self._live.welcome_offset(client)

    def history(self, client: Client, request: object) -> dict[str, object]:
        """Return the newest events of `{pattern, before?: {offset, epoch?}, limit?}`: `{events: [[topic, data, meta]…], before}`.

        The newest event comes first. `before` is the position to continue from, or None if the log has no older events. One
        call reads one page of the log, so it may return fewer than `limit`, or none. May switch greenlets. Raises
        InvalidRequest, InvalidPattern, Forbidden, AuthorizeFailed, LimitReached, BusUnavailable, BusRefused.
        """
        pattern, before, before_epoch, limit = read_history(request)
        self._wait_to_read(client, pattern)
        last = MAX_OFFSET if before is None else before - 1
        # Without listeners the feed lags by some seconds, and another gateway may have shown more.
        end = self.search.end_of(before_epoch or self.bus.epoch or "", last)
        if end is None and before_epoch is not None:
            raise InvalidRequest("before: the log does not know its epoch (any more); ask without it for the newest events")
        epoch = self.bus.epoch
        events: list[Event] = []
        next_ = None
        if end and last:
            events, next_ = self.search.page_back(pattern, min(last, end) + 1, epoch, limit)
            self._check_again(client, pattern)
        return {"events": _shown(events), "before": None if next_ is None else {"epoch": epoch, "offset": next_}}

    def _wait_to_read(self, client: Client, pattern: str) -> None:
        """Wait until a client may read a page of the log for a pattern. Raises as `replay`."""
        if not client.identity.may_subscribe(pattern):
            raise Forbidden("replay", pattern)
        self.authorizing.check(client, pattern, REPLAY)
        self.search.wait_to_read(client)
        self._check_again(client, pattern)

    def _check_again(self, client: Client, pattern: str) -> None:
        """Refuse a client that lost a pattern while waiting. Waits if its rights must be read again first.

        Raises Forbidden, and Unauthorized if it has left.
        """
        self.bus.wait_held()
        self.subscriptions.check_in(client)
        if not client.identity.may_subscribe(pattern):
            raise Forbidden("replay", pattern)

    def replay(self, client: Client, request: object) -> dict[str, object]:
        """Return a page of `{pattern, from, to, epoch?}` from the log: `{events: [[topic, data, meta]…], next, epoch, gap?}`.

        `next` is the offset from which to ask for the rest, or None. `gap {from, to, reason, epoch}`, with the last page, is the
        part of the range that an earlier epoch had and the log has lost. May switch greenlets. Raises as `history`.
        """
        pattern, first, last, epoch = read_replay(request)
        self._wait_to_read(client, pattern)
        end = last if epoch in (None, self.bus.epoch) else self.search.end_of(epoch, last)
        epoch = self.bus.epoch
        events: list[Event] = []
        next_ = None
        if end is not None and first <= end:
            events, next_ = self.search.page(pattern, first, min(last, end), epoch)
            self._check_again(client, pattern)
        answer: dict[str, object] = {"events": _shown(events), "next": next_, "epoch": epoch}
        if next_ is None and (end is None or last > end):
            reason = GapReason.LOG_LOST if end is None else GapReason.ROLLED_BACK
            answer["gap"] = {"from": first if end is None else max(first, end + 1), "to": last, "reason": reason, "epoch": epoch}
        return answer

    def current_inbox(
        self, read: Callable[[], InboxPage], had: tuple[str, int] | None, client: Client | None = None
    ) -> InboxPage:
        """Return a page of an inbox with every event of this gateway, or of a client, and those up to `had` (epoch, offset).

        Raises:
            InvalidRequest: the log does not know the epoch, and there is no client.
            BusUnavailable, BusRefused: as `read`, `read_current` and `LogSearch.end_of`.
        """
        least = self._live.position() if client is None else self.place(client)
        if had is not None:
            epoch, offset = had
            end = offset if epoch == self.bus.epoch else self.search.end_of(epoch, offset)
            if end is None and client is None:
                raise InvalidRequest("epoch: the log does not know it (any more); read the inbox without a position")
            least = max(least, min(offset, end or 0))  # for an unknown log the client is notified anyway
        return read_current(read, least, self.bus.lineage, sleep)

    def balance(self) -> DeliveryCounts:
        """Return the outcomes of the events of all clients so far. With many clients it lets the loop run."""
        walk = self._ledger.walk()
        while True:
            try:
                next(walk)
            except StopIteration as ended:
                balance: DeliveryCounts = ended.value
                return balance
            one_round()

    def start(self) -> None:
        """Start listening. Idempotent."""
        self.presence.start()
        self.bus.start()

    def close(self) -> None:
        """Stop listening and reading. Idempotent."""
        self.presence.close()
        self.bus.close()
        self._catch_up.close()
        if DELIVERY.sources.get(self.name) == self._delivery_values:
            del DELIVERY.sources[self.name]

    # -- bus.Receiver ------------------------------------------------------------------------------------------------

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]] = list) -> None:
        """Hand events to their clients, in order. Lets the loop run between slices and every few milliseconds."""
        for _ in self._live.route(events, more):
            self._turns.give()

    def take(self, replies: list[list[bytes]], front: Front) -> Run | None:
        """Write the first events of replies directly, as far as possible (delivery/direct.py). The loop does not run."""
        return self._live.take(replies, front)

    def rest(self) -> None:
        """Give all other greenlets a turn."""
        self._turns.give()

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        """Report a missing range to every client."""
        for _ in self._live.missing(first, last, reason):
            self._turns.give()

    def line_changed(self, end: int) -> None:
        """Report once to every client that the log continues in another epoch, without its events above `end`."""
        self._catch_up.pages.cut(end)
        self.search.cut(end)
        for _ in self._live.change_line(end):
            self._turns.give()

    def log_lost(self, head: Head) -> None:
        """Report once to every client that another log has replaced the log, and the position of the new one."""
        self.on_log_lost()
        self._catch_up.pages.cut(0)
        self.search.cut(0)
        for _ in self._live.lose_log(head.epoch or "", head.offset):
            self._turns.give()

    def bus_changed(self, up: bool) -> None:
        """Report to every welcomed client whether live delivery is proven. Later reads use new connections."""
        for log in self._logs:
            log.drop_idle()
        frame = message_frame(notice_packet(self.name, STATUS, {"bus": "up" if up else "down"}))
        for _ in self._live.notify(frame):
            self._turns.give()

    def fenced(self) -> None:
        """Check the receipts of publishes. Now and then, send idle clients their position."""
        self.receipts.fenced()
        self._live.end_handovers()
        if self.bus.epoch is None or self._round is not None:
            return
        # Before its first trim the log still has every position.
        position, bound = self._live.position(), self._settings.log_max_events or inf
        retained = min(bound, position - self.bus.first + 1) if self.bus.first > 1 else bound
        if slots := self._due_cursors(monotonic(), position, retained):
            self._round = spawn(self._go_round, slots)  # in a greenlet, because events would wait here for thousands of writes

    def _go_round(self, slots: set[int]) -> None:
        try:
            for _ in self._live.send_cursors(slots):
                one_round()
        finally:
            self._round = None

    # -- private --------------------------------------------------------------------------------------------------

    def _resumed(self, resumed: bool | None, start: Position | None = None) -> tuple[bool | None, Position | None]:
        self._count_join[resumed]()
        return resumed, start

    def _delivery_values(self) -> dict[tuple[str, str, str], float]:
        """Return the values of metrics.DELIVERY."""
        balance, router = self.balance(), self._router
        oldest_s = 0.0 if balance.oldest_ms is None else max(0.0, time() - balance.oldest_ms / 1000)
        outcomes = ("sent", "discarded", "conflated", "left_to_log", "gone")
        return {
            ("headgate_events_routed_total", "clients", "some"): router.matched,
            ("headgate_events_routed_total", "clients", "none"): router.unwanted,
            ("headgate_routed_total", "source", "live"): balance.routed,
            ("headgate_routed_total", "source", "log"): balance.from_log,
            **{("headgate_outcomes_total", "outcome", outcome): getattr(balance, outcome) for outcome in outcomes},
            ("headgate_discarded_total", "", ""): balance.discarded,
            ("headgate_conflated_total", "", ""): balance.conflated,
            ("headgate_waiting", "", ""): balance.waiting,
            ("headgate_queued_frames", "", ""): balance.queued,
            ("headgate_queued_bytes", "", ""): balance.queued_bytes,
            ("headgate_queue_fullest_ratio", "", ""): balance.fullest,
            ("headgate_queue_oldest_seconds", "", ""): oldest_s,
            ("headgate_clients_catching_up", "", ""): balance.catching_up,
        }


def _shown(events: Iterable[Event]) -> list[list[object]]:
    """Return events from the log with their arguments, as `event_frame` writes them (events/wire/frames.py)."""
    shown: list[list[object]] = []
    for event in events:
        meta = {"id": event.id, "time": event.time_ms, "offset": event.offset, "replayed": True}
        further = {"traceparent": event.traceparent, "by": event.by}
        meta |= {name: value for name, value in further.items() if value is not None}
        shown.append([event.topic, event.value(), meta])
    return shown
