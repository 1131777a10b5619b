"""F5: a gateway and its Redis cannot reach each other, in every way in which that shows, or does not show."""

import time
from collections.abc import Callable, Sequence

import pytest

from headgate.redis.client import call, open_client
from tests.fault.figures import Figures
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.sightings import disconnects, first_noted, since
from tests.fault.site import DEADLINE_S, Site, wait_for, wait_until_had
from tests.fault.until_stopped import UntilStopped

# A feed is given up when two fences in a row, a second apart, have no answer.
LATE_S = 0.5


def black_hole(site: Site) -> None:
    """Everything is swallowed, and connections that were open stay dead."""
    site.proxies[0].black_hole()


def half_open(site: Site) -> None:
    """The network swallows the replies of Redis, and lets commands through."""
    site.proxies[0].half_open()


def refused(site: Site) -> None:
    """Every connection is reset, and every new one."""
    site.proxies[0].refuse()


def partition(site: Site) -> None:
    """Nothing passes, and TCP keeps everything until it can."""
    site.proxies[0].pause()


def stopped(site: Site) -> None:
    """Redis is stopped (SIGSTOP), and its kernel goes on acknowledging."""
    site.redis.pause()


@pytest.mark.parametrize("fault", [black_hole, half_open, refused, partition, stopped], ids=lambda fault: fault.__name__)
def test_a_partition_is_noticed_and_healed_without_loss(
    fault: Callable[[Site], None], site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Clients are notified, stay connected, and get everything in order when it is over; the other gateway's get it at once."""
    swarm, others_redis = start_swarm(), LongestAnswer(site.proxies[-1].port)
    affected = swarm.clients[:: len(site.gateways)] if fault is not stopped else swarm.clients
    others = [client for client in swarm.clients if client not in affected]
    with others_redis, site.publishing() as publishing:
        publishing.wait_for(20)
        broken_s = time.monotonic()
        site.wait_until_ready()  # a down client cannot be notified of that
        fault(site)
        try:
            swarm.wait(lambda: all(first_noted(client.record, "bus down", broken_s) for client in affected), "clients to be told")
            wait_for(lambda: not site.ready(site.gateways[0]), "readiness to say so")
            noticed_s = time.monotonic()
            if others:
                wait_for_events_after(swarm, others, site.head()[1])
            time.sleep(max(0.0, noticed_s + site.load.offline_s - time.monotonic()))  # the length of the fault
        finally:
            healed_s = time.monotonic()
            site.proxies[0].heal()
            site.redis.go_on()
        epoch, missed = site.head()
        swarm.wait(
            lambda: all(first_noted(client.record, "bus up", healed_s) for client in affected),
            "clients to be told that it is over",
        )
        wait_until_had(swarm, publishing.history, epoch, missed)
        healed_within_s = time.monotonic() - healed_s
        history = publishing.stop()
    site.come_to_rest(swarm, history)
    assert not disconnects(swarm)
    if others_redis.took_s < LATE_S:  # on a machine that stutters for seconds the other gateway's fence can be late, too
        assert not any(first_noted(client.record, "bus down", broken_s) for client in others)
    name = fault.__name__.replace("_", " ")
    told_s = max(since(client.record, "bus down", broken_s) for client in affected)
    figures("F5", f"{name}: last client told that the bus is down", told_s, "s", "≤ 3 s")
    figures("F5", f"{name}, {site.load.offline_s:g} s: healed until every client had everything", healed_within_s, "s", "≤ 2 s")


class LongestAnswer(UntilStopped):
    """Asks Redis through a proxy ten times a second, until the end of the block. `took_s`: how long the slowest answer took."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._url = f"redis://127.0.0.1:{port}"
        self.took_s = 0.0

    def _work(self) -> None:
        with open_client(self._url, timeout_s=DEADLINE_S) as client:
            for _ in self._turns(0.1):
                asked_s = time.monotonic()
                call(client, "PING")
                self.took_s = max(self.took_s, time.monotonic() - asked_s)


def wait_for_events_after(swarm: Swarm, clients: Sequence[BrowserClient], offset: int) -> None:
    """Wait until each of these clients has an event that was published after an offset."""
    swarm.wait(lambda: all(client.offset > offset for client in clients), "the other gateway's clients to get events meanwhile")
