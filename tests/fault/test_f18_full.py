"""F18: Redis has no memory left, or its disk is full."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from tests.fault.checker import History
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import Site, publish_burst, wait_for, wait_until_had

MISSED = 300


@contextlib.contextmanager
def no_memory(site: Site) -> Iterator[None]:
    """Redis is at maxmemory, and evicts nothing."""
    site.redis.call("CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        site.redis.call("CONFIG", "SET", "maxmemory", 0)


@contextlib.contextmanager
def disk_full(site: Site) -> Iterator[None]:
    """No byte can be added to the append-only file."""
    site.redis.fill_disk()
    try:
        yield
    finally:
        site.redis.free_disk()


@pytest.mark.parametrize("full", [no_memory, disk_full], ids=["memory", "disk"])
def test_a_full_redis_refuses_honestly_and_readers_go_on(
    full: Callable[[Site], contextlib.AbstractContextManager[None]],
    site: Site,
    start_swarm: Callable[..., Swarm],
    figures: Figures,
) -> None:
    """A receipt is an event in the log, an error is none; a returning client gets its missed events, and none is cut."""
    what = full.__name__.replace("_", " ")
    swarm = start_swarm()
    gone = Swarm(site.urls, 20, lambda index: ["load.#"], name="gone").open()
    with contextlib.closing(gone), site.publishing() as publishing:
        publishing.wait_for(20)
        gone.leave(hard=True)
        publish_burst(site.redis.url, publishing.history, MISSED, site.load.payload_bytes)
        # What a gateway has not received when its feed ends comes after the fault.
        wait_until_had(swarm, publishing.history, *site.head())
        with full(site):
            wait_for(lambda: len(publishing.denied) >= 10, "publishers to be refused")
            first_s = next(iter(publishing.denied.values()))
            if full is disk_full:
                for gateway in site.gateways:  # Redis answers no PING either, so the feed cannot be proven
                    wait_for(lambda gateway=gateway: not site.ready(gateway), "readiness to say 503")
            gone.reopen()
            history = publishing.history
            epoch, offset = site.head()
            wait_until_had(gone, history, epoch, offset)
            time.sleep(max(0.0, first_s + site.load.offline_s - time.monotonic()))  # the length of the fault
            receipts_meanwhile = [at_s for at_s in publishing.receipts if at_s > first_s]
        freed_s = time.monotonic()
        publishing.wait_for(20)
        first_after_s = next(at_s for at_s in publishing.receipts if at_s > freed_s) - freed_s
        history = publishing.stop()
        site.wait_until_ready()
        site.come_to_rest(swarm, history)
        site.come_to_rest(gone, history)
    logged = History()
    site.read_log(logged)
    oldest = min(offset for _, offset in logged.events)
    false = [place for place in history.events.keys() - logged.events.keys() if place[1] >= oldest]
    assert not false
    assert not {event.id for event in logged.events.values()}.intersection(publishing.denied)
    assert not receipts_meanwhile
    assert not [line for gateway in site.gateways for line in gateway.output.splitlines() if "narrow feed refused" in line]
    assert not disconnects(swarm)
    figures("F18", f"{what}: publishes refused", len(publishing.denied), "", "all, and none of them in the log (checked)")
    figures("F18", f"{what}: false receipts", len(false), "", "0 (checked)")
    figures("F18", f"{what}: first receipt after it was freed", first_after_s, "s", "≤ 2 s")
