"""The bus listener: one namespace's live feed from Redis, proven complete or repaired from the log.

In: channel messages over a connection that never reconnects by itself; the log. Out: events in log order, each once, to
the namespace (`Feed.route`), and word of what is missing (`Feed.missing`), of a lost log, of the bus going up and down.

Rules.
1. The position (epoch, offset) is what the feed has handed on. It never goes back within an epoch.
2. A logged event is handed on if and only if its offset is above the position. A hole below it is read from the log first.
3. After every (re)connect: subscribe, wait until Redis confirms, then read the head. All above the head will come live; all
   up to it is read from the log. Nothing can fall between.
4. The fence, once a second: read the head, then PING on the subscriber connection. Redis answers in order, so the PONG
   proves that everything up to that head has arrived. Two late fences, or any error, and the connection is replaced.
5. A new epoch, or a head below the position, means that the log was lost: told once, and live goes on. Everything in a new
   epoch is news, so its events are handed on from the first; after a step back nobody knows which are, so from the head.
6. What is not simply the next event (a hole, a bad message, another epoch) is decided by the log, not by the message.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic, time
from typing import Protocol

import structlog

from .errors import BusUnavailable, HeadgateError, InvalidEvent
from .event import Event, decode_message, read_offset
from .event_log import EventLog, Head
from .layout import channel_prefix
from .loop import Greenlet, Signal, sleep, spawn
from .metrics import BUS_RECONNECTS, BUS_UP, EVENTS, LOG_LOST, QUARANTINED, REPAIRED
from .protocol import GapReason
from .redis_link import SubscriberLink, open_client
from .settings import Settings
from .topic import check_topic

log = structlog.get_logger("headgate.bus")

FIRST_RECONNECT_S, LAST_RECONNECT_S = 0.05, 1.0
LATE_FENCES = 2
# The head, or a page of the log, comes within this time or the connection counts as dead.
COMMAND_TIMEOUT_S = 2.0
# An attempt to connect that meets a black hole must not outlast it for long.
CONNECT_TIMEOUT_S = 1.0
LEAST_FENCE_TIMEOUT_S = 0.25
# At most one line per this time about messages that were set aside; the metric counts them all.
QUARANTINE_LOG_S = 10.0


class Feed(Protocol):
    """The namespace behind the listener. Called from the listener's greenlet only; may let the loop run."""

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]]) -> None:
        """Hand events on, in order; may, whenever it lets the loop run, ask for `more` that have come in, to go with them."""

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        """Offsets `first`…`last` of the log will not come."""

    def log_lost(self, head: Head) -> None:
        """The log is another one now; `head` is where it stands."""

    def bus_changed(self, up: bool) -> None:
        """The live feed is proven, or is not."""

    def fenced(self) -> None:
        """Everything up to the position has been handed on; nothing is under way."""


