"""The listener on a real Redis: real connections, real replies, and what the namespace is told in the end.

Most run in the test's own process (tests/support/bus_here.py); one listener runs in a process that gevent has patched, as a
gateway's does. tests/unit/bus has the rules of the feed, and the listener on a model of Redis: timeouts, a Redis that stands
still, every order of things. tests/fault has killed, empty, cut and stopped Redis servers behind whole gateways.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client import REGISTRY

from headgate.delivery.bus import messages
from headgate.errors import InvalidEvent
from headgate.events.event import Event, decode_message
from headgate.redis.client import Client, call
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import channel, head_key, log_key
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.bus_here import BusHere, StartRedisBus, join
from tests.support.bus_process import BusProcess
from tests.support.model_redis import NAMESPACE
from tests.support.redis_server import wait_until

NARROW = ("orders.*", "bills.1")
# How often the connection is killed.
ROUNDS = 5


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher on the Redis of this test run."""
    with closing(Publisher(redis_url, namespace=NAMESPACE)) as publisher:
        yield publisher


def publish(publisher: Publisher, count: int) -> list[int]:
    """Publish numbered events and return the offsets of their receipts."""
    return [receipt.offset for receipt in publisher.publish_many([("orders.1", number) for number in range(count)])]


def quarantined(code: str) -> float:
    """Return the count of the metric."""
    return REGISTRY.get_sample_value("headgate_quarantined_total", {"namespace": NAMESPACE, "code": code}) or 0.0


def log_by_hand(client: Client, fields: dict[bytes, bytes]) -> int:
    """Put an entry into the log past the function library, as a faulty tool would; return its offset."""
    # One step: a fence between the two would find the offset given and nothing there, and tell it as trimmed.
    script = (
        "local offset = redis.call('HINCRBY', KEYS[2], 'offset', 1) "
        "redis.call('XADD', KEYS[1], offset .. '-0', unpack(ARGV)) return offset"
    )
    words = [word for pair in fields.items() for word in pair]
    return int(call(client, "EVAL", script, 2, log_key(NAMESPACE), head_key(NAMESPACE), *words))


@pytest.mark.parametrize("patterns", [("#",), NARROW], ids=["whole", "narrow"])
def test_logged_events_are_routed_in_order_each_once(
    redis_bus: StartRedisBus, publisher: Publisher, patterns: tuple[str, ...]
) -> None:
    """More events than one read brings."""
    bus = redis_bus(*patterns)
    offsets = publish(publisher, 500)

    bus.wait_for(lambda: len(bus.events) >= 500, "500 events")
    bus.wait_for_fences(2)

    assert bus.offsets == offsets
    assert bus.only("missing", "log_lost", "bus") == []


