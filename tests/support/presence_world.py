"""Processes with rooms on a model of Redis, on the test's own clock: links that break and lag, slow readings, deaths.

`ModelStore` acts like presence.lua; tests/integration/redis/test_presence.py holds the two together. `World` drives `Rooms` and
`Leases` as headgate/presence/presence.py does, one step at a time, in whatever order a test wants.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any

from headgate.errors import BusUnavailable
from headgate.events.wire.frames import Frame
from headgate.node.presence.leases import BEAT_S, Leases
from headgate.node.presence.rooms import Rooms
from headgate.redis.presence_entries import TopicWrite
from headgate.runtime.loop import Signal
from headgate.settings.settings import Settings
from headgate.transport.outbox import Outbox
from headgate.transport.send_queue import ClientQueue

# A process tries again within this time, when Redis has refused it.
RETRY_S = 1.0
SETTINGS = Settings(max_presence_topics=16, max_presence_members=10_000)
# Of one process in one topic: its last write, and user → value.
Members = tuple[tuple[int, int], dict[str, bytes]]


class ModelStore:
    """The presence in Redis. `listeners` get each message: (topic, message)."""

    def __init__(self) -> None:
        self.flush()
        self.listeners: list[Any] = []

    def flush(self) -> None:
        self.beats: dict[str, int] = {}
        self.processes: dict[str, set[str]] = {}
        self.members: dict[tuple[str, str], Members] = {}
        self.news: list[list[str]] = []

    def copy(self) -> Any:
        """Return all that it has, for `roll_back`."""
        return deepcopy((self.beats, self.processes, self.members, self.news))

    def roll_back(self, earlier: Any) -> None:
        """Go back to older data, as a replica without the last writes is the primary now."""
        self.beats, self.processes, self.members, self.news = deepcopy(earlier)

    def write(self, process: str, writes: Iterable[TopicWrite]) -> int | None:
        """Write changes of a process's members; return how many events wait. None: their base is lost."""
        lost = False
        for each in writes:
            (number, _), values = self.members.get((each.topic, process), ((0, 0), {}))
            whole = each.before <= 0
            if number > each.number or (each.members and (process not in self.beats if whole else number != each.before)):
                lost = True
                continue
            if not each.members:
                if self._clear(each.topic, process):
                    self.news.append(["vacated", each.topic, f"{process}-{each.number}"])
            else:
                kept = {} if whole else values
                has = {user: value for user, value in {**kept, **dict(each.puts)}.items() if user not in each.takes}
                self.members[each.topic, process] = ((each.number, each.members), has)
                if whole:
                    there = self.processes.setdefault(each.topic, set())
                    if not there:
                        self.news.append(["occupied", each.topic, f"{process}-{each.number}"])
                    there.add(process)
            self._publish(each.topic, each.message)
        return None if lost else len(self.news)

    def beat(self, process: str, now_ms: int) -> bool:
        known = process in self.beats
        self.beats[process] = now_ms
        return known

    def forget(self, process: str, last_beat: int | None) -> None:
        """Take a process out, unless it has beaten since."""
        if last_beat is not None and process in self.beats and self.beats[process] != last_beat:
            return
        self.beats.pop(process, None)
        for topic in sorted(topic for topic, one in self.members if one == process):
            number = self.members[topic, process][0][0]
            if self._clear(topic, process):
                self.news.append(["vacated", topic, f"{process}-{number}-gone"])
            self._publish(topic, json.dumps([process, 0, 0, 0]).encode())

    def read(self, topic: str) -> dict[str, Members]:
        return {process: (written, dict(values)) for (one, process), (written, values) in self.members.items() if one == topic}

    def written(self, topic: str) -> dict[str, tuple[int, int]]:
        return {process: written for process, (written, _) in self.read(topic).items()}

    def part(self, topic: str, process: str, after: str, most: int) -> tuple[dict[str, bytes], str | None]:
        """Return some writes of a process, and from where to ask on."""
        values = self.members.get((topic, process), ((0, 0), {}))[1]
        users = sorted(user for user in values if user > after)
        return {user: values[user] for user in users[:most]}, users[most - 1] if len(users) > most else None

    def _clear(self, topic: str, process: str) -> bool:
        self.members.pop((topic, process), None)
        there = self.processes.get(topic, set())
        if process not in there:
            return False
        there.discard(process)
        if not there:
            del self.processes[topic]
        return not there

    def _publish(self, topic: str, message: bytes) -> None:
        for listener in self.listeners:
            listener(topic, message)


