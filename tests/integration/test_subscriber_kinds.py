"""The publisher for asyncio and the subscriber with Sentinels and on a Cluster: both go on after a failover."""

import asyncio
from pathlib import Path

from headgate import AsyncPublisher, BusUnavailable, Gap, Subscriber
from headgate.services.publisher import Receipt
from tests.support import event_loop
from tests.support.clusters import start_cluster
from tests.support.redis_server import wait_until
from tests.support.sentinels import start_sentinels

NAMESPACES = ("one", "two", "three", "four")


def test_a_failover_behind_sentinels_is_followed(tmp_path: Path) -> None:
    """The primary freezes and the replica is promoted. Publishes go there, and the waiting iteration finds them there."""

    async def publish(publisher: AsyncPublisher, number: int) -> Receipt | None:
        try:
            return await publisher.publish("a", number, id=f"id-{number}")
        except BusUnavailable:
            return None

    async def main() -> None:
        async with AsyncPublisher(site.url, timeout_s=2) as publisher, Subscriber(site.url, "a", since=0) as events:
            assert await publish(publisher, 1)
            first = await anext(events)
            await asyncio.to_thread(
                wait_until, lambda: site.servers[1].call("XLEN", "hg:{notifications}:log") == 1, "the replica has the event"
            )
            site.servers[0].pause()
            waiting = asyncio.create_task(anext(events))
            while (receipt := await publish(publisher, 2)) is None:
                await asyncio.sleep(0.05)
            second = await waiting
            assert not isinstance(first, Gap)
            assert not isinstance(second, Gap)
            assert (first.offset, first.value(), second.offset, second.value()) == (1, 1, 2, 2)
            assert first.epoch != receipt.epoch == second.epoch
            site.servers[0].go_on()

    with start_sentinels(tmp_path / "site") as site:
        event_loop.run(main())


def test_a_cluster_has_logs_on_all_of_its_nodes(tmp_path: Path) -> None:
    """Each namespace is published to and read where its slot is, also by a waiting reader."""

    async def main() -> None:
        async with AsyncPublisher(site.url) as publisher:
            for namespace in NAMESPACES:
                async with Subscriber(site.url, "a.#", namespace=namespace) as events:
                    waiting = asyncio.create_task(anext(events))
                    receipts = await asyncio.gather(*(publisher.publish(f"a.{n}", n, namespace=namespace) for n in range(3)))
                    items = [await waiting, await anext(events), await anext(events)]
                assert [(item.epoch, item.offset) for item in items if not isinstance(item, Gap)] == [
                    (receipt.epoch, receipt.offset) for receipt in receipts
                ]

    with start_cluster(tmp_path / "site") as site:
        event_loop.run(main())
