"""Nothing is lost unreported, doubled or reordered, whatever happens in whatever order.

A Hypothesis state machine drives a real gateway process on a private Redis: publish, subscribe, unsubscribe, disconnect,
resume, stall, trim, FLUSHALL, CLIENT KILL. The model is simple: the publishers' receipts, and what the checker of the fault
suite makes of what each client saw.
"""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from headgate.events.topic import matches
from headgate.services.publisher import Publisher
from tests.fault.checker import History, Subscribed, assert_kept
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.site import wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_process import RedisProcess

TOPICS = ["orders.1", "orders.2", "bills.1", "bills.2"]
# Of the whole feed, and of a narrow one: patterns that overlap without covering each other, and one that no other client has.
PATTERNS = {"whole": ["orders.*", "bills.1", "#", "orders.2"], "narrow": ["orders.*", "bills.1", "*.1", "bills.2"]}
LOG_KEY = "hg:{notifications}:log"
DEADLINE_S = 30.0
# Small, so that retention and a full queue come into play within a few steps. But a client that reads nothing while a slow
# machine gets through its steps is not to be closed for it.
SETTINGS = {
    "HEADGATE_WRITE_DEADLINE_S": "600",
    "HEADGATE_PING_TIMEOUT_S": "600",
    "HEADGATE_LOG_MAX_EVENTS": "60",
    "HEADGATE_QUEUE_FRAMES": "8",
    "HEADGATE_QUEUE_BYTES": "131072",
    "HEADGATE_SEND_BUFFER_BYTES": "4096",
    "HEADGATE_FENCE_INTERVAL_S": "0.1",
}


class Ground:
    """The parts that all runs of the machine share, because processes take longer to start than a run takes."""

    def __init__(self, redis: RedisProcess, gateway: GatewayProcess, patterns: list[str]) -> None:
        self.redis, self.gateway, self.patterns = redis, gateway, patterns
        self.publisher = Publisher(redis.url)
        self.history = History()