class Page(Outbox):
    """A page: its members, and the notices that reach it. `slow`: its connection has no room."""

    def __init__(self, user: str, session: str) -> None:
        super().__init__(ClientQueue(1, 1))
        self.user, self.session = user, session
        self.entered_s = 0.0
        self.members: dict[str, Any] | None = None
        self.copy, self.version = "", 0
        self.seen_leaving: list[str] = []

    @property
    def slow(self) -> bool:
        return self.queue.control_bytes > 0

    @slow.setter
    def slow(self, slow: bool) -> None:
        self.queue.control_bytes = 1 << 20 if slow else 0

    def offer_control(self, frame: Frame, *, flush: bool = True) -> None:
        """Take a notice, as web/src/presence/members.js does."""
        packet = frame.packet.decode()
        body = json.loads(packet[packet.index(",") + 1 :])[1]
        if body.get("reset"):
            self.members = None
        elif self.members is not None:
            if body["copy"] != self.copy or body["base"] > self.version:
                self.members = None
            elif body["version"] > self.version:
                self.members.update({member[0]: member[1:] for member in body["members"]})
                for user in body["left"]:
                    if self.members.pop(user, None) is not None:
                        self.seen_leaving.append(user)
                self.version = body["version"]

    def begin(self, part: Mapping[str, Any]) -> None:
        """Take the answer to `enter` or `watch`, which is whole in these tests."""
        assert part["next"] is None
        now = {member[0]: member[1:] for member in part["members"]}
        self.seen_leaving += [user for user in self.members or {} if user not in now]
        self.members, self.copy, self.version = now, part["copy"], part["version"]


