"""A client, which is one connected browser in one namespace, and the way of each of its events. No I/O.

In: events that the fan-out could not write directly (`offer`), and chunks of the log (`take_chunk`). Out: frames into the queue
of its connection, and notices (gap, backpressure) of exactly the events left out.

From the moment that the queue is full until it has drained to LOW_WATER, each event follows its overflow policy (policies.py).
This keeps the order, and makes a gap one range. With `catch_up` the client reads the log from this event on, and the gap of an
earlier `drop` goes first. `latest` keeps the newest event of each topic and conflates older ones, and `drop` counts the event
into the gap (gap.py). If several subscriptions match, the strongest policy in this order applies. An arriving client reads from
the first logged event that it cannot take. It has received nothing yet, so it misses nothing.

Invariants: offered = sent + discarded + conflated + waiting, and matched + from_log = direct + offered + left_to_log + gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headgate.auth.identity import Identity
from headgate.events.wire.frames import Frame, message_frame
from headgate.events.wire.packets import BACKPRESSURE, GapReason, Overflow, notice_packet
from headgate.runtime.metrics import EPHEMERAL_DISCARDED
from headgate.transport.send_queue import HIGH_WATER, LOW_WATER, ClientQueue

from .gap import Gaps, Latest, log_lost_notice, rolled_back_notice
from .policies import Policies, strongest
from .state import FIRST, MACHINE, Phase, Pressure, State, Step

if TYPE_CHECKING:
    from headgate.transport.outbox import Outbox

    from .log_readers import LogReaders

# Notices of one client (gaps, changes of the epoch) that may wait beyond the limit of its queue.
MAX_NOTICES = 64
# Nearly all clients have no starts, and share this.
NO_STARTS: Mapping[str, int] = MappingProxyType({})


class _NoConnection:
    """The connection of a client that has left."""

    queue = ClientQueue(1, 1)
    wire = None
    ready = awaits_drain = False
    closed = True

    def offer_control(self, frame: Frame) -> None:
        pass


_NO_CONNECTION: Any = _NoConnection()


class Client:
    """One subscriber, hashable by identity for the matcher.

    Attributes:
        direct: events written directly to the socket.
        offered: events for the queue; `sent`, `discarded` and `conflated` are parts of them.
        from_log: events of `direct` and `offered` that came from the log.
        left_to_log: live events that were skipped or returned, because they come from the log.
        gone: events that came after its connection broke or ended.
        gaps: gap notices put into its queue.
        since_ms: when it joined, in milliseconds since 1970.
        allowed: the last actions and patterns that the application has authorized for its present grants.
        auth: the CONNECT object, if the authenticator is asked again for its grants; else None.
        sent_by_cursor: how many live events it had been sent at the last round of cursors.
        account: the user or address charged for its reads of the log.
        asked: number of the question about handling (node/requests/handling.py) without an answer yet; 0 means none.
        state: see state.py; only the methods here change it.
        subscriptions: its overflow policies by pattern; only `subscribe` and `unsubscribe` change them while it is here.
        position: while it reads the log, the offset that it has reached; in HANDOVER, the handover offset.
        base, starts: while it reads the log, the offset above which it wants events, and the patterns with another one. Before
            and without a read, `base` is the offset at which its first subscription became active.
    """

    __slots__ = (
        "_gaps", "_latest", "_reader", "account", "allowed", "asked", "auth", "base",
        "conflated", "connection", "direct", "discarded", "from_log", "gaps", "gone", "identity",
        "left_to_log", "namespace", "offered", "position", "sent", "sent_by_cursor", "session", "since_ms",
        "starts", "state", "subscriptions",
    )  # fmt: skip

    def __init__(
        self,
        namespace: str,
        session: str,
        identity: Identity,
        connection: Outbox,
        reader: LogReaders,
        account: str | None = None,
        since_ms: int = 0,
    ) -> None:
        self.namespace, self.session, self.identity = namespace, session, identity
        self.account = account or session
        self.connection = connection
        self.subscriptions = Policies()
        self.direct = self.offered = self.sent = self.discarded = self.conflated = self.sent_by_cursor = 0
        self.from_log = self.left_to_log = self.gone = self.gaps = 0
        self.since_ms = since_ms
        self.asked = 0
        self.allowed: dict[tuple[str, str], None] | None = None
        self.auth: Mapping[str, Any] | None = None
        self.state: State = FIRST
        self.position = self.base = 0
        self.starts: Mapping[str, int] = NO_STARTS
        self._reader = reader
        self._gaps: Gaps | None = None
        self._latest: Latest | None = None

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(self, pattern: str, overflow: Overflow) -> bool:
        """Add a subscription, or change its policy; return whether the pattern is new."""
        return self.subscriptions.put(pattern, overflow)

    def unsubscribe(self, pattern: str) -> bool:
        """Remove a subscription; return False if there was none."""
        if not self.subscriptions.remove(pattern):
            return False
        if pattern in self.starts:
            self.starts = {other: start for other, start in self.starts.items() if other != pattern}
        return True

    # -- arriving -------------------------------------------------------------------------------------------------

    def begin(self, feed_offset: int) -> None:
        """Note that its first subscription becomes active, for events above the position of the feed."""
        if self.state is FIRST:
            self.base = feed_offset

    def welcome(self) -> None:
        """Welcome a client that resumes nothing, which becomes live or reads the past that it has asked for."""
        self._step(Step.WELCOMED)

    def resume_from(self, offset: int) -> None:
        """Continue after this offset of the log. A past that it has asked for keeps its start."""
        self._forget_above(0)
        self._read(Step.RESUMED, offset, self.starts)

    def resume_rolled_back(self, end: int, had: int, epoch: str) -> None:
        """Report the loss of events `end` + 1 … `had`, which it has seen, ahead of all others, and continue after `end`."""
        self._forget_above(0)
        self._put_ahead(rolled_back_notice(self.namespace, self.subscriptions, end, had, epoch))
        self._read(Step.RESUMED, end, self.starts)

    def welcome_to_another_log(self) -> None:
        """Report the loss of the log that it would resume in, ahead of waiting events, which are of the present log."""
        self._put_ahead(log_lost_notice(self.namespace, self.subscriptions))
        self._step(Step.WELCOMED)

    @property
    def has_waiting(self) -> bool:
        """Whether live events since it arrived still wait, or were left out."""
        return self.state.phase is not Phase.ARRIVING or self.offered > self.sent

    # -- live -----------------------------------------------------------------------------------------------------

    def offer(self, frame: Frame) -> None:
        """Take an event that could not be written directly. Queue it, or let its policy decide. Never waits."""
        connection = self.connection
        state = self.state
        if connection.closed:
            if state.phase is Phase.LEFT:
                self._reader.late += 1  # the ledger has counted this client
            else:
                self.gone += 1
            if frame.tally is not None:
                frame.tally.gone += 1
            return
        if frame.offset is not None and (
            not state.takes_live or (state.phase is Phase.HANDOVER and frame.offset <= self.position)
        ):
            self.left_to_log += 1
            if frame.tally is not None:
                frame.tally.left_to_log += 1
            return
        self.offered += 1
        # An ephemeral event takes no room from those of the log.
        if state.full or (frame.is_ephemeral and connection.queue.level >= HIGH_WATER):
            self._overflow(frame)
        elif connection.offer(frame, self):
            if frame.tally is not None:
                frame.tally.queued += 1
            if connection.queue.level >= HIGH_WATER and self.state.pressure is not Pressure.WARNED:
                self._step(Step.OVER_HIGH_WATER)
                connection.awaits_drain = True
                self._report_pressure("warning")
        else:
            self._queue_full()
            if not self.state.arriving:
                self._make_room()
            self._overflow(frame)
            self._report_pressure("on")  # last, as it may be written at once with the queue, which is then no longer full

    def send(self, frame: Frame) -> bool:
        """Queue an unlogged event for this client alone, outside policies, gaps and ledger; return False without room."""
        connection = self.connection
        return not (connection.closed or self.state.full or self.state.arriving) and connection.offer(frame)

    def miss(self, first: int, last: int, reason: GapReason) -> None:
        """Report a range of the log that will not come, in its place among events.

        The notice counts the whole range, as the number of matching events is unknown. An arriving client meets it in the log.
        """
        if self.connection.closed:
            return
        if self.state.arriving:
            if self.state.takes_live:
                self._read(Step.FELL_BEHIND, first - 1, {})
            return
        if reason is GapReason.TRIMMED and self._latest:
            # The end of such a gap moves the browser's position, so earlier events go first.
            self._report_gaps()
            self._hand_over_latest()
        self._note(reason, first, last, last - first + 1, 0, self.subscriptions)
        if not self.state.full and self.connection.queue.level >= 1:
            self._queue_full()
            self._report_pressure("on")
        if not self.state.full:
            self._report_gaps()
            self.connection.flush()

    def drained(self) -> None:
        """Report gaps and send kept events now that the queue has drained, then continue live or from the log."""
        if self.connection.closed:
            return
        before = self.state
        self._step(Step.DRAINED)
        if before.pressure in (Pressure.WARNED, Pressure.FULL):
            self._report_gaps()
            self._hand_over_latest()
            if self.state.pressure is Pressure.OK:
                self.subscriptions.forget_map()
                self._report_pressure("off")
            self.connection.flush()
        if self.state.phase is Phase.READING:
            self._reader.add(self)

    # -- from the log ---------------------------------------------------------------------------------------------

    def place(self, feed_offset: int) -> int:
        """Return the offset above which a new subscription gets events, which is the feed's or that of the client's reading."""
        if self.state.phase in (Phase.ARRIVING, Phase.LIVE):
            return feed_offset
        return max(feed_offset, self.position, self.even_from if self.state.phase is not Phase.HANDOVER else 0)

    def had(self, feed_offset: int) -> int:
        """Return the offset up to which it has received events, apart from pasts that it has asked for."""
        phase = self.state.phase
        if phase in (Phase.ARRIVING, Phase.LIVE):
            return feed_offset
        return max(self.position, feed_offset if phase is Phase.HANDOVER else self.base)

    def ask_past(self, pattern: str, start: int, feed_offset: int, *, is_new: bool = True) -> None:
        """Read a pattern's events above `start` from the log, and those of its other patterns above its position.

        A known pattern that has not received everything below `start` continues where it is. A live client is at `feed_offset`,
        which is exact only between two passes of the fan-out. Call `pasts_complete` afterwards, or welcome an arriving client.
        """
        state = self.state
        if state.takes_live or self._latest:
            # What a full queue has left out or kept goes ahead of the past.
            self._report_gaps()
            self._hand_over_latest()
        if state.takes_live:
            base, starts = self.position if state.phase is Phase.HANDOVER else feed_offset, dict[str, int]()
        else:  # only the new pattern goes further back than the client's position
            base = max(self.base, self.position)
            starts = {other: max(begin, self.position) for other, begin in self.starts.items()}
        if not is_new:  # its earlier handlers may still wait for older events
            start = min(start, starts.get(pattern, start if state.arriving else base))
        if state.arriving and (first := self._forget_above(0)) is not None:
            base = min(base, first - 1)  # nothing was sent yet, so one reading brings all in order
        self._read(Step.PAST_ASKED, base, {**starts, pattern: start})

    def pasts_complete(self) -> None:
        """Begin to read, if it has asked for a past."""
        if self.state.phase is Phase.COLLECTING:
            self._step(Step.PASTS_COMPLETE)

    @property
    def even_from(self) -> int:
        """The offset from which on all of its patterns are at one position of the log."""
        return max(self.base, *self.starts.values()) if self.starts else self.base

    def wants(self, frame: Frame) -> bool:
        """Whether a subscription that matches an event of the log has not received it yet."""
        offset = frame.offset or 0
        return any(offset > self.starts.get(pattern, self.base) for pattern, _ in self.subscriptions.reached(frame.topic or ""))

    def subscribed_to(self, topic: str) -> bool:
        """Whether a subscription matches a topic."""
        return bool(self.subscriptions.reached(topic))

    def take_chunk(self, frames: Sequence[Frame], last: int) -> bool:
        """Send consecutive frames of the log; return False without room for all. `position` is where it stopped."""
        before = self.direct + self.offered
        accepted = self.connection.stream(frames, self) if frames else 0
        taken = self.direct + self.offered - before  # none if the connection broke
        self.from_log += taken
        self._reader.tallies.read(frames[:taken])
        if accepted < len(frames):
            self.position = (frames[accepted].offset or 1) - 1
            return False
        self.position = last
        if self.starts and last >= self.even_from:
            self.starts = NO_STARTS
        return True

    def wait_for_room(self) -> None:
        """Ask for the next page once the queue has drained, or at once if it has."""
        if self.connection.queue.level <= LOW_WATER and not self.state.full:
            self._reader.add(self)
        else:
            self.connection.awaits_drain = True

    def reach_feed(self) -> None:
        """Take live events above its position, through the queue, now that it has read up to the live feed."""
        self._end_reading(Step.REACHED_FEED)

    def feed_caught_up(self) -> None:
        """Allow direct writes again, as the feed has reached the handover offset."""
        self._step(Step.FEED_CAUGHT_UP)

    def report_position(self, cursor: Frame) -> None:
        """Report the feed's position to a live client, after all that waits. While gaps wait for room, a later cursor does."""
        if self.state.phase is Phase.LIVE and not self.state.full:
            self.connection.offer(cursor)

    # -- the end of a log, and of a client ------------------------------------------------------------------------

    def lose_log(self) -> None:
        """Forget positions in the lost log. `notify_log_lost` must follow, unless it is arriving."""
        if self.state.arriving:
            self._forget_above(0)
            self.base = 0
        self._end_reading(Step.LOG_LOST)

    def notify_log_lost(self, cursor: Frame) -> None:
        """Report the loss of the log and the position in the new one, in their place and never left out.

        Offsets begin again, so gaps and kept events go first, even if the queue is full. They are one notice per reason, and
        frames with reserved room.
        """
        self._report_gaps()
        self._hand_over_latest()
        self._note(GapReason.LOG_LOST, None, None, 0, 0, self.subscriptions)
        self._report_gaps()
        self.connection.queue.put(cursor)
        self.connection.flush()

    def change_line(self, end: int, feed_offset: int) -> int | None:
        """Move to another epoch of the log, which shares everything up to `end`; return the offset up to which it has events.

        `feed_offset` is exact between two passes of the fan-out. `notify_line` or `notify_rolled_back` must follow, except for an
        arriving client, which has received no events (None).
        """
        had = self.had(feed_offset)
        if self.state.arriving:
            self._forget_above(end)
        self.position, self.base = min(self.position, end), min(self.base, end)
        self.starts = {pattern: min(start, end) for pattern, start in self.starts.items()} or NO_STARTS
        return None if self.state.arriving else had

    def notify_line(self, notice: Frame) -> None:
        """Report the new epoch of the log, by a cursor if the client has lost nothing. Order and room: as in `notify_log_lost`.

        Beyond MAX_NOTICES the connection of a client that does not read ends, and when it resumes, one notice has all changes.
        """
        self._report_gaps()
        self._hand_over_latest()
        queue = self.connection.queue
        queue.put(notice)
        if queue.frames > queue.max_frames + MAX_NOTICES:
            self.connection.end("it did not read while the log changed")
        else:
            self.connection.flush()

    def notify_rolled_back(self, end: int, had: int, epoch: str) -> None:
        """Report the new epoch, and that events `end` + 1 … `had` are no longer in the log."""
        self.gaps += 1
        self.notify_line(rolled_back_notice(self.namespace, self.subscriptions, end, had, epoch))

    def leave(self) -> None:
        """Leave the namespace, and give up the connection, which may continue. Idempotent.

        Events that a pass under way holds must neither follow the goodbye nor reach the next client on this connection, which
        gets them from the log.
        """
        if self.state.phase is not Phase.LEFT:
            self._step(Step.LEFT)
            self.connection = _NO_CONNECTION
            for frame in self._latest.in_order() if self._latest else ():
                if frame.tally is not None:
                    frame.tally.kept -= 1
                    frame.tally.gone += 1

    def _step(self, step: Step) -> None:
        """Take a step, hold or release direct writes, and report the phase to the log readers. Nothing else sets the state."""
        before = self.state
        after = self.state = MACHINE[before, step]
        if after.phase is before.phase:
            return
        if not (before.direct and after.direct):  # a reader of the log, or about to be one
            self._reader.moved(self, before.phase, after.phase)
        if before.direct is not after.direct:
            self.connection.hold_direct(not after.direct)
        if after.phase is Phase.READING and not after.full:
            self._reader.add(self)  # else when the queue has drained

    def _end_reading(self, step: Step) -> None:
        was_eased = self.state.pressure is Pressure.EASED
        self.subscriptions.forget_map()
        self.starts = NO_STARTS
        self._step(step)
        if was_eased:
            self._report_pressure("off")

    def _read(self, step: Step, base: int, starts: Mapping[str, int]) -> None:
        self.base, self.starts = base, starts
        self.position = min([base, *starts.values()])
        self._step(step)

    def _queue_full(self) -> None:
        self._step(Step.QUEUE_FULL)
        self.connection.awaits_drain = True

    def _overflow(self, frame: Frame) -> None:
        """Apply the strongest policy to an event without room."""
        if frame.is_ephemeral:
            self.discarded += 1
            EPHEMERAL_DISCARDED.labels(self.namespace).inc()
            return
        reached = self.subscriptions.reached(frame.topic or "")
        policy = strongest(reached)
        if self.state.arriving and frame.offset is not None:
            policy = Overflow.CATCH_UP
        if policy is Overflow.LATEST and self._keep_latest(frame):
            return
        if policy is Overflow.CATCH_UP and frame.offset is not None:
            self.offered -= 1
            self.left_to_log += 1
            if frame.tally is not None:
                frame.tally.left_to_log += 1
            self._read(Step.FELL_BEHIND, frame.offset - 1, {})
            return
        self.discarded += 1
        if frame.tally is not None:
            frame.tally.discarded += 1
        self._note(GapReason.OVERFLOW, frame.offset, frame.offset, 1, frame.payload_bytes, [pattern for pattern, _ in reached])

    def _forget_above(self, end: int) -> int | None:
        """Forget waiting events of the log above `end` as if never offered; return the first one's offset. Plain ones stay."""
        queue = self.connection.queue
        self._hand_over_latest()
        waiting = queue.discard(self)
        kept = [frame for frame in waiting if frame.offset is None or frame.offset <= end]
        self.offered -= len(waiting) - len(kept)
        self.left_to_log += len(waiting) - len(kept)
        for frame in waiting:
            if frame.tally is not None and (frame.offset or 0) > end:
                frame.tally.queued -= 1
                frame.tally.left_to_log += 1
        for frame in kept:
            queue.put(frame, self)
        return min((frame.offset for frame in waiting if frame.offset is not None and frame.offset > end), default=None)

    def _put_ahead(self, notice: Frame) -> None:
        queue = self.connection.queue
        waiting = queue.discard(self)
        queue.put(notice)
        self.gaps += 1
        for frame in waiting:
            queue.put(frame, self)
        self.connection.flush()

    def _note(
        self, reason: GapReason, first: int | None, last: int | None, count: int, size: int, patterns: Iterable[str]
    ) -> None:
        if self._gaps is None:
            self._gaps = Gaps()
        self._gaps.add(reason, first, last, count, size, patterns)

    def _report_gaps(self) -> None:
        gaps, self._gaps = self._gaps, None
        for frame in gaps.take(self.namespace) if gaps else ():
            self.connection.queue.put(frame)
            self.gaps += 1

    def _hand_over_latest(self) -> None:
        """Queue what `latest` kept; `_keep_latest` has reserved the room."""
        latest, self._latest = self._latest, None
        for frame in latest.in_order() if latest else ():
            self.connection.queue.put(frame, self)
            if frame.tally is not None:
                frame.tally.kept -= 1
                frame.tally.queued += 1

    def _keep_latest(self, frame: Frame) -> bool:
        """Keep the newest frame of a topic, if there is room."""
        if self._latest is None:
            self._latest = Latest()
        if not self._latest.keep(frame, self.connection.queue, self):
            return False
        if frame.tally is not None:
            frame.tally.kept += 1
        return True

    def _make_room(self) -> None:
        """Conflate the queue if all subscriptions are `latest` and only their events are queued; else order forbids it."""
        queue = self.connection.queue
        kept = len(self._latest or ())
        own = self.offered - 1 - self.sent - self.discarded - self.conflated - kept  # without the event that found no room
        if own == queue.frames and all(policy is Overflow.LATEST for policy in self.subscriptions.values()):
            for frame in queue.discard(self):
                if frame.tally is not None:
                    frame.tally.queued -= 1
                self._overflow(frame)

    def _report_pressure(self, state: str) -> None:
        queue = self.connection.queue
        body: dict[str, Any] = {
            "state": state,
            "queued": queue.frames,
            "queued_bytes": queue.bytes,
            "discarded": self.discarded,
            "conflated": self.conflated,
        }
        self.connection.offer_control(message_frame(notice_packet(self.namespace, BACKPRESSURE, body)))
