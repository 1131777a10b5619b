"""A bus listener in the test's own process, and what it reports to its namespace: on the model of a Redis, or on a real one.

On the model (`model_bus`) the clock is the test's, so nothing waits, and every order of things can be made. On a real Redis
(`redis_bus`) replies come when they come: `wait_for` lets the loop run until a condition holds.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gevent
import pytest

from headgate.delivery.bus import feed, interest, listener
from headgate.delivery.bus.feed import Front
from headgate.delivery.bus.listener import Bus
from headgate.delivery.direct import Run
from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.redis.lineage import Head
from headgate.redis.subscriber_link import SubscriberLink
from headgate.settings.settings import Settings
from tests.support.loop_clock import LoopClock
from tests.support.model_links import ModelServer
from tests.support.model_redis import NAMESPACE

DEADLINE_S = 30.0
POLL_S = 0.001


class Teller:
    """A namespace that writes down what it receives, in order.

    Attributes:
        told: `["route", [[topic, offset, data], …]]`, `["missing", first, last, reason]`, `["log_lost", epoch, offset]`,
            `["line_changed", end]`, `["bus", up]`, `["fenced"]`.
        during: called while events are routed, with `more`.
        takes: called with replies that the feed has not seen, and where it stands; takes none, by default.
        rested: how often it was asked to let the loop run.
    """

    def __init__(self) -> None:
        self.told: list[list[Any]] = []
        self.takes: Callable[[list[list[bytes]], Front], Run | None] = lambda replies, front: None
        self.rested = 0
        self.during: Callable[[Callable[[], list[Event]]], object] = lambda more: None

    def route(self, events: Iterable[Event], more: Callable[[], list[Event]]) -> None:
        self.told.append(["route", [[event.topic, event.offset, event.data.decode()] for event in events]])
        self.during(more)

    def take(self, replies: list[list[bytes]], front: Front) -> Run | None:
        return self.takes(replies, front)

    def rest(self) -> None:
        self.rested += 1
        gevent.sleep(0)

    def missing(self, first: int, last: int, reason: GapReason) -> None:
        self.told.append(["missing", first, last, reason.value])

    def log_lost(self, head: Head) -> None:
        self.told.append(["log_lost", head.epoch, head.offset])

    def line_changed(self, end: int) -> None:
        self.told.append(["line_changed", end])

    def bus_changed(self, up: bool) -> None:
        self.told.append(["bus", up])

    def fenced(self) -> None:
        self.told.append(["fenced"])

    @property
    def events(self) -> list[list[Any]]:
        """Every event that was routed: [topic, offset, data]."""
        return [event for kind, *rest in self.told if kind == "route" for event in rest[0]]

    @property
    def offsets(self) -> list[int | None]:
        return [offset for _, offset, _ in self.events]

    def only(self, *kinds: str) -> list[list[Any]]:
        return [entry for entry in self.told if entry[0] in kinds]


class BusHere(Teller):
    """A listener of a namespace, started, and its namespace."""

    def __init__(self, redis_url: str, patterns: Sequence[str], settings: Settings, namespace: str = NAMESPACE) -> None:
        super().__init__()
        self.bus = Bus(namespace, redis_url, settings, self)
        for pattern in patterns:
            self.bus.acquire(pattern)
        self.bus.start()

    def fences(self) -> int:
        return len(self.only("fenced"))

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        give_up_s = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            if time.monotonic() > give_up_s:
                pytest.fail(f"not within {DEADLINE_S:g} s: {what}; last told: {self.told[-8:]}")
            gevent.sleep(POLL_S)
        return found

    def wait_for_fences(self, count: int) -> None:
        before = self.fences()
        self.wait_for(lambda: self.fences() >= before + count, f"{count} fences")


class ModelBus(BusHere):
    """A listener on the model. `run` lets everything happen that needs no time; `advance` lets time pass."""

    def __init__(self, server: ModelServer, clock: LoopClock, patterns: Sequence[str], settings: Settings) -> None:
        self.server, self.redis, self.clock = server, server.redis, clock
        super().__init__("redis://model", patterns, settings)
        self.run()

    def run(self) -> None:
        gevent.idle(-2)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def publish(self, count: int = 1, topic: str = "orders.1") -> list[int]:
        """Publish so many events at once, and let the listener take them; return their offsets."""
        offsets = [self.redis.publish(topic) for _ in range(count)]
        self.run()
        return offsets


StartModelBus = Callable[..., ModelBus]


@contextmanager
def on_the_model(patch: pytest.MonkeyPatch) -> Iterator[tuple[ModelServer, LoopClock]]:
    """Let every bus that is made in the block talk to one model server, on one clock."""
    clock = LoopClock()
    server = ModelServer(signal=clock.signal)
    patch.setattr(listener, "SubscriberLink", server.link)
    patch.setattr(listener, "open_client", lambda url, *, timeout_s, max_connections: timeout_s)
    patch.setattr(listener, "EventLog", lambda namespace, timeout_s, *_: server.log(timeout_s))
    patch.setattr(listener, "monotonic", clock.time)
    patch.setattr(listener, "time", clock.time)
    patch.setattr(listener, "sleep", clock.sleep)
    patch.setattr(listener, "Signal", clock.signal)
    patch.setattr("random.uniform", lambda low, high: high)
    yield server, clock


@pytest.fixture
def model_bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartModelBus]:
    """Start a listener on a model: `model_bus("orders.*", fence_interval_s=1)`; `before(server)` may prepare the model first."""
    started: list[ModelBus] = []
    with on_the_model(monkeypatch) as (server, clock):

        def start(*patterns: str, before: Callable[[ModelServer], object] = lambda server: None, **settings: Any) -> ModelBus:
            before(server)
            bus = ModelBus(server, clock, patterns, Settings(**{"fence_interval_s": 1.0, **settings}))
            started.append(bus)
            return bus

        yield start
        for bus in started:
            bus.bus.close()
        clock.advance(60)  # the greenlets end by themselves


class CooperativeLink(SubscriberLink):
    """The real link, in a process with blocking sockets. It lets the loop run until there is something to read."""

    def read(self) -> list[Any]:
        while not (replies := self.read_ready()):
            gevent.sleep(POLL_S)
        return replies


StartRedisBus = Callable[..., BusHere]


@pytest.fixture
def redis_bus(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[StartRedisBus]:
    """Start a listener on the Redis of this test run, and wait until it is up: `redis_bus("orders.*", fence_interval_s=0.1)`.

    A released pattern goes at the next fence, and no fence is late, because a slow machine is no dead Redis.
    """
    monkeypatch.setattr(listener, "SubscriberLink", CooperativeLink)
    monkeypatch.setattr(interest, "LINGER_S", 0.0)
    monkeypatch.setattr(feed, "LATE_FENCES", 1_000_000)
    started: list[BusHere] = []

    def start(*patterns: str, url: str = redis_url, namespace: str = NAMESPACE, **settings: Any) -> BusHere:
        bus = BusHere(url, patterns, Settings(**{"fence_interval_s": 0.1, **settings}), namespace)
        started.append(bus)
        bus.wait_for(lambda: bus.bus.up, "the bus to be up")
        bus.told.clear()
        return bus

    yield start
    for bus in started:
        bus.bus.close()
    for bus in started:
        join(bus.bus)


def join(bus: Bus) -> None:
    for greenlet in bus._greenlets:
        greenlet.join(DEADLINE_S)
