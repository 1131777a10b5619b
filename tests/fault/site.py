"""The standard load of docs/faults.md: two gateways, one Redis through a chaos proxy for each, many clients, a publisher.

`Site` starts and ends the processes; `Publishing` publishes at a fixed rate and writes down its receipts.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from headgate.errors import BusRefused, BusUnavailable
from headgate.events.topic import matches
from headgate.redis.client import open_client
from headgate.redis.keys import epochs_key
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from tests.fault.chaos_proxy import ChaosProxy
from tests.fault.checker import History, assert_kept
from tests.fault.many_clients import DEADLINE_S as DEADLINE_S
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.many_clients import wait_for as wait_for
from tests.fault.until_stopped import UntilStopped
from tests.support.gateway_process import GatewayProcess
from tests.support.held_port import HeldPort
from tests.support.redis_process import RedisProcess

NAMESPACE = "notifications"
TOPICS = 50
TOPICS_PER_CLIENT = 5
# Of the log of a gateway, when a test has failed.
LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Load:
    """The amount: short for the test command, full as docs/faults.md describes it."""

    name: str
    gateways: int
    clients: int
    per_s: float
    payload_bytes: int
    offline_s: float  # how long a lasting fault lasts


SHORT = Load("short", gateways=2, clients=60, per_s=50, payload_bytes=1024, offline_s=1)
FULL = Load("full", gateways=2, clients=1000, per_s=50, payload_bytes=1024, offline_s=30)


def topics_of(client: int) -> list[str]:
    """Return the five topics of a client; one of them as a pattern."""
    *exact, last = ((client * 7 + step * 11) % TOPICS for step in range(TOPICS_PER_CLIENT))
    return [*(f"load.t{number}.changed" for number in exact), f"load.t{last}.*"]


class Redis(Protocol):
    """The Redis of a site, as the site needs it: a server, or several with Sentinels."""

    @property
    def url(self) -> str: ...

    def call(self, *command: str | bytes | int) -> Any: ...


class Site:
    """Redis, proxies and gateways. Use as a context manager.

    Args:
        folder, load: where it lives, and how much it bears.
        behind: a Redis of another kind, which runs, and which gateways reach without a proxy.
        addresses: where each gateway finds it; without them, where all do.
        serve: the application to serve, for `headgate serve`.
    """

    redis: RedisProcess

    def __init__(
        self,
        folder: Path,
        load: Load,
        *,
        behind: Redis | None = None,
        addresses: Sequence[str] = (),
        serve: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        self.load = load
        self._redis: Redis
        if behind is None:
            self._redis = self.redis = RedisProcess(folder / "redis")
            self.proxies = [ChaosProxy(("127.0.0.1", self.redis.port)) for _ in range(load.gateways)]
            urls = [f"redis://127.0.0.1:{proxy.port}" for proxy in self.proxies]
        else:
            self._redis, self.proxies = behind, []
            urls = list(addresses) or [behind.url] * load.gateways
        self._ports = [HeldPort() for _ in urls]
        self.gateways = [
            GatewayProcess(
                folder / f"gateway-{number}",
                {
                    "HEADGATE_REDIS_URL": url,
                    "HEADGATE_PORT": str(held.port),
                    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
                    **{f"HEADGATE_{name.upper()}": str(value) for name, value in settings.items()},
                },
                (*serve, "--dev"),
            )
            for number, (url, held) in enumerate(zip(urls, self._ports, strict=True))
        ]
        self._ended = contextlib.ExitStack()

    def __enter__(self) -> Site:
        with contextlib.ExitStack() as started:
            if self._redis is getattr(self, "redis", None):
                started.enter_context(self.redis)
            for proxy in self.proxies:
                started.enter_context(proxy)
            for held in self._ports:
                started.callback(held.close)
            for gateway in self.gateways:
                started.enter_context(gateway)
            self._ended = started.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:  # the log of the gateways explains most failures
            for number, gateway in enumerate(self.gateways):
                print(f"gateway {number}:", *gateway.output.splitlines()[-LAST_LINES:], sep="\n", flush=True)
        self._ended.close()

    @property
    def urls(self) -> list[str]:
        """Where the gateways are."""
        return [gateway.url for gateway in self.gateways]

    def ready(self, gateway: GatewayProcess) -> bool:
        """Whether a gateway's readiness is 200 now."""
        return self.health(gateway)[0] == 200

    def health(self, gateway: GatewayProcess) -> tuple[int, Any]:
        """Return status and body of a gateway's readiness."""
        status, text = gateway.get("/healthz")
        return status, json.loads(text)

    def wait_until_ready(self, deadline_s: float = DEADLINE_S) -> None:
        """Wait until every gateway is."""
        for gateway in self.gateways:
            wait_for(lambda gateway=gateway: self.ready(gateway), "a gateway to be ready", deadline_s)

    def wait_until_known(self, offset: int) -> None:
        """Wait until every gateway knows the log's head, because of events without a client there it hears once a second."""

        def known(gateway: GatewayProcess) -> bool:
            at: int = self.health(gateway)[1]["namespaces"][NAMESPACE]["offset"]
            return at >= offset

        for gateway in self.gateways:
            wait_for(lambda gateway=gateway: known(gateway), f"a gateway to know of {offset}")

    def wait_until_followed(self) -> None:
        """Wait until every gateway is in the epoch that Redis writes."""

        def followed() -> bool:
            epochs = {self.health(gateway)[1]["namespaces"][NAMESPACE]["epoch"] for gateway in self.gateways}
            return epochs == {self.head()[0]}

        wait_for(followed, "every gateway to be in the log's epoch")

    def swarm(self, *, whole: bool = False, **options: Any) -> Swarm:
        """Return the load's clients, not connected yet; if `whole`, the first of each gateway wants everything."""

        def patterns_of(client: int) -> list[str]:
            return ["#"] if whole and client < len(self.urls) else topics_of(client)

        return Swarm(self.urls, self.load.clients, patterns_of, **options)

    def publishing(self, **options: Any) -> Publishing:
        """Return the load's publisher, not started yet. It reaches Redis directly."""
        return Publishing(self._redis.url, self.load, **options)

    def head(self) -> tuple[str, int]:
        """Return epoch and offset of the log."""
        with _log(self._redis.url) as log:
            head = log.head()
        return head.epoch, head.offset

    def come_to_rest(self, swarm: Swarm, history: History, deadline_s: float = DEADLINE_S) -> float:
        """Publish one last event to everyone, wait until each has it, check every promise; return how long it took.

        Raises:
            AssertionError: with the violations.
        """
        end = self.publish_last(history)
        took_s = wait_until_had(swarm, history, *end, deadline_s)
        assert_kept(history, swarm.records, self.head())
        return took_s

    def publish_last(self, history: History) -> tuple[str, int]:
        """Publish one last event on each topic, and add the log to the history; return the place of the last one."""
        with Publisher(self._redis.url, timeout_s=DEADLINE_S) as publisher:
            for number in range(TOPICS):
                topic = f"load.t{number}.changed"
                event_id = f"last-{number}-{uuid.uuid4().hex}"
                receipt = publisher.publish(topic, {"id": event_id}, id=event_id)
                history.published(receipt.epoch, receipt.offset, topic, event_id)
        self.read_log(history)
        return receipt.epoch, receipt.offset

    def read_log(self, history: History) -> None:
        """Add to the history the present events of the log, and its epochs."""
        epochs = self._redis.call("HGETALL", epochs_key(NAMESPACE))
        ordered = sorted((tuple(map(int, value.split())), name.decode()) for name, value in epochs.items())
        history.follow((name, first) for (first, _), name in sorted(ordered, key=lambda each: each[0][1]))
        with _log(self._redis.url) as log:
            head = log.head()
            history.held_from = head.first
            after = head.first - 1
            while entries := log.page(after, head.offset):
                for entry in entries:
                    assert entry.event is not None
                    assert entry.event.id is not None
                    history.found(history.epoch_at(entry.offset), entry.offset, entry.event.topic, entry.event.id)
                after = entries[-1].offset


