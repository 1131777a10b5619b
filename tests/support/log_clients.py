"""A gateway on a private Redis, clients that write down their events, and a publisher, shared by the tests of the log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from headgate.redis.keys import head_key, log_key
from headgate.services.publisher import Publisher
from tests.fault.checker import History, Welcomed, assert_kept
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.redis_process import RedisProcess
from tests.support.gateway_process import GatewayProcess

DEADLINE_S = 30.0


class LogGround:
    """One namespace, new to all; `clients` connects browsers to it, `publish` writes down receipts.

    Attributes:
        log, head: the keys of its log.
    """

    def __init__(self, gateway: GatewayProcess, redis: RedisProcess, namespace: str) -> None:
        self.gateway, self.redis, self.namespace = gateway, redis, namespace
        self.log, self.head = log_key(namespace), head_key(namespace)
        self.publisher = Publisher(redis.url, namespace=namespace)
        self.history = History()
        self._swarms: list[Swarm] = []

    def publish(self, count: int, topic: str = "orders.1", size: int = 10) -> list[int]:
        """Publish events in one batch; return their offsets."""
        first = len(self.history.events)
        events = [(topic, {"id": f"e{first + n}", "pad": "x" * size}, f"e{first + n}") for n in range(count)]
        receipts = self.publisher.publish_many(events)
        for receipt in receipts:
            self.history.published(receipt.epoch, receipt.offset, topic, receipt.id)
        return [receipt.offset for receipt in receipts]

    def clients(self, count: int, patterns: Iterable[str] = ("#",), **options: Any) -> Swarm:
        """Return clients, not connected yet."""
        wanted = tuple(patterns)
        swarm = Swarm([self.gateway.url], count, lambda index: wanted, namespace=self.namespace, **options)
        self._swarms.append(swarm)
        return swarm

    def client(self, *patterns: str, **options: Any) -> tuple[Swarm, BrowserClient]:
        """Return one welcomed client, and its swarm."""
        swarm = self.clients(1, patterns or ("#",), **options).open()
        return swarm, swarm.clients[0]

    def check(self, swarm: Swarm) -> None:
        """Every promise was kept to these clients."""
        newest = max(self.history.events.values(), key=lambda event: (event.epoch == swarm.clients[0].epoch, event.offset))
        assert_kept(self.history, swarm.records, (newest.epoch, newest.offset))

    def close(self) -> None:
        """End the clients and the publisher."""
        for swarm in self._swarms:
            swarm.close()
        self.publisher.close()


class Grounds:
    """A Redis and a gateway with so many namespaces that each test of a module has an unused one."""

    def __init__(self, folder: Path, count: int, **settings: Any) -> None:
        self._names = [f"test-{number}" for number in range(count)]
        self._folder, self._settings = folder, settings
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Grounds:
        named = {f"HEADGATE_{name.upper()}": str(value) for name, value in self._settings.items()}
        with contextlib.ExitStack() as stack:
            self._redis = stack.enter_context(RedisProcess(self._folder / "redis"))
            named |= {"HEADGATE_REDIS_URL": self._redis.url, "HEADGATE_NAMESPACES": ",".join(self._names)}
            self._gateway = stack.enter_context(GatewayProcess(self._folder / "gateway", named, ("--dev",)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def fresh(self) -> Iterator[LogGround]:
        """Give a namespace out."""
        with contextlib.closing(LogGround(self._gateway, self._redis, self._names.pop())) as ground:
            yield ground
            print("\n".join(self._gateway.output.splitlines()[-20:]))


def offsets(client: BrowserClient) -> list[int]:
    """Return the offsets that a client has seen, in the order in which it did."""
    return [seen.offset for seen in client.record.seen()]


def resumed(client: BrowserClient) -> list[bool | None]:
    """Return `resumed` of each welcome."""
    return [entry.resumed for entry in client.record.entries if isinstance(entry, Welcomed)]


def wait_for_offset(swarm: Swarm, offset: int) -> None:
    """Wait until every client's position is there."""
    swarm.wait(lambda: all(client.offset >= offset for client in swarm.clients), f"offset {offset}", DEADLINE_S)
