"""The clients of one namespace that read the log, and their handover to the live feed. No I/O except through `LogPages`.

In: from clients, requests for the next page (`add`) and changes of phase (`moved`). Out: frames of the log, a chunk (one socket
write) at a time, to one client after the other (`serve`). A client without room leaves the round until its queue has drained.

The handover has no gap and no duplicate, also under constant load. A client reads to the end of the log, which the live feed
never overtakes, and then takes only live events above its position. The loop cannot run between the comparison and the step. If
the feed is ahead again when the answer arrives, the next read has a bridge (live_feed.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.events.wire.packets import GapReason
from headgate.transport.send_queue import LOW_WATER

from .client import Client
from .state import Phase
from .tally import Tallies

if TYPE_CHECKING:
    from .live_feed import LiveFeed
    from .page_cache import LogPages, Page


class LogReaders:
    """See the module. `handover` has the clients in that phase. `on_work` is called when a client waits for a page.

    `late` counts events that a pass still held for clients that had left.
    """

    def __init__(self, pages: LogPages, on_work: Callable[[], object], tallies: Tallies | None = None) -> None:
        self._pages, self._on_work = pages, on_work
        self._round: OrderedDict[Client, None] = OrderedDict()
        self._nearly: set[Client] = set()  # at the end of the log, with the feed ahead again
        self._paused = False
        self.handover: set[Client] = set()
        self.late = 0
        self.tallies = tallies or Tallies(0)

    @property
    def waiting(self) -> bool:
        """Whether a client waits for a page that it may have."""
        return bool(self._round) and not self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Serve no page within the block, as each client must get a notice first."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            if self._round:
                self._on_work()

    def add(self, client: Client) -> None:
        """Add a READING client to the round. Idempotent, never waits."""
        self._round.setdefault(client)
        self._on_work()

    def moved(self, client: Client, before: Phase, after: Phase) -> None:
        """Note a change of phase. Only READING clients are in the round."""
        if before is Phase.READING:
            self._round.pop(client, None)
            self._nearly.discard(client)
        elif before is Phase.HANDOVER:
            self.handover.discard(client)
        if after is Phase.HANDOVER:
            self.handover.add(client)

    def next(self) -> Client:
        """Take the next client out of the round."""
        client, _ = self._round.popitem(last=False)
        return client

    def serve(self, client: Client, feed: LiveFeed) -> None:
        """Send a client as much of its next page as it takes, or hand it over to the feed. May wait for the log.

        Raises HeadgateError: the log could not be read; the client is out of the round.
        """
        if client.connection.closed:
            return
        if _hand_over(client, feed):
            return
        if client.state.full or client.connection.queue.level > LOW_WATER:
            client.wait_for_room()
            return
        bridge = feed.bridge
        if client in self._nearly:
            self._nearly.discard(client)
            bridge.open(feed.position())
        try:
            self._read(client, feed)
        finally:
            bridge.close()

    def _read(self, client: Client, feed: LiveFeed) -> None:
        position = client.position
        # All clients further back than the log read the same page.
        after = max(position, feed.bus.first - 1)
        reached = max(feed.position(), client.even_from)  # before the read, as an event during it is not lost
        page = self._pages.page_after(after, feed.epoch())
        feed.bus.wait_held()
        if client.state.phase is not Phase.READING or client.connection.closed or client.position != position:
            return  # it changed while Redis answered
        if page is None:  # a log that ends before the position of the feed was cut by hand, so continue at the feed
            _miss_up_to(client, reached)
        while page is not None:
            if not _deliver(client, page):
                client.wait_for_room()
                return
            # A client skips pages without anything for it at once, as this takes no turn from other clients.
            goes_on = feed.bridge.is_open or page.lacks(client.subscriptions.key)
            page = self._pages.known_after(client.position) if goes_on else None
        if client.position < (handed_on := feed.position()) and not client.state.full:
            frames = feed.bridge.above(client.position, client.wants)  # since its read
            if frames is not None and client.take_chunk(frames, handed_on) and _hand_over(client, feed):
                return
        ahead = feed.position() - client.position
        if 0 < ahead <= self._pages.offsets_after(client.position) and self._pages.known_after(client.position) is None:
            self._nearly.add(client)
        self.add(client)


def _hand_over(client: Client, feed: LiveFeed) -> bool:
    """Hand a client over to the feed if it has read that far; return whether it has."""
    if client.position < max(feed.position(), client.even_from):
        return False
    client.reach_feed()
    feed.on_live(client)
    return True


def _miss_up_to(client: Client, last: int) -> None:
    """Report the offsets up to `last` as trimmed, in one range, as the position may be many pages back."""
    if last > client.position:
        client.miss(client.position + 1, last, GapReason.TRIMMED)
        client.position = last


def _deliver(client: Client, page: Page) -> bool:
    """Send a client as much of a page as it takes, after the gap before it; return whether that was all."""
    if page.oldest > client.position + 1 and client.state.full:
        return False
    _miss_up_to(client, page.oldest - 1)
    if client.position < client.even_from:
        chunks = page.chunks_of(client.wants)
    else:
        chunks = page.chunks(client.subscriptions.key, client.subscribed_to)
    for whole in chunks:
        if whole.last <= client.position:
            continue
        if client.state.full:
            return False  # a gap must enter the queue first
        chunk = whole.after(client.position)
        if chunk.missing is not None:
            client.miss(chunk.first, chunk.last, chunk.missing)
            client.position = chunk.last
        elif not client.take_chunk(chunk.frames, chunk.last):
            return False
    return True
