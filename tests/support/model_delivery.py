"""A model of one namespace without Redis, sockets or greenlets: its possible events, one step after the other.

Router, fan-out, clients, their states, log readers, page cache and live feed are the real ones. The log, the bus and the
sessions are models. Wherever the real loop could run something else (between two turns of a pass, between two clients that are
notified, while Redis answers), the world does, so a history is a random interleaving.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from headgate.auth.identity import Identity
from headgate.delivery import client as client_module
from headgate.delivery import fanout, live_feed, page_cache
from headgate.delivery.bus.feed import Front
from headgate.delivery.client import Client
from headgate.delivery.direct import direct_writer
from headgate.delivery.fanout import Matched, Router
from headgate.delivery.ledger import DeliveryCounts, Ledger
from headgate.delivery.live_feed import LiveFeed
from headgate.delivery.log_readers import LogReaders
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.page_cache import LogPages
from headgate.delivery.state import Phase, State, Step
from headgate.delivery.tally import Tallies
from headgate.errors import BusUnavailable, InvalidEvent
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.events.wire.frames import Frame, event_frame, message_frame
from headgate.events.wire.packets import GapReason, Overflow, notice_packet
from headgate.node.log_search import LogSearch
from headgate.redis.lineage import Entry, Head, Lineage, alone, read_lineage
from headgate.redis.log import RawEntry
from tests.support.direct_events import message_of
from tests.support.model_browser import Browser, Lines
from tests.support.model_connection import ModelConnection
from tests.support.raw_log import RawLog, raw_entry, raw_event
from tests.support.socket_record import SocketRecord

NAMESPACE = "n"
TOPICS = ("a.1", "a.2", "b.1", "b.2")
PATTERNS = ("#", "a.*", "*.1", "b.1", "b.#")
POLICIES = (Overflow.CATCH_UP, Overflow.CATCH_UP, Overflow.LATEST, Overflow.DROP)
QUEUE_FRAMES, QUEUE_BYTES = 8, 1600
# Beyond the limits of a queue: gaps and a cursor, one per reason at a time, and the model's own markers.
NOTICES = 2 * len(GapReason) + 2
SETTLE_STEPS = 2000
# The sizes of the real ones would make a history long before anything happens at their edges.
SMALL = (
    (fanout, "_CLOCK_EVERY", 1),
    (live_feed, "_NOTICE_STRIDE", 1),
    (page_cache, "PAGE_OFFSETS", 4),
    (page_cache, "CHUNK_BYTES", 250),
    (page_cache, "MAX_READ_OFFSETS", 13),
    (page_cache, "READ_BYTES", 4000),
    (page_cache, "MAX_AHEAD", 2),
    (client_module, "MAX_NOTICES", 12),
    (fanout, "_hand", fanout._hand),
)
_HAND = fanout._hand
_matches = cache(matches)


class ModelLog(RawLog):
    """The log as a reader of an EventLog sees it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.entries: dict[int, Entry] = {}
        self.epoch, self.head, self.first = "", 0, 1
        self.epochs = 0
        self.chain: list[tuple[str, int, int]] = []
        self.another_process = False  # which begins an epoch when it writes

    @property
    def lineage(self) -> Lineage:
        return read_lineage(self.epoch, self.chain)

    def begin(self) -> None:
        self._name_epoch()
        self.head, self.first, self.entries = 0, 1, {}
        self.chain = [(self.epoch, 1, 0)]
        self.another_process = False
        self._world.lines.begin(self.epoch)

    def configure(self) -> None:
        """Begin an epoch of the same log, if another process has written its end."""
        if self.another_process:
            before = self.epoch
            self._name_epoch()
            self.chain.append((self.epoch, self.head + 1, self.chain[-1][2] + 1))
            self.another_process = False
            self._world.lines.begin(self.epoch, before, self.head)

    def append(self, topic: str) -> int:
        self.configure()
        self.head += 1
        self._world.lines.append(self.epoch, self.head, topic)
        return self.head

    def fall_back(self, head: int) -> None:
        """Another process goes on with the data of an earlier moment, in which this was the newest offset."""
        self.another_process = True
        self.head, self.first = head, min(self.first, head + 1)
        self.entries = {offset: entry for offset, entry in self.entries.items() if offset <= head}
        while len(self.chain) > 1 and self.chain[-1][1] > head + 1:
            self.chain.pop()
        self.epoch = self.chain[-1][0]
        self._world.lines.cuts[self.epoch] = head

    def _name_epoch(self) -> None:
        self.epochs += 1
        self.epoch = f"{self.epochs:016x}"

    def trim(self, first: int) -> None:
        for offset in range(self.first, first):
            self.entries.pop(offset, None)
        self.first = max(self.first, first)

    def raw_page(self, after: int, upto: int | None, count: int, *, epoch: str | None = None) -> list[RawEntry]:
        """Answer, when something else has happened, as Redis stands then; something else happens before the answer is read."""
        self._world.meanwhile()
        if epoch != self.epoch or self._world.chance(20):
            raise BusUnavailable("the log is another one, or Redis is away")
        found = [entry for offset, entry in self.entries.items() if offset > after][:count]
        self._world.meanwhile()
        return [raw_entry(entry.offset, data=b"{") if entry.event is None else raw_event(entry.event) for entry in found]


