"""The events that did not reach one client, their `gap` notices, and the newest events that it gets later. No I/O.

In: left-out ranges and single events. Out: one notice per reason, so that both stay small however much is missing. A lost log, or
a lost end that the client has seen, has a separate notice ahead of waiting events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.events.wire.frames import Frame, message_frame
from headgate.events.wire.packets import GAP, GapReason, gap_body, notice_packet
from headgate.transport.send_queue import ClientQueue

if TYPE_CHECKING:
    from .client import Client


@dataclass(slots=True)
class _Gap:
    first: int | None = None
    last: int | None = None
    count: int = 0
    bytes: int = 0
    patterns: dict[str, None] = field(default_factory=dict)


class Gaps:
    """Unreported gaps of one client, by reason. Empty is falsy."""

    __slots__ = ("_by_reason",)

    def __init__(self) -> None:
        self._by_reason: dict[GapReason, _Gap] = {}

    def __bool__(self) -> bool:
        return bool(self._by_reason)

    def add(self, reason: GapReason, first: int | None, last: int | None, count: int, size: int, patterns: Iterable[str]) -> None:
        """Widen the gap of this reason by `count` events of `size` payload bytes in offsets `first`…`last` (None if unknown)."""
        gap = self._by_reason.setdefault(reason, _Gap())
        gap.count += count
        gap.bytes += size
        if first is not None:
            gap.first = first if gap.first is None else min(gap.first, first)
        if last is not None:
            gap.last = last if gap.last is None else max(gap.last, last)
        gap.patterns.update(dict.fromkeys(patterns))

    def take(self, namespace: str) -> list[Frame]:
        """Return the notices, one per reason, and begin again."""
        frames = []
        for reason, gap in self._by_reason.items():
            # Events that a full queue left out are still in the log, except a plain PUBLISH, which never was.
            can_recover = reason is GapReason.OVERFLOW and gap.first is not None
            counts = (gap.count or None, gap.bytes)
            body = gap_body(list(gap.patterns), gap.first, gap.last, *counts, reason, recoverable=can_recover)
            frames.append(message_frame(notice_packet(namespace, GAP, body)))
        self._by_reason.clear()
        return frames


class Latest:
    """The newest event of each topic, kept by the policy `latest` within the limits of a client's full queue. Empty is falsy."""

    __slots__ = ("_by_topic", "_bytes")

    def __init__(self) -> None:
        self._by_topic: dict[str, Frame] = {}
        self._bytes = 0  # on the wire

    def __len__(self) -> int:
        return len(self._by_topic)

    def keep(self, frame: Frame, queue: ClientQueue, owner: Client) -> bool:
        """Keep this frame, and no older one of its topic; return False without room within the queue's limits.

        Older frames of the topic go from here and from the queue, and count as conflated. The others keep their order.
        """
        topic = frame.topic or ""
        if (older := self._by_topic.get(topic)) is None:
            owner.conflated += queue.withdraw(owner, topic)
        frames = queue.frames + len(self._by_topic) + (older is None)
        size = self._bytes + len(frame.wire) - (len(older.wire) if older is not None else 0)
        if frames > queue.max_frames or queue.bytes + size > queue.max_bytes:
            return False
        if older is not None:
            owner.conflated += 1
            if older.tally is not None:
                older.tally.kept -= 1
                older.tally.conflated += 1
        self._by_topic.pop(topic, None)
        self._by_topic[topic] = frame
        self._bytes = size
        return True

    def in_order(self) -> list[Frame]:
        """Return all frames in log order, a plain PUBLISH first, as it has no offset."""
        return sorted(self._by_topic.values(), key=lambda kept: kept.offset or 0)


def log_lost_notice(namespace: str, patterns: Iterable[str]) -> Frame:
    """Return the gap of a client after its log was lost, an unknown number of events."""
    body = gap_body(list(patterns), None, None, None, 0, GapReason.LOG_LOST, recoverable=False)
    return message_frame(notice_packet(namespace, GAP, body))


def rolled_back_notice(namespace: str, patterns: Iterable[str], end: int, had: int, epoch: str) -> Frame:
    """Return the gap of events `end` + 1 … `had`, which the log of `epoch` lacks."""
    body = gap_body(list(patterns), end + 1, had, had - end, 0, GapReason.ROLLED_BACK, recoverable=False, epoch=epoch)
    return message_frame(notice_packet(namespace, GAP, body))
