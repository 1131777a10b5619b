"""F25: the machine of Redis crashes, and the file that it starts from lacks the newest events; publishers overtake them.

The listener alone: what the feed reports to its namespace.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.redis.keys import log_key
from headgate.services.publisher import Publisher
from tests.support.bus_here import StartRedisBus
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

NAMESPACE = "notifications"
RETRY_S = 0.05
ROUNDS = [pytest.param(2, id="short"), pytest.param(250, id="full", marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]


class Account:
    """All reports of the listener, replayed: the events of its clients, and the reports to them.

    Attributes:
        line: the events by offset, as the clients have them now.
        rolled_back: events that were handed on, and reported as rolled back.
    """

    def __init__(self, told: list[list[Any]]) -> None:
        self.line: dict[int, str] = {}
        self.rolled_back: list[str] = []
        for kind, *rest in told:
            if kind == "route":
                for _, offset, data in rest[0]:
                    assert offset > max(self.line, default=0), f"{offset} is not above all that came before"
                    self.line[offset] = data
            elif kind == "line_changed":
                (end,) = rest
                self.rolled_back += [self.line.pop(offset) for offset in sorted(self.line) if offset > end]
            else:
                assert kind in ("bus", "fenced"), (kind, rest)


def log_of(redis: RedisProcess) -> dict[int, str]:
    """Return the data of all events in the log, by offset."""
    entries = redis.call("XRANGE", log_key(NAMESPACE), "-", "+")
    return {int(entry_id.partition(b"-")[0]): fields[b"data"].decode() for entry_id, fields in entries}


@pytest.mark.parametrize("overtaken_by", [0, 30, 80])
def test_new_events_at_old_offsets_reach_a_listener_that_was_away(
    redis: RedisProcess, redis_bus: StartRedisBus, patterns: tuple[str, ...], overtaken_by: int
) -> None:
    """The listener looks again when the log is shorter than its position, and when it is longer."""
    bus = redis_bus(*patterns, url=redis.url, namespace=NAMESPACE)
    with closing(Publisher(redis.url)) as publisher:
        publisher.publish_many([("orders.1", f"kept {number}") for number in range(100)])
        kept = redis.moment()
        publisher.publish_many([("orders.1", f"lost {number}") for number in range(50)])
        bus.wait_for(lambda: len(bus.events) == 150, "150 events")
        redis.crash(kept)  # the listener does not run
        redis.start()
        receipts = [publisher.publish("orders.1", f"new {number}") for number in range(overtaken_by)]
    bus.wait_for(lambda: bus.only("line_changed"), "word of the other line")
    bus.wait_for(lambda: len(bus.events) >= 150 + overtaken_by, "every new event")
    bus.wait_for_fences(2)

    assert bus.only("missing", "log_lost", "line_changed") == [["line_changed", 100]]
    assert {receipt.epoch for receipt in receipts} <= {bus.bus.epoch}
    account = Account(bus.told)
    assert account.rolled_back == [f'"lost {number}"' for number in range(50)]
    assert account.line == log_of(redis)


def test_a_restart_that_lost_nothing_costs_no_event_and_no_gap(
    redis: RedisProcess, redis_bus: StartRedisBus, patterns: tuple[str, ...]
) -> None:
    """The log goes on in another epoch, at the next offset."""
    bus = redis_bus(*patterns, url=redis.url, namespace=NAMESPACE)
    with closing(Publisher(redis.url)) as publisher:
        before = publisher.publish_many([("orders.1", number) for number in range(20)])
        bus.wait_for(lambda: len(bus.events) == 20, "20 events")
        redis.kill()
        redis.start()
        after = publisher.publish("orders.1", 20)
    bus.wait_for(lambda: len(bus.events) == 21, "the first event behind the restart")

    assert (before[-1].offset, after.offset) == (20, 21)
    assert after.epoch == bus.bus.epoch != before[-1].epoch
    assert bus.only("missing", "log_lost", "line_changed") == [["line_changed", 20]]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_crash_after_crash_no_event_is_lost_without_a_word(
    redis: RedisProcess, redis_bus: StartRedisBus, patterns: tuple[str, ...], rounds: int
) -> None:
    """Publishers try again every 50 ms, at their own pace and that of the listener, and nothing waits for anything else."""
    moments = random.Random(rounds)
    stop = threading.Event()
    receipts: list[tuple[str, int]] = []

    def publish(publisher: Publisher) -> None:
        while not stop.wait(0.001):
            try:
                receipt = publisher.publish("orders.1", len(receipts))
            except BusUnavailable:
                stop.wait(RETRY_S)
            else:
                receipts.append((receipt.epoch, receipt.offset))

    def crash() -> None:
        try:
            for _ in range(rounds):
                behind, ahead = len(receipts) + moments.randrange(1, 100), moments.randrange(1, 200)
                wait_until(lambda behind=behind: len(receipts) >= behind, "events that stay")  # type: ignore[misc]
                kept = redis.moment()
                wait_until(lambda lost=behind + ahead: len(receipts) >= lost, "events to lose")  # type: ignore[misc]
                redis.crash(kept)
                redis.start()
        finally:
            stop.set()

    bus = redis_bus(*patterns, url=redis.url, namespace=NAMESPACE)
    with closing(Publisher(redis.url, timeout_s=1.0)) as publisher, ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(publish, publisher), pool.submit(crash)]
        while not all(end.done() for end in ends):
            bus.wait_for_fences(1)
        for end in ends:
            end.result()
    head = int(redis.call("HGET", f"hg:{{{NAMESPACE}}}:head", "offset"))
    bus.wait_for(lambda: bus.bus.reached == head and bus.bus.up, "the head of the log")
    bus.wait_for_fences(2)
    log = log_of(redis)

    assert len(receipts) == len(set(receipts)), "two receipts for one position"
    account = Account(bus.told)
    # Only the account has the events that were trimmed since.
    assert {offset: data for offset, data in account.line.items() if offset in log} == log
    assert max(account.line) == head
    assert len(account.line) == head
