"""`headgate trace`: the history of one event. Imports only click."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, need_namespace, redis_option, with_options
from .output import echo, print_json, wants_json

if TYPE_CHECKING:
    from headgate.diagnosis.tracing import AtConsumer, AtGateway, Trace
    from headgate.redis.handled_events import AtBrowsers

_WORDS = {
    "written": "written to at once",
    "queued": "that had it in their queues",
    "kept": "that keep it as the newest of its topic",
    "discarded": "whose full queue left it out, and that were told",
    "conflated": "that got a newer one of its topic instead",
    "left_to_log": "that were behind, and read it from the log",
    "gone": "whose connection was gone",
}

_PHRASES = {
    "handled": "handled it",
    "unhandled": "passed it without a handler (a gap, or no handler then)",
    "behind": "not there yet",
    "unknown": "came later, or no longer remember",
    "unanswered": "did not answer",
    "not_asked": "not asked",
}


@click.command()
@click.argument("event", metavar="ID")
@with_options(namespace_option, redis_option, json_option)
def trace(event: str, namespace: str, redis_url: str | None) -> None:
    """Print what happened to the event with this ID, or at this offset of the log."""
    from headgate.diagnosis.tracing import trace as find

    result = find(need_namespace(redis_url, namespace), namespace, event)
    if wants_json():
        print_json(result)
        return
    for line in lines(result):
        echo(line)


def lines(trace: Trace) -> list[str]:
    from datetime import UTC, datetime

    from headgate.events.topic import user_of

    at = datetime.fromtimestamp(trace.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return [
        f"event {trace.id}, topic {trace.topic}, {trace.bytes} bytes",
        f"published {at} by {_publisher(trace.by)}, offset {trace.offset} of {trace.head} in {trace.namespace},"
        f" epoch {trace.epoch}",
        *([] if trace.traceparent is None else [f"trace {trace.traceparent.split('-')[1]} (traceparent {trace.traceparent})"]),
        *(_gateway(each) for each in trace.gateways),
        *([] if trace.browsers is None or not trace.browsers.clients else [_browsers(trace.browsers)]),
        *([] if trace.state is None else [f"user {user_of(trace.topic)}: {trace.state}"]),
        *(_consumer(each) for each in trace.consumers),
        *(f"note: {note}" for note in trace.notes),
    ]


def _publisher(by: str | None) -> str:
    if by is None:
        return "a service"
    return by if by.startswith("key ") else f"user {by}"


def _gateway(at: AtGateway) -> str:
    counts = at.counts
    parts = [f"{counts[name]} {words}" for name, words in _WORDS.items() if counts.get(name)]
    read = f"; {counts['from_log']} read it from the log" if counts.get("from_log") else ""
    clients = "1 client" if counts["matched"] == 1 else f"{counts['matched']} clients"
    return f"gateway {at.gateway}: for {clients}" + (f": {', '.join(parts)}" if parts else "") + read


def _browsers(at: AtBrowsers) -> str:
    parts = [f"{count} {words}" for name, words in _PHRASES.items() if (count := getattr(at, name))]
    return f"browsers: of {at.clients} connected now, {', '.join(parts)}"


def _consumer(at: AtConsumer) -> str:
    attempts = f", attempt {at.attempts}" if at.attempts else ""
    details = ", ".join(filter(None, (at.reason, *at.outcomes)))
    return f"consumer {at.consumer}: {at.state}{attempts}" + (f" ({details})" if details else "")
