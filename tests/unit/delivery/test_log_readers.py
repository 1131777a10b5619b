"""Log readers: the events for one client in one turn, and the owner of the next turn."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.delivery.client import Client
from headgate.delivery.live_feed import MAX_BRIDGE_BYTES, Bridge
from headgate.delivery.log_readers import LogReaders
from headgate.delivery.page_cache import Page
from headgate.delivery.state import Phase
from headgate.events.wire.frames import event_frame
from headgate.events.wire.packets import Overflow
from tests.support.wired_client import EPOCH, NAMESPACE, WiredClient, event


class Feed:
    """A feed at an offset, with a log that begins at another."""

    def __init__(self, offset: int, first: int) -> None:
        self._offset, self._bridge = offset, Bridge(NAMESPACE)
        self.handed_over: list[Client] = []
        self.bus = SimpleNamespace(first=first, wait_held=lambda: None)

    def position(self) -> int:
        return self._offset

    def epoch(self) -> str:
        return EPOCH

    def on_live(self, client: Client) -> None:
        self.handed_over.append(client)

    @property
    def bridge(self) -> Bridge:
        return self._bridge

    def hand_on(self, offset: int) -> None:
        """Hand on the next event, while a client reads."""
        self._offset = offset
        if self._bridge.is_open:
            self._bridge.add([event(offset)])


class Pages:
    """A log of one page, or none; notes where it was asked to begin."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets
        self.asked: list[int] = []
        self.during: Callable[[], None] = lambda: None

    def grow(self, last: int) -> None:
        """Hold events up to an offset."""
        self._offsets = tuple(range(self._offsets[0], last + 1))

    def page_after(self, position: int, epoch: str) -> Page | None:
        self.asked.append(position)
        if not self._offsets:
            return None
        frames = {at: event_frame(NAMESPACE.encode(), event(at)) for at in self._offsets}
        self.during()
        return Page(self._offsets[0], self._offsets[-1], dict(frames))

    def known_after(self, position: int) -> Page | None:
        return None

    def offsets_after(self, position: int) -> int:
        return 32


@pytest.fixture
def wired() -> Iterator[WiredClient]:
    """A client that reads the log from offset 3 on."""
    wired = WiredClient({"#": Overflow.CATCH_UP})
    wired.client.ask_past("#", 3, 3)
    wired.client.pasts_complete()
    yield wired
    wired.close()


def serve(wired: WiredClient, pages: Any, feed: Any, turns: int) -> None:
    """Serve the client some turns."""
    readers = LogReaders(pages, lambda: None)
    for _ in range(turns):
        readers.serve(wired.client, feed)
    wired.drain()


def test_a_trimmed_range_is_one_gap_and_costs_one_read(wired: WiredClient) -> None:
    """However far back the client is, from its position to the oldest event, then the log."""
    pages, feed = Pages(150, 151, 152), Feed(152, 150)
    serve(wired, pages, feed, 2)
    assert [(gap["from"], gap["to"], gap["count"], gap["reason"]) for gap in wired.notices("gap")] == [(4, 149, 146, "trimmed")]
    assert wired.offsets == [150, 151, 152]
    assert pages.asked == [149]
    assert (feed.handed_over, wired.client.state.phase) == ([wired.client], Phase.HANDOVER)


def test_a_page_is_held_while_it_is_unknown_who_may_have_it(wired: WiredClient) -> None:
    """The client is revoked in that time. The page may have been read before, or be known."""
    feed = Feed(5, 1)
    feed.bus.wait_held = wired.client.leave
    serve(wired, Pages(4, 5), feed, 1)
    assert wired.offsets == []