@pytest.mark.parametrize("is_older", [False, True], ids=["this gateway", "an older one"])
def test_events_of_a_trace_are_routed_in_order_each_once(
    redis_bus: StartRedisBus, publisher: Publisher, is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older gateway finds the header of their messages malformed, and reads the events from the log."""
    decode = decode_message

    def as_before(topic: str, message: bytes, *limits: int) -> Event:
        if len(message.partition(b"\n")[0].split(b" ")) != 5:
            raise InvalidEvent("header", "truncated or malformed")
        return decode(topic, message, *limits)

    if is_older:
        monkeypatch.setattr(messages, "decode_message", as_before)
    bus = redis_bus("#")
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    before = quarantined("invalid_event")
    offsets = publish(publisher, 2)
    offsets += [publisher.publish("orders.1", number, traceparent=parent).offset for number in range(3)]
    bus.wait_for(lambda: len(bus.events) >= 5, "5 events")
    bus.wait_for_fences(2)
    assert bus.offsets == offsets
    assert bus.only("missing", "log_lost", "bus") == []
    assert quarantined("invalid_event") == before


def test_forty_megabytes_are_quarantined_and_the_connection_stays(
    redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher
) -> None:
    """Straight into Redis, between two good events: the reader puts them together, and nothing is lost or held up."""
    bus = redis_bus("#")
    before = quarantined("payload_too_large")
    publisher.publish("orders.1", "before")
    writer = threading.Thread(  # Redis takes it no faster than the listener reads
        target=call, args=(redis_client, "PUBLISH", channel(NAMESPACE, "orders.1"), b'"' + b"x" * 40_000_000 + b'"')
    )
    writer.start()
    bus.wait_for(lambda: not writer.is_alive(), "the message to be written")
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")

    assert quarantined("payload_too_large") - before == 1
    assert bus.only("missing", "log_lost", "bus") == []


def test_a_bad_entry_of_the_log_is_told_as_one_missing_offset(
    redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher
) -> None:
    """It was appended past the library, nothing came live, and a fence or the next event finds it."""
    bus = redis_bus("#")
    publisher.publish("orders.1", "before")
    bad = {b"topic": b"orders.1", b"id": b"by-hand", b"time": b"1700000000000", b"data": b"rubbish"}
    hole = log_by_hand(redis_client, bad)
    publisher.publish("orders.1", "after")

    bus.wait_for(lambda: len(bus.events) == 2, "both good events")

    assert bus.only("route", "missing", "log_lost", "bus") == [
        ["route", [["orders.1", 1, '"before"']]],
        ["missing", hole, hole, "quarantined"],
        ["route", [["orders.1", hole + 1, '"after"']]],
    ]


def test_a_logged_event_whose_live_message_is_bad_is_found_at_once(
    redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher
) -> None:
    """The library is a little laxer than JSON in numbers (`1.`): such an event is logged, and cannot be delivered."""
    bus = redis_bus(*NARROW, fence_interval_s=30)
    before = quarantined("not_serializable")
    publisher.publish("orders.1", "before")
    _, offset, _ = call(redis_client, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", "1.")

    bus.wait_for(lambda: bus.only("missing"), "word of the missing offset")

    assert bus.only("missing") == [["missing", offset, offset, "quarantined"]]
    assert quarantined("not_serializable") - before == 1


def test_a_flush_is_told_once_and_live_goes_on(redis_bus: StartRedisBus, redis_client: Client, publisher: Publisher) -> None:
    """Nobody publishes meanwhile: the fence notices, begins the new epoch itself, and says it once."""
    bus = redis_bus(*NARROW)
    publish(publisher, 10)
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    before = bus.bus.epoch
    call(redis_client, "FLUSHALL")

    bus.wait_for(lambda: bus.only("log_lost"), "word of the lost log")
    bus.wait_for_fences(3)
    receipt = publisher.publish("orders.1", "new")
    bus.wait_for(lambda: len(bus.events) == 11, "the first event of the new epoch")
    bus.wait_for_fences(3)

    assert receipt.epoch != before
    assert bus.only("log_lost") == [["log_lost", receipt.epoch, 0]]
    assert bus.events[-1] == ["orders.1", 1, '"new"']


def test_a_password_that_is_changed_at_redis_first_does_not_end_what_works(
    redis_server: EmbeddedRedis, redis_client: Client, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections are refused, and the open ones are kept, with one line in the log; later the password fits again."""
    call(redis_client, "ACL", "SETUSER", "gate", "on", ">one", "~*", "&*", "+@all")
    url = f"unix://gate:one@{redis_server.url.removeprefix('unix://')}"
    settings = Settings.read({"HEADGATE_FENCE_INTERVAL_S": "0.2"})
    bus = BusHere(url, NARROW, settings)
    try:
        bus.wait_for(lambda: bus.bus.up, "the bus is up")
        call(redis_client, "ACL", "SETUSER", "gate", "resetpass", ">two")
        bus.wait_for(lambda: "Redis refuses the password" in caplog.text, "a refused connection")
        bus.wait_for_fences(8)
        offsets = publish(publisher, 10)
        bus.wait_for(lambda: bus.offsets == offsets, "ten events")
        call(redis_client, "ACL", "SETUSER", "gate", "resetpass", ">one")
        bus.wait_for(lambda: "Redis takes the password again" in caplog.text, "a connection")
        assert bus.only("missing", "log_lost", "bus") == [["bus", True]]
    finally:
        bus.bus.close()
        join(bus.bus)
    assert caplog.text.count("Redis refuses the password") == 1


def test_a_connection_killed_again_and_again_loses_nothing(redis_url: str, redis_client: Client) -> None:
    """CLIENT KILL while events flow: repaired from the log, in order, each once."""
    stop = threading.Event()
    offsets: list[int] = []
    with closing(BusProcess(redis_url, NARROW, fence_interval_s=0.1)) as bus, closing(Publisher(redis_url)) as publisher:
        bus.wait_until_up()

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
        bus.wait_for(lambda: len(bus.offsets) >= len(offsets), "every event")
        bus.wait_for_fences(2)

        assert bus.offsets == offsets == list(range(1, len(offsets) + 1))
        assert bus.news("missing", "log_lost") == []
        assert bus.news("bus") == [["bus", False], ["bus", True]] * ROUNDS
