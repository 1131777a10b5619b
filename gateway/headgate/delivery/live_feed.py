"""The live feed of one namespace takes events from the bus to the clients, and reports what will not come.

In: from the bus, events in log order, missing ranges, another epoch or a lost log; from the log readers, clients that have read
up to here. Out: passes of the fan-out, and gaps and cursors to each client by its phase (state.py).

No I/O. The generators yield where their caller may let the loop run. Between two steps clients join, leave, subscribe, overflow,
and turn to and from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from time import monotonic, time
from typing import TYPE_CHECKING

from headgate.events.event import Event
from headgate.events.wire.frames import Frame, event_frame, message_frame
from headgate.events.wire.packets import CURSOR, GapReason, notice_packet
from headgate.runtime.histogram import Histogram
from headgate.runtime.metrics import DELIVERIES, FAN_OUT, PUBLISH_TO_SOCKET

from .bus.feed import Front
from .client import Client
from .direct import DirectWriter, Run
from .fanout import BUDGET_S, Matched, Pass, Router, note_broken, note_in_part
from .log_readers import LogReaders
from .state import Phase

if TYPE_CHECKING:
    from .bus.listener import Bus

# Clients that get a notice, or a cursor, before the loop runs. The writes of 32 cursors take half a millisecond.
_NOTICE_STRIDE, _CURSOR_STRIDE = 256, 32
# With more during one read, the client reads again.
MAX_BRIDGE_BYTES = 1024 * 1024
# Memory of an event without its payload.
EVENT_BYTES = 400
CURSOR_INTERVAL_S = 10.0
CURSOR_SLOTS = 10


class Bridge:
    """The events that the feed hands on during the last read of a client, while `is_open`.

    At a high rate the feed is always ahead of the last answer of Redis, so a client that only reads would never reach it.
    """

    __slots__ = ("_bytes", "_events", "_first", "_namespace", "is_open")

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace.encode()
        self.is_open = False
        self._first = self._bytes = 0
        self._events: list[Event] = []

    def open(self, position: int) -> None:
        """Begin after a position of the feed."""
        self.is_open, self._first, self._bytes, self._events = True, position, 0, []

    def close(self) -> None:
        """Forget everything, after the read or when the feed reports missing events. Idempotent."""
        self.is_open, self._events = False, []

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.offset is not None:
                self._events.append(event)
                self._bytes += EVENT_BYTES + len(event.data)
        if self._bytes > MAX_BRIDGE_BYTES:
            self.close()

    def above(self, position: int, wanted: Callable[[Frame], bool]) -> list[Frame] | None:
        """Return the wanted events from above `position` to the feed, framed as from the log; None if some are missing."""
        if not self.is_open or position < self._first:
            return None
        frames = (event_frame(self._namespace, each, replayed=True) for each in self._events if (each.offset or 0) > position)
        return [frame for frame in frames if wanted(frame)]


def cursor_turns(now_s: float) -> Callable[[float, int, float], set[int]]:
    """Return the turns in which idle clients get a cursor, as no event brings them their position. `now_s` is monotonic.

    The result returns the due slots at a time, for the position of the feed and how many events the log holds before it trims.

    Clients are in CURSOR_SLOTS slots by their sessions, so that not all get a cursor at once. A slot has its turn every
    CURSOR_INTERVAL_S, and sooner once half of the events that the log retains were published since the last one. So the log still
    retains at least half of its events after the position of a client that loses its connection.
    """

    # Time and offset of the last turn of each slot.
    last = [(now_s - CURSOR_INTERVAL_S * slot / CURSOR_SLOTS, 0) for slot in range(CURSOR_SLOTS)]

    def due(now_s: float, position: int, retained: float) -> set[int]:
        slots = set()
        for slot, (at_s, offset) in enumerate(last):
            if now_s - at_s >= CURSOR_INTERVAL_S or position - offset >= max(retained / 2, 1):
                slots.add(slot)
                last[slot] = now_s, position
            elif position < offset:
                last[slot] = at_s, position  # the log has lost its end, of which each client was notified
        return slots

    return due


class LiveFeed:
    """See the module. `under_way` is set from the first to the last pass of one `route`, and during the notices of a loss."""

    def __init__(
        self,
        namespace: str,
        bus: Bus,
        clients: Mapping[str, Client],
        router: Router,
        readers: LogReaders,
        budget_s: float = BUDGET_S,
        direct: DirectWriter | None = None,
    ) -> None:
        self._namespace, self.bus, self._clients, self._router = namespace, bus, clients, router
        self._readers, self._budget_s, self._direct = readers, budget_s, direct
        self._writes = DELIVERIES.of(namespace)
        self._passes = FAN_OUT.of(namespace)
        self._latency = PUBLISH_TO_SOCKET.of(namespace)
        self._deferred: list[Callable[[], None]] = []
        self._handed = 0  # the newest offset handed to the fan-out, or asked for
        self._passed = 0  # the same when the present work began
        self._plain = [0] * CURSOR_SLOTS  # the router's count of plain events at a slot's last cursors
        self.under_way = False
        self.bridge = Bridge(namespace)

    # -- for the log readers --------------------------------------------------------------------------------------

    def position(self) -> int:
        """The offset up to which events have been handed to the fan-out."""
        # The bus goes back when the log has lost its end, and what clients have received counts then.
        if (reached := self.bus.reached) > self._handed:
            self._handed = reached
        return self._handed

    def epoch(self) -> str:
        """The log of this offset."""
        return self.bus.epoch or ""

    def on_live(self, client: Client) -> None:
        """End the handover of a client that the feed has reached, unless work is under way."""
        if not self.under_way and client.position <= self.position():
            client.feed_caught_up()
            if self.bus.epoch is not None:
                client.report_position(self.cursor())

    # -- for clients that arrive ----------------------------------------------------------------------------------

    def welcome_offset(self, client: Client) -> int:
        """Return the offset from which a client begins without a resume.

        It still gets the events that a pass under way took up after its first subscription, and none from before that.
        """
        return client.had(max(self._passed, client.base) if self.under_way else self.position())

    def resume(self, client: Client, offset: int, end: int) -> int:
        """Resume an arriving client, live if it has missed nothing since `offset`; return the offset after which it continues.

        `end` is the newest offset that its log shares with the present one. The client is notified of events above it.
        """
        if offset > end:
            client.resume_rolled_back(end, offset, self.epoch())
            return end
        if offset == self.position() and not self.under_way and not client.has_waiting:
            client.welcome()
        else:
            client.resume_from(offset)
        return offset

    # -- events ---------------------------------------------------------------------------------------------------

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]] = list) -> Iterator[None]:
        """Hand events to their clients in order; yields between slices and every few milliseconds.

        Events of `more`, which came in by then, join the pass.
        """
        with self._at_work():
            matched = self._match(list(events))
            while matched:
                matched = yield from self._run(self._router.passes(matched), more)

    def take(self, replies: list[list[bytes]], front: Front) -> Run | None:
        """Write the first events of replies directly (direct.py), if available and nothing is under way."""
        if self._direct is None or self.under_way or self.bridge.is_open:
            return None
        self._begin_work()
        try:
            began_s = monotonic()
            run = self._direct.take(replies, front)
            if run.taken:
                self._handed = front.reached
                self._note(run, monotonic() - began_s)
            return run
        finally:
            self._end_work()

    def _note(self, run: Run, took_s: float) -> None:
        """Count direct writes, and continue with clients that have frames left."""
        self._router.written(run)
        for client, sent, error, frames in run.left:
            if error is not None:
                note_broken(client, frames, error)
            else:
                note_in_part(client, frames, sent)
        self._writes.total += run.writes
        self._passes.record(took_s)
        now_ms = time() * 1000
        for time_ms, events in run.times:
            self._latency.record((now_ms - time_ms) / 1000, events)

    def between_passes(self, act: Callable[[], None]) -> None:
        """Call `act` when nothing is under way and the position of every client is known. It must neither wait nor raise."""
        if self.under_way:
            self._deferred.append(act)  # from now on, no event joins the pass
        else:
            act()

    def end_handovers(self) -> None:
        """Call `on_live` for each client in HANDOVER."""
        for client in tuple(self._readers.handover):
            self.on_live(client)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._begin_work()
        try:
            yield
        finally:
            self._end_work()

    def _begin_work(self) -> None:
        self.under_way = True
        self._passed = self._handed

    def _end_work(self) -> None:
        self.under_way = False
        if self._readers.handover:
            self.end_handovers()
        deferred, self._deferred = self._deferred, []
        for act in deferred:
            act()

    def _match(self, events: Sequence[Event]) -> list[Matched]:
        if self.bridge.is_open:
            self.bridge.add(events)
        self._handed = next((event.offset for event in reversed(events) if event.offset is not None), self._handed)
        return self._router.match(events)

    def _run(self, passes: Iterator[Pass], more: Callable[[], list[Event]]) -> Generator[None, None, list[Matched]]:
        """Run passes to their end; return events that came in and did not join the last one."""
        left: list[Matched] = []
        pass_ = next(passes, None)
        while pass_ is not None:
            following = next(passes, None)
            began_s = monotonic()
            while not pass_.advance(self._budget_s):
                yield
                if following is None and not left and not self._deferred:
                    fresh = self._match(more())
                    joined = pass_.extend(fresh)
                    left = fresh[joined:]
            self._router.passed(pass_)
            self._writes.total += pass_.writes
            self._passes.record(monotonic() - began_s)
            record_latency(self._latency, pass_.events, time() * 1000)
            pass_ = following
        return left

    # -- what will not come ---------------------------------------------------------------------------------------

    def missing(self, first: int, last: int, reason: GapReason) -> Iterator[None]:
        """Report a range that will not come to all clients except those that read the log, where they meet it."""
        self.bridge.close()
        # A client in HANDOVER has met the events below its position. This is one step, as a client that begins to read during the
        # notices begins above the range.
        begins = [
            (client, max(first, client.position + 1) if client.state.phase is Phase.HANDOVER else first)
            for client in self._clients.values()
            if client.state.takes_live
        ]
        with self._at_work():
            self._handed = max(self._handed, last)
            for count, (client, begin) in enumerate(begins, 1):
                # A client may have resumed since. It then reads from below, and meets the range in the log.
                if begin <= last and (client.state.takes_live or client.position >= last):
                    client.miss(begin, last, reason)
                if not count % _NOTICE_STRIDE:
                    yield

    def change_line(self, end: int) -> Iterator[None]:
        """Report to each client once the new epoch of the log, and which of its received events are no longer there.

        Nothing above `end` reaches a client before its notice, as no pass is under way and the log readers wait. The welcome of
        an arriving client, which has received nothing, has the epoch.
        """
        epoch, was = self.epoch(), self.position()
        self.bridge.close()
        self._handed = min(was, end)
        cursors: dict[int, Frame] = {}
        # In one step, as positions above the end are void.
        had = [(client, client.change_line(end, was)) for client in tuple(self._clients.values())]
        with self._at_work(), self._readers.paused():
            for count, (client, last) in enumerate(had, 1):
                if last is None or client.connection.closed:
                    continue
                if last > end:
                    client.notify_rolled_back(end, last, epoch)
                else:
                    # The client may have asked for a past below the events that it has received.
                    place = last if client.state.phase is Phase.LIVE else min(last, client.position)
                    if (cursor := cursors.get(place)) is None:
                        cursor = cursors[place] = self._cursor(epoch, place)
                    client.notify_line(cursor)
                if not count % _NOTICE_STRIDE:
                    yield

    def lose_log(self, epoch: str, offset: int) -> Iterator[None]:
        """Report the loss of the log to each client once, with the position of the bus in the new one.

        An arriving client is notified when it resumes, or has nothing to lose. Its waiting events are of the old log.
        """
        self._handed = offset
        self.bridge.close()
        cursor = self._cursor(epoch, offset)
        # In one step, as positions in the old log are void.
        welcomed = [client for client in self._clients.values() if not client.state.arriving]
        for client in tuple(self._clients.values()):
            client.lose_log()
        with self._at_work():
            for count, client in enumerate(welcomed, 1):
                if not client.connection.closed:
                    client.notify_log_lost(cursor)
                if not count % _NOTICE_STRIDE:
                    yield

    def notify(self, frame: Frame) -> Iterator[None]:
        """Send a notice to each welcomed client. For an arriving one, the welcome is the first message, and includes this."""
        for count, client in enumerate(tuple(self._clients.values()), 1):
            if not (client.connection.closed or client.state.arriving):
                client.connection.offer_control(frame)
            if not count % _NOTICE_STRIDE:
                yield

    def send_cursors(self, slots: Iterable[int] = range(CURSOR_SLOTS)) -> Iterator[None]:
        """Send a cursor to the idle clients of some slots, a few at a time, so that events do not wait.

        A client that got an event since the last time knows a newer position, unless plain events came, which have none. Only
        LIVE clients get a cursor, as an arriving one may have missed events below the position of the feed.
        """
        only_events: dict[int, bool] = {}
        for slot in slots:
            plain, self._plain[slot] = self._plain[slot], self._router.plain
            only_events[slot] = plain == self._plain[slot]
        # The hash of a session is constant within a process.
        clients = (client for client in tuple(self._clients.values()) if hash(client.session) % CURSOR_SLOTS in only_events)
        while some := tuple(islice(clients, _CURSOR_STRIDE)):
            while self.under_way:  # the feed's position is that of its clients only between two passes
                yield
            frame = self.cursor()
            for client in some:
                before, client.sent_by_cursor = client.sent_by_cursor, client.direct + client.sent - client.from_log
                if only_events[hash(client.session) % CURSOR_SLOTS] and client.sent_by_cursor != before:
                    continue
                # A cursor must not overtake waiting events, from which the client learns the position.
                if client.state.phase is Phase.LIVE and client.connection.idle:
                    client.connection.offer_control(frame)
            yield

    def cursor(self) -> Frame:
        """Return the notice of the feed's position."""
        return self._cursor(self.bus.epoch or "", self.position())

    def _cursor(self, epoch: str, offset: int) -> Frame:
        return message_frame(notice_packet(self._namespace, CURSOR, {"epoch": epoch, "offset": offset}))


def record_latency(histogram: Histogram, events: Sequence[Matched], now_ms: float) -> None:
    """Record the age of events just written to their last client. Runs of events with the same time take one record."""
    # A loop, as `itertools.groupby` takes more than twice as long (1.7 µs instead of 0.7 for one event).
    time_ms, times = 0, 0
    for matched in events:
        if matched.frame.time_ms == time_ms:
            times += 1
            continue
        if times:
            histogram.record((now_ms - time_ms) / 1000, times)
        time_ms, times = matched.frame.time_ms, 1
    if times:
        histogram.record((now_ms - time_ms) / 1000, times)