def test_a_client_goes_past_pages_without_anything_for_it_in_one_turn() -> None:
    """However many thousands read at once, and however different their patterns are."""
    wired = WiredClient({"users.ana.inbox.#": Overflow.CATCH_UP})
    wired.client.ask_past("users.ana.inbox.#", 3, 3)
    wired.client.pasts_complete()
    pages, feed = Pages(4), Feed(200, 1)
    later = {at - 1: Page(at, at, {at: event_frame(NAMESPACE.encode(), event(at))}) for at in range(5, 201)}
    pages.known_after = lambda position: later.get(position)  # type: ignore[method-assign]
    serve(wired, pages, feed, 1)
    assert (wired.client.position, wired.offsets, pages.asked) == (200, [], [3])
    wired.close()


def test_a_range_that_was_lost_behind_a_page_without_anything_for_a_client_is_a_gap() -> None:
    """Another reader has met it, so the page after it is known. The client went past it without notice."""
    wired = WiredClient({"users.ana.inbox.#": Overflow.CATCH_UP})
    wired.client.ask_past("users.ana.inbox.#", 3, 3)
    wired.client.pasts_complete()
    pages, feed = Pages(4), Feed(50, 1)
    pages.known_after = lambda position: (  # type: ignore[method-assign]
        Page(50, 50, {50: event_frame(NAMESPACE.encode(), event(50))}) if position == 4 else None
    )
    serve(wired, pages, feed, 1)
    assert [(gap["from"], gap["to"], gap["reason"]) for gap in wired.notices("gap")] == [(5, 49, "trimmed")]
    assert wired.client.position == 50
    wired.close()


def test_a_client_gets_to_a_feed_that_is_always_ahead_of_the_log_that_was_read(wired: WiredClient) -> None:
    """Two events come during each read. Its second one has a bridge, and the client reaches the feed."""
    pages: Any = Pages(4, 5)
    feed: Any = Feed(5, 1)
    readers = LogReaders(pages, lambda: None)

    def come() -> None:
        feed.hand_on(feed.position() + 1)
        feed.hand_on(feed.position() + 1)

    pages.during = come
    readers.serve(wired.client, feed)
    assert (wired.client.position, feed.position(), wired.client.state.phase) == (5, 7, Phase.READING)
    pages.grow(7)
    readers.serve(wired.client, feed)
    wired.drain()
    assert (wired.client.position, feed.position(), wired.client.state.phase) == (9, 9, Phase.HANDOVER)
    assert wired.offsets == [4, 5, 6, 7, 8, 9]
    assert not feed.bridge.is_open


def test_a_bridge_has_all_or_nothing() -> None:
    """Nothing for a client that has not read as far as it begins, after an absent range, or when it is too long."""
    bridge = Bridge(NAMESPACE)
    assert bridge.above(7, lambda frame: True) is None
    bridge.open(5)
    bridge.add([event(6), event(None), event(7)])
    assert [frame.offset for frame in bridge.above(5, lambda frame: True) or ()] == [6, 7]
    assert bridge.above(5, lambda frame: False) == []
    assert bridge.above(4, lambda frame: True) is None
    bridge.add([event(8, size=MAX_BRIDGE_BYTES)])
    assert (bridge.is_open, bridge.above(5, lambda frame: True)) == (False, None)


def test_nobody_is_served_while_the_readers_are_paused_and_all_are_behind_it(wired: WiredClient) -> None:
    """Clients that come in between wait too, and the greenlet that serves is woken at the end."""
    woken: list[bool] = []
    pages: Any = Pages()
    readers = LogReaders(pages, lambda: woken.append(readers.waiting))
    with readers.paused():
        readers.add(wired.client)
        assert not readers.waiting
    assert readers.waiting
    assert woken == [False, True]


def test_a_past_asked_for_meanwhile_does_not_cut_the_first_one_short(wired: WiredClient) -> None:
    """A second `since` of the pattern that begins later. The rest of the first comes all the same."""
    wired.client.ask_past("#", 1, 3, is_new=False)
    wired.client.pasts_complete()
    wired.client.ask_past("#", 3, 3, is_new=False)
    assert wired.client.position == 1
