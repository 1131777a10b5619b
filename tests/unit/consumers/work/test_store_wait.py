"""A worker's wait for something new, and its end: on a model of the connection, so that the end comes at each moment of it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from headgate.consumers.work import store as store_module
from headgate.consumers.work.store import Store
from headgate.errors import BusUnavailable
from headgate.redis.client import Client

WITHIN_S = 30.0


class Link:
    """`SubscriberLink`, of a Redis that never has anything new. `at` is called with the name of each step before it."""

    def __init__(self, at: Callable[[str], object]) -> None:
        self._at = at
        self._closed = threading.Event()
        at("made")

    def connect(self) -> None:
        self._at("connect")
        self._check()
        self._at("connected")

    def settimeout(self, timeout_s: float | None) -> None:
        self._check()

    def send(self, *commands: Sequence[str | bytes | int]) -> None:
        self._at("send")
        self._check()

    def read(self) -> list[Any]:
        self._at("read")
        if not self._closed.wait(WITHIN_S):
            pytest.fail("the wait was not ended")
        raise BusUnavailable("closed")

    def close(self) -> None:
        self._closed.set()

    def _check(self) -> None:
        if self._closed.is_set():
            raise BusUnavailable("closed")


def store_that(at: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store whose connections call `at`."""
    monkeypatch.setattr(store_module, "SubscriberLink", lambda url, *, key: Link(at))
    return Store(cast(Client, None), "redis://model", "n", "mail", 1000)


@pytest.mark.parametrize("step", ["made", "connect", "connected", "send", "read"])
def test_an_interrupt_ends_a_wait_at_each_of_its_steps(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it connects, where there is nothing to close yet."""
    seen: list[str] = []

    def at(name: str) -> None:
        seen.append(name)
        if name == step:
            store.interrupt()

    store = store_that(at, monkeypatch)
    store.wait(0, 3600)
    assert seen[-1] in (step, "connect")


def test_a_wait_that_begins_after_an_interrupt_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does the one after it."""
    store = store_that(lambda step: None, monkeypatch)
    store.interrupt()
    for _ in range(2):
        store.wait(0, 3600)


def test_a_connection_that_breaks_by_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """That wait was not interrupted."""

    def at(step: str) -> None:
        if step == "read":
            raise BusUnavailable("broken")

    store = store_that(at, monkeypatch)
    with pytest.raises(BusUnavailable):
        store.wait(0, 3600)
