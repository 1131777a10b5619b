"""The topics and times of one namespace's log, page by page and without payloads, for the search of a past.

In: `EventLog`, asked for a page at a time. Out: cached `TopicPage`s (replay_start.py), so that another search, for any client,
costs Redis only what was published since. The log never changes what it returned up to the end of its line, it only forgets. A
log that continues in another epoch cuts the cache, and another log clears it.

The cache has at most MAX_PAGES, which is more than a log of the usual length, and drops the least recently used.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

from headgate.delivery.replay_start import TOPIC_PAGE_OFFSETS, TopicPage
from headgate.redis.log import EventLog

# For 25,600 events. They take 2.5 MiB if most topics repeat, and 8 MiB if all differ and have 255 bytes.
MAX_PAGES = 256


class LogTopics:
    """The cache. `reads` counts round trips to Redis."""

    def __init__(self, max_pages: int = MAX_PAGES) -> None:
        self._max_pages = max_pages
        self._pages: OrderedDict[int, TopicPage] = OrderedDict()
        self._cuts = 0
        self.reads = 0

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
        self.reads += 1
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
        """Forget everything above an offset, where another epoch of the log may hold other events."""
        for number, page in tuple(self._pages.items()):
            if page.first > end:
                del self._pages[number]
            elif page.last > end:
                # A new object, to which a read under way must not add its results.
                kept = end - page.first + 1
                self._pages[number] = TopicPage(page.first, page.topics[:kept], page.times_ms[:kept])
        self._cuts += 1

    def clear(self) -> None:
        """Forget everything, as another log has begun."""
        self.cut(0)


def _fill(page: TopicPage, upto: int) -> None:
    """Note that the unknown offsets up to `upto` hold nothing."""
    missing = upto - page.last
    if missing > 0:
        page.topics.extend([None] * missing)
        page.times_ms.extend([0] * missing)
