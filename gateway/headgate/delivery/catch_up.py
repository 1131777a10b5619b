"""Catching up: clients that read the log at the pace of their sockets, until they are where the live feed is.

In: clients that came back with a position, whose queue overflowed, or who asked for the past (`add`). Out: frames of the
log, and then the client is live again. One greenlet per namespace serves all of them in turn, a chunk (one socket write)
at a time; a client whose socket has no room leaves the round and comes back when its queue has drained.

The hand-over has no gap and no duplicate, and needs no moment of silence: the reader reads to the end of the log, which is
never behind the live feed, and from then on the client takes live events above its own position only
(`Client.live_from`). Nothing switches greenlets between the comparison and the hand-over.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Protocol

import structlog

from headgate.errors import HeadgateError
from headgate.protocol.packets import GapReason
from headgate.redis.log import Entry
from headgate.runtime.loop import Signal, sleep, spawn
from headgate.transport.send_queue import RELIEF_LEVEL

from .client import Client
from .page_cache import LogPages, Page

log = structlog.get_logger("headgate.catch_up")

# A failed read is tried again after this; the bus listener says what is wrong.
RETRY_S = 0.25
BUDGET_S = 0.004


class LiveFeed(Protocol):
    """Where the live feed stands."""

    def position(self) -> int:
        """The offset up to which events have been handed to the fan-out."""

    def epoch(self) -> str:
        """The log that this position is in."""

    def oldest(self) -> int:
        """An offset below which that log holds nothing any more."""

    def went_live(self, client: Client) -> None:
        """This client takes live events from now on."""

    def quarantine(self, entry: Entry) -> None:
        """An entry of the log that cannot be delivered was met."""


class CatchUp:
    """The clients of one namespace that are catching up."""

    def __init__(self, pages: LogPages, feed: LiveFeed) -> None:
        self.pages = pages
        self._feed = feed
        self._round: deque[Client] = deque()
        self._waiting: set[Client] = set()
        self._wake = Signal()
        self._started = False
        self._closed = False

    def add(self, client: Client) -> None:
        """Take a client into the round (again). Never waits; idempotent."""
        if client in self._waiting or self._closed:
            return
        self._waiting.add(client)
        self._round.append(client)
        self._wake.set()
        if not self._started:
            self._started = True
            spawn(self._run)

    def close(self) -> None:
        """Stop. Idempotent."""
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        yielded_s = monotonic()
        while not self._closed:
            if not self._round:
                self._wake.clear()
                self._wake.wait()
                continue
            client = self._round.popleft()
            self._waiting.discard(client)
            try:
                self._serve(client)
            except HeadgateError:
                self.add(client)
                sleep(RETRY_S)
            except Exception:
                # A fault of ours must not end everybody's reading, and this client must not lose anything silently: it
                # comes back with its position.
                log.exception("catching up failed", session=client.session)
                client.connection.end("internal error")
            if monotonic() - yielded_s > BUDGET_S:
                sleep()
                yielded_s = monotonic()

    def _serve(self, client: Client) -> None:
        """Give one client what its socket takes of the next page, or make it live."""
        if not client.reading or client.held_back or client.connection.closed:
            return
        position = client.position
        if position >= self._feed.position():
            client.live_from(position)
            self._feed.went_live(client)
            return
        if client.connection.queue.level > RELIEF_LEVEL:
            client.wait_for_room()  # `relieved` adds it again
            return
        # All who are further back than the log look at the same place.
        after = max(position, self._feed.oldest() - 1)
        reached = self._feed.position()  # before the read: an event that comes in during it is not gone
        page = self.pages.page_after(after, self._feed.epoch(), self._feed.quarantine)
        if not client.reading or client.connection.closed or client.position != position:
            return  # something happened to it while Redis answered
        # A log that ends before the feed's position has lost its end by hand: go to where the feed is.
        oldest = page.oldest if page is not None else reached + 1
        if oldest > position + 1:
            # In one piece: the position may be many pages back.
            client.miss(position + 1, oldest - 1, GapReason.TRIMMED)
            client.position = oldest - 1
        if page is not None and not _deliver(client, page):
            client.wait_for_room()
            return
        self.add(client)


def _deliver(client: Client, page: Page) -> bool:
    """Give a client what its socket and queue take of a page; True when that was all of it."""
    chunks = page.chunks_of(client.wants) if client.starts else page.chunks(client.pattern_key, client.subscribed_to)
    for whole in chunks:
        if whole.last <= client.position:
            continue
        chunk = whole.after(client.position)
        if chunk.missing is not None:
            client.miss(chunk.first, chunk.last, chunk.missing)
            client.position = chunk.last
        elif not client.take_chunk(chunk.frames, chunk.last):
            return False
    return True
