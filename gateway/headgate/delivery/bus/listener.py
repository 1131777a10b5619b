"""The bus listener: the greenlets and connections that pass bytes and time to the feed of one namespace.

In: replies of a subscriber connection that never reconnects by itself; heads and pages of the log; the clock; patterns from the
namespace (`acquire`, `release`). Out: events and gaps to the namespace (`Receiver`), and commands to Redis, as the feed (feed.py)
decides. This file only waits, connects and logs.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING, Protocol

import structlog

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.redis.client import has_answered, is_forbidden, open_client
from headgate.redis.cluster import is_cluster
from headgate.redis.keys import log_key
from headgate.redis.lineage import Head, Lineage
from headgate.redis.log import EventLog
from headgate.redis.subscriber_link import SubscriberLink
from headgate.runtime import metrics
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import Arrivals, Greenlet, Idle, Signal, sleep, spawn
from headgate.settings.addresses.redis_url import RedisKind, read_url
from headgate.settings.settings import MOST_LOG_EVENTS, Settings

from . import actions as out
from .feed import MAX_EVENTS, Feed, Front, State
from .messages import MESSAGES

if TYPE_CHECKING:
    from headgate.delivery.direct import Run

log = structlog.get_logger("headgate.bus")

FIRST_RECONNECT_S, LAST_RECONNECT_S = 0.05, 1.0
# If the head or a page of the log takes longer, the connection counts as dead.
COMMAND_TIMEOUT_S = 2.0
# Short, so that an attempt to connect to a black hole ends soon after the black hole does.
CONNECT_TIMEOUT_S = 1.0
LEAST_FENCE_TIMEOUT_S = 0.25
# A fence takes two round trips. Its interval is at least this many, so that a far Redis does not make it late.
FENCE_ROUND_TRIPS = 3.0
# The round trip to a Redis that the log calls far.
REPORT_FAR_S = 0.25
# Least time between expedited fences, which cost 80 µs each. Clients that come between two share the next one.
EXPEDITED_INTERVAL_S = 0.002
# If a pattern takes longer to become active, its subscription is refused. A dead connection is noticed sooner.
ACTIVE_TIMEOUT_S = 10.0
# How often an idle gateway checks whether to ask for the primary; each command checks too. Longer than ASK_EVERY_S and
# ASK_EVERY_SENTINEL_S, or every second check would come slightly too early.
PRIMARY_CHECK_S, SENTINEL_CHECK_S = 1.0, 0.25
WAKE_S = 0.5  # between two checks for ACTIVE_TIMEOUT_S
QUARANTINE_LOG_S = 10.0  # between two log lines about quarantined messages; the metric counts them all


class Receiver(Protocol):
    """The namespace that the listener serves. Called only from the listener's greenlet; may let the loop run."""

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]]) -> None:
        """Hand events on, in order. Whenever it lets the loop run, it may call `more` for new events to hand on with them."""

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        """Report that offsets `first`…`last` of the log will not come."""

    def log_lost(self, head: Head) -> None:
        """Report that the log was replaced. `head` is the position in the new one."""

    def line_changed(self, end: int) -> None:
        """Report that the log continues in another epoch, `bus.epoch`, and shares everything up to `end` with the one before.

        The feed's position is now at most `end`.
        """

    def bus_changed(self, up: bool) -> None:
        """Note whether the feed is live."""

    def fenced(self) -> None:
        """Note that everything up to the position has been handed on, and nothing is under way."""

    def take(self, replies: list[list[bytes]], front: Front) -> Run | None:
        """Hand on the usual events that simply follow `front`, as many as possible at once, and move `front` past them.

        Must not let the loop run. None means that no event can go this way now. A bug of ours may raise after some of the writes.
        """

    def rest(self) -> None:
        """Let the loop run, as enough events have been taken at once."""


