"""F37: the machine of Redis is reverted to a snapshot with its memory, so that the process goes on from an earlier moment.

The memory of the function library is reverted together with the data, so Redis cannot detect it. Publishers report their newest
receipts, and gateways the newest offset that they know.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from headgate.redis.lineage import Fate
from headgate.services.publisher import Publisher, Receipt
from tests.fault.figures import Figures
from tests.fault.machine_snapshot import RevertibleRedis
from tests.fault.many_clients import Swarm
from tests.fault.site import NAMESPACE, Load, Site, publish_burst, wait_for, wait_until_had

REVERTS = {"short": 2, "full": 20}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RevertibleRedis]:
    """A server that runs."""
    with RevertibleRedis(tmp_path_factory.mktemp("machine") / "redis") as server:
        yield server


@pytest.fixture(scope="module")
def site(redis: RevertibleRedis, load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Gateways in front of it."""
    small = replace(load, gateways=1, clients=min(load.clients, 20))
    with Site(tmp_path_factory.mktemp("site"), small, behind=redis) as site:
        yield site


@pytest.mark.parametrize("reporter", ["publisher", "gateway"])
def test_what_a_snapshot_takes_back_is_told_and_its_places_are_not_given_twice(
    site: Site, redis: RevertibleRedis, load: Load, figures: Figures, reporter: str
) -> None:
    """For clients that stay connected and for clients that resume. Each receipt is in the log, or `check` says that it is not.

    Either the publisher goes on, or it has ended, and others publish when a gateway has reported to Redis. The machine is
    reverted again and again, to one snapshot.
    """
    redis.call("FLUSHALL")
    site.wait_until_followed()
    stayed, late = site.swarm(name="stayed").open(), Swarm(site.urls, 4, lambda index: ["load.#"], name="late").open()
    with closing(stayed), closing(late):
        with site.publishing() as publishing:
            publishing.wait_for(20)
            wait_until_had(late, publishing.history, *site.head())
            redis.take_snapshot()
            publishing.wait_for(50)
            if reporter == "gateway":
                publishing.stop()
            wait_until_had(late, publishing.history, *site.head())
            late.leave(hard=True)
            for _ in range(REVERTS[load.name]):
                redis.revert()
                if reporter == "publisher":
                    publishing.wait_for(80)
                else:
                    wait_for(lambda: position(site) == site.head(), "the gateway to report what it has had")
                    publish_burst(redis.url, publishing.history, 80, 200)
                site.wait_until_ready()
                site.wait_until_followed()
            late.reopen()
            history = publishing.stop()
        for swarm in (stayed, late):
            site.come_to_rest(swarm, history)
        log = {(event.epoch, event.offset) for event in history.log(site.head()[0])}
        lost = [event for event in history.events.values() if (event.epoch, event.offset) not in log]
        there_still = {epoch for epoch, _ in history.lineage}
        with Publisher(redis.url) as publisher:
            for event in history.events.values():
                fate = publisher.check(Receipt(event.epoch, event.offset, duplicate=False, id=event.id))
                why_not = Fate.ROLLED_BACK if event.epoch in there_still else Fate.UNKNOWN
                assert fate is (why_not if event in lost else Fate.IN_LOG), event
        assert len(lost) >= 130
        assert {tuple(gap.reason for gap in record.gaps()) for record in late.records} == {("rolled_back",)}
    what = f"Redis reverted with its memory, reported by a {reporter}"
    figures("F37", f"{what}: events lost unreported, receipts that `check` calls wrongly", 0, "", "0 (checked)")


def position(site: Site) -> tuple[str, int]:
    """Return where the feed of the gateway stands; it was further than the log until it has asked for the head."""
    at = site.health(site.gateways[0])[1]["namespaces"][NAMESPACE]
    return at["epoch"], at["offset"]
