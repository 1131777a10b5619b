"""The bus listener against a real Redis that is poisoned, cut, stopped, emptied and killed: what its namespace is told.

The listener runs in a process of its own (tests/support/bus_process.py). The rule behind every test: each event that a publisher
has a receipt for is routed once and in order, or its offset is told as missing, before anything later.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.event import HEADER_TAG
from headgate.publisher import Publisher
from headgate.redis.client import Client, SubscriberLink, call, call_many, open_client
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.keys import channel, head_key, log_key
from tests.support.bus_process import BusProcess
from tests.support.redis_server import wait_until, write_at_once

StartBus = Callable[..., BusProcess]
NAMESPACE = "notifications"


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


@pytest.fixture(params=[("#",), ("orders.*", "bills.1")], ids=["whole", "narrow"])
def start_either_bus(start_bus: StartBus, request: pytest.FixtureRequest) -> StartBus:
    """The same, with a listener that takes everything, or only what it wants."""
    return partial(start_bus, patterns=request.param)


@dataclass
class Poisoned:
    """A listener, and the Redis that the tests of poison share: each begins where the last one has left off."""

    bus: BusProcess
    client: Client
    publisher: Publisher

    def offset(self) -> int:
        return int(call(self.client, "HGET", head_key(NAMESPACE), "offset") or 0)


@pytest.fixture(scope="module")
def poisoned_bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poisoned]:
    with ExitStack() as started:
        url = started.enter_context(start_private_redis(tmp_path_factory.mktemp("poisoned"))).url
        bus = BusProcess(url, fence_interval_s=0.1)
        started.callback(bus.close)
        bus.wait_until_up()
        yield Poisoned(bus, started.enter_context(closing(open_client(url))), started.enter_context(closing(Publisher(url))))


@pytest.fixture
def poisoned(poisoned_bus: Poisoned) -> Poisoned:
    """The same with nothing told yet."""
    poisoned_bus.bus.wait_for_fences(1)
    poisoned_bus.bus.forget()
    return poisoned_bus


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


def forge(client: Client, *, epoch: str | None = None, offset: int, data: bytes = b"1") -> None:
    """PUBLISH a message that claims to be an event of the log."""
    current = call(client, "HGET", head_key(NAMESPACE), "epoch")
    head = b"hg1 %b %d %d %b\n" % (epoch.encode() if epoch else current, offset, 1_700_000_000_000, b"forged")
    plain(client, head + data)


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
    """The plain case, with more than one read's worth."""
    bus = start_either_bus(redis_url)
    offsets = publish(publisher, 500)

    bus.wait_for(lambda: len(bus.events) >= 500, "500 events")
    bus.wait_for_fences(2)

    assert bus.offsets == offsets
    assert bus.news("missing", "log_lost", "bus") == []


def test_a_plain_publish_is_routed_without_an_offset_and_between_its_neighbours(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """From any language, with nothing but PUBLISH."""
    bus = start_bus(redis_url)
    publisher.publish("orders.1", "before")
    plain(redis_client, '"in between"')
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 3, "three events")

    assert bus.events == [["orders.1", 1, '"before"'], ["orders.1", None, '"in between"'], ["orders.1", 2, '"after"']]


def test_a_listener_that_starts_late_begins_at_the_head(start_bus: StartBus, redis_url: str, publisher: Publisher) -> None:
    """What was published before nobody here was promised."""
    publish(publisher, 5)
    bus = start_bus(redis_url)
    publisher.publish("orders.1", "new")

    bus.wait_for(lambda: bus.events, "an event")

    assert bus.offsets == [6]


# Poison ------------------------------------------------------------------------------------------------------------------

