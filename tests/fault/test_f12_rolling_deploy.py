"""F12: gateways are replaced one after the other, and the workers of one by a reload, under load."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import quantiles

from headgate.redis.client import open_client
from headgate.redis.loads import request
from tests.fault.checker import Noted, Record, Welcomed
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm, all_up
from tests.fault.site import DEADLINE_S, TOPICS, Load, Site, wait_for
from tests.fault.test_f11_gateway_killed import BACK_WITHIN_S, are_elsewhere
from tests.support.gateway_process import GatewayProcess

WORKERS = 2
# As many as an otherwise idle machine can play beside the gateway.
CLIENTS = int(os.environ.get("HEADGATE_RELOAD_CLIENTS", "5000"))


@ONLY_NIGHTLY
def test_clients_move_to_the_next_gateway_and_miss_nothing(tmp_path: Path, load: Load, figures: Figures) -> None:
    """Each gateway notifies its clients, is not ready from then on, lets them go spread out, ends, and comes back."""
    within_s = 10.0
    took_s = []
    with Site(tmp_path, load, drain_s=within_s, publish_per_s=20) as site:
        site.wait_until_ready()
        with closing(site.swarm()) as swarm:
            swarm.open()
            swarm.roam()
            with site.publishing() as publishing:
                publishing.wait_for(20)
                for gateway in site.gateways:
                    port = int(gateway.url.rpartition(":")[2])
                    began_s = time.monotonic()
                    gateway.ask_to_stop()
                    gateway.wait_for_line("moving .* client")
                    assert is_out(site, gateway)
                    assert gateway.wait_until_ended(within_s + DEADLINE_S) == 0
                    swarm.wait(partial(are_elsewhere, swarm.clients, port), "all to be at another gateway", BACK_WITHIN_S)
                    took_s.append(time.monotonic() - began_s)
                    gateway.start()
                balanced_s = balanced_after_s(site, swarm)
                history = publishing.stop()
            site.come_to_rest(swarm, history)
    told = [sum(entry == Noted(entry.at_s, "moving") for entry in record.entries) for record in swarm.records]
    assert min(told) >= 1
    goal = "≤ 15 s"
    figures("F12", f"{load.clients:,} clients, one gateway of two drained: until all were elsewhere", max(took_s), "s", goal)
    figures("F12", f"{load.clients:,} clients, balanced again by `headgate rebalance`", balanced_s, "s", "≤ 60 s")


def balanced_after_s(site: Site, swarm: Swarm) -> float:
    """Ask for a balance; return the seconds until it is there."""
    ports = [int(gateway.url.rpartition(":")[2]) for gateway in site.gateways]

    def is_balanced() -> bool:
        counts = [sum(client.up and client.address[1] == port for client in swarm.clients) for port in ports]
        return sum(counts) == len(swarm.clients) and max(counts) - min(counts) <= 0.1 * sum(counts) + 8

    client = open_client(site.redis.url)
    request(client, 100)
    client.close()
    return swarm.wait(is_balanced, "the gateways to have as many clients")


def test_nobody_notices_a_reload(tmp_path: Path, load: Load, figures: Figures) -> None:
    """New workers listen before the old ones stop; each client moves in its turn, comes back at once, and misses nothing."""
    is_short = load.name == "short"
    load = replace(load, gateways=1) if is_short else replace(load, gateways=1, clients=CLIENTS, per_s=100, payload_bytes=256)
    # An event for ten of them, because one process plays all browsers, and is not to be the one that makes them wait.
    topics = TOPICS if is_short else load.clients // 10
    with Site(tmp_path, load, serve=("--workers", str(WORKERS)), drain_s=1.0 if is_short else 20.0) as site:
        [gateway] = site.gateways
        site.wait_until_ready()
        with closing(Swarm(site.urls, load.clients, lambda client: [f"load.t{client % topics}.changed"])) as swarm:
            swarm.open()
            swarm.roam()
            with site.publishing(topics=topics) as publishing:
                publishing.wait_for(20)
                for _ in range(1 if is_short else 3):
                    before = workers(site)
                    os.kill(gateway.pid, signal.SIGHUP)
                    wait_for(lambda before=before: is_replaced(site, before), "other workers in the place of these")
                    swarm.wait(partial(all_up, swarm.clients), "all to be back")
                history = publishing.stop()
            site.come_to_rest(swarm, history)
    assert min(sum(isinstance(entry, Welcomed) for entry in record.entries) for record in swarm.records) >= 2
    away_s = sorted(absences_s(swarm.records))
    what = f"{load.clients:,} clients, {load.per_s:g} events/s, {1 if is_short else 3} reloads of {WORKERS} workers"
    percentiles = quantiles(away_s, n=100)
    figures("F12", f"{what}: without a connection, median", percentiles[49], "s", "≤ 0.3 s, 0 lost (checked)")
    figures("F12", f"{what}: without a connection, p99", percentiles[98], "s", "≤ 1 s")
    figures("F12", f"{what}: without a connection, at most", away_s[-1], "s", "")


def workers(site: Site) -> set[int]:
    """Return the process ids of the workers that live, if all of them serve; none otherwise."""
    named = site.health(site.gateways[0])[1].get("workers", [])
    return {each["process"] for each in named} if {each["state"] for each in named} == {"serving"} else set()


def is_replaced(site: Site, before: set[int]) -> bool:
    """Whether as many others serve, and none of these lives."""
    now = workers(site)
    return len(now) == len(before) and not now & before


def absences_s(records: Iterable[Record]) -> list[float]:
    """Return, for each time that a client lost its connection, the seconds until it was welcomed again."""
    found = []
    for record in records:
        lost_s = None
        for entry in record.entries:
            if isinstance(entry, Noted) and entry.what == "closed":
                lost_s = entry.at_s if lost_s is None else lost_s
            elif isinstance(entry, Welcomed) and lost_s is not None:
                found.append(entry.at_s - lost_s)
                lost_s = None
    return found


def is_out(site: Site, gateway: GatewayProcess) -> bool:
    """Whether readiness says that no new client is to be sent there, or does not answer there any more."""
    try:
        return site.health(gateway)[0] == 503
    except OSError:
        gateway.wait_until_ended()
        return True
