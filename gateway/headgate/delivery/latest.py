"""The newest event of each topic, for one client whose queue is full: what the overflow policy `latest` keeps. No I/O.

In: frames that found no room. Out: all that is kept, in log order, when the queue has drained. How much may be kept is for the
client to say: together with what is queued it stays within the limits of the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.protocol.frames import Frame


class Latest:
    """Frames by topic. `bytes` is their size on the wire. Empty is falsy."""

    __slots__ = ("_by_topic", "bytes")

    def __init__(self) -> None:
        self._by_topic: dict[str, Frame] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._by_topic)

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._by_topic.values())

    def of(self, topic: str) -> Frame | None:
        """Return the frame that is kept of a topic, if any."""
        return self._by_topic.get(topic)

    def keep(self, frame: Frame) -> None:
        """Keep this frame, and no older one of its topic."""
        topic = frame.topic or ""
        older = self._by_topic.pop(topic, None)
        self.bytes += len(frame.wire) - (len(older.wire) if older is not None else 0)
        self._by_topic[topic] = frame

    def in_order(self) -> list[Frame]:
        """Return all frames in log order, which replacing has undone. A plain PUBLISH has no offset and goes first."""
        return sorted(self._by_topic.values(), key=lambda kept: kept.offset or 0)
