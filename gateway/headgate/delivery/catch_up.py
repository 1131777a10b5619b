"""Catching up: the greenlet that serves the clients of one namespace that read the log.

In: word that a client waits for its next page. Out: one page after the other, to all of them in turn (log_readers.py decides who
gets what), until each is where the live feed is.
"""

from __future__ import annotations

from time import monotonic

import structlog

from headgate.errors import HeadgateError
from headgate.runtime.loop import Signal, Turns, sleep, spawn

from .client import Client
from .log_readers import LiveFeed, LogReaders
from .page_cache import LogPages
from .state import Phase
from .tally import Tallies

log = structlog.get_logger("headgate.catch_up")

# A failed read is tried again after this; the bus listener says what is wrong.
RETRY_S = 0.25
BUDGET_S = 0.004


class CatchUp:
    """One greenlet, begun when the first client reads. `pages` is the cache, `readers` are the clients."""

    def __init__(self, pages: LogPages, tallies: Tallies | None = None) -> None:
        self.pages = pages
        self.readers = LogReaders(pages, self._wake_up, tallies)
        self._feed: LiveFeed | None = None
        self._wake = Signal()
        self._started = False
        self._closed = False

    def follow(self, feed: LiveFeed) -> None:
        """Hand clients over to this feed."""
        self._feed = feed

    def close(self) -> None:
        """Stop. Idempotent."""
        self._closed = True
        self._wake.set()

    def _wake_up(self) -> None:
        self._wake.set()
        if not self._started and not self._closed and self._feed is not None:
            self._started = True
            spawn(self._run, self._feed)

    def _run(self, feed: LiveFeed) -> None:
        turns, yielded_s = Turns(), monotonic()
        while not self._closed:
            if not self.readers.waiting:
                self._wake.clear()
                self._wake.wait()
                continue
            client = self.readers.next()
            try:
                self.readers.serve(client, feed)
            except HeadgateError:
                self._again(client)
                sleep(RETRY_S)
            except Exception:
                # A fault of ours must not end everybody's reading, and this client must not lose anything silently: it
                # comes back with its position.
                log.exception("catching up failed", session=client.session)
                client.connection.end("internal error")
            if monotonic() - yielded_s > BUDGET_S:
                turns.give()
                yielded_s = monotonic()

    def _again(self, client: Client) -> None:
        if client.state.phase is Phase.READING:
            self.readers.add(client)
