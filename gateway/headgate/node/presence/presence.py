"""Presence in one namespace of a gateway process, with the greenlets and connections that serve its rooms (rooms.py).

In: clients' requests and the ends of their connections, from the node. Out: to Redis, the rooms' writes, beats, and notices of
dead processes; to the rooms, the contents of Redis; to pages, differences. Until the first request, the only activity is a
check for processes that died with their members (`start`). No event of the log passes through here.

There are four greenlets: the pulse (writes, beats, publishes `occupied` and `vacated`) and the reader (reads rooms in doubt),
which share a connection, the link (subscribes), with its own, and the notifier, without one.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import structlog

from headgate.auth.grants import compiled
from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.events.topic import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS
from headgate.redis import presence as store
from headgate.redis.client import database_number, drop_idle, is_full, open_client
from headgate.redis.keys import presence_channel, presence_key
from headgate.redis.subscriber_link import SubscriberLink
from headgate.runtime.loop import Greenlet, Signal, one_round, sleep, spawn
from headgate.runtime.metrics import PRESENCE_DEAD, PRESENCE_MEMBERS, PRESENCE_RESETS, PRESENCE_ROOMS, PRESENCE_WRITES
from headgate.settings.settings import Settings

from .leases import BACK_S, BEAT_S, Leases
from .room import Room
from .rooms import Rooms

log = structlog.get_logger("headgate.presence")

# Least time between writes, and between notices to one page. Members who come together share one.
WRITE_GAP_S, NOTIFY_GAP_S = 0.01, 0.05
# After notifying for a time, pause for this many times as long. A crowded room gets fewer, larger notices.
NOTIFY_SHARE = 4
# How often a process without rooms checks for processes that died with all their members, so that `vacated` is published. It
# stops when there are no other processes and no events to publish.
IDLE_CHECK_S = 2.0
TIMEOUT_S = 2.0
# Longest wait for the first read of a room. The read itself waits until it is clear which processes are dead.
READ_WAIT_S = BACK_S + 2.0
# A link without data for this long is dead, because each beat sends some.
LINK_TIMEOUT_S = 3 * BEAT_S
# Pause after a failure, and before a room that is still in doubt is read again.
RETRY_S = 0.25

# `Publisher.publish`: topic, data, id, namespace.
Publish = Callable[[str, object, str | None, str], object]


class Presence:
    """See the module.

    Args:
        publish: publishes `occupied` and `vacated`, with ids that make publishing them twice safe.
        now_s: monotonic clock.
    """

    def __init__(
        self, namespace: str, redis_url: str, settings: Settings, publish: Publish, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._namespace, self._url, self._publish, self._now_s = namespace, redis_url, publish, now_s
        self._enabled = settings.max_presence_topics > 0
        self._announced = compiled(settings.presence_events)
        self._events = bool(settings.presence_events)
        self.settings = settings
        self._redis = open_client(redis_url, timeout_s=TIMEOUT_S, max_connections=1)
        self._database = database_number(self._redis)
        self._leases = Leases()
        # The first topic starts the greenlets of the rooms.
        self.rooms = Rooms(namespace, settings, opened=self._opened, closed=self._closed_room, wanted=self._wanted, now_s=now_s)
        self._begun = False
        self._link: SubscriberLink | None = None
        self._listened: set[str] = set()  # topics with a confirmed subscription
        self._live: dict[str, Signal] = {}  # topics that a client waits for
        self._pulse_now, self._link_now, self._read_now, self._notify_now = Signal(), Signal(), Signal(), Signal()
        self._pulse: Greenlet | None = None
        self._closed = False
        self._beat_at_s = 0.0
        self._has_lease = False
        self._faults: dict[str, str] = {}
        PRESENCE_ROOMS.labels(namespace).set_function(lambda: len(self.rooms.open))
        PRESENCE_MEMBERS.labels(namespace).set_function(lambda: self.rooms.members)

    def start(self) -> None:
        """Start checking for processes that died with their members. Idempotent."""
        if self._pulse is None and self._enabled:
            self._pulse = spawn(self._run, "pulse", self._pulse_now, self._beat_and_write)

    def close(self) -> None:
        """Stop. Idempotent. Remaining members end with the lease, because their pages are moving to another process."""
        if self._closed:
            return
        self._closed = True
        for each in (self._pulse_now, self._link_now, self._read_now, self._notify_now):
            each.set()
        if self._link is not None:
            self._link.close()
        if self._begun and not self.rooms.members:
            try:
                store.forget(self._redis, self._namespace, self.rooms.process, None, events=self._events)
            except HeadgateError:
                log.debug("lease not given back")  # it ends by itself
        self._redis.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    def prepare(self, session: str, topic: str) -> None:
        """Give a client a topic. Waits until it has been read once. Then `rooms` has it, unless the client had to leave.

        Raises:
            LimitReached: `presence_topics`.
            BusUnavailable: it could not be read in time. Nothing has changed.
        """
        rooms = self.rooms
        had = topic in rooms.topics_of(session)
        room = rooms.prepare(session, topic)
        if room.was_live:
            return
        in_time = self._live.setdefault(topic, Signal()).wait(READ_WAIT_S)
        if rooms.open.get(topic) is room and not (in_time and room.was_live):
            if not had:
                rooms.leave(session, topic)
            raise BusUnavailable("the members of the topic could not be read", shown="presence cannot be read now")

    # -- what rooms ask for -------------------------------------------------------------------------------------------

    def _opened(self, topic: str) -> None:
        if not self._begun:
            self._begun, self._leases.own = True, self.rooms.process
            self.start()
            self._pulse_now.set()
            spawn(self._run, "link", self._link_now, self._follow)
            spawn(self._run, "reader", self._read_now, self._read_doubtful)
            spawn(self._run, "notifier", self._notify_now, self._notify)
        self._send(("SUBSCRIBE", presence_channel(self._namespace, topic, self._database)))

    def _closed_room(self, topic: str) -> None:
        if (waited_for := self._live.pop(topic, None)) is not None:
            waited_for.set()
        self._listened.discard(topic)
        self._send(("UNSUBSCRIBE", presence_channel(self._namespace, topic, self._database)))

    def _wanted(self) -> None:
        self._pulse_now.set()
        self._notify_now.set()

    # -- the greenlets ------------------------------------------------------------------------------------------------

    def _run(self, part: str, wakeup: Signal, step: Callable[[], float | None]) -> None:
        """Call `step` now, whenever `wakeup` is set, and after the seconds that it returned (None: not before), until `close`."""
        while not self._closed:
            wakeup.clear()
            wait_s: float | None = 0.0
            try:
                wait_s = step()
                self._faults.pop(part, None)
            except HeadgateError as error:
                if self._faults.get(part) != error.message and not self._closed:
                    self._faults[part] = error.message
                    log.warning("presence out of reach", part=part, error=error.message)
                sleep(RETRY_S)
            except Exception:
                if not self._closed:  # closing ends a connection mid-read; a bug must not end the greenlet
                    log.exception("presence failed", part=part)
                sleep(RETRY_S)
            wakeup.wait(wait_s)

    # -- the pulse ----------------------------------------------------------------------------------------------------

    def _beat_and_write(self) -> float | None:
        """Do what is due; return the seconds until the next check, or None to wait for a change."""
        rooms, now_s = self.rooms, self._now_s()
        rooms.expire(self._in_touch_since_s)
        busy = bool(rooms.open)
        if now_s >= self._beat_at_s or (busy and not self._has_lease):  # members are written only under a lease
            self._beat_at_s = now_s + (BEAT_S if busy else IDLE_CHECK_S)
            if self._has_lease and not busy:  # otherwise the others would treat this process as dead
                store.forget(self._redis, self._namespace, rooms.process, None, events=self._events)
            self._has_lease = False
            if busy or store.any_process(self._redis, self._namespace):
                self._beat(rooms.process if busy else "")
            elif not (self._begun or self._events):
                drop_idle(self._redis)
                return None  # until a room is opened
            self._has_lease = busy
            self._send(("PING", "presence"))
            for room in rooms.open.values():
                if room.others.holds:
                    room.others.doubt()
            self._read_now.set()
        while rooms.has_writes and self._has_lease and not self._closed:
            self._write()
        sleep(WRITE_GAP_S)
        if rooms.has_writes and not self._has_lease:
            return 0.0  # Redis has lost the lease, so beat, then write everything again
        end_s = rooms.next_end_s(self._in_touch_since_s)
        until_s = self._beat_at_s if end_s is None else min(end_s, self._beat_at_s)
        return max(0.0, until_s - self._now_s())

    @property
    def _in_touch_since_s(self) -> float | None:
        """Since when this process has been in touch with all others; None while it is not."""
        return None if self._link is None else self._leases.in_touch_since_s

    def _write(self) -> None:
        writes, waiting = self.rooms.next_writes(), None
        if not writes:
            return
        PRESENCE_WRITES.labels(self._namespace).inc()
        try:
            waiting = store.write(self._redis, self._namespace, self.rooms.process, writes, events=self._events)
        finally:
            self.rooms.written(writes, accepted=waiting is not None)
        self._has_lease = waiting is not None
        if waiting:
            self._announce()

    def _beat(self, process: str) -> None:
        try:
            known, news, now_ms, beats = store.beat(self._redis, self._namespace, process)
        except HeadgateError:
            self._leases.missed()
            raise
        if process and not known:
            self.rooms.write_all()  # the first beat, a flush, or others declared this process dead
        for dead in self._leases.received(beats, now_ms, self._now_s()):
            if dead == self._leases.own:
                continue
            if dead in beats:
                PRESENCE_DEAD.labels(self._namespace).inc()
                log.info("a process's members are gone", process=dead)
                store.forget(self._redis, self._namespace, dead, beats[dead], events=self._events)
                news = int(self._events)
            else:
                self.rooms.dead(dead)  # and Redis has no record of it
        if news:
            self._announce()

    def _announce(self) -> None:
        """Publish the pending events of topics that announce them."""
        announced: list[bytes] = []
        for raw, (kind, topic, event_id) in store.read_news(self._redis, self._namespace).items():
            name = f"{topic}.{kind}"
            fits = name.count(".") < MAX_TOPIC_WORDS and len(name) <= MAX_TOPIC_BYTES
            if fits and self._announced.contain(topic):
                try:
                    self._publish(name, {"topic": topic}, event_id, self._namespace)
                except BusUnavailable:
                    raise
                except HeadgateError as error:
                    if isinstance(error, BusRefused) and is_full(error):
                        break  # until there is room
                    log.warning("not published", topic=name, error=error.message)
            announced.append(raw)
        if announced:
            store.published(self._redis, self._namespace, announced)

    # -- the link -----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Connect, and take messages until the link breaks."""
        link = SubscriberLink(self._url, TIMEOUT_S, key=presence_key(self._namespace))
        try:
            link.connect()
            link.settimeout(LINK_TIMEOUT_S)
            store.update_library(self._redis, self._namespace)
            self._link = link
            self._leases.missed()
            self._beat_at_s = 0.0
            self._pulse_now.set()
            if topics := list(self.rooms.open):
                link.send(("SUBSCRIBE", *(presence_channel(self._namespace, topic, self._database) for topic in topics)))
            while not self._closed:
                for reply in link.read():
                    self._take(reply)
                self._faults.pop("link", None)
        finally:
            self._link = None
            self._listened.clear()
            link.close()
            self._doubt_all()

    def _send(self, command: tuple[str, ...]) -> None:
        if (link := self._link) is None:
            return
        try:
            link.send(command)
        except HeadgateError:
            link.close()  # its greenlet notices

    def _take(self, reply: Any) -> None:
        kind = reply[0]
        if kind not in (b"message", b"subscribe"):
            return
        topic = reply[1].decode()[len(presence_channel(self._namespace, "", self._database)) :]
        if kind == b"message":
            if self.rooms.take(topic, reply[2]):
                self._read_now.set()
        elif (room := self.rooms.open.get(topic)) is not None:
            self._listened.add(topic)
            room.others.doubt()  # Redis has everything sent before this
            self._read_now.set()

    def _doubt_all(self) -> None:
        """After losing the link, treat messages as missing and writes as lost (a failover, a restart without memory)."""
        if self._closed:
            return
        drop_idle(self._redis)
        self._leases.missed()
        for room in self.rooms.open.values():
            room.others.doubt()
        self.rooms.write_all()
        self._pulse_now.set()

    # -- the reader ---------------------------------------------------------------------------------------------------

    def _read_doubtful(self) -> float | None:
        """Read each room in doubt; return when to try those again that still are."""
        is_left = False
        for topic, room in list(self.rooms.open.items()):
            if not room.others.is_live and topic in self._listened:
                self._read(topic, room)
                is_left = is_left or not room.others.is_live
        return RETRY_S if is_left else None

    def _read(self, topic: str, room: Room) -> None:
        others = room.others
        nth = others.begin()
        by_process = store.read_written(self._redis, self._namespace, topic)
        if not room.was_live and any(self._leases.is_unsure(process) for process in by_process):
            return
        for process, (number, members) in by_process.items():
            if others.lacks(process, number, members):
                for part in store.read_parts(self._redis, self._namespace, topic, process):
                    others.add(process, part)
                    one_round()
        last = {process: number for process, (number, _) in store.read_written(self._redis, self._namespace, topic).items()}
        one_round()  # lets the link process earlier messages
        if self.rooms.open.get(topic) is not room or topic not in self._listened:
            return
        if not others.loaded(nth, last, self._now_s(), self._in_touch_since_s):
            return
        while room.merge():
            one_round()
        if self.rooms.open.get(topic) is room:
            self.rooms.notify_soon(topic)
        if room.was_live and topic in self._live:
            self._live.pop(topic).set()

    # -- the notifier -------------------------------------------------------------------------------------------------

    def _notify(self) -> float | None:
        """Report changes to pages; return when to try again those that were too slow."""
        began_s = monotonic()
        for resets in self.rooms.notify():
            if resets:
                PRESENCE_RESETS.labels(self._namespace).inc(resets)
            one_round()
        sleep(max(NOTIFY_GAP_S, NOTIFY_SHARE * (monotonic() - began_s)))
        return NOTIFY_GAP_S if self.rooms.any_behind else None