class Process:
    """A gateway process: its rooms, and the messages on their way to it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.leases = Leases(name)
        self.arriving: list[tuple[str, bytes]] = []
        self.link_up = True
        self.in_touch = True
        self.back_s = self.link_back_s = float("inf")  # when it finds that Redis is there again
        self.alive = True
        self.has_lease = False
        self.beat_s = -1.0
        self.reading: dict[str, Iterator[None]] = {}
        self.pages: dict[str, Page] = {}
        self.listened: set[str] = set()
        self.rooms = Rooms(
            "n", SETTINGS, opened=self._opened, closed=self._closed, now_s=lambda: world.now_s, now_ms=world.now_ms
        )
        self.rooms.process = name

    def hear(self, topic: str, message: bytes) -> None:
        """A message of a channel is on its way."""
        if self.alive and self.link_up and topic in self.listened:
            self.arriving.append((topic, message))

    def deliver(self, most: int = 1_000_000) -> None:
        some, self.arriving = self.arriving[:most], self.arriving[most:]
        for topic, message in some:
            self.rooms.take(topic, message)

    def break_link(self) -> None:
        """The link breaks, and its messages on their way are lost."""
        self.link_up = False
        self.arriving.clear()
        self.listened.clear()
        self.leases.missed()
        for room in self.rooms.open.values():
            room.others.doubt()
        self.rooms.write_all()

    def mend_link(self) -> None:
        self.link_up, self.beat_s = True, -1.0
        self.leases.missed()
        for topic in self.rooms.open:
            self._opened(topic)

    def begin_reading(self) -> None:
        """Ask Redis for the topics in doubt, one after the other."""
        doubtful = [topic for topic, room in self.rooms.open.items() if not room.others.is_live and topic in self.listened]
        if self.in_touch and not self.reading and doubtful:
            self.reading[doubtful[0]] = self._read(doubtful[0])
            self.read_on()

    def read_on(self) -> None:
        """Have the answer to the last question, and ask the next."""
        for topic, reading in list(self.reading.items()):
            if not self.in_touch or next(reading, self) is self:
                del self.reading[topic]

    def end_reading(self) -> None:
        """Have all that Redis says."""
        while self.reading:
            self.read_on()

    def _read(self, topic: str) -> Iterator[None]:
        room, store = self.rooms.open.get(topic), self.world.store
        if room is None:
            return
        nth = room.others.begin()
        found = store.written(topic)
        if not room.was_live and any(self.leases.is_unsure(process) for process in found):
            return
        yield
        for process, written in found.items():
            if room.others.lacks(process, *written):
                after: str | None = ""
                while after is not None:
                    part, after = store.part(topic, process, after, 2)
                    room.others.add(process, part)
                    yield
        last = {process: number for process, (number, _) in store.written(topic).items()}
        yield
        if self.rooms.open.get(topic) is not room or topic not in self.listened:
            return
        if not room.others.loaded(nth, last, self.world.now_s, self.in_touch_since_s):
            return
        while room.merge():
            yield
        if self.rooms.open.get(topic) is room:
            self.rooms.notify_soon(topic)

    @property
    def in_touch_since_s(self) -> float | None:
        """Since when it has heard the others."""
        return self.leases.in_touch_since_s if self.link_up else None

    def pulse(self, *, loses_answer: bool = False, dies_before_the_write: bool = False) -> None:
        """Expire, beat and write, as Presence does."""
        if not self.alive:
            return
        world, rooms = self.world, self.rooms
        rooms.expire(self.in_touch_since_s)
        if not self.in_touch:
            self.leases.missed()
            rooms.written(rooms.next_writes(), accepted=False)
            return
        if world.now_s >= self.beat_s or not self.has_lease:
            self.beat_s = world.now_s + BEAT_S
            known = world.store.beat(self.name, world.redis_ms())
            self.has_lease = True
            if not known:
                rooms.write_all()
            for dead in self.leases.received(world.store.beats, world.redis_ms(), world.now_s):
                if dead in world.store.beats and dead != self.name:
                    world.store.forget(dead, world.store.beats[dead])
                elif dead != self.name:
                    rooms.dead(dead)
            for room in rooms.open.values():
                if room.others.holds:
                    room.others.doubt()
        while rooms.has_writes and self.has_lease and not dies_before_the_write:
            writes = rooms.next_writes()
            self.has_lease = world.store.write(self.name, writes) is not None
            rooms.written(writes, accepted=self.has_lease and not loses_answer)
            loses_answer = False

    def tell(self) -> None:
        for _ in self.rooms.notify():
            pass
        for page in self.pages.values():
            if page.members is None:
                page.begin(self.rooms.enter(page.session, "t", page, page.user, None))

    def _opened(self, topic: str) -> None:
        if self.link_up:
            self.listened.add(topic)
            self.rooms.open[topic].others.doubt()

    def _closed(self, topic: str) -> None:
        self.listened.discard(topic)


class World:
    """Processes, one store, one clock. The topic is `t`."""

    def __init__(self, processes: int) -> None:
        self.now_s = 1000.0
        self.redis_ahead_ms = 0  # of the other clocks
        self.up, self.back_s = True, 0.0
        self.store = ModelStore()
        self.store.listeners.append(self._publish)
        self.processes: list[Process] = [Process(self, f"p{number}") for number in range(processes)]
        self._sessions = 0

    def _publish(self, topic: str, message: bytes) -> None:
        for each in self.processes:
            each.hear(topic, message)

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_s * 1000)

    def redis_ms(self) -> int:
        return self.now_ms() + self.redis_ahead_ms

    def enter(self, process: Process, user: str, page: Page | None = None) -> Page | None:
        """A page enters, if the process can read the topic. `page`: one that was at another process, with what it knew there."""
        self._sessions += 1
        page = page or Page(user, "")
        page.session, page.closed, page.entered_s = f"s{self._sessions}", False, self.now_s
        room = process.rooms.prepare(page.session, "t")
        for _ in range(3):  # a present reading, one for this, and one more
            if not room.was_live:
                if process.beat_s < 0:
                    process.pulse()  # the first room of a process begins with a beat
                process.begin_reading()
                process.end_reading()
        if not room.was_live:
            process.rooms.leave(page.session, "t")
            return None
        page.begin(process.rooms.enter(page.session, "t", page, user, None))
        process.pages[page.session] = page
        return page

    def leave(self, process: Process, page: Page, *, in_order: bool) -> None:
        del process.pages[page.session]
        page.closed = True
        process.rooms.gone(page.session, in_order=in_order)

    def kill(self, process: Process) -> list[Page]:
        """A process dies, and another one takes its place; return the pages that were there."""
        process.alive = False
        pages = list(process.pages.values())
        process.pages.clear()
        new = Process(self, f"{process.name}+")
        new.in_touch, new.link_up, new.back_s, new.link_back_s = self.up, self.up, process.back_s, process.link_back_s
        self.processes[self.processes.index(process)] = new
        return pages

    # -- Redis comes and goes -----------------------------------------------------------------------------------------

    def go_away(self) -> None:
        self.up = False
        for each in self.processes:
            each.in_touch = False
            each.back_s = each.link_back_s = float("inf")
            each.break_link()

    def come_back(self, random: Random) -> None:
        """Redis is there again. Each process finds out when it tries again."""
        self.up, self.back_s = True, self.now_s
        for each in self.processes:
            each.back_s = self.now_s + random.uniform(0, RETRY_S)
            each.link_back_s = self.now_s + random.uniform(0, RETRY_S)

    def run(self, seconds: float, random: Random) -> Iterator[None]:
        """Let time pass in uneven steps, with everything due in any order. Yield after each step."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(self.now_s + random.uniform(0.05, 0.3), end_s)
            for each in random.sample(self.processes, len(self.processes)):
                if self.up and self.now_s >= each.back_s:
                    each.in_touch, each.back_s = True, float("inf")
                if self.up and self.now_s >= each.link_back_s:
                    each.link_back_s = float("inf")
                    each.mend_link()
                each.pulse()
                for _ in range(random.randrange(12)):
                    each.deliver(random.randrange(4))
                    each.begin_reading()
                    each.read_on()
                each.tell()
            yield

    def advance(self, seconds: float, step_s: float = 0.25) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(self.now_s + step_s, end_s)
            for each in self.processes:
                each.pulse()
            self.settle()

    def settle(self) -> None:
        for _ in range(3):
            for each in self.processes:
                each.deliver()
                each.begin_reading()
                each.end_reading()
                each.tell()

    def truth(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self.processes:
            for page in each.pages.values():
                found[page.user] = found.get(page.user, 0) + 1
        return found


class StoreHere:
    """The functions of headgate/redis/presence.py over a ModelStore. While it is not `up`, no caller is answered.

    Attributes:
        now_ms: the clock of Redis.
        links: those that listen.
        asked: the names of the functions that were called.
    """

    def __init__(self) -> None:
        self.model, self.up, self.now_ms = ModelStore(), True, 1_000_000
        self.links: list[LinkHere] = []
        self.asked: list[str] = []
        self.model.listeners.append(self._publish)

    def link(self, url: str, timeout_s: float, *, key: str) -> LinkHere:
        """Return a link, not connected, in the place of a SubscriberLink."""
        return LinkHere(self)

    def update_library(self, client: Any, namespace: str) -> None:
        """There is none here."""

    def any_process(self, client: Any, namespace: str) -> bool:
        self._ask("any_process")
        return bool(self.model.beats)

    def beat(self, client: Any, namespace: str, process: str) -> tuple[bool, int, int, dict[str, int]]:
        self._ask("beat")
        known = self.model.beat(process, self.now_ms) if process else True
        return known, len(self.model.news), self.now_ms, dict(self.model.beats)

    def write(self, client: Any, namespace: str, process: str, writes: Iterable[TopicWrite], *, events: bool) -> int | None:
        self._ask("write")
        waiting = self.model.write(process, writes)
        return waiting if events or waiting is None else 0

    def forget(self, client: Any, namespace: str, process: str, last_beat: int | None, *, events: bool) -> None:
        self._ask("forget")
        self.model.forget(process, last_beat)

    def read_written(self, client: Any, namespace: str, topic: str) -> dict[str, tuple[int, int]]:
        self._ask("read_written")
        return self.model.written(topic)

    def read_parts(self, client: Any, namespace: str, topic: str, process: str) -> Iterator[dict[str, bytes]]:
        after: str | None = ""
        while after is not None:
            self._ask("read_parts")
            part, after = self.model.part(topic, process, after, 2)
            yield part

    def read_news(self, client: Any, namespace: str) -> dict[bytes, tuple[str, str, str]]:
        self._ask("read_news")
        return {event_id.encode(): (kind, topic, event_id) for kind, topic, event_id in self.model.news}

    def published(self, client: Any, namespace: str, news: Iterable[bytes]) -> None:
        self._ask("published")
        gone = {each.decode() for each in news}
        self.model.news = [each for each in self.model.news if each[2] not in gone]

    def _ask(self, name: str) -> None:
        if not self.up:
            raise BusUnavailable("gone")
        self.asked.append(name)

    def _publish(self, topic: str, message: bytes) -> None:
        for link in self.links:
            link.hear(topic, message)


class LinkHere:
    """A link to a StoreHere, as SubscriberLink is one to Redis."""

    def __init__(self, store: StoreHere) -> None:
        self._store, self._channels = store, set[str]()
        self._replies: list[list[Any]] = []
        self._ready = Signal()
        self._closed = False

    def connect(self) -> None:
        if not self._store.up or self._closed:
            raise BusUnavailable("gone")
        self._store.links.append(self)

    def settimeout(self, timeout_s: float | None) -> None:
        """Replies come when they come."""

    def send(self, *commands: tuple[str, ...]) -> None:
        if self._closed:
            raise BusUnavailable("closed")
        for name, *words in commands:
            if name == "PING":
                self._put([b"pong", words[0].encode()])
            for channel in words if name == "SUBSCRIBE" else ():
                self._channels.add(channel)
                self._put([b"subscribe", channel.encode(), 1])
            for channel in words if name == "UNSUBSCRIBE" else ():
                self._channels.discard(channel)

    def read(self) -> list[list[Any]]:
        self._ready.wait()
        self._ready.clear()
        if self._closed:
            raise BusUnavailable("closed")
        replies, self._replies = self._replies, []
        return replies

    def close(self) -> None:
        self._closed = True
        if self in self._store.links:
            self._store.links.remove(self)
        self._ready.set()

    def hear(self, topic: str, message: bytes) -> None:
        channel = next((each for each in self._channels if each.endswith(f"/presence.{topic}")), None)
        if channel is not None:
            self._put([b"message", channel.encode(), message])

    def _put(self, reply: list[Any]) -> None:
        self._replies.append(reply)
        self._ready.set()
