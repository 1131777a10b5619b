"""A dry run prints what consumers would do with the events of the log, without creating a group or acknowledging anything.

In: consumers and a start. Out: a line for each event that a consumer wants, followed by its `preview`. It reads the log, so it
shows every logged event once, in order, even after a pause.
"""

from __future__ import annotations

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
from headgate.redis.log_walk import Gap
from headgate.runtime.operator_lines import for_terminal
from headgate.services.publisher import Publisher
from headgate.services.subscriber import Subscriber
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

# Time for one namespace to have another event, short because a person is watching.
WAIT_S = 0.2


def dry_run(specs: Sequence[ConsumerSpec], redis_url: str, since: int | None, say: Callable[[str], None]) -> None:
    """Print previews of the work of some consumers until interrupted.

    Args:
        since: first offset to read, in every namespace; None for events published from now on.
        say: takes a text of one or more lines, in which escape sequences of a terminal are escaped.

    Raises BusUnavailable, BusRefused, and InvalidRequest for a `since` beyond the log, as `Subscriber`.
    """
    with closing(open_client(redis_url)) as client, Publisher(redis_url) as publisher, ExitStack() as made:
        consumers, logs = [], {}
        for spec in specs:
            store = Store(client, redis_url, spec.namespace, spec.name, HARD_MAX_PAYLOAD_BYTES)
            context = context_of(spec, store, publisher)
            consumers.append((spec, made.enter_context(closing(spec.consumer(spec.options, context)))))
        for namespace in dict.fromkeys(spec.namespace for spec in specs):
            after = None if since is None else since - 1
            log = Subscriber(redis_url, "#", since=after, namespace=namespace, wait_s=WAIT_S, patience_s=0)
            logs[namespace] = made.enter_context(log)
        while True:
            for namespace, log in logs.items():
                for item in log:
                    if isinstance(item, Gap):
                        why = item.why or "not in the log any more"
                        say(f"{namespace}: offsets {item.first} to {item.last}: {item.reason}, {why}")
                    elif not is_probe(item.topic):
                        _show(consumers, namespace, item, say)


def printable_lines(text: str) -> list[str]:
    """Return the lines of any text, escaped for a terminal."""
    return [for_terminal(line).decode() for line in text.splitlines()]


def _show(consumers: Sequence[tuple[ConsumerSpec, Consumer]], namespace: str, event: Event, say: Callable[[str], None]) -> None:
    for spec, consumer in consumers:
        if spec.namespace == namespace and any(matches(pattern, event.topic) for pattern in spec.patterns):
            try:
                text = consumer.preview(Delivery(**msgspec.structs.asdict(event), namespace=namespace, consumer=spec.name))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - an operator's class; the next event may work
                text = f"its preview raised {type(error).__name__}: {error}"
            say("\n    ".join([f"{event.offset} {event.topic} -> {spec.name}", *printable_lines(text)]))
