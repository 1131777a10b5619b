"""Events while gateways, consumers and Redis are killed, and a trace that explains the fate of each of them.

`make faults` has a short form, and one with ten thousand events.
"""

import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.diagnosis.tracing import AtGateway, Trace, trace
from headgate.errors import HeadgateError
from headgate.redis.client import call, open_client
from headgate.redis.keys import log_key
from headgate.services.publisher import Publisher, Receipt
from tests.fault.consumer_process import NAME, NAMESPACE
from tests.fault.site import Load, wait_for
from tests.fault.test_f20_consumer_killed import Instances
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_process import RedisProcess

CLIENTS, BATCH = 4, 50
WAIT_S = 120.0
LEASE_S = 1.0
OUTCOMES = ("written", "queued", "kept", "discarded", "conflated", "left_to_log", "gone")


class Life(NamedTuple):
    """A gateway: the first event in its reach, the last known report, and the last before it was killed."""

    name: str
    first: int
    sure: int
    last: int


def joined(gateway: GatewayProcess, epoch: str = "", offset: int = 0) -> list[RawClient]:
    """Clients of everything, which go on after an offset."""
    hello: dict[str, object] = {"subscriptions": [{"pattern": "#"}]}
    if epoch:
        hello["resume"] = {"epoch": epoch, "offset": offset}
    clients = [RawClient(gateway.url, hello) for _ in range(CLIENTS)]
    for client in clients:
        client.wait_for(partial(client.named, "welcome"), "welcome", WAIT_S)
    return clients


