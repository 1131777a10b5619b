"""F11: a gateway is killed under load; its clients move to another."""

import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.fault.checker import Welcomed
from tests.fault.figures import Figures
from tests.fault.many_clients import BrowserClient
from tests.fault.site import Load, Site

# A client that was unlucky some times waits for up to 20 s.
BACK_WITHIN_S = 60.0


def test_clients_of_a_killed_gateway_come_back_at_another_and_miss_nothing(tmp_path: Path, load: Load, figures: Figures) -> None:
    """`kill -9`, again and again, one gateway and then the other; every client has every event once."""
    back_s: list[float] = []
    with Site(tmp_path, load, publish_per_s=20) as site:
        site.wait_until_ready()
        with closing(site.swarm()) as swarm:
            swarm.open()
            swarm.roam()
            with site.publishing() as publishing:
                for round_number in range(1 if load.name == "short" else 20):
                    publishing.wait_for(20 * (round_number + 1))
                    gateway = site.gateways[round_number % len(site.gateways)]
                    port = int(gateway.url.rpartition(":")[2])
                    hit = [client for client in swarm.clients if client.address[1] == port]
                    killed_s = time.monotonic()
                    gateway.kill()
                    swarm.wait(partial(are_elsewhere, hit, port), "all to be back", BACK_WITHIN_S)
                    for client in hit:
                        welcomes = [entry.at_s for entry in client.record.entries if isinstance(entry, Welcomed)]
                        back_s.append(welcomes[-1] - killed_s)
                    gateway.start()
                history = publishing.stop()
            site.come_to_rest(swarm, history)
    back_s.sort()
    figures("F11", "gateway killed: 95 % of its clients back at another", back_s[int(len(back_s) * 0.95) - 1], "s", "≤ 3 s")
    figures("F11", "gateway killed: the last of its clients back at another", back_s[-1], "s", "≤ 10 s")


def are_elsewhere(clients: Iterable[BrowserClient], port: int) -> bool:
    """Whether all of them are connected, and not there."""
    return all(client.up and client.address[1] != port for client in clients)
