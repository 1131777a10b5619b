"""Pages of the log, shared by all readers: their content, their cost, their forgetting."""

import gc
import itertools
import tracemalloc
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.page_cache import (
    CHUNK_BYTES,
    MAX_AHEAD,
    MAX_READ_OFFSETS,
    MAX_REPLY_BYTES,
    MAX_SELECTIONS,
    PAGE_OFFSETS,
    READ_BYTES,
    LogPages,
    Page,
    ReadAhead,
)
from headgate.errors import BusUnavailable
from headgate.events.topic import matches
from headgate.events.wire.frames import Frame
from headgate.redis.log import EventLog, RawEntry
from tests.support.raw_log import RawLog, raw_entry

EPOCH = "a" * 16


class FakeLog(RawLog):
    """A log in memory that counts reads. `offsets` may have holes; those in `bad` cannot be delivered."""

    def __init__(self, offsets: Iterable[int], bad: Iterable[int] = (), size: int = 10) -> None:
        super().__init__()
        self.offsets, self.bad, self.size = sorted(offsets), set(bad), size
        self.epoch = EPOCH
        self.reads: list[int] = []
        self.during: Callable[[], None] = lambda: None

    def raw_page(self, after: int, upto: int | None, limit: int, *, epoch: str | None = None) -> list[RawEntry]:
        self.reads.append(after)
        self.during()
        if epoch not in (None, self.epoch):
            raise BusUnavailable("the log has just been replaced by another one")
        begin = bisect_right(self.offsets, after)
        end = len(self.offsets) if upto is None else bisect_right(self.offsets, upto)
        return [self._entry(offset) for offset in self.offsets[begin : min(end, begin + limit)]]

    def _entry(self, offset: int) -> RawEntry:
        topic = b"orders.odd" if offset % 2 else b"orders.even"
        return raw_entry(offset, topic=topic, data=b"{" if offset in self.bad else b'"%s"' % (b"x" * self.size))


def pages_of(log: FakeLog, **options: Any) -> LogPages:
    """Return pages over a fake log."""

    def quarantine(fault: object) -> None:
        assert log.bad, fault

    return LogPages("notifications", cast(EventLog, log), quarantine, **options)


def wanted(*patterns: str) -> Callable[[str], bool]:
    """Return whether a topic is for a client with these patterns."""
    return lambda topic: any(matches(pattern, topic) for pattern in patterns)