class Stage:
    """A Redis, a permanent gateway, one that is killed again and again, and two consumers. Events hold their offsets."""

    def __init__(self, redis: RedisProcess, start_gateway: StartGateway, folder: Path) -> None:
        self._redis, self._start = redis, start_gateway
        self._settings = {"HEADGATE_REDIS_URL": redis.url, "HEADGATE_TRACE_EVERY": "1", "HEADGATE_LOG_MAX_EVENTS": "20000"}
        self.publisher, self.client = Publisher(redis.url), open_client(redis.url, timeout_s=WAIT_S)
        self.stays, self.killed = start_gateway(self._settings, "--dev"), start_gateway(self._settings, "--dev")
        self.here, self.there = joined(self.stays), joined(self.killed)
        (folder / "done").touch()
        self.instances = Instances(redis.url, folder / "done", LEASE_S, "batch")
        self.running = [self.instances.start() for _ in range(2)]
        self.lives: list[Life] = []
        self._first, self.newest = 1, 0

    def publish(self) -> Receipt:
        """Publish a batch, again and again until Redis takes it; with its ids nothing is published twice."""
        numbers = range(self.newest + 1, self.newest + BATCH + 1)
        receipts: list[Receipt] = []

        def taken() -> bool:
            try:
                receipts[:] = self.publisher.publish_many([("orders.1.shipped", number, f"e{number}") for number in numbers])
            except HeadgateError:
                return False
            return True

        wait_for(taken, "Redis to take a batch", WAIT_S)
        assert [receipt.offset for receipt in receipts] == list(numbers)
        self.newest = numbers[-1]
        return receipts[-1]

    def kill_gateway(self) -> None:
        """Kill it with events that it may not have reported; the next one has its clients, from the log on."""
        sure = self.publish().offset
        wait_for(lambda: explained(at(self.trace(sure), self.killed)), "the report of a gateway", WAIT_S)
        last = self.publish()
        name = f"/{self.killed.pid}"
        self.killed.kill()
        self.lives.append(Life(name, self._first, sure, last.offset))
        had = min(max(client.offsets, default=0) for client in self.there)
        self.killed, self._first = self._start(self._settings, "--dev"), had + 1
        self.there = joined(self.killed, last.epoch, had)

    def kill_consumer(self) -> None:
        """Kill one at its work, and start another."""
        self.publish()
        self.instances.stop(self.running.pop(0), signal.SIGKILL)
        self.running.append(self.instances.start())

    def kill_redis(self) -> None:
        """Kill it, and start it with its data, so that the log goes on in another epoch."""
        self.publish()
        self._redis.kill()
        self._redis.start()
        self.publish()

    def settle(self) -> None:
        """Wait until every client has everything, both gateways have reported, and the consumers are done."""
        for client in (*self.here, *self.there):
            wait_for(lambda client=client: client.offsets[-1:] == [self.newest], "a client to have everything", WAIT_S)
        self.lives.append(Life(f"/{self.killed.pid}", self._first, self.newest, self.newest))
        for gateway in (self.stays, self.killed):
            wait_for(lambda gateway=gateway: explained(at(self.trace(self.newest), gateway)), "the report of a gateway", WAIT_S)
        wait_for(self._is_done, "the consumers to be done", WAIT_S)

    def _is_done(self) -> bool:
        return bool(call(self.client, "FCALL_RO", "headgate_group_look", 1, log_key(NAMESPACE), NAME)[:3] == [0, 0, 0])

    def trace(self, offset: int) -> Trace:
        """Return the trace of an event; a slow machine is waited for."""
        found = trace(self.client, NAMESPACE, str(offset))
        assert found.unknown == []
        return found

    def close(self) -> None:
        """End all processes of this."""
        for client in (*self.here, *self.there):
            client.close()
        self.instances.end()
        self.publisher.close()
        self.client.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine has the time for a whole trace."""
    monkeypatch.setattr("headgate.diagnosis.tracing.DEADLINE_S", WAIT_S)


@pytest.fixture
def stage(redis: RedisProcess, start_gateway: StartGateway, tmp_path: Path) -> Iterator[Stage]:
    with closing(Stage(redis, start_gateway, tmp_path)) as stage:
        yield stage


@pytest.mark.timeout(1200)
@pytest.mark.nightly
def test_every_outcome_is_explained_while_everything_is_killed(stage: Stage, load: Load) -> None:
    """One gateway stays and has reported every event; the other's clients go on at the next one; the consumers have done all."""
    events, rounds = (10_000, 5) if load.name == "full" else (250, 1)
    for number in range(rounds):
        for fault in (stage.kill_gateway, stage.kill_consumer, stage.kill_redis):
            fault()
        while stage.newest < events * (number + 1) // rounds:
            stage.publish()
    stage.settle()
    for client in stage.here:
        assert client.offsets == list(range(1, stage.newest + 1))
    for client in (*stage.here, *stage.there):
        client.close()  # each trace would wait for their answers on the event, and they say nothing

    untold, epochs = 0, set()
    for offset in range(1, stage.newest + 1):
        found = stage.trace(offset)
        epochs.add(found.epoch)
        assert explained(at(found, stage.stays)), found
        for life in stage.lives:
            told = next((each for each in found.gateways if each.gateway.endswith(life.name)), None)
            if life.first <= offset <= life.sure:
                assert explained(told), (life, found)
            elif life.sure < offset <= life.last and told is None:
                untold += 1
        assert any(life.first <= offset <= life.last for life in stage.lives), "each event was some gateway's"
        assert [(each.consumer, each.state) for each in found.consumers] == [(NAME, "done")], found
        assert (found.by, found.id) == (None, f"e{offset}")
    print(f"{stage.newest} events, {rounds} kills of each in {len(epochs)} epochs: {untold} untold by killed gateways")
    assert stage.newest >= events
    assert len(epochs) == rounds + 1
    assert untold <= rounds * BATCH


def at(found: Trace, gateway: GatewayProcess) -> AtGateway | None:
    return next((each for each in found.gateways if each.gateway.endswith(f"/{gateway.pid}")), None)


def explained(at: AtGateway | None) -> bool:
    """Whether each client that the event was for has one outcome."""
    if at is None:
        return False
    parts = [at.counts[name] for name in OUTCOMES]
    return min(parts) >= 0 and sum(parts) == at.counts["matched"] and at.counts["matched"] + at.counts["from_log"] >= CLIENTS