def publish_burst(url: str, history: History, count: int, payload_bytes: int, topic: str = "load.t{}.changed") -> None:
    """Publish many events at once, in batches of one round trip."""
    with Publisher(url, timeout_s=DEADLINE_S) as publisher:
        for start in range(0, count, 100):
            batch = []
            for number in range(start, min(start + 100, count)):
                event_id = f"burst-{number}-{uuid.uuid4().hex}"
                data = {"id": event_id, "at_s": time.monotonic(), "pad": "x" * max(0, payload_bytes - 100)}
                batch.append((topic.format(number % TOPICS), data, event_id))
            for (name, _, event_id), receipt in zip(batch, publisher.publish_many(batch), strict=True):
                history.published(receipt.epoch, receipt.offset, name, event_id)


class Publishing(UntilStopped):
    """A thread that publishes at a fixed rate until `stop`, one event after the other, and never twice.

    Attributes:
        refused: when publishes failed (monotonic); each is a doubt, or one of `denied`.
        denied: ids of events that Redis refused, so that no client may ever see them, and when that was.
        receipts: when the others were acknowledged.
    """

    def __init__(
        self, url: str, load: Load, *, history: History | None = None, timeout_s: float = 0.5, topics: int = TOPICS
    ) -> None:
        super().__init__()
        self.history = history or History()
        self.refused: list[float] = []
        self.denied: dict[str, float] = {}
        self.receipts: list[float] = []
        self._url, self._load, self._timeout_s, self._topics = url, load, timeout_s, topics
        self._name = uuid.uuid4().hex[:12]  # Redis remembers ids for minutes

    def stop(self) -> History:
        """Stop and return the history. Idempotent."""
        self.end()
        return self.history

    def wait_for(self, receipts: int, deadline_s: float = DEADLINE_S) -> None:
        """Wait until so many more events have been acknowledged."""
        goal = len(self.receipts) + receipts
        wait_for(lambda: len(self.receipts) >= goal or self.failure, f"{receipts} receipts", deadline_s)

    def _work(self) -> None:
        with Publisher(self._url, timeout_s=self._timeout_s) as publisher:
            for number in self._turns(1 / self._load.per_s):
                self._publish(publisher, number)

    def _publish(self, publisher: Publisher, number: int) -> None:
        topic, event_id = f"load.t{number % self._topics}.changed", f"e{number}-{self._name}"
        data = {"id": event_id, "at_s": time.monotonic(), "pad": "x" * (self._load.payload_bytes - 60)}
        try:
            receipt = publisher.publish(topic, data, id=event_id)
        except BusUnavailable:
            self.refused.append(time.monotonic())
            self.history.doubtful(event_id)
        except BusRefused:
            self.refused.append(time.monotonic())
            self.denied[event_id] = time.monotonic()
        else:
            self.receipts.append(time.monotonic())
            self.history.published(receipt.epoch, receipt.offset, topic, event_id)