def read_all(pages: LogPages, position: int, patterns: tuple[str, ...] = ("#",)) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Read from a position to the end, as catching up does; return offsets seen, and ranges missed with their reasons."""
    seen: list[int] = []
    missed: list[tuple[int, int, str]] = []
    while (page := pages.page_after(position, EPOCH)) is not None:
        assert page.last > position
        if page.oldest > position + 1:
            missed.append((position + 1, page.oldest - 1, "trimmed"))
            position = page.oldest - 1
        for whole in page.chunks(patterns, wanted(*patterns)):
            if whole.last <= position:
                continue
            chunk = whole.after(position)
            assert chunk.first == position + 1, "chunks cover their page without a hole"
            if chunk.missing is not None:
                missed.append((chunk.first, chunk.last, chunk.missing.value))
            seen += [frame.offset or 0 for frame in chunk.frames]
            position = chunk.last
    return seen, missed


def test_a_page_is_read_once_for_everybody() -> None:
    """Ten thousand clients back at nearby offsets cost a few reads."""
    log = FakeLog(range(1, 1501))
    pages = pages_of(log)
    for client in range(500):
        assert read_all(pages, client % 40)[0] == list(range(client % 40 + 1, 1501))
    # Everyone looks once more at the end of the log.
    assert len(log.reads) - 500 <= 1500 // PAGE_OFFSETS + 1


def test_a_page_at_the_end_of_the_log_is_completed_by_what_is_new_alone() -> None:
    """Not read from its beginning again."""
    log = FakeLog(range(1, PAGE_OFFSETS // 2))
    pages = pages_of(log)
    read_all(pages, 0)
    log.offsets.extend(range(PAGE_OFFSETS // 2, PAGE_OFFSETS + 5))
    assert read_all(pages, PAGE_OFFSETS // 2 - 1)[0] == list(range(PAGE_OFFSETS // 2, PAGE_OFFSETS + 5))
    assert PAGE_OFFSETS // 2 - 1 in log.reads


def test_a_reader_that_goes_on_is_read_ahead_for() -> None:
    """At a high rate the round trips cost, so it reads twice as far each time, up to a bound."""
    log = FakeLog(range(1, 20_001))
    pages = pages_of(log)
    assert read_all(pages, 0)[0] == list(range(1, 20_001))
    assert len(log.reads) <= 20_000 / (MAX_REPLY_BYTES // log.max_payload_bytes) + 10


def test_a_reader_at_the_end_of_a_busy_log_gets_all_that_has_come_in_one_read() -> None:
    """More than a page comes during each of its reads, so with a page at a time it would never get to where the feed is."""
    log = FakeLog(range(1, 4 * MAX_READ_OFFSETS + 1))
    pages = pages_of(log)
    read_all(pages, 0)
    for _ in range(10):
        end = log.offsets[-1]
        log.offsets.extend(range(end + 1, end + 4 * PAGE_OFFSETS))
        before = len(log.reads)
        read_all(pages, end)
        assert len(log.reads) == before + 2  # the received events, and the end


def test_a_read_ahead_is_bounded_in_bytes() -> None:
    """Going by the read before; and by the payload limit, when small events are followed by large ones."""
    log = FakeLog(range(1, 2001), size=16_384)
    read_all(pages_of(log), 0)
    steps = [after - before for before, after in itertools.pairwise(log.reads)]
    assert max(steps[2:]) <= max(READ_BYTES // 16_384, PAGE_OFFSETS)
    for max_payload_bytes, most in ((1024, MAX_READ_OFFSETS), (65536, MAX_REPLY_BYTES // 65536), (1024 * 1024, PAGE_OFFSETS)):
        ahead, last = ReadAhead(max_payload_bytes), 0
        for _ in range(10):
            offsets = ahead.offsets_after(last)
            ahead.note(last, last + offsets, offsets, 1)
            last += offsets
        assert ahead.offsets_after(last) == most


def test_only_a_few_readers_at_different_places_are_read_ahead_for() -> None:
    """Each of hundreds would push the pages of the others out."""
    ahead = ReadAhead(65536)
    ends = range(1000, 1001 + MAX_AHEAD)
    for last in ends:
        ahead.note(last - PAGE_OFFSETS, last, PAGE_OFFSETS, 1)
    assert [ahead.offsets_after(last) for last in ends] == [PAGE_OFFSETS, *[2 * PAGE_OFFSETS] * MAX_AHEAD]


def test_others_who_are_too_far_back_need_no_read_of_their_own() -> None:
    """If they are within the range known to be gone."""
    log = FakeLog(range(5001, 5011))
    pages = pages_of(log)
    pages.page_after(17, EPOCH)
    for position in (17, 18, 1000, 4999):
        page = pages.page_after(position, EPOCH)
        assert page is not None
        assert page.oldest == 5001
    assert len(log.reads) == 1


def page_with(*topics: str) -> Page:
    """Return a page with an event on each topic."""
    page = Page(1, 0)
    for offset, topic in enumerate(topics, 1):
        page.add(offset, Frame(b"x", topic=topic, offset=offset))
    return page


def test_a_page_without_a_users_topics_is_passed_without_a_look_at_its_frames() -> None:
    """It costs the same for each of thousands of users that come back at once with different pages."""
    page = page_with(*(f"users.u{number}.inbox.news" for number in range(PAGE_OFFSETS)))

    def looks(topic: str) -> bool:
        pytest.fail(f"{topic} was matched")

    for number in range(PAGE_OFFSETS, 20 * PAGE_OFFSETS):
        [chunk] = page.chunks((f"users.u{number}.inbox.#", f"users.u{number}.mail"), looks)
        assert (chunk.first, chunk.last, chunk.frames, chunk.missing) == (1, PAGE_OFFSETS, (), None)
    assert not page.selections


@given(
    topics=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), min_size=1, max_size=12),
    patterns=st.lists(st.lists(st.sampled_from(["a", "b", "c", "*", "#"]), min_size=1, max_size=4).map(".".join), max_size=3),
    gone=st.sets(st.integers(1, 12)),
)
def test_a_page_that_lacks_something_has_none_of_these(topics: list[str], patterns: list[str], gone: set[int]) -> None:
    """Nor does it hide that something is missing, or cannot be delivered."""
    page = Page(1, 0)
    for offset, topic in enumerate(topics, 1):
        if offset not in gone:
            page.add(offset, Frame(b"x", topic=topic, offset=offset) if offset % 5 else None)
    if page.lacks(tuple(patterns)):
        [chunk] = page.chunks_of(lambda frame: wanted(*patterns)(frame.topic or ""))
        assert (chunk.first, chunk.last, chunk.frames, chunk.missing) == (page.first, page.last, (), None)


def test_the_parts_of_a_page_are_remembered_up_to_a_bound() -> None:
    """Every client could have other patterns."""
    pages = pages_of(FakeLog(range(1, 5)))
    page = pages.page_after(0, EPOCH)
    assert page is not None
    first = page.chunks(("orders.odd",), wanted("orders.odd"))
    assert page.chunks(("orders.odd",), wanted("orders.odd")) is first
    for number in range(2 * MAX_SELECTIONS):
        page.chunks((f"*.{number}",), wanted(f"*.{number}"))
    assert len(page.selections) == MAX_SELECTIONS


def test_a_chunk_is_one_write_at_most() -> None:
    """Unless one event alone is larger."""
    pages = pages_of(FakeLog(range(1, 11), size=30_000))
    page = pages.page_after(0, EPOCH)
    assert page is not None
    chunks = page.chunks(("#",), wanted("#"))
    assert [len(chunk.frames) for chunk in chunks] == [2, 2, 2, 2, 2]
    assert all(sum(len(frame.wire) for frame in chunk.frames) <= CHUNK_BYTES for chunk in chunks)


def test_the_cache_is_bounded_in_bytes() -> None:
    """The page unused for longest goes; the one that was asked for stays, however large."""
    log = FakeLog(range(1, PAGE_OFFSETS * 6 + 1), size=1000)
    pages = pages_of(log, max_bytes=3 * PAGE_OFFSETS * 1200)
    read_all(pages, 0)
    reads = len(log.reads)
    pages.page_after(PAGE_OFFSETS * 5, EPOCH)
    assert len(log.reads) == reads  # still there
    pages.page_after(0, EPOCH)
    assert len(log.reads) == reads + 1  # gone
    tiny = pages_of(FakeLog(range(1, 5), size=1000), max_bytes=10)
    assert read_all(tiny, 0)[0] == [1, 2, 3, 4]


@pytest.mark.parametrize("end", [0, 1, PAGE_OFFSETS - 1, PAGE_OFFSETS, PAGE_OFFSETS + 5, 2 * PAGE_OFFSETS, 90])
def test_a_log_that_has_lost_its_end_is_read_anew_from_there(end: int) -> None:
    """Entries below it stay known, and none above; also the parts that clients have asked for."""
    log = FakeLog(range(1, 81), size=10)
    pages = pages_of(log)
    read_all(pages, 0)
    log.offsets, log.size = list(range(1, 91)), 2000
    pages.cut(end)
    log.reads.clear()

    sizes: dict[int, int] = {}
    position = 0
    while (page := pages.page_after(position, EPOCH)) is not None:
        for chunk in page.chunks(("#",), wanted("#")):
            sizes |= {frame.offset or 0: len(frame.wire) for frame in chunk.frames}
        position = page.last
    assert sorted(sizes) == list(range(1, 91))
    assert [offset for offset, size in sizes.items() if size < 2000] == list(range(1, min(end, 80) + 1))
    assert min(log.reads, default=90) >= min(end, 80) // PAGE_OFFSETS * PAGE_OFFSETS


def test_a_cut_gives_back_the_room_of_what_it_forgets() -> None:
    """The cache may hold as much as before."""
    pages = pages_of(FakeLog(range(1, 81), size=100))
    read_all(pages, 0)
    pages.cut(40)
    assert sum(pages._sizes.values()) == pages._bytes > 0
    assert pages._sizes.keys() == pages._pages.keys()
    assert max(page.last for page in pages._pages.values()) == 40
    pages.cut(0)
    assert (pages._bytes, pages._sizes, pages._pages) == (0, {}, {})


@pytest.mark.no_cover  # counts memory, of which a measurement takes some
@pytest.mark.parametrize(("size", "patterns", "limit"), [(1, 1, 2**17), (1, 8, 2**17), (100, 8, 2**17), (3000, 8, 2**19)])
def test_the_limit_counts_what_the_cache_takes(size: int, patterns: int, limit: int) -> None:
    """Small events take more room beside their bytes than in them, and so do the parts of a page for many sets of patterns."""
    log = FakeLog(range(1, 1000), size=size)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        pages = pages_of(log, max_bytes=limit)
        position = 0
        while (page := pages.page_after(position, EPOCH)) is not None:
            for number in range(patterns):
                known = pages.page_after(position, EPOCH)
                assert known is not None
                known.chunks((f"p{number}",), wanted("#" if number % 2 else "orders.odd"))
            position = page.last
        log.reads.clear()
        gc.collect()
        took = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.6 * limit < took < 1.3 * limit


def test_a_read_that_another_log_answered_is_no_page() -> None:
    """The log knows its epoch."""
    log = FakeLog(range(1, 5))
    log.epoch = "b" * 16
    with pytest.raises(BusUnavailable):
        pages_of(log).page_after(0, EPOCH)


def test_a_read_during_which_everything_was_cleared_is_not_kept() -> None:
    """It was answered by the log before."""
    log = FakeLog(range(1, 5))
    pages = pages_of(log)
    log.during = lambda: pages.cut(0)
    with pytest.raises(BusUnavailable):
        pages.page_after(0, EPOCH)
    log.during = lambda: None
    log.offsets = [1]
    assert read_all(pages, 0)[0] == [1]


@given(
    offsets=st.sets(st.integers(1, 5 * PAGE_OFFSETS), max_size=200),
    bad=st.sets(st.integers(1, 5 * PAGE_OFFSETS), max_size=5),
    starts=st.lists(st.integers(0, 5 * PAGE_OFFSETS), min_size=1, max_size=5),
    pattern=st.sampled_from(["#", "orders.odd", "bills.1"]),
)
def test_from_any_position_everything_is_seen_or_missed_in_order(
    offsets: set[int], bad: set[int], starts: list[int], pattern: str
) -> None:
    """Against the naive answer: a matching deliverable event is seen, an absent one is missed, nothing twice."""
    pages = pages_of(FakeLog(offsets, bad))
    for start in starts:
        seen, missed = read_all(pages, start, (pattern,))
        ahead = [offset for offset in sorted(offsets) if offset > start]
        wanted = [o for o in ahead if o not in bad and (pattern == "#" or (pattern == "orders.odd" and o % 2))]
        assert seen == wanted
        told = [offset for first, last, _ in missed for offset in range(first, last + 1)]
        assert told == sorted(set(told))
        gone = [o for o in range(start + 1, (ahead[-1] if ahead else start) + 1) if o not in offsets or o in bad]
        assert told == gone
