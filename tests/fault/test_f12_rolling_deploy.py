"""F12: gateways are replaced one after the other, under load."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tests.fault.checker import Noted
from tests.fault.figures import Figures
from tests.fault.site import DEADLINE_S, Load, Site
from tests.fault.test_f11_gateway_killed import BACK_WITHIN_S, are_elsewhere
from tests.support.gateway_process import GatewayProcess


def test_clients_move_to_the_next_gateway_and_miss_nothing(tmp_path: Path, load: Load, figures: Figures) -> None:
    """Each gateway tells its clients, is not ready from then on, lets them go spread out, ends, and comes back."""
    within_s = 1.0 if load.name == "short" else 10.0
    took_s = []
    with Site(tmp_path, load, drain_s=within_s, publish_per_s=20, publish_burst=40) as site:
        site.wait_until_ready()
        swarm = site.swarm()
        try:
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
                history = publishing.stop()
            site.come_to_rest(swarm, history)
        finally:
            swarm.close()
    told = [sum(entry == Noted(entry.at_s, "moving") for entry in record.entries) for record in swarm.records]
    assert min(told) >= 1
    goal = "≤ 15 s"
    figures("F12", f"{load.clients:,} clients, one gateway of two drained: until all were elsewhere", max(took_s), "s", goal)


def is_out(site: Site, gateway: GatewayProcess) -> bool:
    """Whether readiness says that nobody new is to be sent there, or nobody says anything there any more."""
    try:
        return site.health(gateway)[0] == 503
    except OSError:
        gateway.wait_until_ended()
        return True
