"""The shell of the feed on a real Redis: connections, timeouts, real replies, and what the namespace is told in the end.

The listener runs in a process of its own (tests/support/bus_process.py). tests/unit/bus has the rules of the feed, and every
order of things; tests/fault has killed, empty, cut and stopped Redis servers behind whole gateways.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.publisher import Publisher
from headgate.redis.client import Client, call
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.keys import channel, head_key, log_key
from headgate.redis.subscriber_link import SubscriberLink
from tests.support.bus_process import BusProcess
from tests.support.redis_server import wait_until

StartBus = Callable[..., BusProcess]
NAMESPACE = "notifications"
NARROW = ("orders.*", "bills.1")
# How often the connection is killed.
ROUNDS = 5


@pytest.fixture
def start_bus() -> Iterator[StartBus]:
    """Start a listener that is up: `start_bus(redis_url, log_max_events=20)`. All end with the test."""
    with ExitStack() as started:

        def start(redis_url: str, patterns: Sequence[str] = ("#",), **settings: Any) -> BusProcess:
            bus = BusProcess(redis_url, patterns, **{"fence_interval_s": 0.1, **settings})
            started.callback(bus.close)
            bus.wait_until_up()
            return bus

        yield start


@pytest.fixture(params=[("#",), NARROW], ids=["whole", "narrow"])
def start_either_bus(start_bus: StartBus, request: pytest.FixtureRequest) -> StartBus:
    """The same, with a listener that takes everything, or only what its clients need."""
    return partial(start_bus, patterns=request.param)


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher on the Redis of this test run."""
    with closing(Publisher(redis_url)) as publisher:
        yield publisher


@pytest.fixture
def start_redis_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], tuple[EmbeddedRedis, Path]]]:
    """Start a private server in a folder of its own, whose path is short enough for the socket to stay in it."""
    servers: list[EmbeddedRedis] = []

    def start() -> tuple[EmbeddedRedis, Path]:
        folder = tmp_path_factory.mktemp("r")
        servers.append(start_private_redis(folder))
        return servers[-1], folder

    yield start
    for server in servers:
        if server.is_running:
            os.kill(server.pid, signal.SIGCONT)
        server.close()


def publish(publisher: Publisher, count: int, topic: str = "orders.1", size: int = 0) -> list[int]:
    """Publish numbered events and return the offsets of their receipts."""
    receipts = publisher.publish_many([(topic, {"n": number, "pad": "x" * size}) for number in range(count)])
    return [receipt.offset for receipt in receipts]


def plain(client: Client, message: bytes | str, topic: str = "orders.1") -> None:
    """PUBLISH a raw message on the channel of a topic, as anyone with the right to can."""
    call(client, "PUBLISH", channel(NAMESPACE, topic), message)


def log_by_hand(client: Client, fields: dict[bytes, bytes]) -> int:
    """Put an entry into the log past the function library, as a faulty tool would; return its offset."""
    # One step: a fence between the two would find the offset given and nothing there, and tell it as trimmed.
    script = (
        "local offset = redis.call('HINCRBY', KEYS[2], 'offset', 1) "
        "redis.call('XADD', KEYS[1], offset .. '-0', unpack(ARGV)) return offset"
    )
    words = [word for pair in fields.items() for word in pair]
    return int(call(client, "EVAL", script, 2, log_key(NAMESPACE), head_key(NAMESPACE), *words))


# In order, once ----------------------------------------------------------------------------------------------------------


def test_logged_events_are_routed_in_order_each_once(start_either_bus: StartBus, redis_url: str, publisher: Publisher) -> None:
    """More events than one read brings."""
    bus = start_either_bus(redis_url)
    offsets = publish(publisher, 500)

    bus.wait_for(lambda: len(bus.events) >= 500, "500 events")
    bus.wait_for_fences(2)

    assert bus.offsets == offsets
    assert bus.news("missing", "log_lost", "bus") == []


# Poison ------------------------------------------------------------------------------------------------------------------


