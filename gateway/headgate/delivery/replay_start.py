"""Where the past begins that clients ask for (`since`): all that one request asks for, in one reading of the log. No I/O.

In: what is wanted of which pattern, the ends of the log, and a way to read its topics and times (log_topics.py). Out: for each
pattern, the offset after which its events begin. `last` goes through the log from its end until enough was found, once for all
patterns, matching each topic against all of them at once; `time` is a search among pages, which several times largely share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.delivery.pattern_map import PatternMap
from headgate.protocol.requests import Since

# Offsets per page: one reply of Redis, which holds their payloads too.
TOPIC_PAGE_OFFSETS = 100
# Between two calls of `pause`: 32 events whose topics are new, matched with 32 of the costliest patterns, take 5 ms.
_PAUSE_EVENTS = 8
# Topics that are not matched anew each time that they come up.
_KEPT_TOPICS = 512


@dataclass(slots=True)
class TopicPage:
    """The topics at the offsets from `first` on. A topic of None: nothing is there; a time of 0: nobody knows when."""

    first: int
    topics: list[str | None]
    times_ms: list[int]

    @property
    def last(self) -> int:
        """The newest offset of which anything is known; `first - 1` when nothing is."""
        return self.first + len(self.topics) - 1

    def since(self, time_ms: int) -> int:
        """Return the oldest offset whose event is of `time_ms` or later; there is one."""
        return self.first + next(at for at, time in enumerate(self.times_ms) if time >= time_ms)


def page_of(offset: int) -> int:
    """Return the number of the page that an offset is on."""
    return (offset - 1) // TOPIC_PAGE_OFFSETS


def find_starts(
    wanted: Sequence[tuple[str, Since]], first: int, last: int, read: Callable[[int], TopicPage], pause: Callable[[], object]
) -> list[int]:
    """Return for each pattern the offset after which the events lie that it asks for.

    Args:
        wanted: valid patterns; one may come more than once.
        first, last: the offsets between which the log holds anything.
        read: returns a page by its number; asked for none twice by the patterns with `last`.
        pause: called every now and then; the loop may run others in it.
    """
    starts = [last] * len(wanted)
    befores: dict[int, int] = {}
    for index, (_, since) in enumerate(wanted):
        if since.offset is not None:
            # Another gateway may be ahead of this one, but nothing is ahead of the log: what comes next is news.
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
    """Move `starts` back until as many events are behind each as it has `left`, or the log has no more."""
    asking: PatternMap[list[int]] = PatternMap()
    for index in left:
        pattern = wanted[index][0]
        indexes = asking.get(pattern)
        if indexes is None:
            asking.add(pattern, [index])
        else:
            indexes.append(index)
        pause()
    reached: dict[str, tuple[int, ...]] = {}  # topic → who wants its events; an empty tuple is nothing to the garbage collector
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
    """Return an offset behind all that is older than `time_ms`, and before all that is not: the log's times never go backwards.

    An event without a time, put there by hand, counts as old where it may.
    """
    low, high = page_of(first) - 1, page_of(last)  # what is on `low` or before is older, what is behind `high` is not
    while low < high:
        middle = probed = (low + high + 1) // 2
        page = read(probed)
        while not any(page.times_ms) and probed < high:
            probed += 1
            page = read(probed)
        times = [time for time in page.times_ms if time]
        if not times or times[0] >= time_ms:
            high = middle - 1  # neither here nor on the pages between, which say nothing
        elif times[-1] < time_ms:
            low = probed
        else:
            return max(page.since(time_ms), first) - 1
    return min(max((low + 1) * TOPIC_PAGE_OFFSETS, first - 1), last)
