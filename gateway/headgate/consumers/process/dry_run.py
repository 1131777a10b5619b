"""A dry run: prints what consumers would do with the events of the log, without making a group or acknowledging anything.

In: consumers and a start. Out: a line for each event that a consumer wants, followed by its `preview`. Reads the log, so it shows
every logged event once, in order, even after a pause.
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
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

# Interval between reads of the log, short because a person is watching.
POLL_S = 0.2


class DryRun:
    """Previews the work of some consumers.

    Args:
        specs: the consumers.
        redis_url: the Redis of their logs.
        say: takes a text of one or more lines, in which sequences that move the cursor of a terminal are escaped.
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
            since: first offset to read, in every namespace; None: only events published from now on.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; also if another log has replaced one.
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
        """Close the consumers and the connections to Redis."""
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
    """Return the lines of any text, escaped for a terminal."""
    return [for_terminal(line).decode() for line in text.splitlines()]


def _preview(consumer: Consumer, delivery: Delivery) -> str:
    try:
        return consumer.preview(delivery)
    except Exception as error:  # noqa: BLE001 - an operator's class; the next event may work
        return f"its preview raised {type(error).__name__}: {error}"
