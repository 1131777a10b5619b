"""The listener's own rules, without Redis: what is said when handing events on fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from headgate.bus import Bus
from headgate.event import Event
from headgate.event_log import Head
from headgate.protocol import GapReason
from headgate.settings import Settings


class FailingFeed:
    """A namespace whose routing breaks; keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, GapReason]] = []

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]]) -> None:
        raise RuntimeError("a fault of ours")

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        self.told.append((first, last, reason))

    def log_lost(self, head: Head) -> None:
        raise AssertionError("no log was lost")

    def bus_changed(self, up: bool) -> None:
        raise AssertionError("nothing changed")

    def fenced(self) -> None:
        raise AssertionError("no fence was raised")


def test_events_that_could_not_be_handed_on_are_told_as_missing() -> None:
    """The position has moved past them, so nothing would ever bring them back: a gap says so, and the fault is raised."""
    feed = FailingFeed()
    bus = Bus("notifications", "redis://127.0.0.1:1/0", Settings(), feed)
    bus.epoch, bus.offset = "0123456789abcdef", 9
    events = [Event("a.b", b"1", f"id-{offset}", 0, bus.epoch, offset) for offset in (7, 8, 9)]
    with pytest.raises(RuntimeError, match="a fault of ours"):
        bus._route(events, list)
    assert feed.told == [(7, 9, GapReason.UPSTREAM)]