@pytest.fixture(scope="module", params=PATTERNS)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A Redis and a gateway."""
    folder = tmp_path_factory.mktemp("ground")
    with RedisProcess(folder / "redis") as redis:
        settings = {**SETTINGS, "HEADGATE_REDIS_URL": redis.url}
        with GatewayProcess(folder / "gateway", settings, ("--dev",)) as gateway:
            ground = Ground(redis, gateway, PATTERNS[request.param])
            with contextlib.closing(ground.publisher):
                yield ground
            print(gateway.output)


class NoSilentLoss(RuleBasedStateMachine):
    """Clients with different policies; every step is something that happens to a real system."""

    ground: Ground
    clients = st.integers(0, 3)

    @initialize()
    def begin(self) -> None:
        """Four clients: one catches up, one drops, one changes its subscriptions all the time, one has everything."""
        # Events that the sequence before published last may reach clients that the gateway lets in before it has caught up.
        self.history = History(dict(list(self.ground.history.events.items())[-100:]))
        self.ground.history = self.history
        overflows = ["catch_up", "drop", "catch_up", "catch_up"]
        self.swarm = Swarm(
            [self.ground.gateway.url], 4, lambda index: [self.ground.patterns[index]], name="client", receive_buffer_bytes=4096
        )
        for client, overflow in zip(self.swarm.clients, overflows, strict=True):
            client.patterns = dict.fromkeys(client.patterns, overflow)
        self.swarm.open()

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 12), size=st.sampled_from([10, 2000]))
    def publish(self, topic: str, count: int, size: int) -> None:
        """A burst: one event, or more than a stalled client's queue holds."""
        ids = [uuid.uuid4().hex for _ in range(count)]
        events = [(topic, {"id": event_id, "pad": "x" * size}, event_id) for event_id in ids]
        for receipt in self.ground.publisher.publish_many(events):
            self.history.published(receipt.epoch, receipt.offset, topic, receipt.id)

    @rule(number=clients, pattern=st.integers(0, 3))
    def subscribe(self, number: int, pattern: int) -> None:
        """Another pattern, or one that it has; in force when it is acknowledged."""
        client = self.swarm.clients[number]
        if not client.up or not client.reading:
            return
        before = _acknowledged(client)
        overflow = next(iter(client.patterns.values()), "catch_up")
        self.swarm.each(lambda one: one.subscribe(self.ground.patterns[pattern], overflow), [client])
        self.swarm.wait(lambda: _acknowledged(client) > before, "a subscription to be acknowledged", DEADLINE_S)

    @rule(number=clients)
    def unsubscribe(self, number: int) -> None:
        """One pattern less, if there is one."""
        client = self.swarm.clients[number]
        if client.up and client.reading and client.patterns:
            self.swarm.each(lambda one: one.unsubscribe(next(iter(one.patterns))), [client])

    @rule(number=clients, hard=st.booleans())
    def disconnect(self, number: int, hard: bool) -> None:
        """Offline, politely or not."""
        self.swarm.each(lambda client: client.leave(hard=hard), [self.swarm.clients[number]])

    @rule(number=clients)
    def resume(self, number: int) -> None:
        """Online again, with its position; maybe before the gateway has noticed that it was gone."""
        client = self.swarm.clients[number]
        if not client.up:
            self.swarm.run(client.open())
            self.swarm.wait(lambda: client.up, "a client to be welcomed", DEADLINE_S)

    @rule(number=clients)
    def stall(self, number: int) -> None:
        """It reads nothing for a while."""
        self.swarm.each(lambda client: client.stall(), [self.swarm.clients[number]])

    @rule(number=clients)
    def read_on(self, number: int) -> None:
        """It reads again."""
        self.swarm.each(lambda client: client.read_on(), [self.swarm.clients[number]])

    @rule(keep=st.integers(0, 30))
    def trim(self, keep: int) -> None:
        """The log is trimmed by hand."""
        self.ground.redis.call("XTRIM", LOG_KEY, "MAXLEN", "=", keep)

    @rule(back=st.integers(0, 10))
    def delete(self, back: int) -> None:
        """One event is deleted out of the middle."""
        found: Any = self.ground.redis.call("XREVRANGE", LOG_KEY, "+", "-", "COUNT", back + 1)
        if len(found) > back:
            self.ground.redis.call("XDEL", LOG_KEY, found[-1][0])

    @rule()
    def flush(self) -> None:
        """Redis is emptied."""
        self.ground.redis.call("FLUSHALL")

    @rule()
    def kill_listener(self) -> None:
        """Redis cuts the gateway's subscriptions."""
        self.ground.redis.call("CLIENT", "KILL", "TYPE", "pubsub")

    @rule()
    def kill_commands(self) -> None:
        """Redis cuts every connection for commands."""
        self.ground.redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def teardown(self) -> None:
        """Let everything come to rest; then every promise must have been kept."""
        if not hasattr(self, "swarm"):
            return
        try:
            self._come_to_rest()
        finally:
            self.swarm.close()

    def _come_to_rest(self) -> None:
        self.swarm.each(lambda client: client.read_on())
        for client in self.swarm.clients:
            if not client.up:
                self.swarm.run(client.open())
        self.swarm.wait(lambda: all(client.up for client in self.swarm.clients), "all clients to be welcomed", DEADLINE_S)
        wait_for(self._publish_last, "the last event to be published", DEADLINE_S)
        self.swarm.wait(
            lambda: all(client.epoch == self._last[0] and client.offset >= self._owed(client) for client in self.swarm.clients),
            f"every client to have the last event, {self._last}",
            DEADLINE_S,
        )
        assert_kept(self.history, self.swarm.records, self._last)

    def _publish_last(self) -> bool:
        for topic in TOPICS:
            event_id = uuid.uuid4().hex
            receipt = self.ground.publisher.publish(topic, {"id": event_id}, id=event_id)
            self.history.published(receipt.epoch, receipt.offset, topic, event_id)
        self._last = (receipt.epoch, receipt.offset)
        return True

    def _owed(self, client: BrowserClient) -> int:
        last = self._last[1]
        newest = {topic: last - len(TOPICS) + 1 + index for index, topic in enumerate(TOPICS)}
        return max((at for topic, at in newest.items() if any(matches(p, topic) for p in client.patterns)), default=0)


def _acknowledged(client: BrowserClient) -> int:
    return sum(isinstance(entry, Subscribed) for entry in client.record.entries)


@pytest.mark.timeout(600)
def test_random_histories_lose_double_and_reorder_nothing_unreported(ground: Ground) -> None:
    """Random steps; a failure is shrunk to the shortest sequence that still fails."""
    _run(ground, examples=15)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_thousand_random_histories(ground: Ground) -> None:
    """The same with a thousand sequences."""
    _run(ground, examples=1000)


def _run(ground: Ground, examples: int) -> None:
    class OnThisGround(NoSilentLoss):
        pass

    OnThisGround.ground = ground
    run_state_machine_as_test(
        OnThisGround,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