POISON = {
    "a header cut short": (HEADER_TAG + b"0123456789abcdef 1", "invalid_event"),
    "a header without an end": (HEADER_TAG + b"0123456789abcdef 1 1700000000000 " + b"x" * 5000, "invalid_event"),
    "a header of rubbish": (HEADER_TAG + b"x y z\n1", "invalid_event"),
    "40 MB": (b'"' + b"x" * 40_000_000 + b'"', "payload_too_large"),
    "one byte above the limit": (b'"' + b"x" * 65535 + b'"', "payload_too_large"),
    "nesting of 100,000": (b"[" * 30_000 + b"]" * 30_000, "not_serializable"),
    "nesting of 65": (b"[" * 65 + b"]" * 65, "not_serializable"),
    "not UTF-8": (b'"\xff\xfe"', "not_serializable"),
    "half a character": (b'"\xe2\x82"', "not_serializable"),
    "not JSON": (b"hello", "not_serializable"),
    "nothing": (b"", "not_serializable"),
    "NaN": (b"NaN", "not_serializable"),
    "two values": (b"1 2", "not_serializable"),
}


@pytest.mark.parametrize(("message", "code"), POISON.values(), ids=POISON.keys())
def test_a_poisoned_message_is_counted_and_the_good_ones_go_on(poisoned: Poisoned, message: bytes, code: str) -> None:
    """Straight into Redis, between two good events: neither is lost, doubled or held up, and the link stays."""
    bus, first, counts = poisoned.bus, poisoned.offset() + 1, poisoned.bus.quarantined()
    poisoned.publisher.publish("orders.1", "before")
    plain(poisoned.client, message)
    poisoned.publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")
    bus.wait_for_fences(2)

    assert bus.events == [["orders.1", first, '"before"'], ["orders.1", first + 1, '"after"']]
    assert bus.quarantined() == counts | {code: counts.get(code, 0) + 1}
    assert bus.news("missing", "log_lost", "bus") == []


@pytest.mark.parametrize("topic", ["", "a..b", "a.*", "#", "a b", "ä", "x" * 300, "1.2.3.4.5.6.7.8.9", 'a"]'])
def test_a_channel_that_is_no_topic_is_counted_and_goes_to_nobody(poisoned: Poisoned, topic: str) -> None:
    """A topic becomes part of a packet: nothing outside the grammar may get that far."""
    bus, counts = poisoned.bus, poisoned.bus.quarantined()
    plain(poisoned.client, "1", topic)
    poisoned.publisher.publish("orders.1", "after")

    bus.wait_for(lambda: bus.events, "the good event")

    assert [data for _, _, data in bus.events] == ['"after"']
    assert bus.quarantined() == counts | {"invalid_topic": counts.get("invalid_topic", 0) + 1}


BAD_ENTRIES: dict[str, dict[bytes, bytes]] = {
    "not JSON": {b"data": b"rubbish"},
    "not UTF-8": {b"data": b'"\xff"'},
    "above the limit": {b"data": b'"' + b"x" * 70_000 + b'"'},
    "an invalid topic": {b"topic": b'a"]'},
    "an id that would break out of its string": {b"id": b'x","offset":1,"y":"'},
    "a time that is no number": {b"time": b"yesterday"},
    "a time below zero": {b"time": b"-1"},
    "none of our fields": {b"data": b"", b"topic": b"", b"id": b"", b"time": b""},
}


@pytest.mark.parametrize("bad", BAD_ENTRIES.values(), ids=BAD_ENTRIES.keys())
def test_a_bad_entry_of_the_log_is_told_as_one_missing_offset_and_the_good_ones_go_on(
    poisoned: Poisoned, bad: dict[bytes, bytes]
) -> None:
    """It was appended past the library, nothing came live, and whoever looks at the log next finds it."""
    bus, first, counts = poisoned.bus, poisoned.offset() + 1, poisoned.bus.quarantined()
    poisoned.publisher.publish("orders.1", "before")
    good = {b"topic": b"orders.1", b"id": b"by-hand", b"time": b"1700000000000", b"data": b"1"}
    hole = log_by_hand(poisoned.client, good | bad)
    poisoned.publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")
    bus.wait_for_fences(2)

    assert bus.news("route", "missing", "log_lost", "bus") == [
        ["route", [["orders.1", first, '"before"']]],
        ["missing", hole, hole, "quarantined"],
        ["route", [["orders.1", hole + 1, '"after"']]],
    ]
    assert sum(bus.quarantined().values()) == sum(counts.values()) + 1


