"""F44: two faults at once: a gateway goes, stops or meets a storm while Redis fails over, moves, is cut off or is emptied.

In a round each fault of Redis meets a fault of a gateway; in as many rounds as there are of these, each meets each. After a pair
everything comes to rest, and each browser has an account. `HEADGATE_SEED` repeats the pairs, not the timing; `HEADGATE_PIECES`
says how many rounds there are.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from tests.fault.checker import History
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.figures import Figures
from tests.fault.grounds import Ground, empty, replace_functions
from tests.fault.many_clients import Swarm, all_up
from tests.fault.mixture import POLICIES
from tests.fault.site import DEADLINE_S, Load, Site
from tests.fault.test_mixture import SETTINGS, open_ground
from tests.support.gateway_process import GatewayProcess

LOAD = Load("two at once", gateways=2, clients=100, per_s=50, payload_bytes=100, offline_s=1)
DRAIN_S = 4.0
# Longer than a fence, so that others have time to notice.
BLOCKED_S = 2.0
EMPTIED = "Redis is emptied"


class World:
    """A site of two gateways with browsers of every policy, and what can happen to a gateway."""

    def __init__(self, site: Site, ground: Ground, swarm: Swarm, moments: random.Random) -> None:
        self.site, self.ground, self.swarm, self._moments = site, ground, swarm, moments
        self.history = History()
        self._gone: list[GatewayProcess] = []
        self.of_gateways: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "a gateway is killed": self._killed,
            "a gateway drains": self._drains,
            "a draining gateway stands still": self._drains_blocked,
            "a gateway stands still": self._blocked,
            "all browsers resume": self._storm,
        }
        self.of_redis: dict[str, Callable[[], object]] = {
            **{name: partial(act, moments) for name, act in ground.at_once.items()},
            **{name: partial(self._lasts, begin) for name, begin in ground.lasting.items()},
            EMPTIED: lambda: empty(ground),
            "functions replaced": partial(replace_functions, ground, moments),
        }

    def happen(self, gateways: str, redis: str) -> None:
        """Make two faults at once, heal them, and check every promise."""
        began_s = time.monotonic()
        # A publisher that tries again has one attempt in the log that was emptied, and another one in the next.
        timeout_s = DEADLINE_S if redis == EMPTIED else 0.5
        with self.site.publishing(history=self.history, timeout_s=timeout_s) as publishing:
            publishing.wait_for(20)
            self.ground.be_whole()
            failures: list[BaseException] = []

            def break_redis() -> None:
                time.sleep(self._moments.uniform(0, 1))  # at another moment of the gateway's fault each time
                try:
                    self.of_redis[redis]()
                except BaseException as failure:  # noqa: BLE001 - it is raised below
                    failures.append(failure)

            other = Thread(target=break_redis)
            other.start()
            with self.of_gateways[gateways]():
                other.join()
            if failures:
                raise failures[0]
            self.ground.be_whole()
            while self._gone:
                self._gone.pop().start()
            publishing.wait_for(20)
            self.site.wait_until_ready()
            self.site.wait_until_followed()
            self.swarm.wait(partial(all_up, self.swarm.clients), "everybody to be back")
            publishing.stop()
        self.site.come_to_rest(self.swarm, self.history)
        print(f"{gateways} + {redis}: {time.monotonic() - began_s:.1f} s", flush=True)

    @contextmanager
    def _killed(self) -> Iterator[None]:
        gateway = self._moments.choice(self.site.gateways)
        time.sleep(self._moments.uniform(0, 1))  # before, during or after the other fault
        gateway.kill()
        self._gone.append(gateway)
        yield

    @contextmanager
    def _drains(self) -> Iterator[None]:
        gateway = self._moments.choice(self.site.gateways)
        gateway.ask_to_stop()
        yield
        assert gateway.wait_until_ended(DRAIN_S + DEADLINE_S) == 0
        self._gone.append(gateway)

    @contextmanager
    def _drains_blocked(self) -> Iterator[None]:
        gateway = self._moments.choice(self.site.gateways)
        gateway.ask_to_stop()
        with self._stopped(gateway):
            yield
        assert gateway.wait_until_ended(DRAIN_S + DEADLINE_S) == 0
        self._gone.append(gateway)

    @contextmanager
    def _blocked(self) -> Iterator[None]:
        with self._stopped(self._moments.choice(self.site.gateways)):
            yield

    @contextmanager
    def _stopped(self, gateway: GatewayProcess) -> Iterator[None]:
        time.sleep(self._moments.uniform(0, 1))  # somewhere in the drain
        gateway.pause()
        try:
            yield
            time.sleep(BLOCKED_S)  # the length of the fault
        finally:
            gateway.go_on()

    @contextmanager
    def _storm(self) -> Iterator[None]:
        self.swarm.leave(hard=True)
        time.sleep(self._moments.uniform(0, 2))  # how long they are away
        self.swarm.reopen()
        yield

    def _lasts(self, begin: Callable[[random.Random], AbstractContextManager[object]]) -> None:
        with begin(self._moments):
            time.sleep(4 * BLOCKED_S)  # the length of the fault


@contextmanager
def world_of(folder: Path, where: str, seed: int) -> Iterator[World]:
    """Start it, with everybody there."""
    with ExitStack() as started:
        ground = open_ground(where, folder, LOAD.gateways, started)
        settings = {**SETTINGS, "drain_s": DRAIN_S}
        site = started.enter_context(Site(folder, LOAD, behind=ground, addresses=ground.addresses, **settings))
        site.wait_until_ready()
        swarm = site.swarm()
        started.callback(swarm.close)
        for index, client in enumerate(swarm.clients):
            policy = POLICIES[index % len(POLICIES)]
            client.patterns, client.record.latest = dict.fromkeys(client.patterns, policy), policy == "latest"
        swarm.open()
        swarm.roam()
        yield World(site, ground, swarm, random.Random(seed))


@ONLY_NIGHTLY
@pytest.mark.parametrize("where", ["address", "Sentinels", "Cluster"])
def test_two_faults_at_once_lose_double_and_hide_nothing(
    tmp_path: Path, load: Load, figures: Figures, seed: int, where: str
) -> None:
    """Each fault of a gateway at a random moment of each fault of Redis, in a random order."""
    rounds = int(os.environ.get("HEADGATE_PIECES", "1"))
    with world_of(tmp_path, where, seed) as world:
        pairs = pairs_of(list(world.of_gateways), list(world.of_redis), rounds, random.Random(seed))
        for gateways, redis in pairs:
            world.happen(gateways, redis)
        owed = sum(record.owed for record in world.swarm.records)
    figures("F44", f"two at once, {where}: pairs of faults", len(pairs), "", "0 unreported, doubled or reordered (checked)", seed)
    figures("F44", f"two at once, {where}: deliveries owed to browsers", owed, "", "each checked", seed)


def pairs_of(of_gateways: list[str], of_redis: list[str], rounds: int, moments: random.Random) -> list[tuple[str, str]]:
    """Return the pairs of some rounds. In each, all faults of Redis come once, and those of gateways in turn."""
    pairs = []
    moments.shuffle(of_gateways)
    moments.shuffle(of_redis)
    for number in range(rounds):
        of_round = [(of_gateways[(at + number) % len(of_gateways)], redis) for at, redis in enumerate(of_redis)]
        pairs += moments.sample(of_round, len(of_round))
    return pairs


def test_in_as_many_rounds_as_a_gateway_has_faults_each_meets_each() -> None:
    """And none of them twice."""
    of_gateways, of_redis = ["drains", "dies"], ["moves", "dies", "is cut off"]
    pairs = pairs_of(list(of_gateways), list(of_redis), 2, random.Random(7))
    assert sorted(pairs) == sorted((gateways, redis) for gateways in of_gateways for redis in of_redis)
    assert {redis for _, redis in pairs[:3]} == set(of_redis)
