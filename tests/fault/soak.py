"""The soak: rounds of churn, each followed by a rest in which everything is counted.

In: a site, its clients, a publisher that goes on. Out: a sample for each round. In a round clients leave, come back, stop to
read, are cut for it, resume, and change their subscriptions, at random. At rest every client is connected with the
subscriptions that it had at first and reads, so that an increase from one rest to the next is a leak.
"""

import json
import random
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from tests.fault.many_clients import BrowserClient, Swarm, all_up
from tests.fault.site import DEADLINE_S, TOPICS, wait_for
from tests.fault.trend import HOUR_S, Slope, has_grown, slope_of
from tests.fault.usage import descriptors, resident_bytes

STEP_S = 0.02
# Python asks the system for so much memory at a time (an arena of pymalloc), and keeps it while there is an object in it. Once
# in a soak this proves nothing.
ARENA_MB = 1.05
# Connections to Redis that are kept or not; greenlets of timers that are still to fire, a few seconds after the churn; series
# of labels for cases that have happened for the first time.
SLACK = {"descriptors": 4, "greenlets": 25, "series": 16, "redis_keys": 8, "cached_bytes": 2**20}


@dataclass(frozen=True, slots=True)
class Sample:
    """A process and its Redis at rest."""

    at_s: float
    memory_bytes: int
    descriptors: int
    greenlets: int = 0
    series: int = 0
    cached_bytes: int = 0
    redis_keys: int = 0


def sample(pid: int, **counts: int) -> Sample:
    """Return the present counts of a process."""
    return Sample(time.monotonic(), resident_bytes(pid), len(descriptors(pid)), **counts)


def sample_of(pid: int, url: str, redis: Any) -> Sample:
    """Return the present counts of a gateway that serves counting_app.py."""
    with urllib.request.urlopen(f"{url}/counts", timeout=DEADLINE_S) as answer:
        counts = json.load(answer)
    return sample(pid, redis_keys=lasting(redis.call("KEYS", "*")), **counts)


def lasting(keys: Iterable[bytes]) -> int:
    """Return how many keys are none of those that a soak of ten minutes has one more of every few seconds, by promise.

    The ids of events, and what became of some of them (`headgate trace`), are known for as long as the log keeps the events.
    """
    return sum(b":id:" not in key and b":trace:" not in key for key in keys)


def memory_slope(samples: Iterable[Sample]) -> Slope:
    """Return the growth of memory, in MB per hour."""
    return slope_of([(each.at_s, each.memory_bytes / 1e6) for each in samples])


def leaks(samples: list[Sample], mb_per_hour: float) -> list[str]:
    """Return the names of all growing counts: memory by more than this rate for certain, the rest by more than its slack."""
    hours = (samples[-1].at_s - samples[0].at_s) / HOUR_S
    grown = ["memory_bytes"] if memory_slope(samples).least > mb_per_hour + ARENA_MB / hours else []
    for field in fields(Sample)[2:]:
        if has_grown([getattr(each, field.name) for each in samples], SLACK[field.name]):
            grown.append(field.name)
    return grown


class Churn:
    """Clients that come, go, stop to read and change their minds.

    Attributes:
        done: how often each has happened.
    """

    def __init__(self, swarm: Swarm, seed: int) -> None:
        self._swarm, self._random = swarm, random.Random(seed)
        self.done: dict[str, int] = {}
        self._added: dict[BrowserClient, set[str]] = {client: set() for client in swarm.clients}

    def run(self, seconds: float) -> None:
        """Let something happen to one client after the other."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            client = self._random.choice(self._swarm.clients)
            name = self._random.choice(["leave", "cut", "come", "come", "stall", "read_on", "subscribe", "unsubscribe"])
            self._swarm.each(getattr(self, f"_{name}"), [client])
            time.sleep(STEP_S)  # the pace of the churn

    def rest(self) -> None:
        """Bring every client back to where it began."""
        swarm = self._swarm
        swarm.each(self._read_on)
        wait_for(lambda: not any(self._leaving(client) for client in swarm.clients), "clients to have left")
        swarm.reopen()
        swarm.wait(lambda: all_up(swarm.clients), "clients to be back")
        for client, added in self._added.items():
            while added:
                swarm.each(partial(BrowserClient.unsubscribe, pattern=added.pop()), [client])

    def _count(self, name: str) -> None:
        self.done[name] = self.done.get(name, 0) + 1

    def _leaving(self, client: BrowserClient) -> bool:
        return not client.up and not client.wanted and client.connected

    def _leave(self, client: BrowserClient, *, hard: bool = False) -> None:
        if client.up:
            self._count("cut" if hard else "leave")
            client.leave(hard=hard)

    def _cut(self, client: BrowserClient) -> None:
        self._leave(client, hard=True)

    def _come(self, client: BrowserClient) -> None:
        if not client.up and not client.wanted and not client.connected:
            self._count("come")
            client.open_soon()

    def _stall(self, client: BrowserClient) -> None:
        if client.up:
            self._count("stall")
            client.stall()

    def _read_on(self, client: BrowserClient) -> None:
        client.read_on()

    def _subscribe(self, client: BrowserClient) -> None:
        pattern = f"load.t{self._random.randrange(TOPICS)}.#"
        if client.up and pattern not in client.patterns:
            self._count("subscribe")
            self._added[client].add(pattern)
            client.subscribe(pattern)

    def _unsubscribe(self, client: BrowserClient) -> None:
        if client.up and self._added[client]:
            self._count("unsubscribe")
            client.unsubscribe(self._added[client].pop())
