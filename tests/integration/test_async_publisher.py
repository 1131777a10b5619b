"""The publisher for asyncio against a real Redis: its additions to the contract of both publishers (tests/contract)."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headgate import AsyncPublisher, BusUnavailable, InvalidRequest, LimitReached, NotDurable, PublisherClosed, SchemaViolation
from headgate.redis import budget
from headgate.redis.client import Client, call
from headgate.redis.embedded import EmbeddedRedis
from headgate.services.async_publisher import MAX_CALLS, MAX_ROUND_EVENTS
from headgate.services.publisher import Receipt
from tests.support import event_loop
from tests.support.raw_log import read_log
from tests.support.redis_server import DEADLINE_S

T = TypeVar("T")


def calls(client: Client, function: str) -> int:
    """How often a function of the log was called, by any name of a command that counts calls."""
    return int(call(client, "INFO", "commandstats")[f"cmdstat_{function}"]["calls"])


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function in a separate loop, within a deadline."""

    async def within() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await main()

    return event_loop.run(within())


def test_publishes_of_one_turn_share_a_round_trip(redis_url: str, redis_client: Client) -> None:
    """Two hundred of them are two calls of Redis; their order is that of the calls."""

    async def main() -> list[Receipt]:
        async with AsyncPublisher(redis_url) as publisher:
            await publisher.publish("a", -1)
            call(redis_client, "CONFIG", "RESETSTAT")
            return await asyncio.gather(*(publisher.publish("a", number) for number in range(200)))

    receipts = run(main)

    assert [receipt.offset for receipt in receipts] == list(range(2, 202))
    assert [int(data) for *_, data in read_log(redis_client)] == list(range(-1, 200))
    assert calls(redis_client, "fcall") == 2


def test_the_loop_goes_on_while_redis_stands_still(redis_url: str, redis_server: EmbeddedRedis) -> None:
    """Other tasks have a thousand turns while a publish and a batch wait for a stopped Redis."""

    async def main() -> tuple[int, int]:
        async with AsyncPublisher(redis_url, timeout_s=DEADLINE_S) as publisher:
            await publisher.publish("a", 0)
            os.kill(redis_server.pid, signal.SIGSTOP)
            try:
                one = asyncio.create_task(publisher.publish("a", 1))
                many = asyncio.create_task(publisher.publish_many([("a", 2)]))
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert not one.done()
                assert not many.done()
            finally:
                os.kill(redis_server.pid, signal.SIGCONT)
            return (await one).offset, (await many)[0].offset

    assert sorted(run(main)) == [2, 3]