def wait_until_had(swarm: Swarm, history: History, epoch: str, upto: int, deadline_s: float = DEADLINE_S) -> float:
    """Wait until every client has the last event up to an offset that matches its patterns; return how long that took, in s.

    A machine with much else to do may take longer than `deadline_s`, as long as a client that lags gets on within it.
    """
    newest = {event.topic: event.offset for event in history.log(epoch) if event.offset <= upto}
    last: dict[str, int] = {}  # by pattern; many have the same
    for pattern in {pattern for client in swarm.clients for pattern in client.patterns}:
        if "*" in pattern or "#" in pattern:
            last[pattern] = max((at for topic, at in newest.items() if matches(pattern, topic)), default=0)
        else:
            last[pattern] = newest.get(pattern, 0)
    waiting = [(client, max((last[pattern] for pattern in client.patterns), default=0)) for client in swarm.clients]

    def behind() -> list[BrowserClient]:
        return [client for client, offset in waiting if not (client.up and client.epoch == epoch and client.offset >= offset)]

    began_s, positions = time.monotonic(), [client.offset for client in behind()]
    while True:
        try:
            swarm.wait(lambda: not behind(), f"every client to have its last event up to {upto}", deadline_s)
            return time.monotonic() - began_s
        except AssertionError:
            late = behind()
            if positions == (positions := [client.offset for client in late]):
                for client in late[:3]:
                    print(f"{client.record.name} at {client.epoch}:{client.offset}:", *client.record.told()[-30:], sep="\n")
                raise


@contextlib.contextmanager
def _log(url: str) -> Iterator[EventLog]:
    client = open_client(url, timeout_s=DEADLINE_S, max_connections=1)
    try:
        yield EventLog(NAMESPACE, client, 1024 * 1024)
    finally:
        client.close()
