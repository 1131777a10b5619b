"""The subscriber against a real Redis: events and gaps in order, cursors, waiting, faults, and `async for`."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from headgate import BusRefused, BusUnavailable, Gap, InvalidRequest, Publisher, Subscriber
from headgate.events.event import Event
from headgate.redis.client import Client, call
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import SOURCE
from headgate.redis.keys import epochs_key, head_key, log_key
from headgate.redis.lineage import Head
from headgate.redis.log import EventLog
from headgate.redis.log_walk import Item
from tests.support import event_loop
from tests.support.redis_server import DEADLINE_S, wait_until

KEY, HEAD, EPOCHS = log_key("notifications"), head_key("notifications"), epochs_key("notifications")
MakeSubscriber = Callable[..., Subscriber]


@pytest.fixture
def subscriber(redis_url: str) -> MakeSubscriber:
    return partial(Subscriber, redis_url, wait_s=0)


def brief(items: Iterator[Item] | Subscriber) -> list[Any]:
    """Return the data of each event, and (reason, first, last) of each gap."""
    return [(item.reason.value, item.first, item.last) if isinstance(item, Gap) else item.value() for item in items]


def test_it_yields_what_matches_one_of_its_patterns(publisher: Publisher, subscriber: MakeSubscriber) -> None:
    """In log order, each event once, over several pages, with the position that it has in the log."""
    receipts = publisher.publish_many([(f"orders.{n}.{'shipped' if n % 3 else 'packed'}", n) for n in range(350)] + [("a", -1)])

    everything = list(subscriber("#", since="oldest"))

    assert [(item.epoch, item.offset, item.id) for item in everything if isinstance(item, Event)] == [
        (receipt.epoch, receipt.offset, receipt.id) for receipt in receipts
    ]
    wanted = [n for n in range(350) if n % 3 == 0 or n == 1]
    assert brief(subscriber("orders.*.packed", "orders.1.#", "a", since=0)) == [*wanted, -1]


def test_waiting_for_redis_is_one_warning_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    """A script with a wrong address prints it at once, and not only after the patience of 30 s."""
    with pytest.raises(BusUnavailable):
        next(Subscriber("unix:///nowhere/redis.sock", "#", patience_s=0.1))
    [line] = [record.getMessage() for record in caplog.records if record.name == "headgate.subscriber"]
    assert "/nowhere/redis.sock: no such file" in line
    assert "start Redis there" in line


def test_an_event_has_the_epoch_of_its_receipt_for_every_reader(
    publisher: Publisher, subscriber: MakeSubscriber, redis_client: Client
) -> None:
    """Whichever epoch is written by the time that it is read."""
    reading = subscriber("#")
    assert list(reading) == []
    receipts = [publisher.publish("a", 1), publisher.publish("a", 2)]
    first = next(reading)
    call(redis_client, "FUNCTION", "LOAD", "REPLACE", SOURCE)  # as another process of Redis begins
    receipts.append(publisher.publish("a", 3))
    assert len({receipt.epoch for receipt in receipts}) == 2

    read = [[first, *reading], list(subscriber("#", since="oldest")), list(subscriber("#", since=f"{receipts[2].epoch}:0"))]

    for items in read:
        events = [item for item in items if isinstance(item, Event)]
        assert [(event.epoch, event.offset) for event in events] == [(receipt.epoch, receipt.offset) for receipt in receipts]


def test_its_cursor_goes_on_where_the_last_item_was(publisher: Publisher, subscriber: MakeSubscriber) -> None:
    """Also in the middle of a page, and past events of other topics."""
    receipts = publisher.publish_many([("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)])
    reading = subscriber("a", since="oldest")
    assert reading.cursor is None

    assert [next(reading), next(reading)] == list(subscriber("a", since=0))[:2]

    assert reading.cursor == f"{receipts[1].epoch}:2"
    assert brief(subscriber("#", since=reading.cursor)) == [3, 4, 5]
    assert brief(reading) == [4]
    assert reading.cursor == f"{receipts[1].epoch}:5"
    assert brief(subscriber("#", since=reading.cursor)) == []
    publisher.publish("a", 6)
    assert brief(reading) == [6]
    position = publisher.position()
    publisher.publish("a", 7)
    assert brief(subscriber("#", since=position)) == [7]


def test_it_begins_with_what_is_published_from_now_on(publisher: Publisher, subscriber: MakeSubscriber) -> None:
    """From `with` on, in a present log and in a later one; or from a time on."""
    with subscriber("a") as before_the_first:
        publisher.publish("a", 1)
        with subscriber("a") as later:
            publisher.publish("a", 2)
            assert brief(later) == [2]
        assert brief(before_the_first) == [1, 2]
    now = datetime.now(UTC)
    assert brief(subscriber("a", since=now - timedelta(hours=1))) == [1, 2]
    assert brief(subscriber("a", since=now + timedelta(hours=1))) == []


def test_it_waits_for_the_next_event_and_asks_once(redis_url: str, publisher: Publisher, redis_client: Client) -> None:
    """One blocking read is under way, and the event ends it; the wait ends by itself where it has an end."""
    publisher.publish("a", 1)

    def waiting() -> bool:
        return b" cmd=xread " in call(redis_client, "CLIENT", "LIST")

    with Subscriber(redis_url, "a") as endless, ThreadPoolExecutor(1) as pool:
        item = pool.submit(next, endless)
        wait_until(waiting, "the subscriber waits")
        publisher.publish("b", 2)
        publisher.publish("a", 3)
        assert brief(iter([item.result(DEADLINE_S)])) == [3]
        ended = pool.submit(lambda: next(endless, None))
        wait_until(waiting, "it waits again")
        endless.close()
        assert ended.result(DEADLINE_S) is None
    assert brief(Subscriber(redis_url, "a", wait_s=0.05)) == []


def test_what_the_log_no_longer_holds_is_a_gap(publisher: Publisher, subscriber: MakeSubscriber, redis_client: Client) -> None:
    """Trimmed at its beginning, deleted in the middle or at its end; and an entry that cannot be delivered."""
    publisher.publish_many([("a", n) for n in range(1, 9)])
    call(redis_client, "FCALL", "headgate_append", 1, KEY, "a", b"no JSON", "bad")
    publisher.publish("a", 10)
    cursor = f"{next(iter(subscriber('a', since='oldest'))).epoch}:1"
    call(redis_client, "XTRIM", KEY, "MINID", "4")
    call(redis_client, "XDEL", KEY, "6-0", "10-0")

    expected = [4, 5, ("trimmed", 6, 6), 7, 8, ("quarantined", 9, 9), ("trimmed", 10, 10)]

    assert brief(subscriber("a", since=cursor)) == [("trimmed", 2, 3), *expected]
    assert brief(subscriber("a", since=0)) == [("trimmed", 1, 3), *expected]
    assert brief(subscriber("a", since="oldest")) == expected


def test_a_log_that_has_lost_its_end_rolls_back(publisher: Publisher, subscriber: MakeSubscriber, redis_client: Client) -> None:
    """A gap says which events are gone, and the new ones at the same offsets follow; the same for a stored cursor."""
    publisher.publish_many([("a", n) for n in range(1, 4)])
    saved = [(key, call(redis_client, "DUMP", key)) for key in (KEY, HEAD, EPOCHS)]
    publisher.publish_many([("a", n) for n in range(4, 7)])
    reading = subscriber("a", since="oldest")
    assert brief(reading) == [1, 2, 3, 4, 5, 6]
    cursor = reading.cursor

    for key, value in saved:
        call(redis_client, "RESTORE", key, 0, value, "REPLACE")
    call(redis_client, "FUNCTION", "LOAD", "REPLACE", SOURCE)  # another process, which remembers nothing
    assert brief(subscriber("a", since=cursor)) == [("rolled_back", 4, 6)]
    publisher.publish("a", "other")

    assert brief(reading) == [("rolled_back", 4, 6), "other"]
    assert brief(subscriber("a", since=cursor)) == [("rolled_back", 4, 6), "other"]
    assert brief(subscriber("a", since=reading.cursor)) == []


def test_a_log_that_is_lost_begins_again(publisher: Publisher, subscriber: MakeSubscriber, redis_client: Client) -> None:
    """One gap without a range, then everything that the new log holds."""
    publisher.publish_many([("a", 1), ("a", 2)])
    reading = subscriber("a", since="oldest")
    assert brief(reading) == [1, 2]
    cursor = reading.cursor
    call(redis_client, "FLUSHALL")
    assert brief(reading) == [("log_lost", None, None)]
    assert reading.cursor is None
    receipt = publisher.publish("a", 3)

    assert brief(reading) == [3]
    assert brief(subscriber("a", since=cursor)) == [("log_lost", None, None), 3]
    assert reading.cursor == f"{receipt.epoch}:1"


def test_an_offset_that_the_log_has_not_reached_is_refused(publisher: Publisher, subscriber: MakeSubscriber) -> None:
    """With the newest that there is."""
    publisher.publish("a", 1)

    with pytest.raises(InvalidRequest, match="since: it is beyond the newest event of this log, 1"):
        next(subscriber("a", since=2))


def test_an_iteration_outlives_a_crash_of_redis(start_redis: Callable[..., EmbeddedRedis]) -> None:
    """It waits as long as it is patient, then raises; the next one goes on where it was."""
    server = start_redis("crashing")
    with Publisher(server.url, timeout_s=DEADLINE_S) as publisher:
        publisher.publish("a", 1)
        reading = Subscriber(server.url, "a", since="oldest", patience_s=DEADLINE_S)
        hasty = Subscriber(server.url, "a", since="oldest", patience_s=0)
        assert brief(iter([next(reading), next(hasty)])) == [1, 1]
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_running, "the server is gone")
        with pytest.raises(BusUnavailable):
            next(hasty)
        with ThreadPoolExecutor(1) as pool:
            item = pool.submit(next, reading)
            server.close()
            start_redis("crashing")
            publisher.publish("a", 2)
            # Unsaved events may be gone.
            later = [item.result(DEADLINE_S)]
        while brief(iter(later))[-1] != 2:
            later.append(next(reading))
        assert [gap.reason.value for gap in later if isinstance(gap, Gap)] in ([], ["rolled_back"], ["log_lost"])
        assert next(hasty) == later[0]
        for each in (reading, hasty):
            each.close()


def test_a_user_who_may_not_read_is_refused_at_once(
    redis_url: str, publisher: Publisher, redis_client: Client, redis_server: EmbeddedRedis
) -> None:
    """The rights that it needs are those of docs/operations/redis-users.md; without one of them there is no waiting for it."""
    publisher.publish("a", 1)
    keys = [f"%R~{key}" for key in (KEY, HEAD, EPOCHS)]
    rights = ["+fcall_ro", "+hget", "+hmget", "+hgetall", "+xread"]
    call(redis_client, "ACL", "SETUSER", "reader", "on", ">pass", *keys, "-@all", *rights)
    url = f"unix://reader:pass@{redis_server.url.removeprefix('unix://')}"
    with pytest.raises(BusRefused, match="permission"):
        next(Subscriber(url, "a", since="oldest"))

    call(redis_client, "ACL", "SETUSER", "reader", "+xrange")

    assert brief(Subscriber(url, "a", since="oldest", wait_s=0.01)) == [1]


def test_async_for_yields_the_same(redis_url: str, publisher: Publisher) -> None:
    """While other tasks run; a cancelled wait leaves its item to the next one, also in another loop."""
    publisher.publish("a", 1)

    async def first() -> list[Any]:
        items: list[Item] = []
        async with Subscriber(redis_url, "a", wait_s=DEADLINE_S) as reading:
            publish = asyncio.get_running_loop().run_in_executor(None, publisher.publish_many, [("a", 2), ("b", 0), ("a", 3)])
            async for item in reading:
                items.append(item)
                if len(items) == 2:
                    break
            await publish
            waiting = asyncio.create_task(anext(reading))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(publisher.publish, "a", 4)
            items.append(await anext(reading))
        assert [item async for item in reading] == []
        return brief(iter(items))

    assert event_loop.run(first()) == [2, 3, 4]

    reading = Subscriber(redis_url, "a", since="oldest", wait_s=0)

    async def rest(count: int) -> list[Item]:
        return [item async for item, _ in _numbered(reading, count)]

    assert brief(iter(event_loop.run(rest(2)))) == [1, 2]
    assert brief(iter(event_loop.run(rest(9)))) == [3, 4]


def test_a_program_ends_although_a_cancelled_call_still_waits(redis_url: str) -> None:
    """As after Ctrl-C in an `async for` without a block, the thread that waits for the next event ends with it."""
    program = f"""
import asyncio
from headgate import Subscriber

async def main():
    try:
        await asyncio.wait_for(anext(Subscriber({redis_url!r}, "a")), 0.2)
    except TimeoutError:
        print("cancelled")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=DEADLINE_S, check=True)
    assert (done.stdout, done.stderr) == (b"cancelled\n", b"")


def test_a_server_that_lacks_what_the_last_head_had_is_not_believed(
    publisher: Publisher, subscriber: MakeSubscriber, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the head and the page the address may lead to a replica that lags. Its missing events are not trimmed."""
    publisher.publish_many([("a", n) for n in range(3)])
    reading, head, of_primary = subscriber("a", since=0), EventLog.head, [3, 3]
    call(redis_client, "XDEL", KEY, "3-0")
    call(redis_client, "HSET", HEAD, "offset", 2)

    def first_of_primary(log: EventLog, *known: str | int) -> Head:
        found = head(log, *known)
        return replace(found, offset=of_primary.pop()) if of_primary else found

    monkeypatch.setattr(EventLog, "head", first_of_primary)
    assert brief(reading) == [0, 1]


async def _numbered(reading: Subscriber, count: int) -> Any:
    number = 0
    async for item in reading:
        number += 1
        yield item, number
        if number == count:
            return