def test_a_logged_event_whose_live_message_is_bad_is_found_at_once(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """The library is a little laxer than JSON in numbers (`1.`): such an event is logged, and cannot be delivered."""
    bus = start_either_bus(redis_url, fence_interval_s=30)
    publisher.publish("orders.1", "before")
    _, offset, _ = call(redis_client, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", "1.")

    bus.wait_for(lambda: bus.news("missing"), "word of the missing offset")

    assert bus.news("missing") == [["missing", offset, offset, "quarantined"]]
    assert bus.quarantined() == {"not_serializable": 1}


# Forged headers ----------------------------------------------------------------------------------------------------------


def test_a_forged_offset_far_ahead_is_counted_and_hides_nothing(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Taken at its word it would make every later event look like an old one."""
    bus = start_either_bus(redis_url)
    publisher.publish("orders.1", "before")
    forge(redis_client, offset=1000)
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")

    assert bus.offsets == [1, 2]
    assert bus.quarantined() == {"invalid_event": 1}
    assert bus.news("missing", "log_lost") == []


def test_a_forged_offset_of_the_past_goes_to_nobody(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Each offset once."""
    bus = start_bus(redis_url)
    publish(publisher, 3)
    forge(redis_client, offset=2, data=b'"forged"')
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 4, "the good events")

    assert bus.offsets == [1, 2, 3, 4]


def test_a_forged_epoch_is_counted_and_the_log_is_not_believed_lost(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """The log says which epoch it has, not a message."""
    bus = start_bus(redis_url)
    publisher.publish("orders.1", "before")
    forge(redis_client, epoch="f" * 16, offset=2)
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")

    assert bus.offsets == [1, 2]
    assert bus.quarantined() == {"invalid_event": 1}
    assert bus.news("missing", "log_lost") == []


# Cut ---------------------------------------------------------------------------------------------------------------------


def test_a_connection_killed_again_and_again_loses_nothing(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """CLIENT KILL while events flow: repaired from the log, in order, each once."""
    bus = start_either_bus(redis_url)
    stop = threading.Event()
    offsets: list[int] = []

    def flow() -> None:
        while not stop.wait(0.002):
            offsets.append(publisher.publish("orders.1", len(offsets)).offset)

    flowing = threading.Thread(target=flow)
    flowing.start()
    try:
        for round_ in range(1, 21):
            wait_until(lambda: call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub"), "a connection to kill")
            bus.wait_for(lambda wanted=round_: len(bus.news("bus")) >= 2 * wanted, f"down and up, round {round_}")  # type: ignore[misc]
    finally:
        stop.set()
        flowing.join()
    bus.wait_for(lambda: len(bus.events) >= len(offsets), "every event")
    bus.wait_for_fences(2)

    assert bus.offsets == offsets == list(range(1, len(offsets) + 1))
    assert bus.news("missing", "log_lost") == []
    assert bus.news("bus") == [["bus", False], ["bus", True]] * 20


def test_a_listener_that_was_too_slow_for_redis_reads_from_the_log_what_it_missed(
    start_either_bus: StartBus, start_redis: Callable[..., EmbeddedRedis]
) -> None:
    """Redis cuts a subscriber off whose output buffer is full, and drops what was in it."""
    url = start_redis().url
    with closing(open_client(url)) as client, closing(Publisher(url)) as publisher:
        bus = start_either_bus(url)
        call(client, "CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 1mb 1")
        bus.pause()
        # In small pieces: Valkey 9 does not count what it can send without copying (from 16 KB on) into the buffer.
        offsets = [offset for _ in range(10) for offset in publish(publisher, 200, size=4_000)]
        wait_until(lambda: not call(client, "CLIENT", "LIST", "TYPE", "pubsub"), "Redis to cut it off")
        bus.go_on()

        bus.wait_for(lambda: len(bus.events) >= len(offsets), "every event")
        bus.wait_for_fences(2)

        assert bus.offsets == offsets
        assert bus.news("missing", "log_lost") == []
        assert bus.news("bus") == [["bus", False], ["bus", True]]


def test_what_the_log_no_longer_holds_is_told_in_one_gap(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Cut off for longer than the retention: exactly which offsets are gone, then the rest."""
    bus = start_either_bus(redis_url, log_max_events=20)
    publish(publisher, 10)
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    bus.pause()
    call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub")
    publish(publisher, 100)
    bus.go_on()

    bus.wait_for(lambda: len(bus.events) == 30, "the rest")
    bus.wait_for_fences(2)

    assert bus.news("missing") == [["missing", 11, 90, "trimmed"]]
    assert bus.offsets == [*range(1, 11), *range(91, 111)]


def test_events_that_nobody_hears_of_live_are_found_by_the_fence(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """An event in the log without its message: the last of a burst, with nothing behind it to show the hole."""
    bus = start_bus(redis_url)
    publisher.publish("orders.1", "before")
    hole = log_by_hand(redis_client, {b"topic": b"orders.1", b"id": b"by-hand", b"time": b"1700000000000", b"data": b'"silent"'})

    bus.wait_for(lambda: len(bus.events) == 2, "the event without a message")

    assert bus.events[1] == ["orders.1", hole, '"silent"']


def test_a_repair_hands_on_what_it_reads_in_pages_not_one_by_one(
    start_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """One write per client and page: 1,500 events for 1,000 clients are otherwise 1.5 million writes."""
    bus = start_bus(redis_url)
    bus.pause()
    call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub")
    publish(publisher, 1000)
    bus.go_on()

    bus.wait_for(lambda: len(bus.events) >= 1000, "every event")

    assert bus.offsets == list(range(1, 1001))
    assert len(bus.news("route")) <= 20


# Emptied -----------------------------------------------------------------------------------------------------------------


def test_a_flush_is_told_once_and_live_goes_on(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Nobody publishes meanwhile: the fence notices, begins the new epoch itself, and says it once."""
    bus = start_either_bus(redis_url)
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


def test_events_published_right_after_a_flush_are_not_lost_with_the_old_log(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Their publishers hold receipts of the new epoch, and the clients' subscriptions are still in force."""
    bus = start_either_bus(redis_url, fence_interval_s=30)
    publish(publisher, 10)
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    bus.pause()
    call(redis_client, "FLUSHALL")
    publish(publisher, 10)
    bus.go_on()

    bus.wait_for(lambda: len(bus.events) == 20, "the events of the new epoch")

    assert len(bus.news("log_lost")) == 1
    assert bus.offsets == [*range(1, 11), *range(1, 11)]
    assert [entry[0] for entry in bus.news("route", "log_lost", "missing")][-2:] != ["route", "log_lost"]


def test_a_new_epoch_found_at_a_reconnect_is_told_once_and_its_events_are_routed(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """Redis came back empty, and publishers were there first."""
    bus = start_either_bus(redis_url)
    publish(publisher, 10)
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    bus.pause()
    call_many(redis_client, [("CLIENT", "KILL", "TYPE", "pubsub"), ("FLUSHALL",), ("FUNCTION", "FLUSH")])
    publish(publisher, 3)
    bus.go_on()

    bus.wait_for(lambda: len(bus.events) == 13, "the events of the new epoch")
    bus.wait_for_fences(3)

    assert len(bus.news("log_lost")) == 1
    assert bus.offsets == [*range(1, 11), 1, 2, 3]


def test_a_log_that_went_back_is_told_once_and_live_goes_on_from_its_head(
    start_either_bus: StartBus, redis_url: str, redis_client: Client, publisher: Publisher
) -> None:
    """A replica that had not got everything was promoted: same epoch, lower offset."""
    bus = start_either_bus(redis_url)
    publish(publisher, 10)
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    # One step, so that no fence sees half of it.
    call(redis_client, "EVAL", "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[2], 'offset', 6)"
         " redis.call('XADD', KEYS[1], '6-0', 'topic', 'orders.1', 'id', 'x', 'time', '1', 'data', '1')",
         2, log_key(NAMESPACE), head_key(NAMESPACE))  # fmt: skip

    bus.wait_for(lambda: bus.news("log_lost"), "word of the lost log")
    bus.wait_for_fences(3)
    publisher.publish("orders.1", "new")
    bus.wait_for(lambda: len(bus.events) == 11, "the next event")

    assert [entry[2] for entry in bus.news("log_lost")] == [6]
    assert bus.events[-1] == ["orders.1", 7, '"new"']


# Stopped and killed ------------------------------------------------------------------------------------------------------


def test_a_stopped_redis_is_told_as_down_and_made_good_in_order(
    start_either_bus: StartBus, start_redis_in: Callable[[], tuple[EmbeddedRedis, Path]]
) -> None:
    """SIGSTOP: every connection stays open and none answers. What was on its way comes after SIGCONT, each event once."""
    server, _ = start_redis_in()
    with closing(Publisher(server.url)) as publisher:
        # Two late fences, as in a gateway; so far apart that only a second without an answer makes two.
        bus = start_either_bus(server.url, fence_interval_s=0.6, late_fences=2)
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


def test_a_redis_killed_and_back_from_its_append_only_file_has_lost_nothing(
    start_bus: StartBus, start_redis_in: Callable[[], tuple[EmbeddedRedis, Path]]
) -> None:
    """kill -9: the same epoch goes on, and nothing is told as missing."""
    server, folder = start_redis_in()
    with closing(Publisher(server.url)) as publisher, closing(open_client(server.url)) as client:
        write_at_once(client)
        bus = start_bus(server.url)
        offsets = publish(publisher, 50)
        bus.wait_for(lambda: len(bus.events) == 50, "fifty events")
        os.kill(server.pid, signal.SIGKILL)
        bus.wait_for(lambda: ["bus", False] in bus.told, "word that the bus is down")
        server.close()
        with start_private_redis(folder) as again:
            assert again.url == server.url
            bus.wait_for(lambda: bus.news("bus")[-1] == ["bus", True], "the bus to be up again")
            offsets += publish(publisher, 50)

            bus.wait_for(lambda: len(bus.events) >= 100, "every event")
            bus.wait_for_fences(2)

            assert bus.offsets == offsets == list(range(1, 101))
            assert bus.news("missing", "log_lost") == []


def test_a_redis_killed_and_back_empty_is_told_as_one_lost_log(
    start_either_bus: StartBus, start_redis_in: Callable[[], tuple[EmbeddedRedis, Path]]
) -> None:
    """Keys and function library are gone: both are made anew."""
    server, folder = start_redis_in()
    with closing(Publisher(server.url)) as publisher:
        bus = start_either_bus(server.url)
        publish(publisher, 5)
        bus.wait_for(lambda: len(bus.events) == 5, "five events")
        os.kill(server.pid, signal.SIGKILL)
        server.close()
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        with start_private_redis(folder):
            bus.wait_for(lambda: bus.news("log_lost"), "word of the lost log")
            publish(publisher, 5)

            bus.wait_for(lambda: len(bus.events) == 10, "the events of the new epoch")
            bus.wait_for_fences(3)

            assert len(bus.news("log_lost")) == 1
            assert bus.offsets == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


def test_two_listeners_on_one_redis_each_route_everything(start_bus: StartBus, redis_url: str, publisher: Publisher) -> None:
    """Two gateways share a log and know nothing of each other."""
    first, second = start_bus(redis_url), start_bus(redis_url)
    offsets = publish(publisher, 50)

    for bus in (first, second):
        bus.wait_for(lambda bus=bus: len(bus.events) == 50, "every event")  # type: ignore[misc]
        assert bus.offsets == offsets
