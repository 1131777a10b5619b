"""The upkeep of logs: the words on time, the room that it makes, its lines in the log. On a clock and a log of the test's own."""

from collections.abc import Iterator
from typing import Any, cast

import gevent
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headgate.errors import BusRefused, BusUnavailable
from headgate.node.cluster import log_maintenance as module
from headgate.node.cluster.log_maintenance import COUNT_CONSUMERS_EVERY, maintenance
from headgate.redis.lineage import Extent
from headgate.redis.time_watch import WATCH_EVERY_S, TimeWatch
from headgate.runtime import periodic as rounds
from headgate.runtime.periodic import PeriodicTask
from headgate.settings.settings import Settings
from tests.support.loop_clock import LoopClock
from tests.support.small_redis import SmallRedis

FULL = BusRefused("it is out of memory (maxmemory)", redis_code="OOM")
FULL.add_note("raise maxmemory")


class Log:
    """A log in memory, at the time `clock_ms`: `too_old` events go, two with each trim."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.trims = 0
        self.epoch, self.clock_ms, self.too_old = "e1", 1_000, 0
        self.fault: Exception | None = None
        self.full = False
        self.size = self.first_ms = self.offset = self.elsewhere = 0
        self.id_hold_s = 300.0

    def tick(self, *words: Any) -> tuple[str, int]:
        self.heard.append(words)
        if self.full:
            raise FULL
        if self.fault is not None:
            raise self.fault
        return self.epoch, self.clock_ms

    def consumers_elsewhere(self) -> int:
        return self.elsewhere

    def extent(self) -> Extent:
        return Extent(self.size, self.first_ms, self.offset, 1000.0, 10_000_000, 600, 100_000_000, self.id_hold_s)

    def publish(self, events: int, in_s: float) -> None:
        """Let so many events come in so many seconds of its clock."""
        self.offset += events
        self.clock_ms += int(in_s * 1000)

    def trim(self, *words: Any) -> tuple[str, int, int]:
        self.trims += 1
        trimmed = min(2, self.too_old)
        self.too_old -= trimmed
        return self.epoch, self.clock_ms, trimmed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    clock = LoopClock()
    monkeypatch.setattr(rounds, "Signal", clock.signal)
    monkeypatch.setattr(module, "TimeWatch", lambda: TimeWatch(clock.time))
    return clock


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(module, "EventLog", lambda *_: log)
    return log


class Kept:
    """A namespace that remembers how long its log keeps an event, at each report."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "retention_s":
            self.told.append(value)
        super().__setattr__(name, value)

    retention_s: float


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def upkeep(clock: LoopClock, log: Log, kept: Kept) -> Iterator[PeriodicTask]:
    """The upkeep of one namespace, which has ticked once."""
    upkeep = maintenance(SmallRedis().client(), Settings(), {"notifications": cast(Any, kept)})
    upkeep.start()
    upkeep.start()
    gevent.idle(-2)
    yield upkeep
    upkeep.close()
    gevent.idle(-2)


