"""A dry run: what consumers would do with the events of the log, printed. No group is made and nothing is acknowledged.

In: consumers, and where to begin. Out: a line for each event that a consumer wants, and below it what its `preview` says. Reads
the log, so it shows what the consumers would get: every logged event once, in order, also while it looks away for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from headgate.consumers.base import Consumer, Delivery
from headgate.consumers.work.spec import ConsumerSpec, context_of
from headgate.consumers.work.state import RedisState
from headgate.consumers.work.store import Store
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.redis.client import Client, open_client
from headgate.redis.log import EventLog
from headgate.runtime.terminal_text import for_terminal
from headgate.services.publisher import Publisher
from headgate.settings import HARD_MAX_PAYLOAD_BYTES

# How often the log is looked at: a person is watching.
POLL_S = 0.2


class DryRun:
    """Previews of what some consumers would do.

    Args:
        specs: the consumers.
        redis_url: where their logs are.
        say: takes a text of one or more lines; what would move the cursor of a terminal is escaped.
    """

    def __init__(self, specs: Sequence[ConsumerSpec], redis_url: str, say: Callable[[str], None]) -> None:
        self._say, self._url = say, redis_url
        self._client: Client = open_client(redis_url)
        self._publisher = Publisher(redis_url)
        self._logs = {spec.namespace: EventLog(spec.namespace, self._client, HARD_MAX_PAYLOAD_BYTES) for spec in specs}
        self._consumers = [(spec, self._make(spec)) for spec in specs]

    def run(self, since: int | None) -> None:
        """Print previews until interrupted.

        Args:
            since: the first offset to look at, in every namespace; None: only what is published from now on.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; also when a log was replaced by another one.
        """
        heads = {namespace: log.head() for namespace, log in self._logs.items()}
        after = {namespace: head.offset if since is None else max(since - 1, 0) for namespace, head in heads.items()}
        for namespace, head in heads.items():
            if after[namespace] + 1 < head.first:
                self._say(f"{namespace}: offsets {after[namespace] + 1} to {head.first - 1} are not in the log any more")
        while True:
            idle = True
            for namespace, log in self._logs.items():
                if not heads[namespace].epoch:  # there was no log yet
                    heads[namespace] = log.head()
                    continue
                for entry in log.page(after[namespace], None, epoch=heads[namespace].epoch):
                    idle, after[namespace] = False, entry.offset
                    if entry.event is None:
                        self._say(f"{entry.offset} cannot be read: {entry.error}")
                    else:
                        self._show(namespace, heads[namespace].epoch, entry.event)
            if idle:
                time.sleep(POLL_S)

    def close(self) -> None:
        """Let go of Redis and of what the consumers hold."""
        for _, consumer in self._consumers:
            consumer.close()
        self._publisher.close()
        self._client.close()

    def _make(self, spec: ConsumerSpec) -> Consumer:
        store = Store(self._client, self._url, spec.namespace, spec.name, HARD_MAX_PAYLOAD_BYTES)
        state = RedisState(self._client, spec.namespace, spec.name, store)
        return spec.consumer(spec.options, context_of(spec, state, self._publisher))

    def _show(self, namespace: str, epoch: str, event: Event) -> None:
        for spec, consumer in self._consumers:
            if spec.namespace == namespace and any(matches(pattern, event.topic) for pattern in spec.patterns):
                parts = {**msgspec.structs.asdict(event), "epoch": epoch}
                text = _preview(consumer, Delivery(**parts, namespace=namespace, consumer=spec.name))
                self._say("\n    ".join([f"{event.offset} {event.topic} -> {spec.name}", *printable_lines(text)]))


def printable_lines(text: str) -> list[str]:
    """Return the lines of a text that may hold anything, as they may be printed on a terminal."""
    return [for_terminal(line).decode() for line in text.splitlines()]


def _preview(consumer: Consumer, delivery: Delivery) -> str:
    try:
        return consumer.preview(delivery)
    except Exception as error:  # noqa: BLE001 - somebody's class; the next event may be another matter
        return f"its preview raised {type(error).__name__}: {error}"
