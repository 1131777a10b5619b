"""F18, and a kill: Redis' disk is full, so its file lacks events of its memory; then Redis dies and starts again.

Redis answers the publishes of the round of its loop in which it finds the disk full. They are in its memory, and their receipts
say no more than that. It refuses all later ones.
"""

import itertools
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from headgate.errors import BusRefused, NotDurable
from headgate.redis.keys import log_key
from headgate.services.publisher import Publisher, Receipt
from tests.fault.figures import Figures
from tests.fault.site import Load
from tests.support.bus_here import BusHere, StartRedisBus
from tests.support.redis_process import RedisProcess

NAMESPACE = "notifications"
BEHIND = 20


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


def publish_until_refused(publisher: Publisher, word: str) -> list[tuple[Receipt, str]]:
    """Return the receipts, each with the data of its event."""
    receipts: list[tuple[Receipt, str]] = []
    for number in itertools.count():
        try:
            receipts.append((publisher.publish("orders.1", f"{word} {number}"), f'"{word} {number}"'))
        except BusRefused as error:
            if error.redis_code != "MISCONF":
                raise
            return receipts
    raise AssertionError


def wait_for_receipt(bus: BusHere, receipt: Receipt) -> None:
    bus.wait_for(lambda: bus.bus.epoch == receipt.epoch and bus.bus.reached >= receipt.offset, "events to be handed on")


@pytest.mark.parametrize("end", [RedisProcess.kill, RedisProcess.terminate], ids=["killed", "asked to stop"])
def test_receipts_the_log_and_what_listeners_saw_agree(
    redis: RedisProcess, redis_bus: StartRedisBus, end: Callable[[RedisProcess], None], load: Load, figures: Figures
) -> None:
    """Nothing is in another event's place, losses are reported, and `check` knows them; the disk fills up during a write."""
    rounds = 4 if load.name == "short" else 60
    receipts: list[tuple[Receipt, str]] = []
    lost = 0
    bus = redis_bus("#", url=redis.url, namespace=NAMESPACE)
    with closing(Publisher(redis.url)) as publisher:
        for turn in range(rounds):
            receipts += [(publisher.publish("orders.1", f"{turn}, {number}"), f'"{turn}, {number}"') for number in range(BEHIND)]
            wait_for_receipt(bus, receipts[-1][0])
            redis.fill_disk(room_bytes=turn * 37)
            met_it = publish_until_refused(publisher, f"{turn}, full")
            assert met_it  # else this trial proves nothing
            receipts += met_it
            end(redis)
            redis.start()
            after = publisher.publish("orders.1", f"{turn}, after")
            receipts.append((after, f'"{turn}, after"'))
            wait_for_receipt(bus, after)
        bus.wait_for_fences(2)
        account, log = Account(bus.told), log_of(redis)

        assert account.line == log  # a seen and lost event was reported, or else it would be in the way
        assert len({(receipt.epoch, receipt.offset) for receipt, _ in receipts}) == len(receipts)
        for receipt, data in receipts:
            if log.get(receipt.offset) == data:
                assert publisher.check(receipt) == "in_log"
            else:
                lost += 1
                assert publisher.check(receipt) == "rolled_back"
        assert lost > 0
    figures("F18", f"disk full, then Redis ended ({end.__name__}): receipts that `check` calls wrongly", 0, "", "0 (checked)")


def test_a_publisher_that_waits_for_the_disk_is_told(redis: RedisProcess) -> None:
    """The publish that meets the full disk has no receipt but the one in the error, which says that it may be lost."""
    if redis.call("COMMAND", "INFO", "WAITAOF") == [None]:
        pytest.skip("this server cannot wait for its disk (Redis 7.2)")
    redis.call("CONFIG", "SET", "appendfsync", "everysec")
    with closing(Publisher(redis.url, durable="disk", timeout_s=2.0)) as publisher:
        safe = publisher.publish("orders.1", "safe")
        redis.fill_disk()
        with pytest.raises(NotDurable) as caught:
            publisher.publish("orders.1", "not safe")
        with pytest.raises(BusRefused, match="disk"):
            publisher.publish("orders.1", "refused")
        redis.kill()
        redis.start()
        redis.call("CONFIG", "SET", "appendfsync", "everysec")
        publisher.publish("orders.1", "after")

        assert [publisher.check(receipt) for receipt in (safe, caught.value.receipt)] == ["in_log", "rolled_back"]
