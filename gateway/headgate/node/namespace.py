"""One namespace of the gateway: its clients, their subscriptions, and the path from its bus to them.

In: joins, requests and leaves from the gateway; events and word of faults from the bus. Out: what each part makes of them: the
subscriptions (subscriptions.py), searches of the log (log_search.py), the live feed and the clients that catch up (delivery).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from headgate.auth.identity import ANONYMOUS, Identity
from headgate.bus.listener import Bus
from headgate.delivery.catch_up import CatchUp
from headgate.delivery.client import Client
from headgate.delivery.client_connection import ClientConnection
from headgate.delivery.live_feed import LiveFeed
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.page_cache import LogPages
from headgate.delivery.router import Router
from headgate.errors import Forbidden, HeadgateError, InvalidEvent
from headgate.event import Event
from headgate.metrics import CLIENTS, SUBSCRIPTIONS
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import STATUS, GapReason, notice_packet
from headgate.protocol.requests import Replay, Resume, read_replay, read_subscription
from headgate.redis.log import Entry, Head
from headgate.runtime.loop import Greenlet, Share, sleep, spawn
from headgate.settings import Settings

from .line import Line
from .log_search import LogSearch
from .losses import Losses
from .subscriptions import SHARE_S, Subscriptions

# How often an idle client is told its position, so that its point of resume stays inside the log's retention.
CURSOR_INTERVAL_S = 10.0
# And sooner in a busy log: whenever this share of what the log retains has been published since the last time.
CURSOR_SHARE = 4


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a client goes on that came with a point of resume.

    Attributes:
        resumed: None: there was nothing to resume. True: everything since was in the log a second ago. False: the log was lost,
            has lost its end, or no longer reaches back that far; a gap says which, and the client goes on from what there is.
        position: from where it goes on; None: nothing was resumed, or the log was lost.
    """

    resumed: bool | None
    position: Resume | None = None


