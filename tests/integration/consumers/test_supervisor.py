"""The consumers of a process as its supervisor ends them, in this process: what is begun when, and what is told when."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from headgate.consumers import Consumer, Delivery
from headgate.consumers.config import Configuration
from headgate.consumers.spec import ConsumerSpec
from headgate.consumers.supervisor import Supervisor
from headgate.layout import DEFAULT_NAMESPACE
from headgate.publisher import Publisher
from headgate.settings import Settings
from tests.redis_server import DEADLINE_S, wait_until


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The supervisor takes the process's signals; they are given back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nothing_is_begun_any_more_when_the_end_is_told(redis_url: str, publisher: Publisher) -> None:
    """Whoever reads that the consumers are stopping may rely on it."""
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
    supervisor = Supervisor(Configuration(Settings(), (spec,)), redis_url, say, pytest.fail)

    assert supervisor.run(parent=os.getpid()) == 0  # which is not its own parent: the end
    assert seen == [1]


def working() -> bool:
    """Whether the worker's thread is there."""
    return any(thread.name == "slow-0" for thread in threading.enumerate())
