"""The clients of one namespace that read the log, and those that are being handed over to the live feed. No I/O of its own.

In: clients that may have their next page (`add`), and each change of phase (`moved`), from the clients themselves. Out: frames of
the log, a chunk (one socket write) at a time, to one client after the other (`serve_next`); a client whose socket has no room
leaves the round and comes back when its queue has drained.

The hand-over has no gap and no duplicate, and needs no moment of silence: a client reads to the end of the log, which is never
behind the live feed, and from then on takes live events above its own position only. Nothing lets the loop run between the
comparison and the step. Where the feed is ahead again when the answer is here, the next read has a bridge (bridge.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from headgate.protocol.packets import GapReason
from headgate.transport.send_queue import LOW_WATER

from .client import Client
from .state import Phase
from .tally import Tallies

if TYPE_CHECKING:
    from headgate.redis.log import Entry

    from .bridge import Bridge
    from .page_cache import Page


class LiveFeed(Protocol):
    """The place of the live feed (live_feed.py)."""

    def position(self) -> int:
        """The offset up to which events have been handed to the fan-out."""

    def epoch(self) -> str:
        """The log that this position is in."""

    def oldest(self) -> int:
        """An offset below which that log holds nothing any more."""

    def on_live(self, client: Client) -> None:
        """This client has reached the feed, and is in HANDOVER."""

    def quarantine(self, entry: Entry) -> None:
        """An entry of the log that cannot be delivered was met."""

    @property
    def bridge(self) -> Bridge:
        """Takes what the feed hands on, while it is open."""


class Pages(Protocol):
    """The log, a page at a time (page_cache.py)."""

    def page_after(self, position: int, epoch: str, quarantine: Callable[[Entry], None]) -> Page | None:
        """Return the first page that holds anything after `position`, or None if the log ends there. May let the loop run."""

    def known_after(self, position: int) -> Page | None:
        """Return a page that is known to hold the next thing after `position`."""

    def offsets_after(self, position: int) -> int:
        """Return how many offsets a read after `position` asks for."""


class LogReaders:
    """See the module. `handover` are the clients in that phase. `on_work` is called when somebody waits for a page.

    `late` counts events that a pass still held for clients that had left.
    """

    def __init__(self, pages: Pages, on_work: Callable[[], object], tallies: Tallies | None = None) -> None:
        self._pages = pages
        self._on_work = on_work
        self._round: OrderedDict[Client, None] = OrderedDict()
        self._nearly: set[Client] = set()  # the log had no more for them, and the feed was ahead again
        self._paused = False
        self.handover: set[Client] = set()
        self.late = 0
        self.tallies = tallies or Tallies(0)

    @property
    def waiting(self) -> bool:
        """Whether a client waits for its next page, and may have it."""
        return bool(self._round) and not self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nobody has a page for the time of the block: each client must be told something first."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            if self._round:
                self._on_work()

    def add(self, client: Client) -> None:
        """Take a client that is READING into the round (again). Never waits; idempotent."""
        self._round.setdefault(client)
        self._on_work()

    def moved(self, client: Client, before: Phase, after: Phase) -> None:
        """Follow a client from phase to phase: only those that are READING are in the round."""
        if before is Phase.READING:
            self._round.pop(client, None)
            self._nearly.discard(client)
        elif before is Phase.HANDOVER:
            self.handover.discard(client)
        if after is Phase.HANDOVER:
            self.handover.add(client)

    def next(self) -> Client:
        """Take the client whose turn it is out of the round."""
        client, _ = self._round.popitem(last=False)
        return client

    def serve(self, client: Client, feed: LiveFeed) -> None:
        """Give a client what its socket takes of its next page, or hand it over to the feed. May wait for the log.

        Raises:
            HeadgateError: the log could not be read; the client is out of the round.
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
        # All clients that are further back than the log look at the same place.
        after = max(position, feed.oldest() - 1)
        reached = max(feed.position(), client.even_from)  # before the read: an event that comes in during it is not gone
        page = self._pages.page_after(after, feed.epoch(), feed.quarantine)
        if client.state.phase is not Phase.READING or client.connection.closed or client.position != position:
            return  # something happened to it while Redis answered
        # A log that ends before the feed's position has lost its end by hand: go to where the feed is.
        oldest = page.oldest if page is not None else reached + 1
        if oldest > position + 1:
            # In one piece: the position may be many pages back.
            client.miss(position + 1, oldest - 1, GapReason.TRIMMED)
            client.position = oldest - 1
        while page is not None:
            if not _deliver(client, page):
                client.wait_for_room()
                return
            page = self._pages.known_after(client.position) if feed.bridge.is_open else None
        if _cross(client, feed) and _hand_over(client, feed):
            return
        ahead = feed.position() - client.position
        if 0 < ahead <= self._pages.offsets_after(client.position) and self._pages.known_after(client.position) is None:
            self._nearly.add(client)
        self.add(client)


def _hand_over(client: Client, feed: LiveFeed) -> bool:
    """Hand a client over to the feed if it has read as far; return whether it has."""
    if client.position < max(feed.position(), client.even_from):
        return False
    client.reach_feed()
    feed.on_live(client)
    return True


def _cross(client: Client, feed: LiveFeed) -> bool:
    """Give a client that is below the feed what that has handed on since its read; True when it has come to where the feed is."""
    position = feed.position()
    if client.position >= position or client.state.full:
        return False
    frames = feed.bridge.above(client.position, client.wants)
    return frames is not None and client.take_chunk(frames, position)


def _deliver(client: Client, page: Page) -> bool:
    """Give a client what its socket and queue take of a page; True when that was all of it."""
    if client.position < client.even_from:
        chunks = page.chunks_of(client.wants)
    else:
        chunks = page.chunks(client.subscriptions.key, client.subscribed_to)
    for whole in chunks:
        if whole.last <= client.position:
            continue
        if client.state.full:
            return False  # a gap waits for its place in the queue, ahead of what comes
        chunk = whole.after(client.position)
        if chunk.missing is not None:
            client.miss(chunk.first, chunk.last, chunk.missing)
            client.position = chunk.last
        elif not client.take_chunk(chunk.frames, chunk.last):
            return False
    return True
