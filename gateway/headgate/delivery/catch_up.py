"""The greenlet that serves the pages of one namespace's log to the clients that read it.

In: a wake-up when a client waits for a page. Out: pages, to all clients in turn, until each has reached the live feed
(log_readers.py).
"""

from __future__ import annotations

from time import monotonic

import structlog

from headgate.errors import HeadgateError
from headgate.runtime.loop import Signal, Turns, sleep, spawn

from .live_feed import LiveFeed
from .log_readers import LogReaders
from .page_cache import LogPages
from .state import Phase
from .tally import Tallies

log = structlog.get_logger("headgate.catch_up")

RETRY_S = 0.25  # after a failed read, of which the bus listener logs the cause
BUDGET_S = 0.004


class CatchUp:
    """One greenlet, which starts when the first client reads. `pages` is the cache, `readers` has the clients."""

    def __init__(self, pages: LogPages, tallies: Tallies | None = None) -> None:
        self.pages = pages
        self.readers = LogReaders(pages, self._wake_up, tallies)
        self._feed: LiveFeed | None = None
        self._wake = Signal()
        self._started = False
        self._closed = False

    def follow(self, feed: LiveFeed) -> None:
        """Hand clients over to this feed, before the first client reads."""
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
                if client.state.phase is Phase.READING:
                    self.readers.add(client)
                sleep(RETRY_S)
            except Exception:
                # A fault of ours must neither stop the other clients nor lose events silently. This client resumes.
                log.exception("catching up failed", session=client.session)
                client.connection.end("internal error")
            if monotonic() - yielded_s > BUDGET_S:
                turns.give()
                yielded_s = monotonic()
