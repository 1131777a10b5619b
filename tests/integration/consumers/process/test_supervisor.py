"""The end of the consumers of a process, in the test's own process: the order of stopping and of reporting it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.consumers import Consumer, Delivery
from headgate.consumers.process import supervisor as supervisors
from headgate.consumers.process.supervisor import supervise
from headgate.consumers.work.spec import ConsumerSpec
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The supervisor takes the process's signals; they are given back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nothing_begins_once_the_end_is_told(redis_url: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads that the consumers are stopping may rely on it."""
    monkeypatch.setattr(supervisors, "POLL_S", 0.01)
    begun, release = threading.Event(), threading.Event()
    seen: list[int | None] = []

    class Slow(Consumer):
        def handle(self, delivery: Delivery) -> None:
            seen.append(delivery.offset)
            begun.set()
            release.wait(DEADLINE_S)

    def say(line: str) -> None:
        if line.startswith("consuming"):
            publisher.publish_many([("a", number) for number in range(2)])
            assert begun.wait(DEADLINE_S)
        elif line == "stopping the consumers":
            release.set()
            wait_until(lambda: len(seen) > 1 or not working(), "the worker to have gone on, or to have ended")

    spec = ConsumerSpec("slow", Slow, Slow.Options(), ("#",), DEFAULT_NAMESPACE)
    parent = os.getpid()

    assert supervise(Settings(), (spec,), redis_url, say, parent=parent) == 0  # which is not its own parent, so this is the end
    assert seen == [1]


@pytest.mark.parametrize("moment", range(8))
def test_it_may_be_asked_to_stop_at_any_moment(redis_url: str, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Also inside the calls of its wait for that, where the signal's handler waits for nothing."""
    monkeypatch.setattr(supervisors, "POLL_S", 0.01)
    calls = 0

    def ask(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1
            if calls > moment:
                sys.setprofile(None)
                signal.raise_signal((signal.SIGTERM, signal.SIGINT)[moment % 2])

    def say(line: str) -> None:
        if line.startswith("consuming"):
            sys.setprofile(ask)

    class Idle(Consumer):
        def handle(self, delivery: Delivery) -> None:
            pass

    spec = ConsumerSpec("idle", Idle, Idle.Options(), ("#",), DEFAULT_NAMESPACE)
    try:
        assert supervise(Settings(), (spec,), redis_url, say) == 0
    finally:
        sys.setprofile(None)


def working() -> bool:
    """Whether the worker's thread is there."""
    return any(thread.name == "slow-0" for thread in threading.enumerate())
