"""The search for the start of each past that one request asks for (`since`), in one pass over the log. No I/O.

In: patterns with the past wanted of each, the ends of the log, and a function that reads its topics and times (log_topics.py).
Out: for each pattern, the offset after which its events begin. `last` reads the log backwards until it has found enough, once for
all patterns, matching each topic with all of them at once. `time` is a search among pages, which several times largely share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.delivery.pattern_map import PatternMap
from headgate.protocol.requests import Since

# Offsets per page. One reply of Redis has a page, including the payloads.
TOPIC_PAGE_OFFSETS = 100
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
        """The newest known offset of this page; `first - 1` when none is."""
        return self.first + len(self.topics) - 1

    def since(self, time_ms: int) -> int:
        """Return the oldest offset with an event of `time_ms` or later. There must be one."""
        return self.first + next(at for at, time in enumerate(self.times_ms) if time >= time_ms)


def page_of(offset: int) -> int:
    """Return the number of an offset's page."""
    return (offset - 1) // TOPIC_PAGE_OFFSETS


def find_starts(
    wanted: Sequence[tuple[str, Since]], first: int, last: int, read: Callable[[int], TopicPage], pause: Callable[[], object]
) -> list[int]:
    """Return for each pattern the offset after which its wanted events begin.

    Args:
        wanted: valid patterns; one may come more than once.
        first, last: the ends of the log.
        read: returns a page by its number. The patterns with `last` read no page twice.
        pause: called every now and then, and may let the loop run.
    """
    starts = [last] * len(wanted)
    befores: dict[int, int] = {}
    for index, (_, since) in enumerate(wanted):
        if since.offset is not None:
            # Another gateway may be ahead of this one, but none is ahead of the log.
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
        indexes = asking.get(pattern)
        if indexes is None:
            asking.add(pattern, [index])
        else:
            indexes.append(index)
        pause()
    reached: dict[str, tuple[int, ...]] = {}  # topic → indexes in `wanted`; the garbage collector ignores empty tuples
    for number in range(page_of(last), page_of(max(first, 1)) - 1, -1):
        page = read(number)
        for offset in range(min(page.last, last), max(page.first, first) - 1, -1):
            topic = page.topics[offset - page.first]
            if topic is None:
                continue
            found = reached.get(topic)
            if found is None:
                if len(reached) >= _KEPT_TOPICS:
                    reached.clear()
                found = reached[topic] = tuple(index for indexes in asking.reached(topic) for index in indexes if index in left)
            done = False
            for index in found:
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
    """Return an offset that separates events older than `time_ms` from all others, as the times of the log never decrease.

    An event without a time, written by hand, counts as old where possible.
    """
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
            return max(page.since(time_ms), first) - 1
    return min(max((low + 1) * TOPIC_PAGE_OFFSETS, first - 1), last)
