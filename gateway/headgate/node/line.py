"""The line of one namespace's log as this gateway knows it: where positions of clients, of any epoch, stand on it.

In: an epoch and an offset that a client has shown. Out: the end of that epoch on the line that leads to the epoch of the bus, by
the lineage of the feed, or None if the log never had this epoch. This gateway asks Redis before it reports a loss, because the
position may come from another gateway, further ahead.
"""

from __future__ import annotations

from headgate.delivery.bus.listener import Bus
from headgate.delivery.live_feed import LiveFeed
from headgate.errors import BusUnavailable

from .log_search import LogSearch


class Line:
    """See the module."""

    def __init__(self, bus: Bus, feed: LiveFeed, search: LogSearch) -> None:
        self.bus, self.feed, self.search = bus, feed, search

    def end_of(self, epoch: str, offset: int) -> int | None:
        """Return the newest offset at which a position of an epoch is on the line. None: the epoch is unknown.

        The answer refers to the epoch of the bus on return. Waits for Redis if this gateway does not know the position to be on
        the line.

        Raises:
            BusUnavailable: the log goes on in an epoch that the feed has not met yet. Its next fence will find that.
            BusUnavailable, BusRefused: as `LogSearch.head`.
        """
        end = self.bus.lineage.end_of(epoch, self._newest())
        if end is not None and offset <= end:
            return end
        head = self.search.head(epoch)
        if head.epoch != self.bus.epoch:
            raise BusUnavailable("the log goes on in an epoch that this gateway has not met yet")
        self.bus.note_head(head.offset)
        newest = max(head.offset, self._newest())
        end = self.bus.lineage.end_of(epoch, newest)
        return head.lineage.end_of(epoch, newest) if end is None and head.lineage is not None else end

    def _newest(self) -> int:
        return max(self.feed.position(), self.bus.head)