class Bus:
    """The position of the bus, and Redis' messages that it has not handed on."""

    def __init__(self) -> None:
        self.epoch: str | None = None
        self.lineage = alone("")
        self.reached, self.first = 0, 1
        self.arrived: deque[Event] = deque()
        self.task: Iterator[None] | None = None

    @property
    def head(self) -> int:
        return self.reached

    def note_head(self, offset: int) -> None:
        """Do nothing, as the model has no Redis to report to."""

    def wait_held(self) -> None:
        """Do nothing, as the model never stands still."""


class Search(LogSearch):
    """The line of the log, with a Redis that is asked where the log stands."""

    def __init__(self, world: World) -> None:
        self._world, self.bus, self.feed = world, world.bus, world.feed

    def head(self, known_epoch: str) -> Head:
        """Answer as Redis stands; something else happens before and after."""
        self._world.meanwhile()
        log = self._world.log
        head = Head(log.epoch, log.head, log.first, 5, log.lineage if log.epoch != known_epoch else None)
        self._world.meanwhile()
        return head


class Slot:
    """One user: the browser, and its session, if any.

    Attributes:
        handshake: of a session that is arriving: pattern → the offset above which it is owed, and whether it asked for a past.
        point: where it resumes, if it does.
        waits: whether a subscription of it waits for the end of a pass.
    """

    def __init__(self, browser: Browser, policies: dict[str, Overflow]) -> None:
        self.browser = browser
        self.policies = policies
        self.client: Client | None = None
        self.connection: ModelConnection | None = None
        self.handshake: dict[str, tuple[int, bool]] = {}
        self.point: tuple[str, int] | None = None
        self.waits = False
        self.neighbour: Any = SimpleNamespace(sent=0)


