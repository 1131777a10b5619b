"""The newest event of each topic, which the overflow policy `latest` keeps for a client with a full queue. No I/O.

In: frames without room. Out: all kept frames in log order, when the queue has drained. Kept and queued frames together stay
within the limits of the queue.
"""

from __future__ import annotations

from typing import Protocol

from headgate.protocol.frames import Frame
from headgate.transport.send_queue import ClientQueue, Sender


class Owner(Sender, Protocol):
    """The client of queued and kept frames."""

    conflated: int


class Latest:
    """Frames by topic. Empty is falsy."""

    __slots__ = ("_by_topic", "_bytes")

    def __init__(self) -> None:
        self._by_topic: dict[str, Frame] = {}
        self._bytes = 0  # on the wire

    def __len__(self) -> int:
        return len(self._by_topic)

    def keep(self, frame: Frame, queue: ClientQueue, owner: Owner) -> bool:
        """Keep this frame, and no older one of its topic; False when the queue's limits leave no room.

        Older frames of the topic are removed here and from the queue, and count as conflated. The others keep their order.
        """
        topic = frame.topic or ""
        older = self._by_topic.get(topic)
        if older is None:
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
        """Return all frames in log order, which replacing has undone. A plain PUBLISH has no offset and goes first."""
        return sorted(self._by_topic.values(), key=lambda kept: kept.offset or 0)
