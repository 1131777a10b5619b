"""A consumer's worker that a test steps, in the test's own thread, on a real Redis, until it would wait.

Its clock is the test's. Waits end the step, or go by without any time, and the worker's clock moves as the test says.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import structlog

from headgate.consumers.base import Consumer
from headgate.consumers.work import state as states
from headgate.consumers.work import worker as workers
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.consumers.work.state import context_of
from headgate.consumers.work.store import Store, TaskPage
from headgate.consumers.work.worker import SharedByWorkers, Worker
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import group_key
from headgate.runtime.logging import throttled
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.consumers_state import count_leased
from tests.support.recording_consumer import Recorder, values

# A step has no pace, and a retry comes when the test says so.
STEPPED = RunnerOptions(max_per_s=0, retry_first_s=3600, retry_last_s=3600)


class WorkerClock:
    """The time of `work.worker` and `work.state`, which is real until a test moves it, or stops it with `stand_still`."""

    def __init__(self) -> None:
        self.moved_s = self._ahead_s = 0.0
        self._still: tuple[float, float] | None = None

    def time(self) -> float:
        return (self._still[0] if self._still else time.time()) + self.moved_s + self._ahead_s

    def monotonic(self) -> float:
        return (self._still[1] if self._still else time.monotonic()) + self.moved_s

    def sleep(self, seconds: float) -> None:
        """As time.sleep, but that the test does not wait."""
        self.move(seconds)

    def stand_still(self) -> None:
        """Stop the clock, but for `move`."""
        self._still = time.time(), time.monotonic()

    def set_ahead(self, seconds: float) -> None:
        """Set the wall clock so far ahead of that of Redis."""
        self._ahead_s = seconds

    def move(self, seconds: float) -> None:
        self.moved_s += seconds


class Stopping(threading.Event):
    """The worker's `stopping`, set by the first wait, after `patience` waits that end at once. `waits_s` holds their lengths."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        super().__init__()
        self.patience = 0
        self.waits_s: list[float] = []
        self._on_wait = on_wait

    def wait(self, timeout: float | None = None) -> bool:
        """Note the wait, and return whether the worker is to stop."""
        assert timeout is not None
        self.waits_s.append(timeout)
        if self.patience <= 0:
            self.set()
        self.patience -= 1
        self._on_wait(timeout)
        return self.is_set()


class _Store(Store):
    """A store with a wait for an event that ends the worker's step, and with a time that moves with the worker's."""

    stopping: Stopping
    clock: WorkerClock

    def take(self, count: int, lease_ms: int, max_waiting: int, wanted: Callable[[str], bool]) -> TaskPage | None:
        page = super().take(count, lease_ms, max_waiting, wanted)
        return page and replace(page, now_ms=page.now_ms + round(self.clock.moved_s * 1000))

    def wait(self, position: int, timeout_s: float) -> None:
        self.stopping.wait(timeout_s)


class SteppedWorker:
    """One worker of a consumer with an open group.

    Args:
        spec: the consumer.
        redis_url: where its log is.
        clock: moves with the waits that the worker is made to believe.
    """

    def __init__(self, spec: ConsumerSpec, redis_url: str, clock: WorkerClock) -> None:
        self._client = open_client(redis_url)
        self._publisher = Publisher(redis_url, namespace=spec.namespace)
        self._group = group_key(spec.namespace, spec.name)
        self.stopping = Stopping(clock.move)
        self.store = _Store(self._client, redis_url, spec.namespace, spec.name, Settings().max_payload_bytes)
        self.store.stopping, self.store.clock = self.stopping, clock
        context = context_of(spec, self.store, self._publisher)
        self.state = context.state
        log = throttled(structlog.get_logger("headgate.consumers").bind(consumer=spec.name).warning)
        shared = SharedByWorkers(spec.name)
        self.taking = shared.taking
        self.worker = Worker(spec, context, self.store, log, self.stopping, shared)
        self.store.open(spec.runner.start)

    def work(self, waits: int = 0) -> None:
        """Finish all due work; go on after so many waits."""
        self.stopping.clear()
        self.stopping.patience = waits
        self.worker.run()

    def finish(self) -> None:
        """Work until nothing is leased or waiting any more, however late it would be due."""
        self.work()
        while self.waiting():
            self.make_due()
            self.work()

    def waiting(self) -> int:
        return int(call(self._client, "ZCARD", f"{self._group}:held"))

    def make_due(self) -> None:
        """Let the time come for every task that waits or is leased."""
        for task in call(self._client, "ZRANGE", f"{self._group}:held", 0, -1):
            call(self._client, "ZADD", f"{self._group}:held", "XX", 1, task)

    def close(self) -> None:
        """Close its connections."""
        self.store.close()
        self._publisher.close()
        self._client.close()


@pytest.fixture
def worker_clock(monkeypatch: pytest.MonkeyPatch) -> WorkerClock:
    """The clock of every worker of this test."""
    clock = WorkerClock()
    for module in (workers, states):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(workers, "awake_or_asleep_s", clock.monotonic)
    return clock


MakeWorker = Callable[..., SteppedWorker]


@pytest.fixture
def make_worker(redis_url: str, redis_client: Client, worker_clock: WorkerClock) -> Iterator[MakeWorker]:
    """Make workers, `make_worker(MyConsumer, options, patterns=…, name=…, lease_s=…)`, with groups open from now on."""
    with ExitStack() as made:

        def make(
            consumer: type[Consumer], options: Any = None, patterns: tuple[str, ...] = ("#",), name: str = "mail", **runner: Any
        ) -> SteppedWorker:
            spec = ConsumerSpec(name, consumer, options, patterns, DEFAULT_NAMESPACE, replace(STEPPED, **runner))
            worker = SteppedWorker(spec, redis_url, worker_clock)
            made.callback(worker.close)
            return worker

        yield make


@dataclass(frozen=True)
class Site:
    """A worker's surroundings. `make(patterns=…, lease_s=…)` makes a worker of the recorder; `letters` are its dead letters."""

    make: MakeWorker
    recorder: type[Recorder]
    publisher: Publisher
    redis: Client
    letters: DeadLetters
    clock: WorkerClock

    def values(self) -> list[Any]:
        return values(self.recorder)

    def check_at_rest(self, worker: SteppedWorker, offset: int, group: str = "mail") -> None:
        """Assert that the group has taken everything up to `offset`, and nothing is leased or waiting."""
        assert int(call(self.redis, "HGET", group_key(DEFAULT_NAMESPACE, group), "position")) == offset
        assert (count_leased(self.redis, group), worker.waiting()) == (0, 0)

    def due_ms(self) -> float:
        """Return when the only task that waits is due."""
        [_, due_ms] = call(self.redis, "ZRANGE", f"{group_key(DEFAULT_NAMESPACE, 'mail')}:held", 0, -1, "WITHSCORES")
        return float(due_ms)


@pytest.fixture
def site(
    recorder: type[Recorder], make_worker: MakeWorker, publisher: Publisher, redis_client: Client, worker_clock: WorkerClock
) -> Site:
    letters = DeadLetters(redis_client, DEFAULT_NAMESPACE, "mail")
    make = partial(make_worker, recorder, recorder.Options())
    return Site(make, recorder, publisher, redis_client, letters, worker_clock)
