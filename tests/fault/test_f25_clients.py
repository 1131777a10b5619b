"""F25, with gateways and browsers: the machine of Redis crashes, and its file lacks the newest events."""

import time
from collections.abc import Callable
from contextlib import closing

from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import Site, publish_burst, wait_for, wait_until_had


def test_every_client_is_told_what_it_saw_that_is_lost_and_gets_what_came_in_its_place(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Publishers have overtaken the old offsets before a gateway looks."""
    swarm = start_swarm()
    with site.publishing() as publishing:
        publishing.wait_for(50)
        kept = site.redis.moment()
        publishing.wait_for(50)
        site.wait_until_known(site.head()[1])
        for proxy in site.proxies:
            proxy.pause()
        site.redis.crash(kept)
        site.redis.start()
        publish_burst(site.redis.url, publishing.history, 300, 1024)
        publishing.wait_for(10)
        for proxy in site.proxies:
            proxy.heal()
        healed_s = time.monotonic()
        wait_for(lambda: all(record.gaps("rolled_back") for record in swarm.records), "every client to be told")
        history = publishing.stop()
    site.wait_until_ready()
    site.come_to_rest(swarm, history)
    told = [record.gaps("rolled_back") for record in swarm.records]
    assert {len(gaps) for gaps in told} == {1}
    assert not any(gap.recoverable for gaps in told for gap in gaps)
    assert not any(record.gaps("log_lost", "trimmed", "upstream") for record in swarm.records)
    assert not disconnects(swarm)
    figures("F25", "end of the log lost: last client told", max(gaps[0].at_s for gaps in told) - healed_s, "s", "≤ 3 s")


def test_browsers_that_were_offline_meanwhile_are_told_the_same(site: Site, start_swarm: Callable[..., Swarm]) -> None:
    """They resume from offsets that other events have now; those that left before the loss have lost nothing."""
    stayed = start_swarm(name="stayed")
    early, late = (Swarm(site.urls, 20, lambda index: ["load.#"], name=name).open() for name in ("early", "late"))
    with closing(early), closing(late), site.publishing() as publishing:
        publishing.wait_for(20)
        early.leave(hard=True)
        publishing.wait_for(20)
        kept = site.redis.moment()
        publishing.wait_for(50)
        wait_until_had(late, publishing.history, *site.head())
        late.leave(hard=True)
        site.redis.crash(kept)
        site.redis.start()
        publish_burst(site.redis.url, publishing.history, 300, 1024)
        site.wait_until_ready()
        early.reopen()
        late.reopen()
        wait_until_had(late, publishing.history, *site.head())
        history = publishing.stop()
        for swarm in (stayed, early, late):
            site.come_to_rest(swarm, history)
    assert {len(record.gaps()) for record in early.records} == {0}
    assert {tuple(gap.reason for gap in record.gaps()) for record in late.records} == {("rolled_back",)}
