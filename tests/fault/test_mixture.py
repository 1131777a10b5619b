"""F33, every fault at once: browsers of every kind, publishers, consumers and gateways, and one random fault after the other.

A piece begins with an empty log and new browsers; faults follow one another, and some happen during others. At the end everything
heals and comes to rest, and each browser and the consumer have an account. `HEADGATE_SEED` repeats the random choices of a run,
not its timing. `HEADGATE_PIECES` says how many pieces there are.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.checker import History, Record
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.consumed import Consumed
from tests.fault.figures import Figures
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.pair import Pair, copy, crash, promoted, put_back, two_servers
from tests.fault.retrying import Retrying
from tests.fault.site import Load, Site, topics_of
from tests.support.gateway_process import GatewayProcess

LOAD = Load("mixture", gateways=2, clients=200, per_s=50, payload_bytes=100, offline_s=2)
PIECES, FAULTS_PER_PIECE = 20, 40
PUBLISHERS = 2
POLICIES = ["catch_up", "catch_up", "catch_up", "latest", "drop"]
# Small, so that a browser that stops reading for a second or two has a full queue.
SETTINGS: dict[str, Any] = {
    "queue_frames": 32,
    "send_buffer_bytes": 4096,
    "fence_interval_s": 0.2,
    "log_max_events": 200_000,
    "log_max_age_s": 3600,
}


class Piece:
    """One log and its browsers, and what happens to them."""

    def __init__(self, site: Site, pair: Pair, moments: random.Random, number: int, ended: contextlib.ExitStack) -> None:
        self._site, self._pair, self._moments = site, pair, moments
        self.happened: Counter[str] = Counter()
        self._killed: list[GatewayProcess] = []  # to be started when what lasts is over
        pair.call("FLUSHALL")
        site.wait_until_ready()
        site.wait_until_followed()
        self.swarm = Swarm(site.urls, site.load.clients, _wanted, name="browser", receive_buffer_bytes=4096)
        ended.callback(self.swarm.close)
        for index, client in enumerate(self.swarm.clients):
            policy = POLICIES[index % len(POLICIES)]
            client.patterns, client.record.latest = dict.fromkeys(client.patterns, policy), policy == "latest"
        self.swarm.open()
        self.history = History()
        self._publishing = [ended.enter_context(Retrying(pair.url, site.load, history=self.history)) for _ in range(PUBLISHERS)]
        self._consumed = ended.enter_context(Consumed(pair.url, f"mixture-{number}"))
        self._during: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
            "black hole": lambda: self._relay_is("black_hole"),
            "half open": lambda: self._relay_is("half_open"),
            "partition": lambda: self._relay_is("pause"),
            "refused": lambda: self._relay_is("refuse"),
            "browsers stop reading": self._stalled,
            "browsers go": self._gone,
            "gateway stops (SIGSTOP)": self._gateway_stopped,
        }
        self._at_once: dict[str, Callable[[], object]] = {
            "browsers reset": self._reset_browsers,
            "subscriptions change": self._change_subscriptions,
            "connections to Redis reset": lambda: moments.choice(pair.relays).reset(),
            "listeners killed": lambda: pair.call("CLIENT", "KILL", "TYPE", "pubsub"),
            "commands killed": lambda: pair.call("CLIENT", "KILL", "TYPE", "normal"),
            "Redis stops (SIGSTOP)": self._redis_stops,
            "Redis killed": self._kill_redis,
            "gateway killed": self._kill_gateway,
            "end of the log lost": lambda: self._lose(moments.choice([crash, crash, copy, put_back])),
            "failover": lambda: self._lose(promoted),
            "two servers": lambda: self._lose(lambda pair: two_servers(pair, moments)),
        }

    def happen(self) -> None:
        """Let one thing happen, maybe during another."""
        self._publish_for(self._moments.uniform(0.1, 0.6))
        if self._moments.random() < 0.4:
            during = self._moments.choice(list(self._during))
            self.happened[during] += 1
            with self._during[during]():
                time.sleep(self._moments.uniform(0.1, self._site.load.offline_s))  # the length of the fault
                if self._moments.random() < 0.5:
                    self._one()
        else:
            self._one()
        while self._killed:  # a gateway that is cut off from Redis would not start
            self._killed.pop().start()

    def account(self) -> list[Record]:
        """Heal everything; every promise must have been kept. Return the records of the browsers."""
        self._site.wait_until_ready()
        self._site.wait_until_followed()
        self.swarm.wait(lambda: all(client.up for client in self.swarm.clients), "everybody to be back")
        for publishing in self._publishing:
            publishing.stop()
        self._site.come_to_rest(self.swarm, self.history, 120)
        self._consumed.assert_kept(self.history, self._site.head(), 120)
        return self.swarm.records

    def _one(self) -> None:
        what = self._moments.choice(list(self._at_once))
        self.happened[what] += 1
        began_s = time.monotonic()
        self._at_once[what]()
        print(f"{what}: {time.monotonic() - began_s:.1f} s", flush=True)

    def _some(self, share: float) -> list[BrowserClient]:
        return [client for client in self.swarm.clients if client.up and self._moments.random() < share]

    def _publish_for(self, duration_s: float) -> None:
        self._publishing[0].wait_for(1)
        time.sleep(duration_s)  # the length of a pause between faults
        self._publishing[0].wait_for(1)

    # -- what lasts -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _relay_is(self, how: str) -> Iterator[None]:
        relay = self._moments.choice(self._pair.relays)
        getattr(relay, how)()
        try:
            yield
        finally:
            relay.heal()

    @contextlib.contextmanager
    def _stalled(self) -> Iterator[None]:
        some = self._some(0.3)
        self.swarm.each(lambda client: client.stall(), some)
        try:
            yield
        finally:
            self.swarm.each(lambda client: client.read_on(), some)

    @contextlib.contextmanager
    def _gone(self) -> Iterator[None]:
        some = self._some(0.3)
        self.swarm.each(lambda client: client.leave(hard=self._moments.random() < 0.5), some)
        yield
        for client in some:
            url = self._moments.choice(self._site.urls)
            client.address = ("127.0.0.1", int(url.rpartition(":")[2]))
            self.swarm.run(client.open())

    @contextlib.contextmanager
    def _gateway_stopped(self) -> Iterator[None]:
        gateway = self._moments.choice(self._site.gateways)
        os.kill(gateway.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):  # killed meanwhile, and another one started
                os.kill(gateway.pid, signal.SIGCONT)

    # -- what happens at once ---------------------------------------------------------------------------------------

    def _reset_browsers(self) -> None:
        some = self._some(0.3)
        self.swarm.each(lambda client: client.leave(hard=True), some)
        for client in some:
            self.swarm.run(client.open())

    def _change_subscriptions(self) -> None:
        """Those with `drop` keep theirs: between a request and its answer nobody could say what their gaps have to count."""

        def change(client: BrowserClient) -> None:
            policy = next(iter(client.patterns.values()), None)
            if policy in (None, "drop"):
                return
            pattern = f"load.t{self._moments.randrange(50)}.changed"
            if len(client.patterns) > 1 and self._moments.random() < 0.5:
                client.unsubscribe(list(client.patterns)[-1])
            else:
                client.subscribe(pattern, policy)

        self.swarm.each(change, self._some(0.3))

    def _redis_stops(self) -> None:
        self._pair.primary.pause()
        try:
            time.sleep(self._moments.uniform(0.1, self._site.load.offline_s))  # the length of the fault
        finally:
            self._pair.primary.go_on()

    def _kill_redis(self) -> None:
        self._pair.primary.kill()
        self._pair.primary.start()

    def _kill_gateway(self) -> None:
        gateway = self._moments.choice(self._site.gateways)
        gateway.kill()
        self._killed.append(gateway)

    def _lose(self, prepare: Callable[[Pair], Callable[[], None]]) -> None:
        lose = prepare(self._pair)
        time.sleep(self._moments.uniform(0, 1))  # what is published meanwhile will be lost
        lose()
        if self._pair.replica.call("INFO", "replication")["role"] != "slave":
            time.sleep(self._moments.uniform(0, 1))  # the old primary lives on
            self._pair.redirect(self._pair.primary)
            self._pair.replica.call("REPLICAOF", "127.0.0.1", self._pair.primary.port)


def _wanted(index: int) -> list[str]:
    return topics_of(index) if index % 5 == 0 else ["load.#" if index % 5 == 1 else "load.*.changed"]


@pytest.fixture
def seed() -> int:
    """A new seed for each run, printed."""
    seed = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(10**9))
    print(f"HEADGATE_SEED={seed}")
    return seed


@ONLY_NIGHTLY
def test_under_every_fault_nothing_is_lost_unreported_doubled_reordered_or_shown_though_lost(
    tmp_path: Path, figures: Figures, seed: int
) -> None:
    """Pieces of random faults, until ten million deliveries have been accounted for."""
    moments = random.Random(seed)
    pieces = int(os.environ.get("HEADGATE_PIECES") or PIECES)
    happened: Counter[str] = Counter()
    seen = told = 0
    with contextlib.ExitStack() as started:
        pair = started.enter_context(Pair(tmp_path, LOAD.gateways))
        site = started.enter_context(Site(tmp_path, LOAD, behind=pair, addresses=pair.addresses, **SETTINGS))
        for number in range(pieces):
            began_s = time.monotonic()
            with contextlib.ExitStack() as ended:
                piece = Piece(site, pair, moments, number, ended)
                for _ in range(FAULTS_PER_PIECE):
                    piece.happen()
                records = piece.account()
                happened += piece.happened
                seen += sum(len(record.seen()) for record in records)
                told += sum(len(record.gaps()) for record in records)
            took_s = time.monotonic() - began_s
            print(f"piece {number}: {took_s:.0f} s; {seen:,} events seen, {told:,} gaps in all; {dict(happened)}", flush=True)
    assert seen
    figures("F33", "mixture: faults", sum(happened.values()), "", "0 unreported, doubled or reordered (checked)")
    figures("F33", "mixture: deliveries accounted for", seen, "", "10,000,000")
