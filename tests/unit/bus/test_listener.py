"""The shell of the feed: which errors of its connection it tells the feed about."""

from __future__ import annotations

from typing import cast

import pytest

from headgate.bus.listener import Bus
from headgate.errors import BusRefused
from headgate.protocol.packets import GapReason
from headgate.redis.client import SubscriberLink
from headgate.redis.entries import Head
from headgate.settings import Settings


class Nobody:
    """A namespace that nothing reaches."""

    def route(self, events: object, more: object) -> None: ...
    def missing(self, first: int, last: int, reason: GapReason) -> None: ...
    def log_lost(self, head: Head) -> None: ...
    def line_changed(self, end: int) -> None: ...
    def bus_changed(self, up: bool) -> None: ...
    def fenced(self) -> None: ...


class RefusedLink:
    """A connection on which Redis answers with an error."""

    def __init__(self, redis_code: str) -> None:
        self._error = BusRefused("refused", redis_code=redis_code)

    def read(self) -> list[list[bytes]]:
        raise self._error


@pytest.mark.parametrize(("redis_code", "told"), [("MISCONF", []), ("NOPERM", ["narrow refused"])])
def test_only_a_missing_right_is_a_refusal_of_the_narrow_feed(
    monkeypatch: pytest.MonkeyPatch, redis_code: str, told: list[str]
) -> None:
    """A Redis that cannot write to its disk refuses a PING as well; the narrow feed works again when it can write."""
    bus = Bus("notifications", "redis://127.0.0.1:1/0", Settings(), Nobody())
    heard: list[str] = []
    monkeypatch.setattr(bus.feed, "narrow_refused", lambda: heard.append("narrow refused"))
    with pytest.raises(BusRefused):
        bus._read(cast(SubscriberLink, RefusedLink(redis_code)))
    assert heard == told
    bus.close()
