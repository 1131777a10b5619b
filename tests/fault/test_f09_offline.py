"""F9: browsers are offline for a while, and come back."""

import time
from collections.abc import Callable
from contextlib import closing

from headgate.delivery.page_cache import PAGE_OFFSETS
from headgate.redis.log import PAGE_EVENTS
from tests.fault.checker import Seen
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.site import DEADLINE_S, Site, publish_burst, wait_until_had


def test_browsers_that_were_offline_get_everything_in_order(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Without a goodbye, under load; afterwards each event once, and no client that stayed has noticed."""
    stayed = start_swarm(name="stayed")
    missed = int(site.load.offline_s * site.load.per_s)
    with closing(Swarm(site.urls, 20, lambda index: ["load.#"], name="gone").open()) as gone, site.publishing() as publishing:
        publishing.wait_for(20)
        gone.leave(hard=True)
        publishing.wait_for(missed, site.load.offline_s + DEADLINE_S)
        epoch, head = site.head()
        back_s = time.monotonic()
        gone.reopen()
        wait_until_had(gone, publishing.history, epoch, head)
        history = publishing.stop()
        site.come_to_rest(stayed, history)
        site.come_to_rest(gone, history)
    assert {client.sessions for client in gone.clients} == {2}
    took_s = max(next(e.at_s for e in r.entries if isinstance(e, Seen) and e.offset >= head) for r in gone.records) - back_s
    figures(
        "F9",
        f"20 browsers back with {missed:,} events each missed: until the last browser had the last event",
        took_s,
        "s",
        "≤ 1 s",
    )


def test_everybody_at_once_comes_back_at_the_cost_of_few_reads(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """All clients were cut off and come back together, while Redis serves pages, not clients."""
    swarm = start_swarm()
    with site.publishing() as publishing:
        publishing.wait_for(20)
        left = site.head()[1]
        swarm.leave(hard=True)
        publish_burst(site.redis.url, publishing.history, 1500, site.load.payload_bytes)
        history = publishing.stop()
    site.redis.call("CONFIG", "RESETSTAT")
    epoch, head = site.head()
    back_s = time.monotonic()
    swarm.reopen()
    wait_until_had(swarm, history, epoch, head, 60)
    took_s = time.monotonic() - back_s
    # A page is an XRANGE and an HGET in one round trip; the fences' functions call XRANGE too.
    reads = site.redis.call("INFO", "commandstats")["cmdstat_hget"]["calls"]
    site.come_to_rest(swarm, history)
    # For each gateway: the events in pages (the load's own are more, the longer the burst takes), the last one again for a
    # client that looks after it, and once what its listener missed if its connection broke (a separate page is larger).
    missed = head - left + 100
    assert reads <= len(site.gateways) * (missed / PAGE_OFFSETS + 10 + missed / PAGE_EVENTS)
    figures(
        "F9",
        f"{site.load.clients:,} clients back at once, 1,500 events missed: until the last client had its last event",
        took_s,
        "s",
        "≤ 10 s",
    )
    figures("F9", "reads of Redis for that", reads, "", "tens")
