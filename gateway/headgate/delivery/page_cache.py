"""Recent pages of one namespace's log, framed once for all clients that read the log.

In: `EventLog`, read by one greenlet (catch_up.py), so that every read is a single flight. Out: pages at fixed boundaries, shared
by clients that return at nearby offsets. Ten thousand such clients cost Redis a few reads.

Bounded in bytes; the least recently used page goes first. A page stays true up to the end of its line, where the log never
changes, and only forgets. A log that continues in another epoch cuts the cache, and another log clears it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from headgate.errors import BusUnavailable, HeadgateError, InvalidEvent, InvalidTopic
from headgate.events.topic import check_topic
from headgate.events.wire.frames import Frame, WrittenFrame, event_frame
from headgate.events.wire.packets import GapReason
from headgate.installation import native
from headgate.redis.lineage import Entry
from headgate.redis.log import EventLog, RawEntry

Native = Callable[..., list[Frame | None]]

# Offsets per page, and of a first read. At the usual payload limit they take at most 32 × 64 KiB.
PAGE_OFFSETS = 32
# Limits of a read ahead in offsets, and in bytes as estimated from the last read. 1 MiB took no less CPU.
MAX_READ_OFFSETS, READ_BYTES = 512, 512 * 1024
# Worst case of a reply, when the largest allowed events follow small ones. A single page may exceed it.
MAX_REPLY_BYTES = 16 * 1024 * 1024
# Offsets at which reads ahead may continue at once. They fill half of the cache.
MAX_AHEAD = 8
MAX_CACHE_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 65536  # of one write
# Memory, measured with CPython 3.11: of a frame in a page, without its bytes on the wire; of a page's chunks for one set of
# patterns; of an entry of a page's heads.
FRAME_BYTES, FRAME_REFERENCE_BYTES = 260, 8
SELECTION_BYTES, CHUNK_OBJECT_BYTES = 250, 120
HEAD_BYTES = 130
# Sets of patterns with remembered chunks of a page. An application has a handful.
MAX_SELECTIONS = 32


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive offsets of a page for one set of patterns: the frames of at most one write, or a reason why all are missing."""

    first: int
    last: int
    frames: tuple[Frame, ...] = ()  # joined when they are sent, as the joined bytes would double the memory
    missing: GapReason | None = None

    def after(self, position: int) -> Chunk:
        """Return the part of this chunk above `position`."""
        if position < self.first:
            return self
        frames = tuple(frame for frame in self.frames if (frame.offset or 0) > position)
        return Chunk(position + 1, self.last, frames, self.missing)


@dataclass(slots=True)
class Page:
    """Offsets `first`…`last`, of which the log held `frames` (None: undeliverable)."""

    first: int
    last: int
    frames: dict[int, Frame | None] = field(default_factory=dict)
    size: int = 0  # its memory in bytes, including the `selections`
    selections: OrderedDict[tuple[str, ...], list[Chunk]] = field(default_factory=OrderedDict)
    _heads: set[str] | None = None

    def upto(self, end: int) -> Page | None:
        """Return a page with the entries up to an offset; None if there are none."""
        frames = {offset: frame for offset, frame in self.frames.items() if offset <= end}
        size = sum(_size_of(frame) for frame in frames.values())
        return Page(self.first, next(reversed(frames)), frames, size) if frames else None

    def add(self, offset: int, frame: Frame | None) -> None:
        """Append the log's next entry."""
        self.last = offset
        self.frames[offset] = frame
        self.size += _size_of(frame)
        if self.selections:
            self.size -= sum(_size_of_selection(chunks) for chunks in self.selections.values())
            self.selections.clear()
        if self._heads is not None:
            self.size -= HEAD_BYTES * len(self._heads)
            self._heads = None

    def lacks(self, patterns: tuple[str, ...]) -> bool:
        """Whether the first words of its topics prove that this page has neither events for these patterns nor a gap.

        Where each user has separate topics, nearly every page has nothing for nearly every client. When every frame was matched
        for every client, new events came faster, and a thousand clients that returned together never reached the feed.
        """
        heads = _heads_of(patterns)
        if heads is None or not 0 < len(self.frames) == self.last - self.first + 1:
            return False
        if self._heads is None:
            if None in self.frames.values():
                return False
            self._heads = {_head_of(frame.topic or "") for frame in self.frames.values() if frame is not None}
            self.size += HEAD_BYTES * len(self._heads)
        return self._heads.isdisjoint(heads)

    @property
    def oldest(self) -> int:
        """The oldest offset of the page that the log still held."""
        return next(iter(self.frames))

    def chunks(self, patterns: tuple[str, ...], wanted: Callable[[str], bool]) -> list[Chunk]:
        """Return the chunks for all clients with these patterns, in order. `wanted`: whether one of them matches a topic."""
        if self.lacks(patterns):
            return [Chunk(self.first, self.last)]
        if (selection := self.selections.get(patterns)) is None:
            topics = {frame.topic or "" for frame in self.frames.values() if frame is not None}
            chosen = {topic for topic in topics if wanted(topic)}
            selection = self.selections[patterns] = self.chunks_of(lambda frame: frame.topic in chosen)
            self.size += _size_of_selection(selection)
            if len(self.selections) > MAX_SELECTIONS:
                self.size -= _size_of_selection(self.selections.popitem(last=False)[1])
        return selection

    def chunks_of(self, wanted: Callable[[Frame], bool]) -> list[Chunk]:
        """Return the wanted frames and the missing offsets in order, in chunks that together cover the page."""
        chunks: list[Chunk] = []
        frames: list[Frame] = []
        first = expected = self.first
        size = 0

        def finish(last: int) -> None:
            nonlocal frames, size, first
            if last >= first:
                chunks.append(Chunk(first, last, tuple(frames)))
            frames, size, first = [], 0, last + 1

        for offset, frame in self.frames.items():
            if offset > expected:  # trimmed, or deleted by hand
                finish(expected - 1)
                chunks.append(Chunk(expected, offset - 1, missing=GapReason.TRIMMED))
                first = offset
            if frame is None:
                finish(offset - 1)
                chunks.append(Chunk(offset, offset, missing=GapReason.QUARANTINED))
                first = offset + 1
            elif wanted(frame):
                if frames and size + len(frame.wire) > CHUNK_BYTES:
                    finish(offset - 1)
                frames.append(frame)
                size += len(frame.wire)
            expected = offset + 1
        finish(self.last)
        return chunks


