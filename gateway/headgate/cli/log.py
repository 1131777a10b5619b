"""`headgate tail`, `replay` and `trace` print live events, a range of the log, and the history of one event.

Imports only click. Each command imports the rest.
"""

from __future__ import annotations

import re
import sys
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, need_namespace, redis_option, seconds, with_options
from .output import counted, echo, paint, print_json, wants_json

if TYPE_CHECKING:
    from headgate.diagnosis.tracing import AtConsumer, AtGateway, Trace
    from headgate.events.event import Event
    from headgate.redis.log_walk import Gap
    from headgate.redis.questions import AtBrowsers

EXPECTED = "an offset such as 1200, a time ago such as 10m, or a time such as 2026-11-23T09:00 (UTC: …Z)"
# Between two attempts to listen, while Redis answers other commands.
RECONNECT_S = 1.0
# How long `replay` waits for Redis, as in a failover.
PATIENCE_S = 30.0


def read_since(text: str, now_s: float) -> int | datetime:
    """Return the offset or time in a text. A time without a zone is local. Raises click.BadParameter for an invalid text."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    if re.fullmatch(r"[0-9]{1,9}[smhd]", text):
        return datetime.fromtimestamp(max(0.0, now_s - seconds(text)), UTC)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r}, expected {EXPECTED}", param_hint="WHEN") from None


@click.command()
@click.argument("pattern")
@click.option("--since", metavar="WHEN", help=f"Begin with events of the log: {EXPECTED}.")
@click.option("--times/--no-times", default=None, help="Print the time of each event. Default: on a terminal.")
@click.option("--count", metavar="N", type=click.IntRange(1), help="Exit after N events. Default: run until Ctrl-C.")
@with_options(namespace_option, redis_option, json_option)
def tail(pattern: str, since: str | None, times: bool | None, count: int | None, namespace: str, redis_url: str | None) -> None:
    """Print live events that match PATTERN (* is one word, # is zero or more) until Ctrl-C or the Nth event of --count."""
    import time

    from headgate.diagnosis.live_events import LiveEvents
    from headgate.errors import BusRefused, BusUnavailable, HeadgateError
    from headgate.events.event import decode_message
    from headgate.events.topic import check_topic, matches
    from headgate.redis.log_walk import Gap
    from headgate.services.publisher import find_redis_url
    from headgate.services.subscriber import MAX_WAIT_S, Subscriber
    from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

    after = None if since is None else _after(read_since(since, time.time()))
    url = redis_url or find_redis_url()
    shows_times = sys.stdout.isatty() if times is None else times
    left = count

    def show(event: Event) -> None:
        nonlocal left
        _print_event(event, shows_times)
        if left is not None and (left := left - 1) == 0:
            sys.exit(0)

    def show_log() -> None:
        for item in log:
            if isinstance(item, Gap):
                echo(_gap_line(item), err=True)
            else:
                show(item)

    def show_unlogged(channel_topic: str, message: bytes) -> None:
        try:
            topic = check_topic(channel_topic)
            if matches(pattern, topic):
                event = decode_message(topic, message, HARD_MAX_PAYLOAD_BYTES, time.time_ns() // 1_000_000)
                if event.offset is None:
                    show(event)
        except HeadgateError as error:
            echo(f"set aside a message of {len(message)} bytes: {error.message}", err=True)

    log = Subscriber(url, pattern, since=after, namespace=namespace, wait_s=0, patience_s=MAX_WAIT_S)
    click.get_current_context().with_resource(closing(log))
    is_listening = False
    while True:
        try:
            with closing(LiveEvents(url, namespace, pattern)) as live:
                live.listen()
                show_log()
                if not is_listening:
                    _warn_if_unknown(url, namespace)
                    echo(f"listening to {pattern} in {namespace}", err=True)
                    is_listening = True
                for messages in live.read():
                    show_log()
                    for channel_topic, message in messages:
                        show_unlogged(channel_topic, message)
        except (BusUnavailable, BusRefused):  # with a full disk Redis refuses PING, and lets the log be read
            if not is_listening:
                raise
            show_log()  # waits for Redis, and reports that
            time.sleep(RECONNECT_S)


@click.command()
@click.argument("pattern")
@click.option("--since", metavar="WHEN", help=f"First event: {EXPECTED}. Default: the oldest event kept.")
@click.option("--until", metavar="WHEN", help="Last offset, or the time at which to stop. Default: the newest event now.")
@with_options(namespace_option, redis_option, json_option)
def replay(pattern: str, since: str | None, until: str | None, namespace: str, redis_url: str | None) -> None:
    """Write the logged events that match PATTERN (* is one word, # is zero or more), one JSON object per line.

    Publishes nothing. `headgate publish --file` publishes these lines into another namespace or Redis. With --json, errors are
    JSON too.
    """
    import time

    from headgate.redis.log import EventLog
    from headgate.redis.log_walk import Gap
    from headgate.services.publisher import find_redis_url
    from headgate.services.subscriber import OLDEST, Subscriber

    now_s = time.time()
    begin, end = (None if text is None else read_since(text, now_s) for text in (since, until))
    after = OLDEST if begin is None else _after(begin)
    url = redis_url or find_redis_url()
    log = EventLog(namespace, need_namespace(url, namespace))
    if end is None:
        last = log.end()[1]
    else:
        last = end if isinstance(end, int) else log.first_since(round(end.timestamp() * 1000)) - 1
    with Subscriber(url, pattern, since=after, namespace=namespace, wait_s=0, patience_s=PATIENCE_S) as events:
        for item in events:
            if isinstance(item, Gap):
                echo(_gap_line(item), err=True)
            elif (item.offset or 0) > last:
                break
            else:
                echo(_event_line(item))


def _warn_if_unknown(url: str, namespace: str) -> None:
    """Warn if no gateway has served the namespace, which may be misspelt. A gateway may start, so `tail` listens anyway.

    Raises BusRefused: events never come from there, for example from a Sentinel.
    """
    from headgate.errors import BusUnavailable, NamespaceNotServed

    try:
        need_namespace(url, namespace)
    except NamespaceNotServed as error:
        echo(f"headgate: {error.message}", err=True)
    except BusUnavailable:  # the listener reports it, if it lasts
        pass


def _after(begin: int | datetime) -> int | datetime:
    """Return the start for a Subscriber, which starts after an offset."""
    return max(begin, 1) - 1 if isinstance(begin, int) else begin


def _gap_line(gap: Gap) -> str:
    offsets = f"from offset {gap.first} to {gap.last}"
    return {
        "trimmed": f"the log no longer holds the events {offsets}",
        "quarantined": f"set aside the event at offset {gap.first}: {gap.why}",
        "rolled_back": f"Redis has lost the events {offsets}",
    }.get(gap.reason, "the log is another one")


def _event_line(event: Event) -> bytes:
    """Return one event as JSON, with all its known fields."""
    import msgspec

    parts: dict[str, object] = {"topic": event.topic, "data": msgspec.Raw(event.data), "id": event.id, "time": event.time_ms}
    if event.offset is not None:
        parts |= {"epoch": event.epoch, "offset": event.offset}
    return msgspec.json.encode(parts)


def _print_event(event: Event, shows_time: bool = False) -> None:
    """Print one event on one line. No control character of a hostile payload reaches the terminal."""
    if wants_json():
        echo(_event_line(event))
        return
    offset = paint("-" if event.offset is None else str(event.offset), "yellow")
    at = datetime.fromtimestamp(event.time_ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    time = (paint(at, "bright_black"), " ") if shows_time else ()
    echo(*time, offset, " ", paint(event.topic, "cyan"), " ", event.data)


_WORDS = {
    "written": "written to at once",
    "queued": "that had it in their queues",
    "kept": "that keep it as the newest of its topic",
    "discarded": "with a full queue missed it, and were notified",
    "conflated": "that got a newer one of its topic instead",
    "left_to_log": "that lagged, and read it from the log",
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
    clients = counted(counts["matched"], "client")
    return f"gateway {at.gateway}: for {clients}" + (f": {', '.join(parts)}" if parts else "") + read


def _browsers(at: AtBrowsers) -> str:
    parts = [f"{count} {words}" for name, words in _PHRASES.items() if (count := getattr(at, name))]
    return f"browsers: of {at.clients} connected now, {', '.join(parts)}"


def _consumer(at: AtConsumer) -> str:
    attempts = f", attempt {at.attempts}" if at.attempts else ""
    details = ", ".join(filter(None, (at.reason, *at.outcomes)))
    return f"consumer {at.consumer}: {at.state}{attempts}" + (f" ({details})" if details else "")
