"""What tests of whole consumers share: a publisher, and runners that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.consumers import Consumer
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.options import read_options
from headgate.publisher import Publisher
from headgate.settings import Settings
from headgate.topic import DEFAULT_NAMESPACE
from tests.support.redis_server import DEADLINE_S

RunConsumer = Callable[..., Runner]


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher into the log that consumers read."""
    with Publisher(redis_url) as publisher:
        yield publisher


@pytest.fixture
def run_consumer(redis_url: str) -> Iterator[RunConsumer]:
    """Run consumers that try again soon, until the test ends: `run_consumer("hook", Webhook, {"url": …})`."""
    runners: list[Runner] = []

    def run(name: str, consumer: type[Consumer], table: dict[str, Any]) -> Runner:
        options, faults = read_options(consumer.Options, table)
        assert not faults
        tried = RunnerOptions(retry_first_s=0.05, retry_last_s=0.2)
        runner = Runner(ConsumerSpec(name, consumer, options, ("#",), DEFAULT_NAMESPACE, tried), redis_url, Settings())
        runners.append(runner)
        runner.open()
        runner.start()
        return runner

    yield run
    for runner in runners:
        assert runner.stop(DEADLINE_S)