class Bus:
    """The listener of one namespace: two greenlets (feed and fence), three connections, none shared."""

    def __init__(self, namespace: str, redis_url: str, settings: Settings, feed: Feed) -> None:
        self._namespace = namespace
        self._url = redis_url
        self._settings = settings
        self._feed = feed
        self._prefix = channel_prefix(namespace).encode()
        self._pattern = self._prefix + b"*"
        self._log = self.open_log()
        # Three quarters of the interval, so that two late fences in a row are noticed within three.
        self._fence_log = self.open_log(min(COMMAND_TIMEOUT_S, max(0.75 * settings.fence_interval_s, LEAST_FENCE_TIMEOUT_S)))
        self._link: SubscriberLink | None = None
        self._greenlets: list[Greenlet] = []
        self._replies: deque[list[bytes]] = deque()  # what one read brought and is not dealt with yet
        self._fence: tuple[Head, int] | None = None  # the head it proves; the position before it was read
        self._fence_number = 0
        self._late = 0
        self._closed = False
        self._quarantine_told_s = 0.0
        self.epoch: str | None = None
        self.offset = 0
        self.first = 1  # the oldest offset in the log, as of the last fence
        self.up = False
        self.last_error: HeadgateError | None = None
        self.was_up = Signal()

    def start(self) -> None:
        """Start both greenlets. Idempotent."""
        if not self._greenlets:
            self._greenlets = [spawn(self._run), spawn(self._run_fence)]

    def close(self) -> None:
        """Stop listening. Idempotent; the greenlets end by themselves, as one inside a Redis call must not be killed."""
        self._closed = True
        if self._link is not None:
            self._link.close()

    # -- the feed -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_s = FIRST_RECONNECT_S
        while not self._closed:
            began_s = monotonic()
            try:
                self._listen()
            except HeadgateError as error:
                known = self.last_error is not None and self.last_error.message == error.message
                if not self._closed and (self.up or not known):
                    log.warning("bus down", namespace=self._namespace, error=error.message)
                wait_s = FIRST_RECONNECT_S if self.up else min(wait_s * 2, LAST_RECONNECT_S)
                self.last_error = error
            except Exception as error:
                # A fault of ours must not end the feed for good: it is logged whole, and the log makes good what was lost.
                log.exception("bus listener failed", namespace=self._namespace)
                wait_s = LAST_RECONNECT_S
                self.last_error = BusUnavailable(f"internal error: {type(error).__name__}")
            self._set_up(False)
            if self._link is not None:
                self._link.close()
                self._link = None
            if not self._closed:
                BUS_RECONNECTS.labels(self._namespace).inc()
                # From attempt to attempt: one that met a black hole has waited long enough.
                jitter = random.uniform(0.5, 1.0)
                sleep(max(wait_s * jitter - (monotonic() - began_s), FIRST_RECONNECT_S * jitter))

    def _listen(self) -> None:
        """Connect, catch up, and hand on live events until the connection breaks (which raises)."""
        for log_ in (self._log, self._fence_log):
            log_.drop_idle()
        link = SubscriberLink(self._url, CONNECT_TIMEOUT_S)
        self._link = link
        link.connect()
        link.settimeout(CONNECT_TIMEOUT_S)
        link.send(("PSUBSCRIBE", self._pattern))
        early = self._confirmed(link)
        self._settle(self._configure())
        link.settimeout(None)
        self._fence, self._late = None, 0
        self._replies.clear()
        self._set_up(True)
        self._take(early)
        while True:
            self._take(link.read())
            sleep()  # `read` does not let the loop run while there is something to read

    def _configure(self) -> Head:
        return self._log.configure(self._settings.log_max_events, self._settings.log_max_age_s)

    def _confirmed(self, link: SubscriberLink) -> list[list[bytes]]:
        """Wait until Redis has confirmed the subscription; return what came in behind the confirmation."""
        while True:
            replies = link.read()
            for index, reply in enumerate(replies):
                if reply[0] == b"psubscribe":
                    return replies[index + 1 :]

    def _settle(self, head: Head) -> None:
        """Bring the position to `head`: from the log, or by telling that the log is another one."""
        if not head.epoch:
            head = self._configure()  # emptied a moment ago, and nobody has published since: begin the new epoch ourselves
        self.first = head.first
        if self.epoch is None:
            self.epoch, self.offset = head.epoch, head.offset
        elif head.epoch != self.epoch:
            self._lose_log(Head(head.epoch, head.first - 1, head.first))
            self._repair(head.offset)
        elif head.offset < self.offset:
            self._lose_log(head)
        else:
            self._repair(head.offset)

    def _lose_log(self, head: Head) -> None:
        LOG_LOST.labels(self._namespace).inc()
        log.error("log lost", namespace=self._namespace, was_offset=self.offset, now_offset=head.offset)
        self.epoch, self.offset = head.epoch, head.offset
        self._feed.log_lost(head)

    def _repair(self, upto: int) -> None:
        """Hand on, from the log, what the live feed missed: everything above the position, up to `upto`."""
        while self.offset < upto:
            entries = self._log.page(self.offset, upto, epoch=self.epoch)
            if not entries:
                self._skip(upto, GapReason.TRIMMED)
                return
            events: list[Event] = []
            for entry in entries:
                if entry.event is None or entry.offset > self.offset + len(events) + 1:
                    events = self._route_repaired(events)
                if entry.offset > self.offset + len(events) + 1:
                    self._skip(entry.offset - 1, GapReason.TRIMMED)
                if entry.event is None:
                    self.quarantine(entry.error or InvalidEvent("entry", "unreadable"))
                    self._skip(entry.offset, GapReason.QUARANTINED)
                else:
                    events.append(entry.event)
            self._route_repaired(events)
            REPAIRED.labels(self._namespace).inc(len(entries))

    def _route_repaired(self, events: list[Event]) -> list[Event]:
        """Route consecutive events in one piece (one write per client, not one per event); return an empty list."""
        if events:
            self.offset += len(events)
            # Nothing live joins a repair: the position would move past what is still to come from the log.
            self._route(events, list)
        return []

    def _skip(self, upto: int, reason: GapReason) -> None:
        first, self.offset = self.offset + 1, upto
        self._feed.missing(first, upto, reason)

    def _take(self, replies: list[list[bytes]]) -> None:
        """Hand on everything that one read brought, in order, and what comes in while that is under way (`_more`)."""
        self._replies.extend(replies)
        while self._replies:
            events = self._next_events()
            if events:
                self._route(events, self._more)
            elif self._replies:
                self._take_one(self._replies.popleft())

    def _more(self) -> list[Event]:
        """Return the next events if they have arrived by now. Never waits: the fan-out asks between two turns of a pass."""
        if not self._replies and self._link is not None:
            try:
                self._replies.extend(self._link.read_ready())
            except HeadgateError:
                return []  # the link is broken: `read` raises the same in a moment, where it is dealt with
        return self._next_events()

    def _next_events(self) -> list[Event]:
        """Take from what has arrived the events that simply follow the position, and move the position behind them."""
        events: list[Event] = []
        now_ms = int(time() * 1000)
        while self._replies:
            reply = self._replies[0]
            if reply[0] != b"pmessage":
                break
            event = self._decode(reply[2], reply[3], now_ms)
            if not isinstance(event, Event):
                break
            if event.offset is not None:
                if event.offset != self.offset + 1 or event.epoch != self.epoch:
                    break
                self.offset += 1
            events.append(event)
            self._replies.popleft()
        if events:
            EVENTS.labels(self._namespace).inc(len(events))
        return events

    def _take_one(self, reply: list[bytes]) -> None:
        """Deal with anything but the next event."""
        if reply[0] == b"pmessage":
            self._reconcile(self._decode(reply[2], reply[3], int(time() * 1000)), reply[3])
        elif reply[0] == b"pong":
            self._ponged(reply[1])

    def _route(self, events: list[Event], more: Callable[[], list[Event]]) -> None:
        """Hand events on. If that fails halfway, nobody knows who got what: everyone is told, then it is our fault to log."""
        first = next((event.offset for event in events if event.offset is not None), self.offset + 1)
        try:
            self._feed.route(events, more)
        except Exception:
            if first <= self.offset:
                self._feed.missing(first, self.offset, GapReason.UPSTREAM)
            raise

    def _decode(self, channel: bytes, message: bytes, now_ms: int) -> Event | HeadgateError:
        """Return the event in a message, or what is wrong with it."""
        try:
            topic = check_topic(channel[len(self._prefix) :].decode("ascii", "replace"))
            return decode_message(topic, message, self._settings.max_payload_bytes, now_ms)
        except HeadgateError as error:
            return error

    def _reconcile(self, event: Event | HeadgateError, message: bytes) -> None:
        """Ask the log about a message that is not simply the next event: bad, seen, ahead of a hole, of another log.

        A bad message that stands in the log leaves a gap, of which the clients are told; a bad plain PUBLISH was never
        promised to anyone.
        """
        where = read_offset(message)
        if where is None:
            if isinstance(event, HeadgateError):
                self.quarantine(event)
            return
        epoch, offset = where
        if epoch != self.epoch:
            self._settle(self._log.head())
        if epoch != self.epoch:
            self.quarantine(InvalidEvent("header", "its epoch is not the log's"))
        elif offset <= self.offset:
            if isinstance(event, HeadgateError):
                self.quarantine(event)  # any other is seen: by a repair, or through an overlapping subscription
        elif offset > self._log.head().offset:
            self.quarantine(InvalidEvent("header", "its offset is above the log's head"))
        else:
            self._repair(offset)

    def quarantine(self, error: HeadgateError) -> None:
        """Count, and now and then log, a message that cannot be delivered."""
        QUARANTINED.labels(self._namespace, error.code).inc()
        now_s = time()
        if now_s - self._quarantine_told_s > QUARANTINE_LOG_S:
            self._quarantine_told_s = now_s
            log.warning("message quarantined", namespace=self._namespace, code=error.code, error=error.message)

    # -- the fence ------------------------------------------------------------------------------------------------

    def _run_fence(self) -> None:
        next_s = monotonic()
        while not self._closed:
            # By the clock, not after each fence: the time that a late one took must not delay the verdict.
            next_s = max(next_s + self._settings.fence_interval_s, monotonic())
            sleep(next_s - monotonic())
            if not self.up or self._closed:
                continue
            try:
                self._raise_fence()
            except HeadgateError as error:
                self._late += 1
                self.last_error = error
            if self._late >= LATE_FENCES and self._link is not None:
                log.warning("fence late", namespace=self._namespace, late=self._late)
                self._late = 0
                self._link.close()  # the listener's read raises, and it connects anew

    def _raise_fence(self) -> None:
        if self._fence is not None:
            self._late += 1
            return
        position = self.offset
        head = self._fence_log.head()
        link = self._link
        if link is None or not self.up:
            return
        self._fence_number += 1
        self._fence = (head, position)
        link.send(("PING", b"fence %d" % self._fence_number))

    def _ponged(self, token: bytes) -> None:
        fence = self._fence
        if fence is None or token != b"fence %d" % self._fence_number:
            return
        self._fence, self._late, self.last_error = None, 0, None
        head, position = fence
        self.first = head.first
        if head.epoch != self.epoch or head.offset < position:
            self._settle(self._log.head())  # another log, unless it was replaced again since
        elif head.offset > self.offset:
            self._settle(head)  # Redis answers in order: what that head counted and has not arrived is not coming
        self._feed.fenced()

    # -- private --------------------------------------------------------------------------------------------------

    def _set_up(self, up: bool) -> None:
        if up == self.up:
            return
        self.up = up
        BUS_UP.labels(self._namespace).set(up)
        if up:
            self.last_error = None
            self.was_up.set()
            log.info("bus up", namespace=self._namespace, epoch=self.epoch, offset=self.offset)
        self._feed.bus_changed(up)

    def open_log(self, timeout_s: float = COMMAND_TIMEOUT_S) -> EventLog:
        """Return the namespace's log over a connection of its own: one for each greenlet that reads."""
        client = open_client(self._url, timeout_s=timeout_s, max_connections=1)
        return EventLog(self._namespace, client, self._settings.max_payload_bytes)
