"""A client: one connected browser in one namespace, and where each of its events goes. No I/O.

In: events from the fan-out that could not be written directly (`offer`), chunks of the log (`take_chunk`). Out: frames into the
queue of its connection (client_connection.py), and notices (gap, backpressure) that say exactly which events were left out.

state.py names the states and the steps between them. A step also does all that belongs to it: it holds or releases the direct
writes of the connection, and tells the log readers (log_readers.py) where the client is.

While the queue is full, every event follows its overflow policy (policies.py), until the queue has drained to LOW_WATER. So order
is kept, and a gap is one range, not a rash.
`catch_up`: the client reads the log from this event on. `latest`: the newest per topic is kept (latest.py), older ones are
conflated. `drop`: counted into the gap (gap.py). When subscriptions differ, the strongest that matches the event wins, in this
order; and once the client reads, everything comes from the log, whatever its policy. The gap of an earlier `drop` is told
first. A client that arrives reads from the first logged event that it cannot take: nobody has told it anything yet, so it
misses nothing.

Invariants, per client: offered = sent + discarded + conflated + waiting; and each event that the router or the log has handed to
it is in one place: matched + from_log = direct + offered + left_to_log + gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from headgate.auth.identity import Identity
from headgate.protocol.frames import Frame, message_frame
from headgate.protocol.packets import BACKPRESSURE, GapReason, Overflow, notice_packet
from headgate.transport.send_queue import HIGH_WATER, LOW_WATER

from .client_connection import NO_CONNECTION, ClientConnection
from .gap import Gaps, log_lost_notice, rolled_back_notice
from .latest import Latest
from .policies import Policies, strongest
from .state import FIRST, MACHINE, Phase, Pressure, State, Step
from .tally import Tallies

# Notices of one client that may wait beyond the limit of its queue: gaps, and words of another epoch.
MAX_NOTICES = 64
# Nearly all clients have no starts of their own, and share this.
NO_STARTS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _LineTold:
    """A word of another epoch: a cursor, or that events `end` + 1 … `had` are no longer in the log (`had` 0: none)."""

    frame: Frame
    end: int = 0
    had: int = 0


class LogReader(Protocol):
    """Serves clients that read the log (log_readers.py). `late` counts events that came for clients that had left."""

    late: int
    tallies: Tallies

    def add(self, client: Client) -> None:
        """This client, which is READING, may have its next page. Never waits; idempotent."""

    def moved(self, client: Client, before: Phase, after: Phase) -> None:
        """This client is in another phase. Never waits."""


class Client:
    """One subscriber. Hashable by identity, as the matcher needs it.

    Attributes:
        direct: events written straight to the socket.
        offered: events that had to go through the queue; of these `sent`, `discarded` and `conflated` are accounted for.
        from_log: events that the log has brought; they are among `direct` and `offered`.
        left_to_log: live events that were not taken, or given back, because the log brings them.
        gone: events that came when its connection was broken or over.
        gaps: how many notices of a gap were put into its queue.
        since_ms: when it joined, in milliseconds since 1970.
        allowed: the actions with their patterns that the application has authorized, while its grants are what they are.
        auth: the CONNECT object, where the authenticator is asked again for its grants; None where it is not.
        told: how many events had gone out to it when idle clients were last told their position.
        account: the user or address for which its reads of the log count.
        asked: the number of the question about handling (node/requests/handling.py) that it has not answered; 0: none.
        state: see state.py; only the methods here change it.
        subscriptions: its overflow policies by pattern; only `subscribe` and `unsubscribe` change them while it is here.
        position: while the log feeds it, the offset up to which it has; in HANDOVER, the handover offset.
        base, starts: while the log feeds it, the offset above which events are for it, and the patterns for which that is
            another one.
    """

    __slots__ = (
        "_gaps",
        "_latest",
        "_line_told",
        "_reader",
        "account",
        "allowed",
        "asked",
        "auth",
        "base",
        "conflated",
        "connection",
        "direct",
        "discarded",
        "from_log",
        "gaps",
        "gone",
        "identity",
        "left_to_log",
        "namespace",
        "offered",
        "position",
        "sent",
        "session",
        "since_ms",
        "starts",
        "state",
        "subscriptions",
        "told",
    )

    def __init__(
        self,
        namespace: str,
        session: str,
        identity: Identity,
        connection: ClientConnection,
        reader: LogReader,
        account: str | None = None,
        since_ms: int = 0,
    ) -> None:
        self.namespace = namespace
        self.session = session
        self.identity = identity
        self.account = account or session
        self.connection = connection
        self.subscriptions = Policies()
        self.direct = self.offered = self.sent = self.discarded = self.conflated = self.told = 0
        self.from_log = self.left_to_log = self.gone = self.gaps = 0
        self.since_ms = since_ms
        self.asked = 0
        self.allowed: set[tuple[str, str]] | None = None
        self.auth: Mapping[str, Any] | None = None
        self.state: State = FIRST
        self.position = self.base = 0
        self.starts: Mapping[str, int] = NO_STARTS
        self._reader = reader
        self._gaps: Gaps | None = None
        self._latest: Latest | None = None
        self._line_told: _LineTold | None = None

    @property
    def routed(self) -> int:
        """Events that were handed to this client."""
        return self.direct + self.offered

    @property
    def kept(self) -> int:
        """Events that wait in place of older ones of their topics, outside the queue."""
        return len(self._latest) if self._latest is not None else 0

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(self, pattern: str, overflow: Overflow) -> bool:
        """Note a subscription; the matcher finds it. Return whether the pattern is a new one."""
        is_new = pattern not in self.subscriptions
        self.subscriptions.put(pattern, overflow)
        return is_new

    def unsubscribe(self, pattern: str) -> bool:
        """Forget a subscription; False if there was none."""
        if not self.subscriptions.remove(pattern):
            return False
        if pattern in self.starts:
            self.starts = {other: start for other, start in self.starts.items() if other != pattern}
        return True

    # -- arriving -------------------------------------------------------------------------------------------------

    def welcome(self) -> None:
        """It resumes nothing: it is live, or reads what it asked for meanwhile."""
        self._step(Step.WELCOMED)

    def resume_from(self, offset: int) -> None:
        """It goes on behind this offset of the log; a past that it asked for meanwhile keeps its own start."""
        self.forget_waiting()
        self._read(Step.RESUMED, offset, self.starts)

    def resume_rolled_back(self, end: int, had: int, epoch: str) -> None:
        """It has seen events `end` + 1 … `had`, which the log has lost: it is told so ahead of all, and goes on behind `end`."""
        self.forget_waiting()
        self._put_ahead(rolled_back_notice(self.namespace, self.subscriptions, end, had, epoch))
        self._read(Step.RESUMED, end, self.starts)

    def welcome_to_another_log(self) -> None:
        """The log that it would resume in is lost: it is told so ahead of everything that waits, which is of the log there is."""
        self._put_ahead(log_lost_notice(self.namespace, self.subscriptions))
        self._step(Step.WELCOMED)

    @property
    def has_waiting(self) -> bool:
        """Whether anything that the feed has brought since it arrived is still on its way, or was left out."""
        return self.state.phase is not Phase.ARRIVING or self.offered > self.sent

    def forget_waiting(self) -> int | None:
        """Forget the events of the log that wait, as if they had never been offered; return the first one's offset, if any.

        Plain publishes stay: the log has none.
        """
        return self._forget_above(0)

    # -- live -----------------------------------------------------------------------------------------------------

    def offer(self, frame: Frame) -> None:
        """Take an event that could not be written directly: queue it, or let its policy decide. Never waits."""
        connection = self.connection
        state = self.state
        if connection.closed:
            if state.phase is Phase.LEFT:
                self._reader.late += 1  # nobody looks at this client any more
            else:
                self.gone += 1
            if frame.tally is not None:
                frame.tally.gone += 1
            return
        if frame.offset is not None and (
            not state.takes_live or (state.phase is Phase.HANDOVER and frame.offset <= self.position)
        ):
            self.left_to_log += 1  # it brings it, or has brought it
            if frame.tally is not None:
                frame.tally.left_to_log += 1
            return
        self.offered += 1
        if state.full:
            self._overflow(frame)
        elif connection.offer(frame, self):
            if frame.tally is not None:
                frame.tally.queued += 1
            if connection.queue.level >= HIGH_WATER and self.state.pressure is not Pressure.WARNED:
                self._step(Step.OVER_HIGH_WATER)
                connection.awaits_drain = True
                self._tell("warning")
        else:
            self._queue_full()
            if not self.state.arriving:
                self._make_room()
            self._overflow(frame)
            self._tell("on")  # last: it may be written at once, and the queue with it, which is then no longer full

    def send(self, frame: Frame) -> bool:
        """Take an event that is for this client alone and in no log, behind what waits; False if it has no room now.

        No policy decides about it, and no gap tells of it: the one who sends is told. It counts for no sum of the ledger.
        """
        connection = self.connection
        return not (connection.closed or self.state.full or self.state.arriving) and connection.offer(frame)

    def miss(self, first: int | None, last: int | None, reason: GapReason) -> None:
        """Tell the client, in its place among events, that a range of the log will not come (None: nobody knows which).

        The count is that of the range: how much of it matched can no longer be known. One that arrives will meet the range in the
        log.
        """
        if self.connection.closed:
            return
        if self.state.arriving and first is not None:
            if self.state.takes_live:
                self._read(Step.FELL_BEHIND, first - 1, {})
            return
        count = last - first + 1 if first is not None and last is not None else 0
        if reason is GapReason.TRIMMED and self._latest:
            # The end of such a gap moves the browser's position: what it would pass over goes ahead.
            self._tell_gaps()
            self._hand_over_latest()
        self._note(reason, first, last, count, 0, self.subscriptions)
        if not self.state.full and self.connection.queue.level >= 1:
            self._queue_full()
            self._tell("on")
        if not self.state.full:
            self._tell_gaps()
            self.connection.flush()

    def drained(self) -> None:
        """The queue has drained: say what is missing, hand over what `latest` kept, then flow, or read on."""
        if self.connection.closed:
            return
        before = self.state
        self._step(Step.DRAINED)
        if before.pressure in (Pressure.WARNED, Pressure.FULL):
            self._tell_gaps()
            self._hand_over_latest()
            if self.state.pressure is Pressure.OK:
                self.subscriptions.forget_map()
                self._tell("off")
            self.connection.flush()
        if self.state.phase is Phase.READING:
            self._reader.add(self)

    # -- from the log ---------------------------------------------------------------------------------------------

    def place(self, feed_offset: int) -> int:
        """Return the offset above which a subscription that begins now has its events.

        That is the feed's, unless the client has read further: what lies between was published before.
        """
        if self.state.phase in (Phase.ARRIVING, Phase.LIVE):
            return feed_offset
        return max(feed_offset, self.position, self.even_from if self.state.phase is not Phase.HANDOVER else 0)

    def had(self, feed_offset: int) -> int:
        """Return the offset up to which it has had events, but for pasts that it has asked for: its position, as it knows it."""
        phase = self.state.phase
        if phase in (Phase.ARRIVING, Phase.LIVE):
            return feed_offset
        return max(self.position, feed_offset if phase is Phase.HANDOVER else self.base)

    def ask_past(self, pattern: str, start: int, feed_offset: int, *, is_new: bool = True) -> None:
        """Have the log bring a pattern's events above `start`, and those of its others above the place where it is.

        A pattern that is not new, and has not had all below `start` yet, goes on where it is. The place of a client that the
        feed feeds is `feed_offset`, which is only exact between two passes of the fan-out.
        `pasts_complete` must follow, or the welcome if it is still arriving.
        """
        state = self.state
        if state.takes_live or self._latest:
            # Everything that a full queue has left out or kept comes ahead of the past.
            self._tell_gaps()
            self._hand_over_latest()
        if state.takes_live:
            base, starts = self.position if state.phase is Phase.HANDOVER else feed_offset, dict[str, int]()
        else:  # it has what it has had: only the new pattern goes further back than its position
            base = max(self.base, self.position)
            starts = {other: max(begin, self.position) for other, begin in self.starts.items()}
        if not is_new:  # nothing that its handlers of before have still to get is left out
            start = min(start, starts.get(pattern, start if state.arriving else base))
        if state.arriving and (first := self.forget_waiting()) is not None:
            base = min(base, first - 1)  # nothing has gone out yet, so all comes in one reading, in order
        self._read(Step.PAST_ASKED, base, {**starts, pattern: start})

    def pasts_complete(self) -> None:
        """All pasts that it asks for at once are active: read, if it asked for any."""
        if self.state.phase is Phase.COLLECTING:
            self._step(Step.PASTS_COMPLETE)

    @property
    def even_from(self) -> int:
        """The offset from which on its patterns are no longer at different places of the log."""
        return max(self.base, *self.starts.values()) if self.starts else self.base

    def wants(self, frame: Frame) -> bool:
        """Whether an event of the log is for this client, by what each subscription has not had yet."""
        offset = frame.offset or 0
        return any(offset > self.starts.get(pattern, self.base) for pattern, _ in self.subscriptions.reached(frame.topic or ""))

    def subscribed_to(self, frame: Frame) -> bool:
        """Whether a subscription matches an event of the log."""
        return bool(self.subscriptions.reached(frame.topic or ""))

    def take_chunk(self, frames: Sequence[Frame], last: int) -> bool:
        """Send consecutive frames of the log; False when there was not room for all (`position` says how far it came)."""
        before = self.direct + self.offered
        accepted = self.connection.stream(frames, self) if frames else 0
        taken = self.direct + self.offered - before  # none, when the connection broke
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
        """Have the next page when the queue has drained; at once if it already has."""
        if self.connection.queue.level <= LOW_WATER and not self.state.full:
            self._reader.add(self)
        else:
            self.connection.awaits_drain = True

    def reach_feed(self) -> None:
        """It has read as far as the live feed is: live events above its position come from now on, through the queue."""
        eased = self.state.pressure is Pressure.EASED
        self.subscriptions.forget_map()
        self.starts = NO_STARTS
        self._step(Step.REACHED_FEED)
        if eased:
            self._tell("off")

    def feed_caught_up(self) -> None:
        """The feed has reached the handover offset: direct writes may begin again."""
        self._step(Step.FEED_CAUGHT_UP)

    # -- the end of a log, and of a client ------------------------------------------------------------------------

    def lose_log(self) -> None:
        """The log is another one: no position in the old one means anything. `tell_log_lost` follows, unless it is arriving."""
        eased = self.state.pressure is Pressure.EASED
        self.subscriptions.forget_map()
        self.starts = NO_STARTS
        if self.state.arriving:
            self.forget_waiting()
        self._step(Step.LOG_LOST)
        if eased:
            self._tell("off")

    def tell_log_lost(self, cursor: Frame) -> None:
        """Tell the client that the log is another one, and where that stands: both in their place, and never left out.

        Offsets begin anew, so what is known of the old log goes ahead, also when the queue is full: the gaps are one
        notice per reason, and what `latest` kept has its room.
        """
        self._tell_gaps()
        self._hand_over_latest()
        self._note(GapReason.LOG_LOST, None, None, 0, 0, self.subscriptions)
        self._tell_gaps()
        self.connection.queue.put(cursor)
        self.connection.flush()

    def change_line(self, end: int, feed_offset: int) -> int | None:
        """The log goes on in another epoch, without what it had above `end`: nor has the client it from now on.

        Args:
            end: the newest offset that both lines share.
            feed_offset: how far the feed had come, which is exact between two passes of the fan-out.

        Returns:
            The offset up to which the client has had events; `tell_line` or `tell_rolled_back` must follow. None: it is arriving,
            and has had none.
        """
        had = self.had(feed_offset)
        if self.state.arriving:
            self._forget_above(end)
        self.position, self.base = min(self.position, end), min(self.base, end)
        self.starts = {pattern: min(start, end) for pattern, start in self.starts.items()} or NO_STARTS
        return None if self.state.arriving else had

    def tell_line(self, cursor: Frame, epoch: str) -> None:
        """Tell the client, in its place among events and never left out, the epoch in which the log goes on; it has lost nothing.

        Gaps and kept values of the epoch before go ahead, as in `tell_log_lost`.
        """
        self._tell_line(_LineTold(cursor), epoch)

    def tell_rolled_back(self, end: int, had: int, epoch: str) -> None:
        """Tell the client the same, and that events `end` + 1 … `had` are no longer in the log."""
        self.gaps += 1
        self._tell_line(_LineTold(rolled_back_notice(self.namespace, self.subscriptions, end, had, epoch), end, had), epoch)

    def leave(self) -> None:
        """The client has left the namespace; its connection may go on, without it. Idempotent.

        A pass that is under way may still hold events for it: they must not come behind the goodbye, perhaps to the next client
        on this connection, which gets them from the log as well.
        """
        if self.state.phase is not Phase.LEFT:
            self._step(Step.LEFT)
            self.connection = NO_CONNECTION
            for frame in self._latest.in_order() if self._latest else ():
                if frame.tally is not None:
                    frame.tally.kept -= 1
                    frame.tally.gone += 1

    # -- private --------------------------------------------------------------------------------------------------

    def _tell_line(self, told: _LineTold, epoch: str) -> None:
        """Put word of another epoch in its place; one that stands there, with nothing behind it, becomes one with it.

        A client that does not read would have one for each change of the line. Beyond MAX_NOTICES its connection ends: it
        resumes, and is told of all changes at once.
        """
        self._tell_gaps()
        self._hand_over_latest()
        connection, before = self.connection, self._line_told
        queue = connection.queue
        # Behind a rollback it has had nothing: what the next one takes away above its end, this client has not seen.
        if before is not None and before.had:
            end = min(before.end, told.end) if told.had else before.end
            both = _LineTold(rolled_back_notice(self.namespace, self.subscriptions, end, before.had, epoch), end, before.had)
        else:
            both = told
        mergeable = before is not None and (bool(before.had) or not told.had)
        if before is not None and mergeable and queue.replace_last(before.frame, both.frame):
            self._line_told = both
        else:
            queue.put(told.frame)
            self._line_told = told
        if queue.frames > queue.max_frames + MAX_NOTICES:
            connection.end("it did not read while the log changed")
        else:
            connection.flush()

    def _step(self, step: Step) -> None:
        """Take a step, with all that belongs to it. The only place that sets the state."""
        before = self.state
        after = self.state = MACHINE.after(before, step)
        if after.phase is before.phase:
            return
        self._reader.moved(self, before.phase, after.phase)
        if before.direct and not after.direct:
            self.connection.hold_direct()
        elif after.direct and not before.direct:
            self.connection.release_direct()
        if after.phase is Phase.READING and not after.full:
            self._reader.add(self)  # else when the queue has drained

    def _read(self, step: Step, base: int, starts: Mapping[str, int]) -> None:
        self.base, self.starts = base, starts
        self.position = min([base, *starts.values()])
        self._step(step)

    def _queue_full(self) -> None:
        self._step(Step.QUEUE_FULL)
        self.connection.awaits_drain = True

    def _overflow(self, frame: Frame) -> None:
        """Let the strongest policy decide about an event that finds no room."""
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
        """Forget the waiting events of the log above an offset; return the first one's offset, if any. Plain publishes stay."""
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
        """Put a notice ahead of all events that wait."""
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

    def _tell_gaps(self) -> None:
        """Put what is missing into the queue, behind what waits and ahead of what comes."""
        gaps, self._gaps = self._gaps, None
        for frame in gaps.take(self.namespace) if gaps else ():
            self.connection.queue.put(frame)
            self.gaps += 1

    def _hand_over_latest(self) -> None:
        """Put what `latest` kept into the queue; `_keep_latest` has seen to it that there is room."""
        latest, self._latest = self._latest, None
        for frame in latest.in_order() if latest else ():
            self.connection.queue.put(frame, self)
            if frame.tally is not None:
                frame.tally.kept -= 1
                frame.tally.queued += 1

    def _keep_latest(self, frame: Frame) -> bool:
        """Keep the newest frame of a topic, if there is room for it."""
        if self._latest is None:
            self._latest = Latest()
        if not self._latest.keep(frame, self.connection.queue, self):
            return False
        if frame.tally is not None:
            frame.tally.kept += 1
        return True

    def _make_room(self) -> None:
        """When every subscription is `latest`, all that is queued may wait for its newest values; otherwise order forbids it.

        It does so as well when anything else is queued: a lost log must be told behind the events of that log.
        """
        queue = self.connection.queue
        own = self.offered - 1 - self.sent - self.discarded - self.conflated - self.kept  # but for the one that found no room
        if own == queue.frames and all(policy is Overflow.LATEST for policy in self.subscriptions.values()):
            for frame in queue.discard(self):
                if frame.tally is not None:
                    frame.tally.queued -= 1
                self._overflow(frame)

    def _tell(self, state: str) -> None:
        queue = self.connection.queue
        body: dict[str, Any] = {
            "state": state,
            "queued": queue.frames,
            "queued_bytes": queue.bytes,
            "discarded": self.discarded,
            "conflated": self.conflated,
        }
        self.connection.offer_control(message_frame(notice_packet(self.namespace, BACKPRESSURE, body)))
