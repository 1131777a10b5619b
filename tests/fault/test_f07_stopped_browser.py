"""F7: browsers that stop reading and stay connected. (The short form is tests/integration/transport/test_hostile.py.)"""

import contextlib
import time
from collections.abc import Callable

import pytest

from headgate.settings.settings import Settings
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import FULL, Site, publish_burst, wait_for
from tests.fault.usage import descriptors, resident_bytes

STOPPED = 50
DEADLINE_S = Settings().write_deadline_s


@pytest.mark.parametrize(
    "load", [pytest.param(FULL, marks=[pytest.mark.nightly, pytest.mark.timeout(600)], id="full")], indirect=True
)
def test_stopped_browsers_are_closed_at_the_write_deadline_and_cost_nothing_then(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Descriptors, clients and memory are back; no other client is cut; one that reads again comes back and gets everything."""
    swarm = start_swarm()
    gateway = site.gateways[0]
    publish_burst(site.redis.url, (warmed := site.publishing()).history, 300, site.load.payload_bytes)
    site.come_to_rest(swarm, warmed.history)  # buffers and caches are as large as this load makes them
    opened, memory = len(descriptors(gateway.pid)), resident_bytes(gateway.pid)
    stopped = Swarm(site.urls[:1], STOPPED, lambda index: ["load.#"], receive_buffer_bytes=4096, name="stopped").open()
    with contextlib.closing(stopped), site.publishing(history=warmed.history) as publishing:
        publishing.wait_for(20)
        stopped.each(lambda client: client.stall())
        stalled_s = time.monotonic()
        publish_burst(site.redis.url, publishing.history, 1500, site.load.payload_bytes)
        largest = memory

        def freed() -> bool:
            nonlocal largest
            largest = max(largest, resident_bytes(gateway.pid))
            return len(descriptors(gateway.pid)) <= opened

        wait_for(freed, "their descriptors to be closed", 2 * DEADLINE_S + 10)
        closed_s = time.monotonic() - stalled_s
        wait_for(lambda: resident_bytes(gateway.pid) < memory + 2**20 * 8, "the memory to be back", 10)
        left = resident_bytes(gateway.pid) - memory
        stopped.each(lambda client: client.read_on())
        history = publishing.stop()
        site.come_to_rest(swarm, history)
        site.come_to_rest(stopped, history)
    # Without a processor for that long no client reads, and then it is right to cut them.
    assert not disconnects(swarm) or swarm.longest_pause_s > DEADLINE_S / 2
    assert len(disconnects(stopped)) == STOPPED
    figures(
        "F7", f"{STOPPED} stopped browsers: time until their descriptors were free", closed_s, "s", f"≤ {DEADLINE_S:g} + 10 s"
    )
    figures("F7", "growth of the gateway per stopped browser, at most", (largest - memory) / STOPPED / 2**20, "MiB", "≤ 1.2 MiB")
    figures("F7", "memory that is not free again afterwards, in all", max(0, left) / 2**20, "MiB", "≤ 8 MiB (checked)")
