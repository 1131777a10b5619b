"""A client: one connected browser in one namespace. Its subscriptions, and what becomes of events it cannot take. No I/O.

In: events from fan-out that could not be written directly (`offer`). Out: frames into the connection's queue, and notices
(gap, backpressure) that say exactly what was left out.

States. *Flowing*: events go to the queue. *Pressed*: the queue was full; until it has drained to RELIEF_LEVEL every event
follows its overflow policy (below), so that order is kept and a gap is one range, not a rash. Then: the gap, then what
`latest` kept, then flowing again.

Policies. `drop`: counted into the gap. `latest`: the newest per topic is kept, older ones are conflated. `catch_up`: counted
like `drop` and told as recoverable from the log. When a client's subscriptions differ, the strongest that matches
the event wins: catch_up, latest, drop.

Invariant, per client: routed = sent + discarded + conflated + waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from .client_queue import WARNING_LEVEL, ClientQueue
from .identity import Identity
from .protocol import BACKPRESSURE, GAP, GapReason, Overflow, gap_body, notice_packet
from .topic import matches
from .transport.frames import Frame, message_frame

_STRENGTH = (Overflow.CATCH_UP, Overflow.LATEST, Overflow.DROP)


class ClientConnection(Protocol):
    """What a client needs of its connection."""

    queue: ClientQueue
    wire: Any
    ready: bool
    pressed: bool
    closed: bool
    idle: bool

    def offer(self, frame: Frame, owner: Client) -> bool:
        """Queue or send an event frame; False when there is no room."""

    def offer_control(self, frame: Frame) -> None:
        """Send a notice ahead of events."""

    def flush(self) -> None:
        """Let what is queued go out."""

    def keep(self, rest: bytes) -> None:
        """Send the rest of a frame that was written in part, before anything else."""

    def hold(self) -> None:
        """The socket is full: write nothing directly until it has room again."""

    def lost(self, error: OSError) -> None:
        """The socket is broken."""


class _Gap:
    """What did not reach the client, for one reason, since it was last told."""

    __slots__ = ("bytes", "count", "first", "last", "patterns")

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.count = self.bytes = 0
        self.patterns: dict[str, None] = {}

    def add(self, first: int | None, last: int | None, count: int, size: int, patterns: Iterable[str]) -> None:
        self.count += count
        self.bytes += size
        if first is not None:
            self.first = first if self.first is None else min(self.first, first)
        if last is not None:
            self.last = last if self.last is None else max(self.last, last)
        self.patterns.update(dict.fromkeys(patterns))


class Client:
    """One subscriber. Hashable by identity: it is the trie's key.

    Attributes:
        direct: events written straight to the socket by fan-out.
        offered: events that had to go through the queue; of these `sent`, `discarded` and `conflated` are settled.
    """

    __slots__ = (
        "_gaps",
        "_latest",
        "_latest_bytes",
        "_pressed",
        "_warned",
        "conflated",
        "connection",
        "direct",
        "discarded",
        "identity",
        "namespace",
        "offered",
        "sent",
        "session",
        "subscriptions",
        "wildcards",
    )

    def __init__(self, namespace: str, session: str, identity: Identity, connection: ClientConnection) -> None:
        self.namespace = namespace
        self.session = session
        self.identity = identity
        self.connection = connection
        self.subscriptions: dict[str, Overflow] = {}
        self.wildcards = 0
        self.direct = self.offered = self.sent = self.discarded = self.conflated = 0
        self._pressed = self._warned = False
        self._gaps: dict[GapReason, _Gap] | None = None
        self._latest: dict[str, Frame] | None = None
        self._latest_bytes = 0

    @property
    def routed(self) -> int:
        """Events that fan-out handed to this client."""
        return self.direct + self.offered

    def offer(self, frame: Frame) -> None:
        """Take an event that could not be written directly: queue it, or settle it by policy. Never waits."""
        connection = self.connection
        if connection.closed:
            return
        self.offered += 1
        if self._pressed:
            self._settle(frame)
        elif connection.offer(frame, self):
            if not self._warned and connection.queue.level >= WARNING_LEVEL:
                self._warned = connection.pressed = True
                self._tell("warning")
        else:
            self._pressed = connection.pressed = True
            self._make_room()
            self._settle(frame)
            self._tell("on")

    def miss(self, first: int | None, last: int | None, reason: GapReason) -> None:
        """Tell the client, in its place among events, that a range of the log will not come (None: nobody knows which).

        The count is that of the range: what matched in it can no longer be known.
        """
        count = last - first + 1 if first is not None and last is not None else 0
        self._gap(reason).add(first, last, count, 0, self.subscriptions)
        if not self._pressed:
            self._tell_gaps()
            self.connection.flush()

    def relieved(self) -> None:
        """The queue has drained: say what is missing, hand over what `latest` kept, and flow again."""
        if not self._pressed and not self._warned:
            return
        latest, self._latest = self._latest, None
        self._latest_bytes = 0
        self._pressed = self._warned = False
        queue = self.connection.queue
        self._tell_gaps()
        if latest is not None:
            # Conflation replaced values in place: back into log order. A plain PUBLISH has no offset and keeps its place.
            for frame in sorted(latest.values(), key=lambda kept: kept.offset or 0):
                queue.put(frame, self)
        self._tell("off")
        self.connection.flush()

    def _settle(self, frame: Frame) -> None:
        policy, patterns = self._reached_by(frame.topic or "")
        if policy is Overflow.LATEST and self._keep_latest(frame):
            return
        self.discarded += 1
        self._gap(GapReason.OVERFLOW).add(frame.offset, frame.offset, 1, frame.payload_bytes, patterns)

    def _gap(self, reason: GapReason) -> _Gap:
        if self._gaps is None:
            self._gaps = {}
        return self._gaps.setdefault(reason, _Gap())

    def _tell_gaps(self) -> None:
        """Put what is missing into the queue, behind what waits and ahead of what comes: one notice per reason."""
        gaps, self._gaps = self._gaps, None
        for reason, gap in (gaps or {}).items():
            # Only what a full queue left out is still in the log, and only if it ever was (a plain PUBLISH was not).
            recoverable = reason is GapReason.OVERFLOW and gap.first is not None
            body = gap_body(
                list(gap.patterns), gap.first, gap.last, gap.count or None, gap.bytes, reason, recoverable=recoverable
            )
            self.connection.queue.put(message_frame(notice_packet(self.namespace, GAP, body)))

    def _keep_latest(self, frame: Frame) -> bool:
        """Keep the newest frame of a topic, within what the queue's limits leave."""
        if self._latest is None:
            self._latest = {}
        topic, size = frame.topic or "", len(frame.wire)
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
        """When every subscription is `latest`, what is queued is conflated too; with other policies order forbids it."""
        if all(policy is Overflow.LATEST for policy in self.subscriptions.values()):
            for frame in self.connection.queue.discard(self):
                self._settle(frame)

    def _reached_by(self, topic: str) -> tuple[Overflow, list[str]]:
        reached = {pattern: policy for pattern, policy in self.subscriptions.items() if matches(pattern, topic)}
        strongest = min(reached.values(), key=_STRENGTH.index, default=Overflow.DROP)
        return strongest, list(reached)

    def _tell(self, state: str) -> None:
        queue = self.connection.queue
        body: dict[str, Any] = {
            "state": state,
            "queued": queue.frames,
            "queued_bytes": queue.bytes,
            "discarded": self.discarded,
        }
        self.connection.offer_control(message_frame(notice_packet(self.namespace, BACKPRESSURE, body)))
