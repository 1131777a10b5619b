"""Searches one namespace's log for clients, and knows its line of epochs.

In: requests of a client. Out: the head of the log, pages to replay, and the offsets at which requested pasts begin. Searches run
one at a time over one connection, and each client (by its user, or its address) reads at a limited rate. Both may make the caller
wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from headgate.delivery.bus.listener import Bus
from headgate.delivery.client import Client
from headgate.delivery.live_feed import LiveFeed
from headgate.delivery.replay_start import LogTopics, TopicPage, find_starts
from headgate.errors import BusUnavailable, LimitReached
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.events.wire.requests import Since
from headgate.redis.lineage import Entry, Head
from headgate.redis.log import PAGE_EVENTS, EventLog
from headgate.runtime.loop import Lock, Share, sleep
from headgate.runtime.shared_rates import SharedRates
from headgate.settings.settings import Settings

# One acknowledgement of `replay` carries at most about this much payload.
REPLAY_BYTES = 65536
# A search without a turn in this time is refused, and may be retried. Each may take as long as noticing a dead Redis.
SEARCH_TURN_S = 10.0
# A client without reads left waits this long in all for its pages, and is then refused.
READ_WAIT_S = 10.0


class LogSearch:
    """See the module. `share` is the share of the loop for work on subscriptions."""

    def __init__(self, namespace: str, bus: Bus, feed: LiveFeed, log: EventLog, settings: Settings, share: Share) -> None:
        self.bus, self.feed, self.share = bus, feed, share
        self._log = log
        self.reads = SharedRates(f"replay:{namespace}", settings.read_per_s, settings.read_burst)
        self._turn = Lock()
        self._topics = LogTopics()

    def cut(self, end: int) -> None:
        """Forget everything above an offset, as `LogTopics.cut` does."""
        self._topics.cut(end)

    def head(self, known_epoch: str) -> Head:
        """Return the head of the log, with its lineage if its epoch is not `known_epoch`. Waits for Redis.

        Raises BusUnavailable, BusRefused: as `redis.client.call`, or no turn within SEARCH_TURN_S.
        """
        with self._turn_to_search() as log:
            return log.head(known_epoch)

    def end_of(self, epoch: str, offset: int) -> int | None:
        """Return the newest offset at which a position of an epoch is on the line of the log; None for an unknown epoch.

        Before it reports a loss it asks Redis, because the position may come from another gateway, further ahead.
        The answer refers to the epoch of the bus on return. Waits for Redis unless the position is known to be on the line.

        Raises:
            BusUnavailable: the log continues in an epoch that the feed has not seen yet. Its next fence will.
            BusUnavailable, BusRefused: as `head`.
        """
        end = self.bus.lineage.end_of(epoch, self._newest())
        if end is not None and offset <= end:
            return end
        head = self.head(epoch)
        if head.epoch != self.bus.epoch:
            raise BusUnavailable("the log continues in an epoch that this gateway has not seen yet")
        self.bus.note_head(head.offset)
        newest = max(head.offset, self._newest())
        end = self.bus.lineage.end_of(epoch, newest)
        return head.lineage.end_of(epoch, newest) if end is None and head.lineage is not None else end

    def find_starts(self, client: Client, asked: Sequence[tuple[str, Since]]) -> list[int]:
        """Return the offsets after which the requested pasts begin, from one reading of the log. Waits for Redis.

        Raises:
            LimitReached: `read_per_s`.
            BusUnavailable, BusRefused: as `head`.
        """
        give_up_s = monotonic() + READ_WAIT_S
        with self._turn_to_search() as log:
            head = log.head()
        pages: dict[int, TopicPage] = {}

        def read(number: int) -> TopicPage:
            if number in pages:
                return pages[number]
            wait_s = self._borrow_read(client, give_up_s - monotonic())
            page = self._topics.known(number, head.offset)
            if wait_s > 0 or page is None:
                with self.share.outside():
                    sleep(wait_s)
                    with self._turn_to_search() as log:
                        page = self._topics.read(number, head.offset, log)
            pages[number] = page
            return page

        with self.share:
            return find_starts(asked, head.first, head.offset, read, self.share.pause)

    def wait_to_read(self, client: Client) -> None:
        """Wait until the client's rate allows one more `page`. Raises LimitReached: `read_per_s`."""
        if (wait_s := self._borrow_read(client, READ_WAIT_S)) > 0:
            sleep(wait_s)

    def page(self, pattern: str, first: int, last: int, epoch: str | None) -> tuple[list[Event], int | None]:
        """Return the matching events of a range of the log, about REPLAY_BYTES of them, and the offset to continue from, if any.

        May switch greenlets. Raises BusUnavailable, BusRefused: as `head`. BusUnavailable also when the log has left `epoch`.
        """
        with self._turn_to_search() as log:
            entries = log.page(first - 1, last, epoch=epoch)
        events, next_ = _part(entries, pattern, PAGE_EVENTS)
        if next_ is None:
            next_ = entries[-1].offset + 1 if len(entries) >= PAGE_EVENTS else last + 1
        return events, next_ if next_ <= last else None

    def page_back(self, pattern: str, before: int, epoch: str | None, limit: int) -> tuple[list[Event], int | None]:
        """Return at most `limit` matching events of one page of the log below an offset, newest first. Otherwise as `page`."""
        first = max(1, before - PAGE_EVENTS)
        with self._turn_to_search() as log:
            entries = log.page(first - 1, before - 1, epoch=epoch)
        events, next_ = _part(reversed(entries), pattern, limit)
        if next_ is not None:
            return events, next_ + 1
        return events, first if first > 1 and entries else None

    def _newest(self) -> int:
        return max(self.feed.position(), self.bus.head)

    def _borrow_read(self, client: Client, max_wait_s: float) -> float:
        """Count one page of the log as read by a client; return the seconds to wait before reading it.

        Raises LimitReached: `read_per_s`: longer than `max_wait_s`.
        """
        wait_s = self.reads.borrow(client.account, monotonic(), max_wait_s)
        if wait_s is None:
            raise LimitReached("read_per_s", self.reads.per_s, max_wait_s)
        return wait_s

    @contextmanager
    def _turn_to_search(self) -> Iterator[EventLog]:
        """Wait for a turn, and hold the log during the block. Raises BusUnavailable: no turn within SEARCH_TURN_S."""
        if not self._turn.acquire(timeout=SEARCH_TURN_S):
            raise BusUnavailable(f"the log could not be searched within {SEARCH_TURN_S:g} s: other searches wait for Redis")
        try:
            yield self._log
        finally:
            self._turn.release()


def _part(entries: Iterable[Entry], pattern: str, limit: int) -> tuple[list[Event], int | None]:
    """Return the first matching events, at most `limit` and about REPLAY_BYTES, and the offset of the next one, if any."""
    events: list[Event] = []
    size = 0
    for entry in entries:
        event = entry.event
        if event is None or not matches(pattern, event.topic):
            continue
        if len(events) == limit or (events and size + len(event.data) > REPLAY_BYTES):
            return events, entry.offset
        size += len(event.data)
        events.append(event)
    return events, None