def test_forty_megabytes_are_quarantined_and_the_connection_stays(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Straight into Redis, between two good events: the reader puts them together, and nothing is lost or held up."""
    bus = start_bus(redis_url)
    publisher.publish("orders.1", "before")
    plain(redis_client, b'"' + b"x" * 40_000_000 + b'"')
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")

    assert bus.quarantined() == {"payload_too_large": 1}
    assert bus.news("missing", "log_lost", "bus") == []


def test_a_bad_entry_of_the_log_is_told_as_one_missing_offset(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """It was appended past the library, nothing came live, and a fence or the next event finds it."""
    bus = start_bus(redis_url)
    publisher.publish("orders.1", "before")
    bad = {b"topic": b"orders.1", b"id": b"by-hand", b"time": b"1700000000000", b"data": b"rubbish"}
    hole = log_by_hand(redis_client, bad)
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")

    assert bus.news("route", "missing", "log_lost", "bus") == [
        ["route", [["orders.1", 1, '"before"']]],
        ["missing", hole, hole, "quarantined"],
        ["route", [["orders.1", hole + 1, '"after"']]],
    ]


def test_a_logged_event_whose_live_message_is_bad_is_found_at_once(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """The library is a little laxer than JSON in numbers (`1.`): such an event is logged, and cannot be delivered."""
    bus = start_bus(redis_url, NARROW, fence_interval_s=30)
    publisher.publish("orders.1", "before")
    _, offset, _ = call(redis_client, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", "1.")

    bus.wait_for(lambda: bus.news("missing"), "word of the missing offset")

    assert bus.news("missing") == [["missing", offset, offset, "quarantined"]]
    assert bus.quarantined() == {"not_serializable": 1}


# Cut ---------------------------------------------------------------------------------------------------------------------


def test_a_connection_killed_again_and_again_loses_nothing(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """CLIENT KILL while events flow: repaired from the log, in order, each once."""
    bus = start_bus(redis_url, NARROW)
    stop = threading.Event()
    offsets: list[int] = []

    def flow() -> None:
        while not stop.wait(0.002):
            offsets.append(publisher.publish("orders.1", len(offsets)).offset)

    flowing = threading.Thread(target=flow)
    flowing.start()
    try:
        for round_ in range(1, ROUNDS + 1):
            wait_until(lambda: call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub"), "a connection to kill")
            bus.wait_for(lambda wanted=round_: len(bus.news("bus")) >= 2 * wanted, f"down and up, round {round_}")  # type: ignore[misc]
    finally:
        stop.set()
        flowing.join()
    bus.wait_for(lambda: len(bus.events) >= len(offsets), "every event")
    bus.wait_for_fences(2)

    assert bus.offsets == offsets == list(range(1, len(offsets) + 1))
    assert bus.news("missing", "log_lost") == []
    assert bus.news("bus") == [["bus", False], ["bus", True]] * ROUNDS


# Emptied -----------------------------------------------------------------------------------------------------------------


def test_a_flush_is_told_once_and_live_goes_on(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Nobody publishes meanwhile: the fence notices, begins the new epoch itself, and says it once."""
    bus = start_bus(redis_url, NARROW)
    publish(publisher, 10)
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    before = bus.state()["epoch"]
    call(redis_client, "FLUSHALL")

    bus.wait_for(lambda: bus.news("log_lost"), "word of the lost log")
    bus.wait_for_fences(3)
    receipt = publisher.publish("orders.1", "new")
    bus.wait_for(lambda: len(bus.events) == 11, "the first event of the new epoch")
    bus.wait_for_fences(3)

    assert receipt.epoch != before
    assert bus.news("log_lost") == [["log_lost", receipt.epoch, 0]]
    assert bus.events[-1] == ["orders.1", 1, '"new"']


# Stopped ---------------------------------------------------------------------------------------------------------------


def test_a_stopped_redis_is_told_as_down_and_made_good_in_order(
    start_bus: StartBus, start_redis_in: Callable[[], tuple[EmbeddedRedis, Path]]
) -> None:
    """SIGSTOP: every connection stays open and none answers. What was on its way comes after SIGCONT, each event once."""
    server, _ = start_redis_in()
    with closing(Publisher(server.url)) as publisher:
        # Two late fences, as in a gateway; so far apart that only a second without an answer makes two.
        bus = start_bus(server.url, NARROW, fence_interval_s=0.6, late_fences=2)
        publish(publisher, 5)
        bus.wait_for(lambda: len(bus.events) == 5, "five events")
        waiting = SubscriberLink(server.url)  # a bare connection, which can send without waiting for an answer
        waiting.connect()
        os.kill(server.pid, signal.SIGSTOP)
        bus.wait_for(lambda: bus.news("bus")[-1:] == [["bus", False]], "word that the bus is down")
        assert bus.state()["up"] is False
        assert bus.state()["error"] == "bus_unavailable"
        waiting.send(*[("FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", str(n)) for n in range(200)])
        os.kill(server.pid, signal.SIGCONT)

        bus.wait_for(lambda: len(bus.events) >= 205, "every event")
        bus.wait_for(lambda: bus.news("bus")[-1] == ["bus", True], "word that it is up again")
        bus.wait_for_fences(2)
        waiting.close()

        # Up and down may come once more, from a machine that stands still for as long as two fences: nothing may come twice.
        assert bus.offsets == list(range(1, 206))
        assert bus.news("missing", "log_lost") == []