def test_what_waits_behind_a_silent_redis_fails_with_it(
    redis_url: str, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand gets the error of the one round trip; later ones fail at once, also while one of them probes Redis."""
    monkeypatch.setattr(budget, "OPEN_S", 0.0)

    async def main() -> list[Any]:
        async with AsyncPublisher(redis_url, timeout_s=0.3) as publisher:
            while True:
                try:
                    await publisher.publish("a", 0)
                    break
                except BusUnavailable:
                    continue  # that time is not long on a busy machine
            os.kill(redis_server.pid, signal.SIGSTOP)
            try:
                outcomes = await asyncio.gather(
                    *(publisher.publish("a", number) for number in range(1000)), return_exceptions=True
                )
                probe = asyncio.create_task(publisher.publish("a", 1))
                await asyncio.sleep(0)
                with pytest.raises(BusUnavailable, match="nothing was sent"):
                    await publisher.publish("a", 2)
                assert not probe.done()
                with pytest.raises(BusUnavailable, match="in time"):
                    await probe
            finally:
                os.kill(redis_server.pid, signal.SIGCONT)
            assert (publisher.queue.events, publisher.queue.bytes, publisher.queue.most_events) == (0, 0, 1000)
            return outcomes

    outcomes = run(main)

    assert len(outcomes) == 1000
    assert {type(outcome) for outcome in outcomes} == {BusUnavailable}


def test_what_waits_is_bounded_by_a_named_limit(redis_url: str, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events, their bytes, and other calls. Those beyond the bound are refused and counted, and the others are published."""
    monkeypatch.setattr("headgate.services.async_publisher.MAX_WAITING_EVENTS", 3)

    async def main() -> list[Any]:
        async with AsyncPublisher(redis_url) as publisher:
            outcomes = await asyncio.gather(*(publisher.publish("a", number) for number in range(5)), return_exceptions=True)
            assert publisher.queue.refused == 2
            monkeypatch.setattr("headgate.services.async_publisher.MAX_WAITING_BYTES", 10)
            with pytest.raises(LimitReached, match="publish_queue_bytes"):
                await publisher.publish("a", "x" * 20)
            first = outcomes[0]
            assert isinstance(first, Receipt)
            checks = await asyncio.gather(*(publisher.check(first) for _ in range(MAX_CALLS + 1)), return_exceptions=True)
            assert sum(isinstance(each, LimitReached) for each in checks) == 1
            return outcomes

    *published, fourth, fifth = run(main)

    assert [receipt.offset for receipt in published] == [1, 2, 3]
    assert fourth.parts == fifth.parts == {"name": "publish_queue_events", "limit": 3}
    assert len(read_log(redis_client)) == 3


def test_a_publish_that_is_cancelled_before_it_is_sent_sends_nothing(redis_url: str, redis_client: Client) -> None:
    """The others of its turn are published, and nothing of it stays in the queue."""

    async def main() -> None:
        async with AsyncPublisher(redis_url) as publisher:
            await publisher.publish("a", 0)
            tasks = [asyncio.create_task(publisher.publish("a", number)) for number in (1, 2, 3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(outcomes[1], asyncio.CancelledError)
            assert publisher.queue.events == 0

    run(main)

    assert [data for *_, data in read_log(redis_client)] == [b"0", b"1", b"3"]


def test_closing_waits_for_what_is_under_way_and_refuses_the_rest(redis_url: str, redis_client: Client) -> None:
    """Each publish that began before `close` has its receipt; one that begins after it has one clear error; so does a batch."""

    async def main() -> list[int]:
        publisher = AsyncPublisher(redis_url)
        await publisher.publish("a", 0)
        tasks = [asyncio.create_task(publisher.publish("a", number)) for number in range(1, 500)]
        await asyncio.sleep(0)
        await publisher.close()
        await publisher.close()
        for late in (publisher.publish("a", "late"), publisher.publish_many([("a", "late")])):
            with pytest.raises(PublisherClosed, match="it was closed"):
                await late
        assert all(task.done() for task in tasks)
        return [task.result().offset for task in tasks]

    assert run(main) == list(range(2, 501))
    assert len(read_log(redis_client)) == 500


def test_a_close_that_is_cancelled_ends_later(redis_url: str, redis_client: Client) -> None:
    """Present calls still get their receipts, in several round trips, and nothing more is taken."""

    async def main() -> list[int]:
        publisher = AsyncPublisher(redis_url, timeout_s=DEADLINE_S)
        await publisher.publish("a", 0)
        call(redis_client, "CLIENT", "PAUSE", 600_000, "WRITE")
        tasks = [asyncio.create_task(publisher.publish("a", number)) for number in range(MAX_ROUND_EVENTS + 1)]
        for _ in range(3):
            await asyncio.sleep(0)
        closing = asyncio.create_task(publisher.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(PublisherClosed):
            await publisher.publish("a", "late")
        await asyncio.to_thread(call, redis_client, "CLIENT", "UNPAUSE")
        receipts = await asyncio.gather(*tasks)
        await publisher.close()
        return [receipt.offset for receipt in receipts]

    assert run(main) == list(range(2, MAX_ROUND_EVENTS + 3))


def test_another_loop_is_refused(redis_url: str) -> None:
    """For a publisher made for every request of another framework, say, the error names the cause, and closing works."""
    publisher = AsyncPublisher(redis_url)
    run(lambda: publisher.publish("a", 1))

    with pytest.raises(PublisherClosed, match="another event loop"):
        run(lambda: publisher.publish("a", 2))

    run(publisher.close)


def test_wrong_arguments_are_refused_at_its_begin_and_tried_again(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `Publisher`; the next call finds a Redis with a later name."""
    monkeypatch.setenv("HEADGATE_REDIS_URL", "")
    monkeypatch.setenv("HEADGATE_DATA_DIR", "/nowhere")

    async def main() -> int:
        publisher = AsyncPublisher()
        with pytest.raises(BusUnavailable, match="no Redis"):
            await publisher.publish("a", 1)
        monkeypatch.setenv("HEADGATE_REDIS_URL", redis_url)
        async with publisher:
            return (await publisher.publish("a", 1)).offset

    assert run(main) == 1


def test_a_start_that_failed_for_a_cancelled_call_is_not_the_error_of_the_next(redis_url: str) -> None:
    """A time limit of the application ends the first call; the failure comes after it."""
    failed = threading.Event()
    starts: list[int] = []

    class Patterns:
        def __iter__(self) -> Iterator[str]:
            starts.append(1)
            if len(starts) == 1:
                failed.wait(DEADLINE_S)
                raise BusUnavailable("not yet")
            return iter(())

    async def main() -> int:
        publisher = AsyncPublisher(redis_url, show_by=Patterns(), timeout_s=DEADLINE_S)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(publisher.publish("a", 0), 0.05)
        failed.set()
        await asyncio.sleep(0.05)
        async with publisher:
            return (await publisher.publish("a", 1)).offset

    assert run(main) == 1


def test_durability_is_asked_for_by_those_who_want_it(redis_url: str) -> None:
    """On a server without replicas the event is published, and its error has the receipt. A wrong wish is refused at once."""

    async def main() -> tuple[Receipt, NotDurable]:
        async with AsyncPublisher(redis_url, timeout_s=0.5) as publisher:
            with pytest.raises(InvalidRequest, match="durable"):
                await publisher.publish("a", 0, durable="twice")  # type: ignore[arg-type]
            plain, wanted = await asyncio.gather(
                publisher.publish("a", 1), publisher.publish("a", 2, durable="replica"), return_exceptions=True
            )
            assert isinstance(plain, Receipt)
            assert isinstance(wanted, NotDurable)
            return plain, wanted

    plain, wanted = run(main)

    assert plain.replicas is None
    assert wanted.receipt.replicas == 0


def test_a_refused_event_keeps_no_other_of_its_round_out(redis_url: str, redis_client: Client, tmp_path: Path) -> None:
    """Whether its data breaks a schema, or it is above the limit of the namespace, which is lower than the publisher's."""
    (tmp_path / "a.json").write_text('{"type": "integer"}')

    async def main() -> list[Any]:
        async with AsyncPublisher(redis_url, schemas=str(tmp_path), schema_check="refuse") as publisher:
            await publisher.publish("a", 0)
            call(redis_client, "FCALL", "headgate_configure", 1, "hg:{notifications}:log", 100, 60000, 10)
            return await asyncio.gather(*(publisher.publish("a", data) for data in (1, "x", 10**11, 2)), return_exceptions=True)

    first, broken, too_large, last = run(main)

    assert (first.offset, last.offset) == (2, 3)
    assert isinstance(broken, SchemaViolation)
    assert too_large.parts == {"size": 12, "limit": 10, "where": "bus"}
    assert [data for *_, data in read_log(redis_client)] == [b"0", b"1", b"2"]


def test_a_publish_that_no_thread_can_send_raises(redis_url: str) -> None:
    """Python starts none for an executor once the main thread has ended, as in a function of atexit."""
    code = (
        "import asyncio, atexit, sys\nfrom headgate import AsyncPublisher, BusUnavailable\n"
        "loop, publisher = asyncio.new_event_loop(), AsyncPublisher(sys.argv[1])\n"
        "loop.run_until_complete(publisher.publish('a', 1))\n"
        "def late():\n"
        "    for call in (publisher.publish('a', 2), publisher.position()):\n"
        "        try:\n            loop.run_until_complete(call)\n"
        "        except BusUnavailable as error:\n            print(error)\n"
        "    loop.run_until_complete(publisher.close())\n"
        "atexit.register(late)"
    )

    said = subprocess.run(
        [sys.executable, "-c", code, redis_url], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    ).stdout

    assert len(said.splitlines()) == 2
    assert said.count("use Publisher where the program ends") == 2
