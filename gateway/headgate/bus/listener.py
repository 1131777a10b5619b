"""The bus listener: one namespace's live feed from Redis, proven complete or repaired from the log.

In: channel messages over a connection that never reconnects by itself; the log; what is wanted here (`want`). Out: events in
log order, each once, to the namespace (`Feed.route`), and word of what is missing (`Feed.missing`), of a lost log, of the bus
going up and down.

Rules.
1. The position (epoch, offset) is what the feed has handed on: all of the log up to it that is in force here (interest.py
   says what is). It never goes back within an epoch.
2. A logged event is handed on if and only if its offset is above the position. While the whole feed is listened to, offsets
   have no holes: one below an event is read from the log first. Otherwise holes are what nobody here wants: one connection
   keeps the order and loses nothing in its middle, so what it has brought is complete up to there.
3. After every (re)connect: subscribe, wait until Redis confirms, then read the head. All above the head will come live; all
   up to it is read from the log. Nothing can fall between.
4. The fence, once a second: read the head, then PING on the subscriber connection. Redis answers in order, so the PONG
   proves that everything up to that head has arrived. Two late fences, or any error, and the connection is replaced. What has
   been subscribed to meanwhile is in force when a fence has passed, and does not wait for the next second.
5. A new epoch, or a head below the position, means that the log was lost: told once, and live goes on. Everything in a new
   epoch is news, so its events are handed on from the first; after a step back nobody knows which are, so from the head.
6. What is not simply the next event (a hole, a bad message, another epoch) is decided by the log, not by the message.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, time
from typing import Protocol

import structlog

from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidEvent
from headgate.event import Event, decode_message, read_offset
from headgate.metrics import BUS_RECONNECTS, BUS_SUBSCRIPTIONS, BUS_UP, EVENTS, LOG_LOST, QUARANTINED, REPAIRED
from headgate.protocol.packets import GapReason
from headgate.redis.client import SubscriberLink, is_forbidden, open_client
from headgate.redis.keys import channel_prefix, user_channel
from headgate.redis.log import EventLog, Head
from headgate.runtime.loop import Greenlet, Signal, sleep, spawn
from headgate.settings import Settings
from headgate.topic import check_topic

from .interest import Interest, Source, by_command

log = structlog.get_logger("headgate.bus")

FIRST_RECONNECT_S, LAST_RECONNECT_S = 0.05, 1.0
LATE_FENCES = 2
# The head, or a page of the log, comes within this time or the connection counts as dead.
COMMAND_TIMEOUT_S = 2.0
# An attempt to connect that meets a black hole must not outlast it for long.
CONNECT_TIMEOUT_S = 1.0
LEAST_FENCE_TIMEOUT_S = 0.25
# Fences that somebody waits for follow each other no closer than this; who comes meanwhile goes along with the next.
HASTE_S = 0.005
# A subscription is confirmed and proven within this time, or refused. A dead connection is noticed sooner.
IN_FORCE_TIMEOUT_S = 10.0
# A header that claims to be further ahead than this of any head that was read is shown to the log first.
MAX_LEAP = 256
# The function library that publishes on the channels of users.
BY_USER_LIBRARY = 2
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


@dataclass(slots=True)
class _Fence:
    """One that is under way: the head that it proves, and what was so before that was read.

    `late` says whether it counts as late when the next one is due: not if it was hastened, and has just begun.
    """

    head: Head
    position: int
    sources: frozenset[Source]
    late: bool


class Bus:
    """The listener of one namespace: two greenlets (feed and fence), three connections, none shared."""

    def __init__(self, namespace: str, redis_url: str, settings: Settings, feed: Feed) -> None:
        self._namespace = namespace
        self._url = redis_url
        self._settings = settings
        self._feed = feed
        self._prefix = channel_prefix(namespace).encode()
        self._users = user_channel(namespace, "").encode()
        self._interest = Interest(namespace)
        self._log = self.open_log()
        # Three quarters of the interval, so that two late fences in a row are noticed within three.
        self._fence_log = self.open_log(min(COMMAND_TIMEOUT_S, max(0.75 * settings.fence_interval_s, LEAST_FENCE_TIMEOUT_S)))
        self._link: SubscriberLink | None = None
        self._greenlets: list[Greenlet] = []
        self._replies: deque[list[bytes]] = deque()  # what one read brought and is not dealt with yet
        self._copies: tuple[bytes, set[bytes]] = (b"", set())  # the channel of the message before, and what it came through
        self._fence: _Fence | None = None
        self._fence_number = 0
        self._late = 0
        self._stirred = Signal()  # somebody waits for the fence greenlet
        self._proof = Signal()  # replaced by another when sources have come in force
        self._asking = False  # commands are being sent, which may wait for room
        self._sure = 0  # up to here the library in Redis was one that publishes all that is listened to
        self._doubtful = False
        self._closed = False
        self._quarantine_told_s = 0.0
        self.epoch: str | None = None
        self.offset = 0
        self.first = 1  # the oldest offset in the log, as of the last fence
        self.head = 0  # the newest offset in the log that is known
        self.up = False
        self.last_error: HeadgateError | None = None
        self.was_up = Signal()
        BUS_SUBSCRIPTIONS.labels(namespace).set_function(lambda: len(self._interest.held))

    def start(self) -> None:
        """Start both greenlets. Idempotent."""
        if not self._greenlets:
            self._greenlets = [spawn(self._run), spawn(self._run_fence)]

    def close(self) -> None:
        """Stop listening. Idempotent; the greenlets end by themselves, as one inside a Redis call must not be killed."""
        self._closed = True
        if self._link is not None:
            self._link.close()

    # -- what is wanted here --------------------------------------------------------------------------------------

    def want(self, pattern: str) -> None:
        """Listen to a valid pattern from now on; counted. `wait_for` says when it is in force."""
        if self._interest.add(pattern):
            self._stirred.set()

    def unwant(self, pattern: str) -> None:
        """Take one `want` back; the last one has its effect some seconds later."""
        self._interest.discard(pattern, monotonic())

    def wait_for(self, pattern: str) -> None:
        """Wait until every event of a wanted pattern above the position will be handed on.

        Does not wait without a connection: the next one begins with what is wanted, and with the log from the position on.

        Raises:
            BusUnavailable: not within IN_FORCE_TIMEOUT_S.
        """
        give_up_s = monotonic() + IN_FORCE_TIMEOUT_S
        while not self._interest.in_force(pattern):
            if not self._proof.wait(max(0.0, give_up_s - monotonic())):
                raise BusUnavailable(f"Redis has not confirmed the subscription within {IN_FORCE_TIMEOUT_S:g} s")

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
            self._interest.detach()
            self._tell_waiters()
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
        self._tell_doubtful()
        by_user = self._configure().library >= BY_USER_LIBRARY
        link.send(*by_command(self._interest.attach(by_user=by_user)))
        early = self._confirmed(link)
        sources = self._interest.unproven
        head = self._log.head()
        self._check_library(head)
        self._settle(head)
        link.settimeout(None)
        self._fence, self._late = None, 0
        self._replies.clear()
        self._copies = (b"", set())
        self._proved(sources)
        self._set_up(True)
        self._stirred.set()
        self._take(early)
        while True:
            self._take(self._read(link))
            sleep()  # `read` does not let the loop run while there is something to read

    def _configure(self) -> Head:
        return self._log.configure(self._settings.log_max_events, self._settings.log_max_age_s)

    def _confirmed(self, link: SubscriberLink) -> list[list[bytes]]:
        """Wait until Redis has confirmed every source that is held; return all that came in."""
        early: list[list[bytes]] = []
        while self._interest.unconfirmed:
            replies = self._read(link)
            for reply in replies:
                self._confirm(reply)
            early += replies
        return early

    def _read(self, link: SubscriberLink) -> list[list[bytes]]:
        try:
            return link.read()
        except BusRefused as error:
            # Redis compares a glob with the rights of a user letter by letter: the whole feed may be all that it allows. (It
            # refuses a PING as well, when its disk is full, whether or not something has been asked for behind it.)
            if is_forbidden(error) and self._interest.unconfirmed and self._interest.take_whole():
                log.warning("narrow feed refused", namespace=self._namespace, error=error.message)
            raise

    def _confirm(self, reply: list[bytes]) -> None:
        if reply[0] in (b"subscribe", b"psubscribe"):
            self._interest.confirm(reply[0], reply[1])
            self._stirred.set()

    def _settle(self, head: Head) -> None:
        """Bring the position to `head`: from the log, or by telling that the log is another one."""
        if not head.epoch:
            head = self._configure()  # emptied a moment ago, and nobody has published since: begin the new epoch ourselves
        self.first, self.head = head.first, head.offset
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
        self.epoch, self.offset, self._sure = head.epoch, head.offset, head.offset
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
        interest = self._interest
        while self._replies:
            reply = self._replies[0]
            if reply[0] != b"pmessage" and reply[0] != b"message":
                break
            if interest.overlapping and self._is_copy(reply):
                self._replies.popleft()
                continue
            event = self._decode(reply[-2], reply[-1], now_ms)
            if not isinstance(event, Event):
                break
            if event.offset is not None:
                if event.epoch != self.epoch:
                    break
                if event.offset != self.offset + 1 and (
                    interest.whole or not self.offset < event.offset <= max(self.offset, self.head) + MAX_LEAP
                ):
                    break
                self.offset = event.offset
            events.append(event)
            self._replies.popleft()
        if events:
            EVENTS.labels(self._namespace).inc(len(events))
        return events

    def _take_one(self, reply: list[bytes]) -> None:
        """Deal with anything but the next event."""
        if reply[0] in (b"pmessage", b"message"):
            event = self._decode(reply[-2], reply[-1], int(time() * 1000))
            self._reconcile(event, self._opened(reply[-2], reply[-1])[1])
            return
        self._copies = (b"", set())  # what follows may come through other sources than what came before
        if reply[0] == b"pong":
            self._ponged(reply[1])
        else:
            self._confirm(reply)

    def _is_copy(self, reply: list[bytes]) -> bool:
        """Return whether a message came before, through another source.

        Redis sends the copies of one publish back to back, each source's once: a source that comes again is the next publish.
        """
        channel, through = self._copies
        source = reply[1] if reply[0] == b"pmessage" else b""
        if reply[-2] == channel and source not in through:
            through.add(source)
            return True
        self._copies = (reply[-2], {source})
        return False

    def _opened(self, channel: bytes, message: bytes) -> tuple[bytes, bytes]:
        """Return topic and message of what came on a channel. On one of a user the topic stands before the message."""
        if not channel.startswith(self._users):
            return channel[len(self._prefix) :], message
        topic, _, message = message.partition(b"\n")
        return topic, message

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
        name = channel[len(self._prefix) :]
        if channel.startswith(self._users):
            name, message = self._opened(channel, message)
        try:
            topic = check_topic(name.decode("ascii", "replace"))
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
        elif offset > self._read_head():
            self.quarantine(InvalidEvent("header", "its offset is above the log's head"))
        else:
            if not self._interest.whole:
                self.offset = offset - 1  # what lies before it and is in force has come before it
            self._repair(offset)

    def _read_head(self) -> int:
        self.head = self._log.head().offset
        return self.head

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
            # By the clock, not after each fence: the time that a late one took must not delay the verdict. Further behind than
            # that it is we who were held up, and what came in meanwhile is still to be read: one late fence, and not two.
            next_s += self._settings.fence_interval_s
            if next_s < monotonic():
                next_s = monotonic() + self._settings.fence_interval_s
            while (left_s := next_s - monotonic()) > 0 and self._stirred.wait(left_s):
                self._stirred.clear()
                self._follow()
            if not self.up or self._closed:
                continue
            self._ask(self._interest.give_up(monotonic()), undo=True)
            self._stirred.set()  # a glob that is no longer wanted may have stood in for what has to be asked for now
            try:
                self._raise_fence()
            except HeadgateError as error:
                self._late += 1
                self.last_error = error
            if self._late >= LATE_FENCES and self._link is not None:
                log.warning("fence late", namespace=self._namespace, late=self._late)
                self._late = 0
                self._link.close()  # the listener's read raises, and it connects anew

    def _follow(self) -> None:
        """Ask for what has come to be wanted, and prove what has been confirmed, without waiting for the next second."""
        if not self.up or self._asking:
            return
        self._ask(self._interest.grow())
        if self._interest.unproven and self._fence is None and not self._asking:
            try:
                self._raise_fence(hastened=True)
            except HeadgateError as error:
                self.last_error = error  # whether that is one too many is for the next regular one to say
            sleep(HASTE_S)

    def _ask(self, sources: list[Source], *, undo: bool = False) -> None:
        """Subscribe to sources, or give them up. Never waits for room to send: a dead connection has none, and that must show."""
        if sources and self._link is not None:
            self._asking = True
            spawn(self._send, self._link, by_command(sources, undo=undo))
            sleep()

    def _send(self, link: SubscriberLink, commands: list[tuple[bytes, ...]]) -> None:
        try:
            link.send(*commands)
        except HeadgateError:
            pass  # the listener finds the same, and connects anew
        finally:
            self._asking = False
            self._stirred.set()

    def _raise_fence(self, *, hastened: bool = False) -> None:
        if self._fence is not None or self._asking:
            self._late += self._fence is None or self._fence.late
            if self._fence is not None:
                self._fence.late = True
            return
        position, sources = self.offset, self._interest.unproven
        head = self._fence_log.head()
        link = self._link
        if link is None or not self.up:
            return
        self._check_library(head)
        if head.epoch == self.epoch:
            self.head = max(self.head, head.offset)
        self._fence_number += 1
        self._fence = _Fence(head, position, sources, late=not hastened)
        link.send(("PING", b"fence %d" % self._fence_number))

    def _ponged(self, token: bytes) -> None:
        fence = self._fence
        if fence is None or token != b"fence %d" % self._fence_number:
            return
        self._fence, self._late, self.last_error = None, 0, None
        head = fence.head
        self.first = head.first
        if head.epoch != self.epoch or head.offset < fence.position:
            self._settle(self._log.head())  # another log, unless it was replaced again since
        elif head.offset > self.offset:
            if self._interest.whole:
                self._settle(head)  # Redis answers in order: what that head counted and has not arrived is not coming
            else:
                self.offset = head.offset  # nor is it missed: everything up to there that is in force has arrived
        self._proved(fence.sources)
        self._feed.fenced()

    def _proved(self, sources: frozenset[Source]) -> None:
        """The position lies above all that was published before Redis confirmed these."""
        self._sure = self.offset
        if sources:
            self._interest.prove(sources)
            self._tell_waiters()
        if self._interest.unproven:
            self._stirred.set()

    def _tell_waiters(self) -> None:
        told, self._proof = self._proof, Signal()
        told.set()

    def _check_library(self, head: Head) -> None:
        """Break the connection if the channels of users are listened to, and an older library does not publish on them.

        Raises:
            BusUnavailable: that is so.
        """
        if self._interest.by_user and head.library < BY_USER_LIBRARY:
            self._doubtful = True
            if self._link is not None:
                self._link.close()
            raise BusUnavailable("an older function library has replaced this one in Redis")

    def _tell_doubtful(self) -> None:
        """Tell of events behind the position that an older library may have published where nobody here listened."""
        doubtful, self._doubtful = self._doubtful, False
        if doubtful and self._sure < self.offset:
            self._feed.missing(self._sure + 1, self.offset, GapReason.UPSTREAM)

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
