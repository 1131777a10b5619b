"""The listener's own rules, without Redis: what is said when handing events on fails, and what a refusal means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headgate.bus.listener import Bus
from headgate.errors import BusRefused
from headgate.event import Event
from headgate.protocol.packets import GapReason
from headgate.redis.log import Head
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


class RefusingLink:
    """A connection on which Redis answers with an error."""

    def __init__(self, code: str) -> None:
        self._code = code

    def read(self) -> list[Any]:
        raise BusRefused("redis will not", redis_code=self._code)


@pytest.mark.parametrize(("code", "takes_whole"), [("MISCONF", False), ("", False), ("NOPERM", True)])
def test_only_a_right_that_is_missing_makes_it_take_the_whole_feed(code: str, takes_whole: bool) -> None:
    """A PING that a full disk refuses may come back while a subscription is under way, which is not what was refused."""
    bus = Bus("notifications", "redis://127.0.0.1:1/0", Settings(), FailingFeed())
    bus.want("orders.*")
    bus._interest.attach(by_user=False)
    assert bus._interest.unconfirmed
    link: Any = RefusingLink(code)
    with pytest.raises(BusRefused):
        bus._read(link)
    assert bus._interest.take_whole() is not takes_whole  # whether that is news


class Waits:
    """Stands for the clock and for what wakes the fence greenlet: each wait lasts as long as the test says."""

    def __init__(self, *waits: tuple[float, Callable[[], None]]) -> None:
        self.now_s = 0.0
        self._waits = list(waits)

    def wait(self, timeout_s: float) -> bool:
        lasts_s, meanwhile = self._waits.pop(0)
        self.now_s += lasts_s
        meanwhile()
        return False

    def set(self) -> None:
        """What would end a wait early: none is under way."""


class OpenLink:
    """A connection that takes everything."""

    closed = False

    def send(self, *commands: tuple[bytes, ...]) -> None:
        self.last = commands[-1]

    def close(self) -> None:
        self.closed = True


class QuietFeed(FailingFeed):
    """A namespace that is told of fences only."""

    def fenced(self) -> None:
        pass


@pytest.mark.parametrize("answered", [True, False])
def test_a_stall_of_our_own_is_one_late_fence_and_not_two(monkeypatch: pytest.MonkeyPatch, answered: bool) -> None:
    """What came in meanwhile is read before the next one counts: a PONG takes it back, none makes it two."""
    bus: Any = Bus("notifications", "redis://127.0.0.1:1/0", Settings(fence_interval_s=1.0), QuietFeed())
    link = OpenLink()

    def read() -> None:
        if answered:
            bus._ponged(link.last[1])

    waits = Waits(
        (1.0, lambda: None),
        (5.0, lambda: None),  # a fence is under way, and nothing of ours runs
        (1.0, read),
        (1.0, lambda: setattr(bus, "_closed", True)),
    )
    monkeypatch.setattr("headgate.bus.listener.monotonic", lambda: waits.now_s)
    bus.epoch, bus.up, bus._link, bus._stirred = "0123456789abcdef", True, link, waits
    monkeypatch.setattr(bus._fence_log, "head", lambda: Head(bus.epoch, 0, 1))
    bus._run_fence()
    assert link.closed is not answered
