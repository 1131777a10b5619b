"""Timers without a greenlet."""

from __future__ import annotations

import gc

import gevent

from headgate.loop import Signal, in_hub_after


def test_a_call_after_a_while_comes_once_and_in_the_hub_though_nobody_holds_its_timer() -> None:
    """What waits for it need not remember it."""
    callers: list[object] = []
    called = Signal()

    def note() -> None:
        callers.append(gevent.getcurrent())
        called.set()

    in_hub_after(0.001, note)
    gc.collect()
    assert callers == []
    assert called.wait(30)
    assert callers == [gevent.get_hub()]
