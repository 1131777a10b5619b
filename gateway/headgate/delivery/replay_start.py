"""The search for the start of each past that one request asks for (`since`). No I/O except through `EventLog`.

In: patterns with the past wanted of each, the ends of the log, and a function that reads its topics and times (`LogTopics`). Out:
for each pattern, the offset after which its events begin. For `last` the log is read backwards once, and each topic matched with
all patterns at once. For `time` it is a binary search among pages.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.delivery.pattern_map import PatternMap
from headgate.events.wire.requests import Since

if TYPE_CHECKING:
    from headgate.redis.log import EventLog

# Offsets per page. One reply of Redis has a page, including the payloads.
TOPIC_PAGE_OFFSETS = 100
# Pages in memory, with 25,600 events. They take 2.5 MiB if most topics repeat, and 8 MiB if all differ and have 255 bytes.
MAX_PAGES = 256
# Events between two calls of `pause`. Matching 32 new topics with 32 of the costliest patterns takes 5 ms.
_PAUSE_EVENTS = 8
# Topics with a remembered match.
_KEPT_TOPICS = 512


@dataclass(slots=True)
class TopicPage:
    """The topics at the offsets from `first` on. The topic None means no event, and the time 0 an unknown time."""

    first: int
    topics: list[str | None]
    times_ms: list[int]

    @property
    def last(self) -> int:
        """The newest known offset of this page, or `first - 1`."""
        return self.first + len(self.topics) - 1


class LogTopics:
    """The topics and times of one namespace's log, a page at a time and without payloads.

    Cached, so that another search, for any client, costs Redis only what was published since. The cache has at most MAX_PAGES,
    more than a log of the usual length, and drops the least recently used. Pages stay true as those of page_cache.py do.
    """

    def __init__(self, max_pages: int = MAX_PAGES) -> None:
        self._max_pages = max_pages
        self._pages: OrderedDict[int, TopicPage] = OrderedDict()
        self._cuts = 0

    def known(self, number: int, upto: int) -> TopicPage | None:
        """Return a page if all of it up to an offset is known. Never waits."""
        page = self._pages.get(number)
        if page is None or page.last < min(upto, page.first + TOPIC_PAGE_OFFSETS - 1):
            return None
        self._pages.move_to_end(number)
        return page

    def read(self, number: int, upto: int, log: EventLog) -> TopicPage:
        """Return a page, completed from `log` up to an offset that the log has reached. Raises as `redis.client.call`."""
        if (known := self.known(number, upto)) is not None:
            return known
        page = self._pages.get(number) or TopicPage(number * TOPIC_PAGE_OFFSETS + 1, [], [])
        upto = min(upto, page.first + TOPIC_PAGE_OFFSETS - 1)
        cuts = self._cuts
        for offset, topic, time_ms in log.topics(page.last, upto):
            _fill(page, offset - 1)
            if page.last < offset:  # else another greenlet has read it since
                page.topics.append(sys.intern(topic))
                page.times_ms.append(time_ms)
        _fill(page, upto)
        if cuts == self._cuts:
            self._pages[number] = page
            self._pages.move_to_end(number)
            if len(self._pages) > self._max_pages:
                self._pages.popitem(last=False)
        return page

    def cut(self, end: int) -> None:
        """Forget everything above an offset, where another epoch may hold other events, or above 0 for another log."""
        for number, page in tuple(self._pages.items()):
            if page.first > end:
                del self._pages[number]
            elif page.last > end:
                # A new object, to which a read under way must not add its results.
                kept = end - page.first + 1
                self._pages[number] = TopicPage(page.first, page.topics[:kept], page.times_ms[:kept])
        self._cuts += 1


def _fill(page: TopicPage, upto: int) -> None:
    """Note that the unknown offsets up to `upto` have no event."""
    missing = upto - page.last
    if missing > 0:
        page.topics.extend([None] * missing)
        page.times_ms.extend([0] * missing)


def page_of(offset: int) -> int:
    return (offset - 1) // TOPIC_PAGE_OFFSETS


def find_starts(
    wanted: Sequence[tuple[str, Since]], first: int, last: int, read: Callable[[int], TopicPage], pause: Callable[[], object]
) -> list[int]:
    """Return for each pattern the offset after which its wanted events begin.

    Args:
        wanted: valid patterns; one may come more than once.
        first, last: the ends of the log.
        read: returns a page by its number. All patterns with `last` together read each page once.
        pause: may let the loop run, every few events.
    """
    starts = [last] * len(wanted)
    befores: dict[int, int] = {}
    for index, (_, since) in enumerate(wanted):
        if since.offset is not None:
            # Another gateway may be ahead of this one, but not of the log.
            starts[index] = min(since.offset, last)
        elif since.time_ms is not None:
            if since.time_ms not in befores:
                befores[since.time_ms] = _before(since.time_ms, first, last, read)
                pause()
            starts[index] = befores[since.time_ms]
    left = {index: since.last for index, (_, since) in enumerate(wanted) if since.last is not None}
    if left:
        _go_back(wanted, left, starts, first, last, read, pause)
    return starts


def _go_back(
    wanted: Sequence[tuple[str, Since]],
    left: dict[int, int],
    starts: list[int],
    first: int,
    last: int,
    read: Callable[[int], TopicPage],
    pause: Callable[[], object],
) -> None:
    """Move each of `starts` back until as many events follow as it has `left`, or the log ends."""
    asking: PatternMap[list[int]] = PatternMap()
    for index in left:
        pattern = wanted[index][0]
        if (indexes := asking.get(pattern)) is None:
            asking.add(pattern, [index])
        else:
            indexes.append(index)
        pause()
    reached: dict[str, tuple[int, ...]] = {}  # topic → indexes in `wanted`; the garbage collector ignores empty tuples
    for number in range(page_of(last), page_of(max(first, 1)) - 1, -1):
        page = read(number)
        for offset in range(min(page.last, last), max(page.first, first) - 1, -1):
            if (topic := page.topics[offset - page.first]) is None:
                continue
            if (known := reached.get(topic)) is None:
                if len(reached) >= _KEPT_TOPICS:
                    reached.clear()
                known = reached[topic] = tuple(index for indexes in asking.reached(topic) for index in indexes if index in left)
            done = False
            for index in known:
                starts[index] = offset - 1
                left[index] -= 1
                if not left[index]:
                    del left[index]
                    done = True
            if done:
                if not left:
                    return
                reached.clear()
            if not offset % _PAUSE_EVENTS:
                pause()


def _before(time_ms: int, first: int, last: int, read: Callable[[int], TopicPage]) -> int:
    """Return an offset that separates events older than `time_ms` from all others, as the times of the log never decrease."""
    # An event without a time was written by hand, and counts as old where possible.
    low, high = page_of(first) - 1, page_of(last)  # pages up to `low` are older, pages after `high` are not
    while low < high:
        middle = probed = (low + high + 1) // 2
        page = read(probed)
        while not any(page.times_ms) and probed < high:
            probed += 1
            page = read(probed)
        times = [time for time in page.times_ms if time]
        if not times or times[0] >= time_ms:
            high = middle - 1  # neither here nor on the pages between, which have no times
        elif times[-1] < time_ms:
            low = probed
        else:
            return max(page.first + next(at for at, time in enumerate(page.times_ms) if time >= time_ms), first) - 1
    return min(max((low + 1) * TOPIC_PAGE_OFFSETS, first - 1), last)
