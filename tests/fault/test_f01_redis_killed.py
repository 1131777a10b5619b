"""F1: Redis is killed and comes back with its data."""

import time
from collections.abc import Callable

from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects, since, told_by_all
from tests.fault.site import Site, wait_for


def test_a_killed_redis_costs_no_event_and_no_connection(site: Site, start_swarm: Callable[..., Swarm], figures: Figures) -> None:
    """Readiness says 503, publishers get errors, sockets stay up, and everything comes once Redis is back."""
    swarm = start_swarm()
    with site.publishing() as publishing:
        publishing.wait_for(50)
        killed_s = time.monotonic()
        site.wait_until_ready()  # a down client cannot be notified of that
        site.redis.kill()
        for gateway in site.gateways:
            wait_for(lambda gateway=gateway: not site.ready(gateway), "readiness to say 503")
        detected_s = time.monotonic() - killed_s
        wait_for(lambda: publishing.refused, "publishers to get errors")
        started_s = time.monotonic()  # a gateway may find it there before we do
        site.redis.start()
        answered_s = time.monotonic()
        publishing.wait_for(50)
        swarm.wait(lambda: told_by_all(swarm, "bus up", started_s), "every client to be told that the bus is up")
        history = publishing.stop()
    site.wait_until_ready()
    site.come_to_rest(swarm, history)
    told_down_s = max(since(record, "bus down", killed_s) for record in swarm.records)
    told_up_s = max(0.0, *(started_s + since(record, "bus up", started_s) - answered_s for record in swarm.records))
    assert not disconnects(swarm)
    figures("F1", "readiness 503 after the kill, both gateways", detected_s, "s", "≤ 2 s")
    figures("F1", "last client told that the bus is down", told_down_s, "s", "≤ 2 s")
    figures("F1", "last client told that it is up, after Redis answers", told_up_s, "s", "≤ 1 s")
    figures("F1", "clients disconnected", len(disconnects(swarm)), "", "0")