class Namespace:
    """See the module. Implements `bus.Feed`. `on_log_lost` is called when the log is another one, and must not wait."""

    def __init__(self, name: str, redis_url: str, settings: Settings, on_log_lost: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self._on_log_lost = on_log_lost
        self._settings = settings
        self.clients: dict[str, Client] = {}
        matcher: SubscriptionMatcher[Client] = SubscriptionMatcher()
        self.bus = Bus(name, redis_url, settings, self)
        search_log, pages_log = self._logs = self.bus.open_log(verified=True), self.bus.open_log(verified=True)
        share = Share(SHARE_S)
        self._search = LogSearch(search_log, settings, share)
        self._catch_up = CatchUp(LogPages(name, pages_log))
        self._live = LiveFeed(name, self.bus, self.clients, Router(name, matcher), self._catch_up.readers, self._quarantine)
        self._catch_up.follow(self._live)
        self._line = Line(self.bus, self._live, self._search)
        self._subscriptions = Subscriptions(
            self.clients, matcher, self.bus, self._live, self._search, self._line, share, settings
        )
        self._losses = Losses(name)
        self._cursor_told_s, self._cursor_told = monotonic(), 0
        self._round: Greenlet | None = None  # goes round the clients now
        CLIENTS.labels(name).set_function(lambda: len(self.clients))
        SUBSCRIPTIONS.labels(name).set_function(lambda: matcher.subscriptions)

    # -- clients --------------------------------------------------------------------------------------------------

    def join(self, session: str, identity: Identity, connection: ClientConnection, address: str | None = None) -> Client:
        """Take a client in and return it. Its reads count for its user, or for its address when it is anonymous."""
        account = identity.user if identity.user != ANONYMOUS else f"\0{address or session}"  # no user's name
        client = self.clients[session] = Client(self.name, session, identity, connection, self._catch_up.readers, account)
        return client

    def leave(self, session: str) -> Client | None:
        """Forget a client and its subscriptions. Idempotent. Lets the loop run, when it is out already."""
        client = self.clients.pop(session, None)
        if client is not None:
            client.leave()
            self._losses.count_last(client)
            self._subscriptions.forget(client)
        return client

    def subscribe(self, client: Client, request: object) -> str:
        """Make a subscription `{pattern, overflow?, since?}` active, or change its policy; return the pattern.

        From then on every matching event above the bus's position comes. With `since`, the events of the pattern after that point
        come first, out of the log. May switch greenlets: until Redis has confirmed a pattern that nobody here had.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, LimitReached, BusUnavailable, BusRefused: nothing has changed.
            Unauthorized: the client has left meanwhile.
        """
        outcomes = self.subscribe_all(client, [request])
        if isinstance(outcomes[0], HeadgateError):
            raise outcomes.pop()  # type: ignore[misc]  # kept here, it would be a cycle: its traceback holds this frame
        return outcomes[0]

    def subscribe_all(self, client: Client, requests: Iterable[object]) -> list[str | HeadgateError]:
        """Make subscriptions active, as `subscribe` does each; return for each its pattern, or the error that refused it.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        return self._subscriptions.add_all(client, requests)

    def place(self, client: Client) -> int:
        """Return the offset above which a subscription that has just been made active brings events."""
        return client.place(self._live.position())

    def unsubscribe(self, client: Client, request: object) -> str:
        """End a subscription `{pattern}`; ending one that is not there is no fault. Returns the pattern.

        Raises:
            InvalidRequest, InvalidPattern.
        """
        pattern = read_subscription(request).pattern
        self._subscriptions.end(pattern, client)
        return pattern

    def end_subscriptions(self, client: Client, ends: Callable[[str], bool]) -> list[str]:
        """End a client's subscriptions to patterns of which `ends` is true; return them. Lets the loop run.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        return self._subscriptions.end_each(client, ends)

    def resume(self, client: Client, point: Resume | None) -> Resumption:
        """Let a client that has just joined go on where it was; its subscriptions are active already.

        Its point may be of an epoch before the one in which the log is: the lineage says how much of it they share.

        Raises:
            BusUnavailable, BusRefused: the point is ahead of this gateway, and Redis could not be asked or is further itself.
            Unauthorized: `left`, while Redis was asked.
        """
        self._subscriptions.check_in(client)
        if point is None:
            client.welcome()
            return Resumption(None)
        end = self._line.end_of(point.epoch, point.offset)
        self._subscriptions.check_in(client)
        if end is None:
            client.welcome_to_another_log()
            return Resumption(False)
        # Its subscriptions are active, so live events may wait for it already (the connection is corked until `welcome`).
        bus, start = self.bus, self._live.resume(client, point.offset, end)
        # The head was read at the last fence; trimming by count has gone on since, and needs no reading.
        oldest = max(bus.first, bus.reached - self._settings.log_max_events + 1)
        return Resumption(start == point.offset and start + 1 >= oldest, Resume(bus.epoch or "", start))

    def position(self, client: Client, resumption: Resumption) -> int:
        """Return the offset that a welcome says: that of the live feed, or the place from which a new client begins."""
        return self._live.position() if resumption.position is not None else self._live.welcome_offset(client)

    def replay(self, client: Client, request: object) -> dict[str, object]:
        """Return a page of `{pattern, from, to, epoch?}` out of the log: `{events: [[topic, data, meta]…], next, epoch, gap?}`.

        `next` is the offset to ask from for the rest, or None. `epoch` is that of the log. `gap {from, to, reason, epoch}` comes
        with the last page: the part of the range that an epoch before had, and the log has lost. May switch greenlets.

        Raises:
            InvalidRequest, InvalidPattern, Forbidden, LimitReached, BusUnavailable, BusRefused.
        """
        wanted = read_replay(request)
        if not client.identity.may_subscribe(wanted.pattern):
            raise Forbidden("replay", wanted.pattern)
        self._search.wait_to_read(client)
        first, last = wanted.first, wanted.last
        ours = wanted.epoch is None or wanted.epoch == self.bus.epoch
        end = last if ours or wanted.epoch is None else self._line.end_of(wanted.epoch, last)
        epoch = self.bus.epoch
        events: list[Event] = []
        next_ = None
        if end is not None and first <= end:
            events, next_ = self._search.page(Replay(wanted.pattern, first, min(last, end), epoch))
        answer: dict[str, object] = {
            "events": [
                [event.topic, event.value(), {"id": event.id, "time": event.time_ms, "offset": event.offset, "replayed": True}]
                for event in events
            ],
            "next": next_,
            "epoch": epoch,
        }
        if next_ is None and (end is None or last > end):
            reason = GapReason.LOG_LOST if end is None else GapReason.ROLLED_BACK
            answer["gap"] = {"from": first if end is None else max(first, end + 1), "to": last, "reason": reason, "epoch": epoch}
        return answer

    def page(self, wanted: Replay) -> tuple[list[Event], int | None]:
        """Return the matching events of a range of the log, as LogSearch.page does."""
        return self._search.page(wanted)

    def close(self) -> None:
        """Stop listening and reading. Idempotent."""
        self.bus.close()
        self._catch_up.close()

    # -- bus.Feed -------------------------------------------------------------------------------------------------

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]] = list) -> None:
        """Hand events to their clients, in order; lets the loop run between slices and every few milliseconds."""
        for _ in self._live.route(events, more):
            sleep()

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        """Tell every client of a range that will not come."""
        for _ in self._live.missing(first, last, reason):
            sleep()

    def line_changed(self, end: int) -> None:
        """Tell every client once that the log goes on in another epoch, without what it had above `end`."""
        self._catch_up.pages.cut(end)
        self._search.cut(end)
        for _ in self._live.change_line(end):
            sleep()

    def log_lost(self, head: Head) -> None:
        """Tell every client once that the log is another one, and where the new one stands."""
        self._on_log_lost()
        self._catch_up.pages.clear()
        self._search.clear()
        for _ in self._live.lose_log(head.epoch or "", head.offset):
            sleep()

    def bus_changed(self, up: bool) -> None:
        """Tell every client whether live delivery is proven; read over new connections from then on."""
        for log in self._logs:
            log.drop_idle()
        frame = message_frame(notice_packet(self.name, STATUS, {"bus": "up" if up else "down"}))
        for client in self._live.each():
            if client is None:
                sleep()
            else:
                client.connection.offer_control(frame)

    def fenced(self) -> None:
        """Now and then, tell idle clients where they stand, and count what full queues left out."""
        self._live.end_handovers()
        now_s, position = monotonic(), self._live.position()
        # Bytes and age trim it too; a log that has trimmed nothing yet holds `log_max_events` at the most.
        retained = position - self.bus.first + 1 if self.bus.first > 1 else self._settings.log_max_events
        busy = abs(position - self._cursor_told) >= max(retained // CURSOR_SHARE, 1)
        if (now_s - self._cursor_told_s < CURSOR_INTERVAL_S and not busy) or self.bus.epoch is None or self._round is not None:
            return
        self._cursor_told_s, self._cursor_told = now_s, position
        self._round = spawn(self._go_round)  # not here: events would wait for thousands of writes

    def _go_round(self) -> None:
        try:
            for _ in self._live.tell_cursor():
                sleep()
            for client in self._live.each():
                if client is None:
                    sleep()
                else:
                    self._losses.count(client)
        finally:
            self._round = None

    def _quarantine(self, entry: Entry) -> None:
        self.bus.quarantine(entry.error or InvalidEvent("entry", "unreadable"))
