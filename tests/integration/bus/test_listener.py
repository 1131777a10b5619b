"""The listener on a real Redis: real connections, real replies, and what the namespace receives in the end.

Most run in the test's own process (tests/support/bus_here.py); one listener runs in a process that gevent has patched, as a
gateway's does. tests/unit/bus has the rules of the feed, and the listener on a model of Redis: timeouts, a Redis that stands
still, every order of things. tests/fault has killed, empty, cut and stopped Redis servers of whole gateways.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client import REGISTRY

from headgate.delivery.bus import messages
from headgate.errors import InvalidEvent
from headgate.events.event import Event, decode_message
from headgate.redis.client import Client, call
from headgate.redis.embedded import EmbeddedRedis
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.bus_here import BusHere, StartRedisBus, join
from tests.support.model_redis import NAMESPACE

NARROW = ("orders.*", "bills.1")


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    with closing(Publisher(redis_url, namespace=NAMESPACE)) as publisher:
        yield publisher


def publish(publisher: Publisher, count: int) -> list[int]:
    """Publish numbered events and return the offsets of their receipts."""
    return [receipt.offset for receipt in publisher.publish_many([("orders.1", number) for number in range(count)])]


def quarantined(code: str) -> float:
    """Return the count of the metric."""
    return REGISTRY.get_sample_value("headgate_quarantined_total", {"namespace": NAMESPACE, "code": code}) or 0.0


@pytest.mark.parametrize("patterns", [("#",), NARROW], ids=["whole", "narrow"])
def test_logged_events_come_in_order_once(redis_bus: StartRedisBus, publisher: Publisher, patterns: tuple[str, ...]) -> None:
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