def test_each_tick_says_what_was_told_and_how_long_ago(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """The first one has had no report."""
    clock.advance(WATCH_EVERY_S)
    assert log.heard == [(), ("e1", 1_000, int(WATCH_EVERY_S * 1000))]


def test_now_and_then_it_counts_consumers_that_are_elsewhere(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """Not with each tick, as that asks for each of them."""
    log.elsewhere = 2
    found = []
    for _ in range(COUNT_CONSUMERS_EVERY):
        found.append(REGISTRY.get_sample_value("headgate_consumers_elsewhere", {"namespace": "notifications"}))
        clock.advance(WATCH_EVERY_S)
    assert found == [0] * COUNT_CONSUMERS_EVERY
    assert REGISTRY.get_sample_value("headgate_consumers_elsewhere", {"namespace": "notifications"}) == 2


def test_without_a_clock_there_is_nothing_to_say(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """Before another process of Redis has begun its epoch, the earlier report is of no use."""
    log.epoch, log.clock_ms = "", 0
    clock.advance(2 * WATCH_EVERY_S)
    assert log.heard[-1] == ()


def test_a_full_redis_is_trimmed_until_nothing_is_left_to_trim(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """One with room is not, and the trouble is logged once, with the remedy."""
    assert log.trims == 0
    log.full, log.too_old = True, 5
    with capture_logs() as lines:
        clock.advance(2 * WATCH_EVERY_S)
    assert log.too_old == 0
    assert log.trims == 4 + 1
    assert [(line["event"], line["trimmed"]) for line in lines] == [("Redis refuses writes", 5)]
    assert lines[0]["error"].endswith("it is out of memory (maxmemory); raise maxmemory")


def test_a_refusal_is_logged_once_and_again_after_it_has_passed(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """An outage is not, because the bus reports that. Neither ends the upkeep."""
    with capture_logs() as lines:
        for fault in (BusRefused("no permission"), BusRefused("no permission"), None, BusRefused("no permission")):
            log.fault = fault
            clock.advance(WATCH_EVERY_S)
        log.fault = BusUnavailable("connection refused")
        clock.advance(WATCH_EVERY_S)
    assert [line["error"] for line in lines] == ["the bus refused: no permission"] * 2
    assert len(log.heard) == 1 + 5


def test_a_fault_of_ours_does_not_end_the_upkeep(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """It is logged whole."""
    log.fault = ZeroDivisionError()
    with capture_logs() as lines:
        clock.advance(WATCH_EVERY_S)
    log.fault = None
    clock.advance(WATCH_EVERY_S)
    assert [line["event"] for line in lines] == ["upkeep failed"]
    assert len(log.heard) == 3


def test_one_that_is_closed_ticks_no_more(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """Its greenlet ends at once."""
    upkeep.close()
    clock.advance(3 * WATCH_EVERY_S)
    assert len(log.heard) == 1


def test_the_metrics_have_the_size_of_the_log_and_its_age(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """By the clock of the log, which may differ from ours; an empty one has no age."""

    def told() -> tuple[float | None, float | None]:
        labels = {"namespace": "notifications"}
        names = ("headgate_log_bytes", "headgate_log_oldest_seconds")
        size, age_s = (REGISTRY.get_sample_value(name, labels) for name in names)
        return size, age_s

    log.size, log.first_ms, log.clock_ms = 4096, 500_000, 512_500
    clock.advance(WATCH_EVERY_S)
    assert told() == (4096, 12.5)
    log.size, log.first_ms = 0, 500_000
    clock.advance(WATCH_EVERY_S)
    assert told() == (0, 0)


def test_the_metrics_have_for_how_long_an_id_counts(upkeep: PeriodicTask, clock: LoopClock, log: Log) -> None:
    """An alert can compare it with the delay of a repeated task."""
    log.id_hold_s = 84.5
    clock.advance(WATCH_EVERY_S)
    assert REGISTRY.get_sample_value("headgate_id_hold_seconds", {"namespace": "notifications"}) == 84.5


@pytest.mark.usefixtures("upkeep")
def test_how_long_the_log_keeps_an_event_follows_the_rate_and_a_short_one_is_warned_of_once(
    clock: LoopClock, log: Log, kept: Kept
) -> None:
    """100 MB of events of 1,000 bytes: 2 s at 50,000 per second. It may be well again before the next warning."""
    with capture_logs() as lines:
        for events_per_s in (0, 100, 5000, 50_000, 50_000, 12_500, 50_000, 5000, 50_000):
            log.publish(int(events_per_s * WATCH_EVERY_S), WATCH_EVERY_S)
            clock.advance(WATCH_EVERY_S)
    assert kept.told == [600, 600, 20, 2, 2, 8, 2, 20, 2]
    assert [(line["event"], line["retention_s"], line["needed_s"]) for line in lines] == [("log too short", 2, 5)] * 2
    assert REGISTRY.get_sample_value("headgate_log_retention_seconds", {"namespace": "notifications"}) == 2


@pytest.mark.usefixtures("upkeep")
def test_another_epoch_says_nothing_of_the_rate(clock: LoopClock, log: Log, kept: Kept) -> None:
    """Its offsets and its clock may be others; the first measurement says nothing either."""
    for epoch in ("e2", "", "e3"):
        log.epoch = epoch
        log.publish(1_000_000, WATCH_EVERY_S)
        clock.advance(WATCH_EVERY_S)
    assert kept.told == []
