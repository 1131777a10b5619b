"""A client: one connected browser in one namespace. Its subscriptions, and what becomes of events it cannot take. No I/O.

In: events from fan-out that could not be written directly (`offer`), chunks of the log (`take_chunk`). Out: frames into the
connection's queue, and notices (gap, backpressure) that say exactly what was left out.

States. *Live*: fed by the fan-out. *Reading*: fed from the log by catch_up.py, from `position` on; live events pass it by.
A client that turns live again takes only events above the position that it had reached (`_floor`).

A live client is *pressed* when its queue was full, until that has drained to RELIEF_LEVEL. Meanwhile every event follows its
overflow policy, so that order is kept and a gap is one range, not a rash:
`catch_up`: the client reads the log from this event on. `latest`: the newest per topic is kept, older ones are conflated.
`drop`: counted into the gap. When subscriptions differ, the strongest that matches the event wins, in this order; and once
reading, everything comes from the log, whatever its policy. What an earlier `drop` left out is told first.

Invariant, per client: offered = sent + discarded + conflated + waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from headgate.auth.identity import Identity
from headgate.protocol.frames import Frame, message_frame
from headgate.protocol.packets import BACKPRESSURE, GapReason, Overflow, notice_packet
from headgate.topic import is_wildcard
from headgate.transport.send_queue import RELIEF_LEVEL, WARNING_LEVEL, ClientQueue

from .gap import Gaps
from .pattern_map import PatternMap

_STRENGTH = (Overflow.CATCH_UP, Overflow.LATEST, Overflow.DROP)


class ClientConnection(Protocol):
    """What a client needs of its connection."""

    queue: ClientQueue
    wire: Any
    ready: bool
    pressed: bool
    closed: bool

    @property
    def idle(self) -> bool:
        """Whether nothing waits to go out."""

    def offer(self, frame: Frame, owner: Client | None = None) -> bool:
        """Queue or send an event frame; False when there is no room."""

    def offer_control(self, frame: Frame) -> None:
        """Send a notice ahead of events."""

    def flush(self) -> None:
        """Let what is queued go out."""

    def written_in_part(self, frames: Sequence[Frame], sent: int) -> int:
        """A direct write was cut after `sent` bytes: finish the frame that it hit; returns how many frames are accounted for."""

    def lost(self, error: OSError) -> None:
        """The socket is broken."""

    def end(self, reason: str) -> None:
        """End the session."""

    def stream(self, frames: Sequence[Frame], owner: Client) -> int:
        """Send consecutive frames of the log, or queue what the socket does not take; returns how many were accepted."""

    def hold_direct(self) -> None:
        """No direct writes by the fan-out until `release_direct`; counted, as several clients may ask for it."""

    def release_direct(self) -> None:
        """Take one `hold_direct` back."""


class _NoConnection:
    """What a client that has left has: it takes nothing, and owes nothing."""

    queue = ClientQueue(1, 1)
    wire = None
    ready = pressed = idle = False
    closed = True

    def offer_control(self, frame: Frame) -> None:
        """Nobody is told."""


_NONE: Any = _NoConnection()


class LogReader(Protocol):
    """Feeds clients from the log (catch_up.py)."""

    def add(self, client: Client) -> None:
        """Take a client into the round. Never waits; idempotent."""


class Client:
    """One subscriber. Hashable by identity, as the trie needs it.

    Attributes:
        direct: events written straight to the socket.
        offered: events that had to go through the queue; of these `sent`, `discarded` and `conflated` are settled.
        account: on whom what it has read out of the log counts.
        held_back: whether it is to read later, when all that it has asked for at once is in force.
        reading, position: whether the log feeds it, and the offset up to which it has.
        base, starts: while reading, the offset above which events are wanted, and the patterns for which it is another one.
    """

    __slots__ = (
        "_floor",
        "_gaps",
        "_latest",
        "_latest_bytes",
        "_own_patterns",
        "_pattern_key",
        "_pressed",
        "_reader",
        "_told_on",
        "_warned",
        "account",
        "base",
        "conflated",
        "connection",
        "direct",
        "discarded",
        "held_back",
        "identity",
        "namespace",
        "offered",
        "position",
        "reading",
        "sent",
        "session",
        "starts",
        "subscriptions",
        "wildcards",
    )

    def __init__(
        self,
        namespace: str,
        session: str,
        identity: Identity,
        connection: ClientConnection,
        reader: LogReader,
        account: str | None = None,
    ) -> None:
        self.namespace = namespace
        self.session = session
        self.identity = identity
        self.account = account or session
        self.connection = connection
        self.subscriptions: dict[str, Overflow] = {}
        self.wildcards = 0
        self.direct = self.offered = self.sent = self.discarded = self.conflated = 0
        self.reading = self.held_back = False
        self.position = self.base = 0
        self.starts: dict[str, int] = {}
        self._reader = reader
        self._floor: int | None = None
        self._pattern_key: tuple[str, ...] | None = None
        self._pressed = self._warned = self._told_on = False
        self._own_patterns: PatternMap[tuple[str, Overflow]] | None = None
        self._gaps: Gaps | None = None
        self._latest: dict[str, Frame] | None = None
        self._latest_bytes = 0

    @property
    def routed(self) -> int:
        """Events that were handed to this client."""
        return self.direct + self.offered

    @property
    def live(self) -> bool:
        """Whether the fan-out feeds it, with nothing left over from reading."""
        return not self.reading and self._floor is None

    @property
    def pattern_key(self) -> tuple[str, ...]:
        """Its patterns, sorted: clients with the same ones share their part of a log page."""
        if self._pattern_key is None:
            self._pattern_key = tuple(sorted(self.subscriptions))
        return self._pattern_key

    def subscribe(self, pattern: str, overflow: Overflow) -> None:
        """Note a subscription (the trie does the matching)."""
        if pattern not in self.subscriptions:
            self.wildcards += is_wildcard(pattern)
            self._pattern_key = None
        self._own_patterns = None
        self.subscriptions[pattern] = overflow

    def unsubscribe(self, pattern: str) -> bool:
        """Forget a subscription; False if there was none."""
        if self.subscriptions.pop(pattern, None) is None:
            return False
        self.wildcards -= is_wildcard(pattern)
        self.starts.pop(pattern, None)
        self._pattern_key = self._own_patterns = None
        return True

    # -- live -----------------------------------------------------------------------------------------------------

    def offer(self, frame: Frame) -> None:
        """Take an event that could not be written directly: queue it, or settle it by policy. Never waits."""
        connection = self.connection
        if connection.closed:
            return
        if frame.offset is not None and (self.reading or (self._floor is not None and frame.offset <= self._floor)):
            return  # the log brings it, or has brought it
        self.offered += 1
        if self._pressed:
            self._settle(frame)
        elif connection.offer(frame, self):
            if not self._warned and connection.queue.level >= WARNING_LEVEL:
                self._warned = connection.pressed = True
                self._tell("warning")
        else:
            self._press()
            self._make_room()
            self._settle(frame)

    def miss(self, first: int | None, last: int | None, reason: GapReason) -> None:
        """Tell the client, in its place among events, that a range of the log will not come (None: nobody knows which).

        The count is that of the range: what matched in it can no longer be known.
        """
        count = last - first + 1 if first is not None and last is not None else 0
        self._note(reason, first, last, count, 0, self.subscriptions)
        if not self._pressed and self.connection.queue.level >= 1:
            self._press()
        if not self._pressed:
            self._tell_gaps()
            self.connection.flush()

    def lose_log(self, cursor: Frame) -> None:
        """Tell the client that the log is another one, and where that stands: both in their place, and never left out.

        Offsets begin anew, so what was settled of the old log goes ahead, also when the queue is full: the gaps are one
        notice per reason, and what `latest` kept has its room.
        """
        self._tell_gaps()
        self._hand_over_latest()
        self._note(GapReason.LOG_LOST, None, None, 0, 0, self.subscriptions)
        self._tell_gaps()
        self.connection.queue.put(cursor)
        self.connection.flush()

    def take_back(self) -> list[Frame]:
        """Take back what waits in the queue, in order, as if it had never been offered."""
        waiting = self.connection.queue.discard(self)
        self.offered -= len(waiting)
        return waiting

    def put_back(self, waiting: Iterable[Frame]) -> None:
        """Put back what was taken back, behind what has been queued since."""
        for frame in waiting:
            self.connection.queue.put(frame, self)
            self.offered += 1

    def relieved(self) -> None:
        """The queue has drained: say what is missing, hand over what `latest` kept, then flow, or read on."""
        if self._pressed or self._warned:
            self._pressed = self._warned = False
            self._tell_gaps()
            self._hand_over_latest()
            if not self.reading:
                self._own_patterns = None
                self._tell("off")
            self.connection.flush()
        if self.reading:
            self._reader.add(self)

    # -- reading --------------------------------------------------------------------------------------------------

    def read_from(self, base: int, starts: Mapping[str, int] | None = None) -> None:
        """Be fed from the log, from the offset after `base` on, or, for the patterns in `starts`, after theirs. Never waits."""
        if self.live:
            self.connection.hold_direct()
        self._floor = None
        self.reading = True
        self.base, self.starts = base, dict(starts or {})
        self.position = min([base, *self.starts.values()])
        if not self._pressed:
            self._reader.add(self)

    def wants(self, frame: Frame) -> bool:
        """Whether an event of the log is for this client, by what each subscription has not had yet."""
        offset = frame.offset or 0
        return any(offset > self.starts.get(pattern, self.base) for pattern, _ in self._reached_by(frame.topic or ""))

    def subscribed_to(self, frame: Frame) -> bool:
        """Whether a subscription matches an event of the log."""
        return bool(self._reached_by(frame.topic or ""))

    def take_chunk(self, frames: Sequence[Frame], last: int) -> bool:
        """Send consecutive frames of the log; False when there was not room for all (`position` says how far it came)."""
        accepted = self.connection.stream(frames, self) if frames else 0
        if accepted < len(frames):
            self.position = (frames[accepted].offset or 1) - 1
            return False
        self.position = last
        if self.starts and last >= max(self.base, *self.starts.values()):
            self.starts.clear()
        return True

    def wait_for_room(self) -> None:
        """Be called back (`relieved`) when the queue has drained; at once if it already has."""
        if self.connection.queue.level <= RELIEF_LEVEL:
            self._reader.add(self)
        else:
            self.connection.pressed = True

    def live_from(self, position: int) -> None:
        """Take live events above `position` from now on; `release` must follow when the feed has reached it."""
        self.reading = False
        self._own_patterns = None
        self.starts.clear()
        self.position = self._floor = position
        if self._told_on:
            self._tell("off")

    def release(self) -> None:
        """The feed has reached where the reading ended: direct writes may begin again."""
        if self._floor is not None:
            self._floor = None
            self.connection.release_direct()

    def leave(self) -> None:
        """The client has left the namespace; its connection may go on, without it. Idempotent.

        A pass that is under way may still hold events for it: they must not come behind the goodbye, perhaps to the next client
        on this connection, which gets them from the log as well.
        """
        if not self.live:
            self.reading, self._floor = False, None
            self.connection.release_direct()
        self.connection = _NONE

    # -- private --------------------------------------------------------------------------------------------------

    def _press(self) -> None:
        self._pressed = self.connection.pressed = True
        self._tell("on")

    def _settle(self, frame: Frame) -> None:
        reached = self._reached_by(frame.topic or "")
        policy = min((policy for _, policy in reached), key=_STRENGTH.index, default=Overflow.DROP)
        if policy is Overflow.LATEST and self._keep_latest(frame):
            return
        self.discarded += 1
        if policy is Overflow.CATCH_UP and frame.offset is not None:
            self.read_from(frame.offset - 1)
            return
        self._note(GapReason.OVERFLOW, frame.offset, frame.offset, 1, frame.payload_bytes, [pattern for pattern, _ in reached])

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

    def _hand_over_latest(self) -> None:
        """Put what `latest` kept into the queue; `_keep_latest` has seen to it that there is room."""
        latest, self._latest = self._latest, None
        self._latest_bytes = 0
        # Conflation replaced values in place: back into log order. A plain PUBLISH has no offset and goes first.
        for frame in sorted((latest or {}).values(), key=lambda kept: kept.offset or 0):
            self.connection.queue.put(frame, self)

    def _keep_latest(self, frame: Frame) -> bool:
        """Keep the newest frame of a topic, within what the queue's limits leave."""
        if self._latest is None:
            self._latest = {}
        topic, size = frame.topic or "", len(frame.wire)
        if topic not in self._latest:
            # What is queued of this topic is older: taking it out makes the room, and leaves the others in their order.
            self.conflated += self.connection.queue.withdraw(self, topic)
        older = self._latest.get(topic)
        freed = len(older.wire) if older is not None else 0
        queue = self.connection.queue
        frames = queue.frames + len(self._latest) + (older is None)
        if frames > queue.max_frames or queue.bytes + self._latest_bytes - freed + size > queue.max_bytes:
            return False
        if older is not None:
            self.conflated += 1
            del self._latest[topic]
        self._latest[topic] = frame
        self._latest_bytes += size - freed
        return True

    def _make_room(self) -> None:
        """When every subscription is `latest`, all that is queued may wait for its newest values; otherwise order forbids it."""
        if all(policy is Overflow.LATEST for policy in self.subscriptions.values()):
            for frame in self.connection.queue.discard(self):
                self._settle(frame)

    def _reached_by(self, topic: str) -> list[tuple[str, Overflow]]:
        """Return the subscriptions that a topic reaches. One pattern after the other would take 0.3 ms when there are 128."""
        if self._own_patterns is None:
            self._own_patterns = PatternMap()
            for pattern, policy in self.subscriptions.items():
                self._own_patterns.add(pattern, (pattern, policy))
        return self._own_patterns.reached(topic)

    def _tell(self, state: str) -> None:
        self._told_on = state == "on"
        queue = self.connection.queue
        body: dict[str, Any] = {
            "state": state,
            "queued": queue.frames,
            "queued_bytes": queue.bytes,
            "discarded": self.discarded,
            "conflated": self.conflated,
        }
        self.connection.offer_control(message_frame(notice_packet(self.namespace, BACKPRESSURE, body)))