def _head_of(topic: str) -> str:
    """Return the first two words of a topic."""
    return ".".join(topic.split(".", 2)[:2])


@lru_cache(maxsize=8192)
def _heads_of(patterns: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the first two words of each pattern; None if there is a wildcard in any."""
    heads = tuple(_head_of(pattern) for pattern in patterns)
    return None if any("*" in head or "#" in head for head in heads) else heads


def _size_of(frame: Frame | None) -> int:
    return FRAME_BYTES + (len(frame.wire) if frame is not None else 0)


def _size_of_selection(chunks: list[Chunk]) -> int:
    return SELECTION_BYTES + sum(CHUNK_OBJECT_BYTES + FRAME_REFERENCE_BYTES * len(chunk.frames) for chunk in chunks)


class ReadAhead:
    """The size of each read of the log: a page, and up to twice as much where the last read ended, to save round trips."""

    def __init__(self, max_payload_bytes: int) -> None:
        self._most = max(PAGE_OFFSETS, min(MAX_READ_OFFSETS, MAX_REPLY_BYTES // max_payload_bytes))
        self._next: OrderedDict[int, int] = OrderedDict()  # last offset of a read → size of the next read there

    def offsets_after(self, after: int) -> int:
        """Return how many offsets to read after an offset."""
        return self._next.get(after, PAGE_OFFSETS)

    def note(self, after: int, last: int, count: int, size: int) -> None:
        """Note that the read after `after` brought `count` > 0 entries of `size` bytes in total, up to the offset `last`."""
        wanted = self._next.pop(after, PAGE_OFFSETS)
        next_ = 2 * wanted if count == wanted else wanted
        self._next[last] = max(PAGE_OFFSETS, min(next_, self._most, READ_BYTES * count // max(size, 1)))
        if len(self._next) > MAX_AHEAD:
            self._next.popitem(last=False)


class LogPages:
    """See the module. `quarantine` is called with the fault of each undeliverable entry."""

    def __init__(
        self, namespace: str, log: EventLog, quarantine: Callable[[HeadgateError], None], max_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        self._namespace = namespace.encode()
        self._log, self._quarantine, self._max_bytes = log, quarantine, max_bytes
        self._pages: OrderedDict[int, Page] = OrderedDict()
        self._sizes: dict[int, int] = {}  # of each page, as counted in `_bytes`; selections grow between two calls
        self._bytes = 0
        self._gone = (0, 0)  # the last range of offsets found to be lost
        self._cuts = 0
        self._ahead = ReadAhead(log.max_payload_bytes)
        self._in_c: Native | None = native("page_frames")

    def page_after(self, position: int, epoch: str) -> Page | None:
        """Return the first page that holds anything after the offset `position`, or None if the log ends there.

        Waits for Redis unless the page is known. A page read from Redis has everything that the log had at the time of the
        call. If a page begins later than the offset after `position`, the log has lost the offsets between.

        Raises BusUnavailable, BusRefused: as `redis.client.call`, or the log is not in `epoch`.
        """
        if (known := self.known_after(position)) is not None:
            self._count((known.first - 1) // PAGE_OFFSETS, known)
            self._make_room(known)
            return known
        # Not limited to one page, as the first entry after a lost range comes in the same read.
        after = self._read_from(position)
        cuts = self._cuts
        entries = self._log.raw_page(after, None, self._ahead.offsets_after(after), epoch=epoch)
        if cuts != self._cuts:
            raise BusUnavailable("the log went on in another epoch while it was read, or was replaced")
        offsets, size = self._store(entries)
        if offsets:
            self._ahead.note(after, offsets[-1], len(offsets), size)
        first = next((offset for offset in offsets if offset > position), None)
        if first is None:
            return None
        if first > position + 1:
            self._gone = (position + 1, first - 1)
        page = self._pages[(first - 1) // PAGE_OFFSETS]
        self._make_room(page)
        return page

    def offsets_after(self, position: int) -> int:
        """Return how many offsets `page_after` reads."""
        return self._ahead.offsets_after(self._read_from(position))

    def cut(self, end: int) -> None:
        """Forget everything above an offset, where another epoch may hold other events, or above 0 for another log."""
        for index, page in tuple(self._pages.items()):
            if page.last > end:
                if (kept := page.upto(end)) is None:
                    self._forget(index)
                else:
                    self._pages[index] = kept
                    self._count(index, kept)
        if self._gone[1] >= end:
            self._gone = (0, 0)
        self._cuts += 1

    def _count(self, index: int, page: Page) -> None:
        self._bytes += page.size - self._sizes.get(index, 0)
        self._sizes[index] = page.size

    def _forget(self, index: int) -> None:
        del self._pages[index]
        self._bytes -= self._sizes.pop(index, 0)

    def _make_room(self, page: Page) -> None:
        """Forget the least recently used pages until the cache is within its limit; `page` stays."""
        while self._bytes > self._max_bytes and len(self._pages) > 1:
            self._forget(next(index for index, kept in self._pages.items() if kept is not page))

    def _read_from(self, position: int) -> int:
        """Return the offset to read after. Of a page at the log's end, only the new part is read."""
        page = self._pages.get(position // PAGE_OFFSETS)
        return max(page.last if page is not None else 0, position // PAGE_OFFSETS * PAGE_OFFSETS)

    def known_after(self, position: int) -> Page | None:
        """Return a cached page with the next entry after `position`, or None."""
        page = self._pages.get(position // PAGE_OFFSETS)
        gone_from, gone_to = self._gone
        if (page is None or page.last <= position) and gone_from <= position + 1 <= gone_to:
            page = self._pages.get(gone_to // PAGE_OFFSETS)  # the page of the offset after it
        if page is None or page.last <= position:
            return None
        self._pages.move_to_end((page.first - 1) // PAGE_OFFSETS)
        return page

    def _store(self, entries: list[RawEntry]) -> tuple[list[int], int]:
        """Add entries, in order, to their pages; return their offsets, and the bytes of their frames."""
        offsets: list[int] = []
        size = 0
        index, page = -1, Page(0, 0)
        for offset, framed in log_frames(self._namespace, entries, self._log, self._in_c):
            offsets.append(offset)
            if (offset - 1) // PAGE_OFFSETS != index:
                if index >= 0:
                    self._count(index, page)
                index = (offset - 1) // PAGE_OFFSETS
                page = self._pages.setdefault(index, Page(index * PAGE_OFFSETS + 1, index * PAGE_OFFSETS))
                self._pages.move_to_end(index)
            if offset <= page.last:
                continue
            frame = framed if isinstance(framed, Frame) else None
            if not isinstance(framed, Frame):
                self._quarantine(framed.error or InvalidEvent("entry", "unreadable"))
            page.add(offset, frame)
            size += _size_of(frame)
        if index >= 0:
            self._count(index, page)
        return offsets, size


def log_frames(
    namespace: bytes, entries: Sequence[RawEntry], log: EventLog, in_c: Native | None
) -> Iterator[tuple[int, Frame | Entry]]:
    """Yield the offset of each entry with its frame, or with the entry itself if its event is undeliverable.

    `_native_page.h` frames the usual entries, and Python the others, with equal results (tests/unit/delivery/test_log_frames.py).
    """
    frames: Sequence[Frame | None] = [None] * len(entries)
    if in_c is not None:
        frames = in_c(entries, namespace, log.max_payload_bytes, _topic_of, WrittenFrame)
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