class World:
    """See the module. `trail` names the steps of the history, `steps` counts them, `taken` the steps of the clients' states.

    `taken_directly` counts events that were written in C.
    """

    def __init__(self, seed: int, clients: int = 3) -> None:
        self._random = Random(seed)
        self._of_sockets = Random(f"sockets of {seed}")
        self.record = SocketRecord(NAMESPACE)
        self.neighbours = 0
        self._wanted: dict[tuple[str, int | None], set[tuple[Client, str]]] = {}
        fanout._hand = self._hand  # SMALL puts it back
        self._budget_s = -1.0
        self.lines = Lines()
        self.trail: list[str] = []
        self.taken: Counter[tuple[str, str]] = Counter()
        self.plain = self.steps = self._depth = 0
        self.log = ModelLog(self)
        self.log.begin()
        self.bus = cast(Any, Bus())
        self.bus.epoch, self.bus.lineage = self.log.epoch, self.log.lineage
        self.matcher: SubscriptionMatcher[Client] = SubscriptionMatcher()
        self.pages = LogPages(NAMESPACE, self.log, lambda fault: None, 3000)  # type: ignore[arg-type]
        self.tallies = Tallies(1, lambda: self.bus.epoch)
        self.readers = LogReaders(self.pages, lambda: None, self.tallies)
        self.clients: dict[str, Client] = {}
        router = Router(NAMESPACE, self.matcher, self.tallies)
        self.ledger = Ledger(self.clients, router, self.readers)
        self.before = DeliveryCounts()
        self._direct = direct_writer(NAMESPACE, self.matcher, 65536, self.tallies)
        self._of_direct, self.taken_directly = Random(f"direct writes of {seed}"), 0
        self.feed = LiveFeed(NAMESPACE, self.bus, self.clients, router, self.readers, self._budget_s, self._direct)
        self.teller: Iterator[None] | None = None
        self.line = Search(self)
        self.witness = self._slot("witness", dict.fromkeys(PATTERNS, Overflow.DROP))
        self.slots = [
            self._slot(f"user {number}", {pattern: self._random.choice(POLICIES) for pattern in PATTERNS})
            for number in range(clients)
        ]
        self._join(self.witness, polling=False)
        self.subscribe(self.witness, "#")
        self.welcome(self.witness)
        self._falls_back = self.chance(2)
        self._weights = self._drawn_weights()

    def _slot(self, name: str, policies: dict[str, Overflow]) -> Slot:
        return Slot(Browser(name, self.lines), policies)

    def chance(self, one_in: int) -> bool:
        return self._random.random() * one_in < 1

    # -- histories ------------------------------------------------------------------------------------------------

    def _drawn_weights(self) -> list[Callable[[], None]]:
        """Each history draws how often each kind of step comes, so that rare mixtures have their share."""
        slots: list[tuple[Callable[[Slot], None], int]] = [
            (self.join, 3),
            (self.subscribe_one, 3),
            (self.unsubscribe_one, 2),
            (self.complete, 2),
            (self.welcome_one, 4),
            (self.drop_connection, 1),
            (self.leave, 1),
            (self.read_little, 6),
            (self.read_all, 2),
            (self.reset_link, 1),
            (self.visit_another_gateway, 1),
        ]
        whole: list[tuple[Callable[[], None], int]] = [
            (self.publish, 12),
            (self.burst, 3),
            (self.publish_plain, 3),
            (self.run_bus, 14),
            (self.serve, 10),
            (self.fence, 2),
            (self.tell_on, 4),
            (self.trim, 1),
            (self.delete, 1),
            (self.lose_upstream, 1),
            (self.lose_log, 1),
            (self.fall_back, 2),
            (self.restart_redis, 1),
            (self.reconnect, 1),
        ]
        bag: list[Callable[[], None]] = [self.run_bus]
        for act, most in whole:
            bag += [act] * self._random.randint(0, most)
        for on_slot, most in slots:
            for slot in self.slots:
                bag += [_on(on_slot, slot)] * self._random.randint(0, most)
        return bag

    def step(self) -> None:
        act = self._weights[int(self._random.random() * len(self._weights))]
        self.steps += 1
        self.trail.append(getattr(act, "__name__", "?"))
        act()

    def meanwhile(self) -> None:
        if self._depth:
            return
        self._depth += 1
        try:
            while not self.chance(3):
                self.step()
        finally:
            self._depth -= 1

    # -- publishers and the log -----------------------------------------------------------------------------------

    def publish(self) -> None:
        """An event, appended and sent in one step; some are unreadable."""
        self._neighbour()
        topic = self._random.choice(TOPICS)
        offset = self.log.append(topic)
        size = self._random.choice((1, 1, 1, 120, 900))
        event = Event(topic, json.dumps([self.log.epoch, "x" * size]).encode(), f"e{offset}", 1, self.log.epoch, offset)
        if self.chance(40):
            self.log.entries[offset] = Entry(offset, None, InvalidEvent("entry", "unreadable"))
            self._missing(offset, GapReason.QUARANTINED)
        else:
            self.log.entries[offset] = Entry(offset, event)
            self.bus.arrived.append(event)

    def _neighbour(self) -> None:
        """Another namespace over the same connection has an event, now and then."""
        slot = self._of_sockets.choice(self.slots)
        if slot.connection is not None and self._of_sockets.random() < 0.2:
            self.neighbours += 1
            event = Event(self._of_sockets.choice(TOPICS), b"[%d]" % self.neighbours, "neighbour", 1, None, None)
            slot.connection.offer(event_frame(b"neighbour", event), slot.neighbour)

    def burst(self) -> None:
        """More than a queue holds, or nearly."""
        for _ in range(self._random.randint(2, 14)):
            self.publish()

    def publish_plain(self) -> None:
        """An event without a place in the log, which is a plain PUBLISH, or an ephemeral event, which has an id."""
        self.plain += 1
        data = json.dumps([self.plain, "x" * self._random.choice((1, 300))]).encode()
        event_id = f"p{self.plain}" if self.plain % 2 else None
        self.bus.arrived.append(Event(self._random.choice(TOPICS), data, event_id, 1))

    def trim(self) -> None:
        self.log.trim(self._random.randint(self.log.first, self.log.head + 1))

    def delete(self) -> None:
        if self.log.entries:
            self.log.entries.pop(self._random.choice(list(self.log.entries)))

    def fall_back(self) -> None:
        """Redis loses the end of its log, by a crash, or a replica without it takes over.

        Publishers may go on at once, and the bus may find it at once, as it has lost its connection, with all messages on their
        way. This comes more often while a client is where it rarely is.
        """
        rare = any(client.state.full or client.state.phase is Phase.HANDOVER for client in self.clients.values())
        if rare or self.chance(3):
            self.log.fall_back(max(self.log.head - self._random.randint(0, 9), 0))
            if self.chance(2):
                self.burst()
            if self.chance(2) and self.bus.task is None:
                self._settle()

    def restart_redis(self) -> None:
        if self.chance(3):
            self.log.another_process = True

    # -- the bus --------------------------------------------------------------------------------------------------

    def run_bus(self) -> None:
        """The bus greenlet goes on, with the present pass or notices, or with new messages."""
        if self.bus.task is not None:
            if next(self.bus.task, self) is self:
                self.bus.task = None
            return
        if self.bus.arrived and self.bus.arrived[0].epoch not in (None, self.bus.epoch):
            self._settle()
            return
        if self._direct and self._of_direct.random() < 0.5 and self._take():
            return
        events = self._more(self._random.randint(1, 6))
        if events:
            self.bus.task = self.feed.route(events, lambda: self._more(self._random.randint(0, 3)))
            self.run_bus()
        elif self.bus.arrived:
            self._skip()

    def _take(self) -> int:
        """Let the feed write directly as many arrived events as it can, as the bus does first; return how many events."""
        some = list(self.bus.arrived)[: self._of_direct.randint(1, 8)]
        front = Front(self.bus.epoch or "", self.bus.reached, self.log.head, consecutive=True)
        run = self.feed.take([message_of(NAMESPACE, event) if event.id else [b"", b"", b""] for event in some], front)
        if run is None:
            return 0  # its events go into a bridge as well
        self.taken_directly += run.taken
        for event in some[: run.taken]:
            if wanting := dict(self._wanting(event.topic)):
                self.record.came(event_frame(NAMESPACE.encode(), event), len(wanting))
            self.bus.arrived.popleft()
        self.bus.reached = front.reached
        return run.taken

    def _more(self, count: int) -> list[Event]:
        events: list[Event] = []
        while self.bus.arrived and len(events) < count:
            event = self.bus.arrived[0]
            if event.offset is not None:
                if event.id is None or event.epoch != self.bus.epoch:
                    break  # a place where something is missing, or another epoch begins
                self.bus.reached = event.offset
            events.append(event)
            self.bus.arrived.popleft()
            self._wanted[event.topic, event.offset] = self._wanting(event.topic)
        return events

    def _wanting(self, topic: str) -> set[tuple[Client, str]]:
        everyone = self.clients.values()
        return {(client, pattern) for client in everyone for pattern in client.subscriptions if _matches(pattern, topic)}

    def _hand(self, slice_: Sequence[Matched]) -> int:
        """A pass takes events, so check, and record, for whom; then act like it."""
        for matched in slice_:
            topic, clients = matched.frame.topic or "", matched.audience.clients
            now = self._wanting(topic)
            # A client that has subscribed since the event came may have it, or not: it has a place above.
            still, those = (dict(wanting).keys() for wanting in (self._wanted[topic, matched.frame.offset] & now, now))
            assert still <= set(clients) <= those, topic
            self.record.came(matched.frame, len(clients))
        return _HAND(slice_)

    def reconnect(self) -> None:
        """The connection of the bus was lost, so it configures the log, and brings its position to the head."""
        if self.bus.task is None and self.chance(3):
            self._settle()

    def _settle(self) -> None:
        """The bus meets the head of the log, perhaps in another epoch, and goes on from the log."""
        bus, log = self.bus, self.log
        log.configure()
        if log.epoch == bus.epoch:
            return
        ours, theirs = bus.lineage, log.lineage
        both = [epoch for epoch in (*ours.ends, ours.epoch) if theirs.end_of(epoch, 0) is not None]
        end = max(min(ours.end_of(epoch, 1 << 60) or 0, theirs.end_of(epoch, log.head) or 0) for epoch in both)
        bus.epoch, bus.lineage, bus.first, bus.reached = log.epoch, theirs, log.first, min(bus.reached, end)
        bus.arrived = deque(event for event in bus.arrived if event.offset is None)
        for offset in range(bus.reached + 1, log.head + 1):
            entry = log.entries.get(offset)
            if entry is None or entry.event is None:
                self._missing(offset, GapReason.TRIMMED if entry is None else GapReason.QUARANTINED)
            else:
                event = entry.event
                bus.arrived.append(Event(event.topic, event.data, event.id, event.time_ms, log.epoch, offset))
        for slot in self.slots:
            slot.handshake = {pattern: (min(start, end), past) for pattern, (start, past) in slot.handshake.items()}
        self.pages.cut(end)
        bus.task = self.feed.change_line(end)
        self.run_bus()

    def _missing(self, offset: int, reason: GapReason) -> None:
        """Mark a place in the feed where an event does not come."""
        self.bus.arrived.append(Event(reason, b"", None, 1, self.log.epoch, offset))

    def _skip(self) -> None:
        mark = self.bus.arrived.popleft()
        assert mark.offset is not None
        self.bus.reached = mark.offset
        self.bus.task = self.feed.missing(mark.offset, mark.offset, GapReason(mark.topic))
        self.run_bus()

    def lose_upstream(self) -> None:
        """An event on its way is lost, and no read asks the log for it; or the log does not have it either."""
        for index, event in enumerate(self.bus.arrived):
            if event.offset is not None and event.id is not None and self.chance(2):
                gone = self.chance(2)
                if gone:
                    self.log.entries.pop(event.offset, None)
                reason = GapReason.TRIMMED if gone else GapReason.UPSTREAM
                self.bus.arrived[index] = Event(reason, b"", None, 1, event.epoch, event.offset)
                return

    def lose_log(self) -> None:
        if self.bus.task is not None or not self.chance(4):
            return
        self.log.begin()
        self.bus.arrived.clear()
        self.bus.epoch, self.bus.lineage = self.log.epoch, self.log.lineage
        self.bus.reached, self.bus.first = 0, 1
        for _ in range(self._random.randint(0, 2)):
            self.publish()  # before the bus has looked; not all of it will come live
        kept = self._random.randint(0, self.log.head)
        self.bus.reached = kept
        while self.bus.arrived and (self.bus.arrived[0].offset or 0) <= kept:
            self.bus.arrived.popleft()
        for slot in self.slots:
            slot.handshake = dict.fromkeys(slot.handshake, (kept, False))
        self.pages.cut(0)
        self.bus.task = self.feed.lose_log(self.log.epoch, kept)
        self.run_bus()

    def fence(self) -> None:
        """The bus is sure of its position, so handovers end, and idle clients are notified."""
        if self.bus.task is None and not self.bus.arrived:
            if self.log.epoch != self.bus.epoch or self.log.head < self.bus.reached:
                self._settle()
                return
            self.bus.first = self.log.first
            self.feed.end_handovers()
            if self.teller is None:
                self.teller = self.feed.send_cursors()

    def tell_on(self) -> None:
        """The greenlet goes on that sends idle clients their position, beside that of the bus."""
        if self.teller is not None and next(self.teller, self) is self:
            self.teller = None

    # -- the log readers ------------------------------------------------------------------------------------------

    def serve(self) -> None:
        if not self.readers.waiting or self._depth:
            return
        client = self.readers.next()
        try:
            self.readers.serve(client, self.feed)
        except BusUnavailable:
            if client.state.phase is Phase.READING:
                self.readers.add(client)
        if client.state.phase is Phase.HANDOVER and self._falls_back and self.chance(4):
            self.fall_back()

    # -- clients --------------------------------------------------------------------------------------------------

    def join(self, slot: Slot) -> None:
        """A browser connects; it goes on where it was, or starts again."""
        if slot.client is None:
            self._join(slot, polling=self.chance(4))
            resumes = slot.browser.epoch and not self.chance(4)
            slot.point = (slot.browser.epoch, slot.browser.position) if resumes else None
            for pattern in self._random.sample(PATTERNS, self._random.randint(1, 2)):
                if self.chance(2):
                    self.subscribe(slot, pattern)

    def _join(self, slot: Slot, *, polling: bool) -> None:
        connection = ModelConnection(slot.browser.receive, QUEUE_FRAMES, QUEUE_BYTES, self.record, polling=polling)
        connection.cork()
        if slot is self.witness:
            connection.room = 1 << 60
        self._seat(slot, connection)

    def _seat(self, slot: Slot, connection: ModelConnection) -> None:
        name = f"{slot.browser.name}, {self.steps}"
        client = slot.client = self.clients[name] = _Recorded(
            self.taken, slot.browser, NAMESPACE, name, Identity("user"), connection, self.readers
        )
        slot.connection, slot.handshake, slot.waits = connection, {}, False
        connection.owners = [client]
        slot.browser.begin()

    def subscribe_one(self, slot: Slot) -> None:
        """Subscribe, to later events or to a past as well."""
        if slot.client is None or slot.waits or not (slot.client.state.arriving or self.chance(2)):
            return
        pattern = self._random.choice(PATTERNS)
        if self.chance(2):
            self.subscribe(slot, pattern)
        else:
            self.subscribe(slot, pattern, self._random.randint(0, self.log.head))

    def subscribe(self, slot: Slot, pattern: str, past: int | None = None) -> None:
        """Make a subscription active as subscriptions.py does, where one with a past comes between two passes only."""
        client, connection, epoch = slot.client, slot.connection, self.bus.epoch
        assert client is not None
        assert connection is not None
        policy = slot.policies[pattern]

        def activate() -> None:
            slot.waits = False
            if slot.client is not client or self.bus.epoch != epoch:
                return
            here = self.feed.position()
            fresh = pattern not in client.subscriptions
            if not client.subscriptions:
                client.begin(here)
            client.subscribe(pattern, policy)
            if policy is Overflow.LATEST:
                slot.browser.latest.add(pattern)
            self.matcher.add(pattern, client)
            if past is not None:
                client.ask_past(pattern, past, here, is_new=fresh)
            start = client.place(here) if past is None else past
            if client.state.arriving:
                if pattern in slot.handshake and past is not None and slot.handshake[pattern][1]:
                    start = min(start, slot.handshake[pattern][0])  # the wider of the two
                if fresh or past is not None:
                    slot.handshake[pattern] = (start, past is not None)
            else:
                self._mark(slot, "subscribed", pattern, start, past is not None, policy, self.bus.epoch)

        if past is None:
            activate()
        else:
            slot.waits = True
            self.feed.between_passes(activate)

    def complete(self, slot: Slot) -> None:
        """All pasts that the client asked for at once are active."""
        if slot.client is not None and not slot.waits:
            slot.client.pasts_complete()

    def unsubscribe_one(self, slot: Slot) -> None:
        client = slot.client
        if client is not None and client.subscriptions and not client.state.arriving:
            pattern = self._random.choice(list(client.subscriptions))
            client.unsubscribe(pattern)
            self.matcher.remove(pattern, client)
            slot.browser.ended.add(pattern)
            self._mark(slot, "unsubscribed", pattern)

    def welcome_one(self, slot: Slot) -> None:
        if slot.client is not None and slot.client.state.arriving and not slot.waits:
            self.welcome(slot)

    def welcome(self, slot: Slot) -> None:
        """Act like Namespace.resume, then say welcome, and let everything follow."""
        client, connection, point = slot.client, slot.connection, slot.point
        assert client is not None
        assert connection is not None
        resumed = start = None
        if point is None:
            client.welcome()
        else:
            try:
                end = self.line.end_of(*point)
            except BusUnavailable:
                connection.close()
                return
            if slot.client is not client or slot.waits or not client.state.arriving:
                return
            if end is None:
                resumed = False
                client.welcome_to_another_log()
            else:
                place = self.feed.resume(client, point[1], end)
                resumed = place == point[1]
                start = {"epoch": self.bus.epoch, "offset": place}
        patterns = [
            (pattern, start["offset"] if start and not past else begin, past, slot.policies[pattern])
            for pattern, (begin, past) in slot.handshake.items()
        ]
        position = self.feed.welcome_offset(client) if start is None else self.feed.position()
        body = {"resumed": resumed, "from": start, "epoch": self.bus.epoch, "offset": position, "patterns": patterns}
        connection.offer_control(message_frame(notice_packet(NAMESPACE, "welcome", body)))
        connection.uncork()

    def read_little(self, slot: Slot) -> None:
        if slot.connection is not None:
            slot.connection.make_room(self._random.randint(1, 700))

    def read_all(self, slot: Slot) -> None:
        if slot.connection is not None:
            slot.connection.make_room(5000)

    def drop_connection(self, slot: Slot) -> None:
        """The socket is gone; the gateway is notified, or learns it when it writes."""
        if slot.connection is not None and self.chance(3):
            if slot.connection.wire is not None and self._of_sockets.random() < 0.5:
                slot.connection.breaks = True
            else:
                slot.connection.close()

    def leave(self, slot: Slot) -> None:
        if slot.client is not None and (self.chance(3) or (slot.connection is not None and slot.connection.closed)):
            self._unseat(slot)
            if slot.connection is not None:
                slot.connection.close()
            slot.connection = None

    def visit_another_gateway(self, slot: Slot) -> None:
        """While it is not here, another gateway serves it, which is further than this one."""
        log, browser = self.log, slot.browser
        if slot.client is None and (browser.epoch != log.epoch or browser.position <= log.head) and self.chance(2):
            browser.visit_another_gateway(log.epoch, log.head)

    def reset_link(self, slot: Slot) -> None:
        """A client leaves the namespace, and the next one joins over the same connection, which goes on with its queue."""
        connection = slot.connection
        if (
            connection is None
            or connection.closed
            or slot.client is None
            or slot.client.state.arriving
            or connection.idle is False
        ):
            return
        self._unseat(slot)
        connection.cork()
        self._seat(slot, connection)
        slot.point = (slot.browser.epoch, slot.browser.position)

    def _unseat(self, slot: Slot) -> None:
        client, slot.client = slot.client, None
        assert client is not None
        assert slot.connection is not None
        slot.connection.owners = []
        del self.clients[client.session]
        client.leave()
        self.ledger.depart(client)
        for pattern in client.subscriptions:
            self.matcher.remove(pattern, client)

    def _mark(self, slot: Slot, name: str, *words: object) -> None:
        """Mark for the browser where among its events something began or ended."""
        assert slot.connection is not None
        if not slot.connection.closed:
            slot.connection.queue.put(Frame(b"4" + notice_packet(NAMESPACE, name, {"words": words})))
            slot.connection.flush()

    # -- the promises ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything is accounted for, bounded, and in one place only."""
        assert self.readers.handover == {client for client in self.clients.values() if client.state.phase is Phase.HANDOVER}
        assert all(client.state.phase is Phase.READING for client in self.readers._round)
        for slot in (self.witness, *self.slots):
            client, connection = slot.client, slot.connection
            if client is None or connection is None or connection.closed:
                continue
            waiting = sum(owner is client for _, owner in connection.queue._data or ()) + len(client._latest or ())
            assert client.offered == client.sent + client.discarded + client.conflated + waiting, "every event is accounted for"
            assert connection.holds == (not client.state.direct)
            marks = [frame for frame, _ in connection.queue._data or () if b'subscribed"' in frame.packet]
            assert connection.queue.frames - len(marks) <= QUEUE_FRAMES + NOTICES + client_module.MAX_NOTICES
            assert not client.state.full or connection.awaits_drain, "a full queue says when it has drained"
        self._check_ledger()
        witness = self.witness.client
        assert witness is not None
        assert witness.state.phase is Phase.LIVE, "a client that keeps up is never slowed by others"
        assert witness.offered == 0

    def _check_ledger(self) -> None:
        """Over all clients, also those that left, each event for a client is in one place, and no count goes back."""
        walk = self.ledger.walk()
        try:
            while True:
                next(walk)
        except StopIteration as ended:
            balance: DeliveryCounts = ended.value
        if self.bus.task is None:
            assert balance.open == 0, balance
            self.record.check_ledger(balance)
        for name in ("routed", "from_log", "sent", "discarded", "conflated", "left_to_log", "gone"):
            assert getattr(balance, name) >= getattr(self.before, name), f"{name} went back"
        self.before = balance

    def settle(self) -> None:
        """No more faults, so every browser reads, and must have everything."""
        self._depth = 1  # nothing happens in between
        for slot in self.slots:
            if slot.connection is not None and (slot.connection.closed or slot.connection.breaks):
                slot.connection.close()
                self._unseat(slot)
                slot.connection = None
        for _ in range(SETTLE_STEPS):
            if self.bus.task is not None or self.bus.arrived:
                self.run_bus()
                continue
            if self.log.another_process or self.bus.epoch != self.log.epoch:
                self._settle()
                continue
            busy = self.readers.waiting
            while self.readers.waiting and self.bus.task is None:
                reader = self.readers.next()
                try:
                    self.readers.serve(reader, self.feed)
                except BusUnavailable:
                    self.readers.add(reader)
            for slot in self.slots:
                if slot.client is None:
                    continue
                if slot.client.state.arriving and not slot.waits:
                    self.welcome(slot)
                slot.client.pasts_complete()
                assert slot.connection is not None
                slot.connection.make_room(1 << 40)
            if not busy and not self.readers.waiting and not self.readers.handover:
                break
            self.feed.end_handovers()
        else:
            raise AssertionError("does not settle")
        for teller in (self.teller or iter(()), self.feed.send_cursors(), self.feed.send_cursors()):
            for _ in teller:  # the last one leaves no client out, as no event has come since the one before
                pass
        for slot in self.slots:
            if slot.connection is not None:
                slot.connection.make_room(1 << 40)
        self.check()
        tallies = chain.from_iterable(self.tallies.changed())
        writers = self.lines.writers
        self.record.check_tallies([((writers[tally.epoch][tally.offset], tally.offset), tally) for tally in tallies], self.before)
        for slot in (self.witness, *self.slots):
            client, connection, browser = slot.client, slot.connection, slot.browser
            if client is None or connection is None:
                continue
            assert client.state.phase is Phase.LIVE, client.state
            assert connection.idle
            assert connection.ready or connection.wire is None
            assert (browser.epoch, browser.checked) == (self.log.epoch, self.log.head)
            assert not browser.replaced, f"the newest of {browser.replaced} has not come"
            assert not browser.states or browser.states[-1] == "off"
            assert client.offered == client.sent + client.discarded + client.conflated
            assert isinstance(client, _Recorded)
            assert browser.overflowed == client.discarded - client.ephemeral, "the counts of gaps are exact"


class _Recorded(Client):
    """Counts its steps, and notes the topics of plain publishes that found no room."""

    __slots__ = ("_browser", "_taken", "ephemeral")

    def __init__(self, taken: Counter[tuple[str, str]], browser: Browser, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._taken = taken
        self._browser = browser
        self.ephemeral = 0

    def _overflow(self, frame: Frame) -> None:
        before = self.discarded
        super()._overflow(frame)
        if frame.offset is None and self.discarded > before:
            self.ephemeral += frame.is_ephemeral
            self._browser.plain_left_out.add(frame.topic or "")

    def _step(self, step: Step) -> None:
        self._taken[self.session, step.value] += 1
        super()._step(step)


def _on(act: Callable[[Slot], None], slot: Slot) -> Callable[[], None]:
    def bound() -> None:
        act(slot)

    bound.__name__ = f"{act.__name__}({slot.browser.name})"
    return bound


__all__ = ["SMALL", "State", "World"]
