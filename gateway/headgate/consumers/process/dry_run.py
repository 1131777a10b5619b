"""A dry run prints what consumers would do with the events of the log, without creating a group or acknowledging anything.

In: consumers and a start. Out: a line for each event that a consumer wants, followed by its `preview`. It reads the log, so it
shows every logged event once, in order, even after a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

import msgspec

from headgate.consumers.base import Consumer, Delivery
from headgate.consumers.work.spec import ConsumerSpec
from headgate.consumers.work.state import context_of
from headgate.consumers.work.store import Store
from headgate.events.event import Event
from headgate.events.topic import is_probe, matches
from headgate.redis.client import open_client
from headgate.redis.log import EventLog
from headgate.runtime.operator_lines import for_terminal
from headgate.services.publisher import Publisher
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

# Interval between reads of the log, short because a person is watching.
POLL_S = 0.2


def dry_run(specs: Sequence[ConsumerSpec], redis_url: str, since: int | None, say: Callable[[str], None]) -> None:
    """Print previews of the work of some consumers until interrupted.

    Args:
        since: first offset to read, in every namespace; None for events published from now on.
        say: takes a text of one or more lines, in which escape sequences of a terminal are escaped.

    Raises BusUnavailable and BusRefused as `redis.client.call`, and if another log has replaced one.
    """
    with closing(open_client(redis_url)) as client, Publisher(redis_url) as publisher, ExitStack() as made:
        consumers = []
        for spec in specs:
            store = Store(client, redis_url, spec.namespace, spec.name, HARD_MAX_PAYLOAD_BYTES)
            context = context_of(spec, store, publisher)
            consumers.append((spec, made.enter_context(closing(spec.consumer(spec.options, context)))))
        logs = {spec.namespace: EventLog(spec.namespace, client) for spec in specs}
        heads = {namespace: log.head() for namespace, log in logs.items()}
        after = {namespace: head.offset if since is None else max(since - 1, 0) for namespace, head in heads.items()}
        for namespace, head in heads.items():
            if after[namespace] + 1 < head.first:
                say(f"{namespace}: offsets {after[namespace] + 1} to {head.first - 1} are not in the log any more")
        while True:
            idle = True
            for namespace, log in logs.items():
                if not heads[namespace].epoch:  # there was no log yet
                    heads[namespace] = log.head()
                    continue
                for entry in log.page(after[namespace], None, epoch=heads[namespace].epoch):
                    idle, after[namespace] = False, entry.offset
                    if entry.event is None:
                        say(f"{entry.offset} cannot be read: {entry.error}")
                    elif not is_probe(entry.event.topic):
                        _show(consumers, namespace, heads[namespace].epoch, entry.event, say)
            if idle:
                time.sleep(POLL_S)


def printable_lines(text: str) -> list[str]:
    """Return the lines of any text, escaped for a terminal."""
    return [for_terminal(line).decode() for line in text.splitlines()]


def _show(
    consumers: Sequence[tuple[ConsumerSpec, Consumer]], namespace: str, epoch: str, event: Event, say: Callable[[str], None]
) -> None:
    for spec, consumer in consumers:
        if spec.namespace == namespace and any(matches(pattern, event.topic) for pattern in spec.patterns):
            parts = {**msgspec.structs.asdict(event), "epoch": epoch}
            try:
                text = consumer.preview(Delivery(**parts, namespace=namespace, consumer=spec.name))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - an operator's class; the next event may work
                text = f"its preview raised {type(error).__name__}: {error}"
            say("\n    ".join([f"{event.offset} {event.topic} -> {spec.name}", *printable_lines(text)]))
