"""The frames of entries of the log, for clients that catch up. No I/O.

In: entries as Redis answers them. Out: for each, its offset, and its frame or the entry that cannot be delivered. The usual ones
are framed in C (`_native_page.h`) where that is built; it leaves the others to Python, and both ways come to the same
(tests/unit/delivery/test_log_frames.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate.build import is_pure
from headgate.errors import InvalidTopic
from headgate.events.topic import check_topic
from headgate.protocol.frames import Frame, event_frame, written_frame

if TYPE_CHECKING:
    from headgate.redis.log import Entry, RawEntry

try:
    from headgate._native import page_frames
except ImportError:  # it was not built
    page_frames = None  # type: ignore[assignment]

Native = Callable[..., list[Frame | None]]


class Reading(Protocol):
    """The log, as far as one entry needs it (redis/log.py)."""

    max_payload_bytes: int

    def read(self, raw: RawEntry) -> Entry:
        """Return the event of an entry, or the error that keeps it from being delivered."""


def native() -> Native | None:
    """Return what frames entries in C, or None where that was not built."""
    return None if is_pure() else page_frames


def log_frames(
    namespace: bytes, entries: Sequence[RawEntry], log: Reading, in_c: Native | None
) -> Iterator[tuple[int, Frame | Entry]]:
    """Yield the offset of each entry with its frame, or with the entry whose event cannot be delivered."""
    frames: Sequence[Frame | None] = [None] * len(entries)
    if in_c is not None:
        frames = in_c(entries, namespace, log.max_payload_bytes, _topic_of, written_frame)
    for raw, frame in zip(entries, frames, strict=True):
        if frame is not None:
            yield frame.offset or 0, frame
            continue
        entry = log.read(raw)
        yield entry.offset, entry if entry.event is None else event_frame(namespace, entry.event, replayed=True)


def _topic_of(text: bytes) -> str | None:
    try:
        return check_topic(text.decode("ascii", "replace"))
    except InvalidTopic:
        return None
