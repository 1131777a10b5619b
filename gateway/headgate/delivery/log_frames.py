"""The frames of entries of the log, for clients that catch up. No I/O.

In: entries as Redis answers them. Out: for each, its offset, and its frame or the undeliverable entry. Where C (`_native_page.h`)
was built, it frames the usual entries and leaves the others to Python, with the same results
(tests/unit/delivery/test_log_frames.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate.errors import InvalidTopic
from headgate.events.topic import check_topic
from headgate.installation import is_pure
from headgate.protocol.frames import Frame, event_frame, written_frame

if TYPE_CHECKING:
    from headgate.redis.log import Entry, RawEntry

try:
    from headgate._native import page_frames
except ImportError:  # it was not built
    page_frames = None  # type: ignore[assignment]

Native = Callable[..., list[Frame | None]]


class Reading(Protocol):
    """The part of the log that one entry needs (redis/log.py)."""

    max_payload_bytes: int

    def read(self, raw: RawEntry) -> Entry:
        """Return the event of an entry, or the error that makes it undeliverable."""


def native() -> Native | None:
    """Return the C function that frames entries, or None where it was not built."""
    return None if is_pure() else page_frames


def log_frames(
    namespace: bytes, entries: Sequence[RawEntry], log: Reading, in_c: Native | None
) -> Iterator[tuple[int, Frame | Entry]]:
    """Yield the offset of each entry with its frame, or with the entry itself if its event is undeliverable."""
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