class Bus:
    """The listener of one namespace, with two greenlets (feed and fence) and three connections, none shared.

    Attributes:
        database: the number of the log's database.
        epoch, lineage, reached, first, head: as in the feed.
        last_error: why the feed is not live; None while it is.
        was_up: set when the feed is live for the first time.
        fence_began_s: when the last fence began, by the monotonic clock.
    """

    def __init__(self, namespace: str, redis_url: str, settings: Settings, receiver: Receiver) -> None:
        self._namespace = namespace
        self._url = redis_url
        self._settings, self._receiver = settings, receiver
        self._sharded = is_cluster(redis_url)
        self._primary_check_s = SENTINEL_CHECK_S if read_url(redis_url).kind is RedisKind.SENTINELS else PRIMARY_CHECK_S
        self._log = self.open_log()
        self.database = database = self._log.database
        limits = (settings.max_payload_bytes, settings.fence_interval_s)
        self.feed = Feed(namespace, *limits, sharded=self._sharded, database=database)
        self._fence_log = self._open_fence_log()
        self._link: SubscriberLink | None = None
        # Replies that the feed has not seen, and how many it gets when none can be handed on directly. This begins with one, as
        # the next reply may be the usual case again, and doubles each time that it is not.
        self._unseen: list[list[bytes]] = []
        self._portion = 1
        self._greenlets: list[Greenlet] = []
        self._wakeup = Signal()  # the fence greenlet has something to do before its next tick
        # Greenlets that wait for a pattern, with their deadlines, in the order of their arrival.
        self._waiting: dict[Idle, tuple[str, float]] = {}
        self._waking = False
        self._is_far = False  # as last logged
        self._closing = Signal()
        self._held: Callable[[], object] | None = None
        self._closed_for: HeadgateError | None = None  # the feed's reason to close the connection under way
        self._log_throttle = LogThrottle(monotonic, every_s=QUARANTINE_LOG_S)
        self.last_error: HeadgateError | None = None
        self.was_up = Signal()
        self._events = metrics.EVENTS.of(namespace)
        metrics.BUS_SUBSCRIPTIONS.labels(namespace).set_function(lambda: len(self.feed.interest.requested))
        metrics.LOG_EVENTS.labels(namespace).set_function(lambda: max(0, self.head - self.first + 1))
        self._fences = metrics.FENCE.of(namespace)
        self.fence_began_s = self._proven_s = monotonic()
        metrics.FENCE_AGE_SECONDS.labels(namespace).set_function(lambda: self.fence_age_s)

    @property
    def up(self) -> bool:
        """Whether the feed is live."""
        return self.feed.state is State.LIVE

    @property
    def fence_age_s(self) -> float:
        """Time since the last proof that the feed is complete."""
        return monotonic() - self._proven_s

    @property
    def epoch(self) -> str | None:
        return self.feed.epoch

    @property
    def server(self) -> str:
        """The token of the Redis process that sends the events; "" in a Cluster, when unknown, or when the feed is not live."""
        return self.feed.server if self.up and not self._sharded else ""

    @property
    def lineage(self) -> Lineage:
        return self.feed.lineage

    @property
    def reached(self) -> int:
        return self.feed.reached

    @property
    def first(self) -> int:
        return self.feed.first

    @property
    def head(self) -> int:
        return self.feed.head

    def note_head(self, offset: int) -> None:
        """Note that the log has this offset in its epoch, as the position of a client may be ahead of the feed."""
        self.feed.head = max(self.feed.head, offset)

    def start(self) -> None:
        """Start both greenlets. Idempotent."""
        if not self._greenlets:
            self._greenlets = [spawn(self._run_feed), spawn(self._run_fence)]

    def close(self) -> None:
        """Stop listening. Idempotent. The greenlets end at once, or after a Redis call under way."""
        self._closing.set()
        self._wakeup.set()
        if self._link is not None:
            self._link.close()

    def open_log(self, timeout_s: float = COMMAND_TIMEOUT_S, *, verified: bool = False) -> EventLog:
        """Return the namespace's log over a separate connection. Each greenlet that reads needs one.

        If `verified`, a page must come from a server with all events of its epoch that the feed has had.
        """
        client = open_client(self._url, timeout_s=timeout_s, max_connections=1)
        reached = (lambda: (self.epoch, self.reached)) if verified else None
        return EventLog(self._namespace, client, self._settings.max_payload_bytes, reached)

    def _open_fence_log(self) -> EventLog:
        # Three quarters of the interval, so that two late fences in a row are noticed within three.
        return self.open_log(min(COMMAND_TIMEOUT_S, max(0.75 * self.feed.fence_interval_s, LEAST_FENCE_TIMEOUT_S)))

    def hold(self, wait: Callable[[], object]) -> None:
        """Call `wait` before any arrived event or page of the log is handed on. Never waits itself."""
        self._held = wait

    def wait_held(self) -> None:
        """Wait until arrived events and pages may be handed on. Several greenlets may wait."""
        while (wait := self._held) is not None:
            wait()
            if self._held is wait:  # otherwise another one came during the wait
                self._held = None

    # -- patterns -------------------------------------------------------------------------------------------------

    def acquire(self, pattern: str) -> None:
        """Listen to a valid pattern from now on. Calls are counted. `wait_for` waits until it is active."""
        if self.feed.interest.acquire(pattern):
            self._wakeup.set()

    def release(self, pattern: str) -> None:
        """Take one `acquire` back. The last one takes effect some seconds later."""
        self.feed.interest.release(pattern, monotonic())

    def active(self, pattern: str) -> bool:
        """Return whether every event of an acquired pattern above `reached` will be handed on, so that no wait is needed."""
        return self.feed.interest.active(pattern)

    @property
    def all_active(self) -> bool:
        """Whether every acquired pattern is active. If not, some may be."""
        return self.feed.interest.all_active

    def wait_for(self, pattern: str) -> None:
        """Wait until every event of an acquired pattern above `reached` will be handed on.

        Does not wait without a connection, as the next one begins with all acquired patterns and reads the log from the
        position. Raises BusUnavailable: not within ACTIVE_TIMEOUT_S; raised at most WAKE_S later.
        """
        if self.feed.interest.active(pattern):
            return
        give_up_s = monotonic() + ACTIVE_TIMEOUT_S
        if not self._waking:  # one for all, as a timer for each took a third of the waiting time
            self._waking = True
            spawn(self._wake_in_time)
        while True:
            rest = Idle()
            self._waiting[rest] = pattern, give_up_s
            try:
                rest.wait()
            finally:
                self._waiting.pop(rest, None)
            if self.feed.interest.active(pattern):  # a new connection may have begun since the wake-up
                return
            if monotonic() >= give_up_s:
                raise BusUnavailable(f"Redis has not confirmed the subscription within {ACTIVE_TIMEOUT_S:g} s")

    # -- the greenlet of the feed ---------------------------------------------------------------------------------

    def _run_feed(self) -> None:
        wait_s = FIRST_RECONNECT_S
        while not self._closing.is_set():
            began_s = monotonic()
            try:
                self._listen()
            except HeadgateError as broken:
                # If the feed closed the connection, its reason counts rather than the failed read.
                error, self._closed_for = self._closed_for or broken, None
                known = self.last_error is not None and self.last_error.message == error.message
                if not self._closing.is_set() and (self.up or not known):
                    log.warning("bus down", namespace=self._namespace, error="; ".join(error.lines()))
                wait_s = FIRST_RECONNECT_S if self.up else min(wait_s * 2, LAST_RECONNECT_S)
                self.last_error = error
            except Exception as error:
                # A bug of ours must not end the feed, and the event log repairs the loss.
                log.exception("bus listener failed", namespace=self._namespace)
                wait_s = LAST_RECONNECT_S
                self.last_error = BusUnavailable(f"internal error: {type(error).__name__}")
            if self._link is not None:
                self._link.close()
                self._link = None
            self._carry_out_all(self.feed.disconnected())
            self._wake_waiting()
            if not self._closing.is_set():
                metrics.BUS_RECONNECTS.labels(self._namespace).inc()
                # From the beginning of the attempt, as one that met a black hole has waited long enough.
                jitter = random.uniform(0.5, 1.0)
                self._closing.wait(max(wait_s * jitter - (monotonic() - began_s), FIRST_RECONNECT_S * jitter))

    def _listen(self) -> None:
        """Connect, and carry out the feed's actions until the broken connection raises."""
        self._closed_for = None
        for log_ in (self._log, self._fence_log):
            log_.drop_idle()
        link = SubscriberLink(self._url, CONNECT_TIMEOUT_S, key=log_key(self._namespace), arrivals=Arrivals)
        self._link = link
        link.connect()
        self._pace_fences(link.opened_in_s)
        link.settimeout(max(CONNECT_TIMEOUT_S, FENCE_ROUND_TRIPS * link.opened_in_s))
        self.feed.connected()
        self._unseen = []
        while True:
            self._hand_on()
            self._unseen = self._read(link)
            while self._unseen:
                self.wait_held()
                self._go_on()

    def _pace_fences(self, round_trip_s: float) -> None:
        """Give fences the time that they need over this connection."""
        interval_s = max(self._settings.fence_interval_s, FENCE_ROUND_TRIPS * round_trip_s)
        if interval_s != self.feed.fence_interval_s:
            self.feed.fence_interval_s = interval_s
            self._fence_log.drop_idle()
            self._fence_log = self._open_fence_log()

    def _note_round_trip(self, round_trip_s: float) -> None:
        """Take a round trip from a fence. That of the connect was too long if the loop stood still."""
        if FENCE_ROUND_TRIPS * round_trip_s <= self._settings.fence_interval_s:
            self._pace_fences(round_trip_s)
        if self._link is None:
            return
        round_trip_s = min(round_trip_s, self._link.opened_in_s)
        was_far, self._is_far = self._is_far, round_trip_s > REPORT_FAR_S
        if self._is_far and not was_far:
            effect = "a join takes three or more round trips, and a publish one"
            log.warning("Redis is far", namespace=self._namespace, round_trip_ms=round(round_trip_s * 1000), effect=effect)

    def _hand_on(self) -> None:
        """Carry out the feed's actions until it waits for replies."""
        feed = self.feed
        while (action := feed.next_action()) is not None:
            self._carry_out(action)

    def _go_on(self) -> None:
        """Hand on some replies that the feed has not seen, directly if possible, otherwise through the feed."""
        taken = self._take() if self._unseen[0][0] in MESSAGES else None
        if taken is not None and taken.taken:
            self._portion = 1
            return
        portion = len(self._unseen)
        if taken is not None and not taken.crowd:
            portion, self._portion = self._portion, min(2 * self._portion, MAX_EVENTS)
        seen, self._unseen = self._unseen[:portion], self._unseen[portion:]
        self.feed.receive(seen, int(time() * 1000))
        self._hand_on()

    def _take(self) -> Run | None:
        """Let the receiver take replies directly; None if none can be."""
        if (front := self.feed.front()) is None:
            return None
        try:
            taken = self._receiver.take(self._unseen, front)
        except Exception:
            self._carry_out_all(self.feed.half_handed_on(front))
            raise
        if taken is not None and taken.taken:
            self.feed.handed_on(front)
            self._events.total += taken.taken
            del self._unseen[: taken.taken]
            if taken.full:
                self._receiver.rest()
        return taken

    def _read_link_head(self) -> Head:
        """Read the head on the subscriber connection, which waits for nothing else yet."""
        if (link := self._link) is None:
            raise BusUnavailable("the connection is closed")
        link.send(self._log.head_command())
        return self._log.read_head(link.read()[0])

    def _read(self, link: SubscriberLink) -> list[list[bytes]]:
        try:
            return link.read()  # lets the loop run even if there is data to read
        except BusRefused as error:
            if is_forbidden(error) and self.feed.interest.narrow_refused():
                log.warning("narrow feed refused", namespace=self._namespace, error=error.message)
            raise

    def _more(self) -> list[Event]:
        """Return the next events that arrived by now. Never waits. The fan-out calls it between two turns of a pass."""
        if self._held is not None:
            return []
        replies, self._unseen = self._unseen, []
        if self._link is not None:
            with suppress(HeadgateError):  # of a broken connection; the next `read` raises it again
                replies += self._link.read_ready()
        if events := self.feed.more(replies, int(time() * 1000)):
            self._events.total += len(events)
        return events

    # -- the greenlet of the fence --------------------------------------------------------------------------------

    def _run_fence(self) -> None:
        while not self._closing.is_set():
            try:
                self._wait_for_fence()
            except Exception:
                # A bug of ours must not end the fences, without which nothing shows a loss. Another connection begins them again.
                log.exception("fence failed", namespace=self._namespace)
                if self._link is not None:
                    self._link.close()
                self._closing.wait(LAST_RECONNECT_S)

    def _wait_for_fence(self) -> None:
        """Wait until there is something to do, and do it."""
        feed = self.feed
        left_s = feed.tick_due_s - monotonic()
        if left_s > 0 and self._wakeup.wait(min(left_s, self._primary_check_s)):
            if not self._closing.is_set():
                self._wakeup.clear()
                self._carry_out_all(feed.wake())
        elif left_s <= self._primary_check_s:
            self._carry_out_all(feed.tick(monotonic()))
        elif self.up:
            with suppress(HeadgateError):  # the next fence handles a dead connection
                self._fence_log.check_primary()

    def _read_fence_head(self, action: out.ReadFenceHead) -> None:
        self.fence_began_s = monotonic()
        try:
            head = self._fence_log.head(*action.known)
            self._carry_out_all(self.feed.fence_head(action.number, head, monotonic()))
        except HeadgateError as error:
            self.last_error = error
            self._carry_out_all(self.feed.fence_failed(action.number, monotonic()))
        if action.expedited:
            self._closing.wait(EXPEDITED_INTERVAL_S)

    def _send(self, link: SubscriberLink, commands: list[tuple[bytes, ...]]) -> None:
        try:
            link.send(*commands)
        except HeadgateError:
            pass  # the feed's greenlet meets the same error, and reconnects
        finally:
            if link is self._link:
                self.feed.sent()
                self._wakeup.set()

    # -- actions --------------------------------------------------------------------------------------------------

    def _carry_out_all(self, actions: Iterable[out.Action]) -> None:
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: out.Action) -> None:
        match action:
            case out.Deliver():
                self._deliver(action)
            case out.SimpleAction.SYNCED:
                self._proven_s = monotonic()
                self._fences.record(self._proven_s - self.fence_began_s)
                self._note_round_trip((self._proven_s - self.fence_began_s) / 2)
                self.last_error = None
                self._wake_waiting()
                self._receiver.fenced()
            case out.Gap():
                self._receiver.missing(action.first, action.last, action.reason)
            case out.SimpleAction.WAKE:
                self._wakeup.set()
            case out.ReadFenceHead():
                self._read_fence_head(action)
            case out.Ping():
                if self._link is not None:
                    self._link.send(("PING", action.token))
            case out.SendCommands():
                self._send_commands(action.commands)
            case out.SimpleAction.CONFIGURE:
                settings = self._settings
                share_bytes = self._log.share_of_memory(len(settings.namespaces))
                if self._log.eviction_policy:
                    effect = "when full, it loses events, revocations, inboxes and tasks: set maxmemory-policy noeviction"
                    log.warning("Redis evicts keys", policy=self._log.eviction_policy, effect=effect)
                max_bytes = settings.log_max_bytes or share_bytes
                retention = (settings.log_max_events or MOST_LOG_EVENTS, settings.log_max_age_s, max_bytes)
                self.feed.answer(self._log.configure(*retention, sharded=self._sharded))
            case out.ReadHead():
                self.feed.answer(self._log.head(*action.known))
            case out.SimpleAction.READ_LINK_HEAD:
                self.feed.answer(self._read_link_head())
            case out.ReadLog():
                entries = self._log.page(action.after, action.upto, epoch=action.epoch)
                metrics.REPAIRED.labels(self._namespace).inc(len(entries))
                self.feed.answer(entries)
            case out.Quarantine():
                self.quarantine(action.error)
            case out.LineChanged():
                self._change_line(action)
            case out.SimpleAction.UP:
                self._come_up()
            case out.SimpleAction.DOWN:
                metrics.BUS_UP.labels(self._namespace).set(False)
                self._receiver.bus_changed(False)
            case out.Close():
                self._close_link(action)

    def _deliver(self, action: out.Deliver) -> None:
        if action.live:
            self._events.total += len(action.events)
        try:
            self._receiver.route(action.events, self._more if action.live else list)
        except Exception:
            self._carry_out_all(self.feed.failed())
            raise

    def _change_line(self, action: out.LineChanged) -> None:
        if action.end is None:
            metrics.LOG_LOST.labels(self._namespace).inc()
            log.error("log lost", namespace=self._namespace, was_offset=action.was_offset, now_offset=action.head.offset)
            self._receiver.log_lost(action.head)
            return
        rolled_back = max(0, action.was_offset - action.end)
        level, epoch = logging.ERROR if rolled_back else logging.INFO, action.head.epoch
        log.log(level, "line changed", namespace=self._namespace, epoch=epoch, end=action.end, rolled_back=rolled_back)
        metrics.ROLLED_BACK.labels(self._namespace).inc(rolled_back)
        self._receiver.line_changed(action.end)

    def _send_commands(self, commands: list[tuple[bytes, ...]]) -> None:
        if (link := self._link) is None:
            return
        if not self.up:
            link.send(*commands)  # with the timeout of connecting
            return
        # In another greenlet, as a dead connection has no room to send and the fence must continue to notice that.
        spawn(self._send, link, commands)
        sleep()

    def _come_up(self) -> None:
        if self._link is not None:
            self._link.settimeout(None)
        self._log.drop_idle()  # only a repair reads again
        metrics.BUS_UP.labels(self._namespace).set(True)
        self.last_error = None
        self.was_up.set()
        self._wake_waiting()
        self._wakeup.set()
        log.info("bus up", namespace=self._namespace, epoch=self.epoch, offset=self.feed.offset)
        has_answered(self._url, log_key(self._namespace))
        self._receiver.bus_changed(True)

    def _close_link(self, action: out.Close) -> None:
        """Close the connection, so that the feed's greenlet, which reads from it, raises and connects again."""
        if self._link is not None:
            self._link.close()
        if action.error is None:
            log.warning("fence late", namespace=self._namespace)
        else:
            self._closed_for = action.error
            raise action.error

    def _wake_waiting(self) -> None:
        """Wake greenlets with an active pattern or an expired wait. Others wait for the next fence."""
        if not self._waiting:
            return
        now_s, active = monotonic(), self.feed.interest.active_among({pattern for pattern, _ in self._waiting.values()})
        for rest, (pattern, give_up_s) in list(self._waiting.items()):
            if now_s >= give_up_s or pattern in active:
                del self._waiting[rest]
                rest.wake()

    def _wake_in_time(self) -> None:
        """Check for expired waits as long as any greenlet waits."""
        while self._waiting:
            sleep(WAKE_S)
            self._wake_waiting()
        self._waking = False

    def quarantine(self, error: HeadgateError) -> None:
        """Count an undeliverable message, and log one now and then."""
        metrics.QUARANTINED.labels(self._namespace, error.code).inc()
        if self._log_throttle.due() is not None:
            log.warning("message quarantined", namespace=self._namespace, code=error.code, error=error.message)
