"""`headgate publish` and `headgate tail`: an event in, events as they come out. Imports click only, each command the rest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, redis_option
from .output import for_terminal, one_line_errors

if TYPE_CHECKING:
    from headgate.event import Event

# Words given for JSON are shown in quotes, to paste, up to so many characters.
_MAX_QUOTED = 200


@click.command()
@click.argument("topic")
@click.argument("data", metavar="JSON")
@namespace_option
@click.option("--id", "event_id", metavar="ID", help="Publish at most once under this id (within 300 s).")
@click.option("--user", metavar="NAME", help="Publish to this user alone: the topic becomes users.NAME.TOPIC.")
@click.option("--strict-namespace", is_flag=True, help="Refuse a namespace that no gateway has served, instead of a warning.")
@redis_option
@one_line_errors
def publish(
    topic: str,
    data: str,
    namespace: str,
    event_id: str | None,
    user: str | None,
    strict_namespace: bool,
    redis_url: str | None,
) -> None:
    """Publish one event and print its receipt. JSON is the data; - reads it from standard input."""
    import logging

    import msgspec

    from headgate.errors import NotSerializable
    from headgate.publisher import Publisher
    from headgate.settings import HARD_MAX_PAYLOAD_BYTES

    # One byte more than any limit: enough to be refused, without reading on for ever.
    text = sys.stdin.buffer.read(HARD_MAX_PAYLOAD_BYTES + 1) if data == "-" else data.encode(errors="surrogateescape")
    logging.basicConfig(format="headgate: %(message)s")
    # The namespace's own limit, which Redis knows, decides.
    with Publisher(
        redis_url, namespace=namespace, max_payload_bytes=HARD_MAX_PAYLOAD_BYTES, strict_namespace=strict_namespace
    ) as publisher:
        try:
            receipt = publisher.publish(topic, msgspec.Raw(text.strip()), id=event_id, user=user)
        except NotSerializable as error:
            if data != "-" and (quoted := _as_json_text(data)):
                error.add_note(f"to publish this as text, write {quoted}")
            raise
    click.echo(
        f"offset {receipt.offset} epoch {receipt.epoch} id {receipt.id}"
        + (" (duplicate, not added)" if receipt.duplicate else "")
    )


@click.command()
@click.argument("pattern")
@namespace_option
@redis_option
@json_option
@one_line_errors
def tail(pattern: str, namespace: str, redis_url: str | None, as_json: bool) -> None:
    """Print live events that match PATTERN (* is one word, # is zero or more) until Ctrl-C."""
    import time

    from headgate.bus.interest import subscription
    from headgate.errors import BusUnavailable, HeadgateError
    from headgate.event import decode_message
    from headgate.publisher import find_redis_url
    from headgate.redis.cluster import is_cluster
    from headgate.redis.keys import channel_prefix, feed_channel, log_key
    from headgate.redis.subscriber_link import SubscriberLink
    from headgate.settings import HARD_MAX_PAYLOAD_BYTES
    from headgate.topic import check_namespace, check_pattern, check_topic, matches

    namespace = check_namespace(namespace)
    commands = [subscription(namespace, check_pattern(pattern))]
    prefix = channel_prefix(namespace).encode()
    url = redis_url or find_redis_url()
    if is_cluster(url):
        # There the log's events come over one sharded channel, with the topic before each; those without an offset as elsewhere.
        commands.append(("SSUBSCRIBE", feed_channel(namespace)))
    link = SubscriberLink(url, key=log_key(namespace))
    link.connect()
    link.send(*commands)
    while True:
        for reply in link.read():
            if reply[0] == b"sunsubscribe":
                raise BusUnavailable("the slot of the namespace has moved to another node of the Cluster: run this again")
            if reply[0] in (b"subscribe", b"psubscribe", b"ssubscribe"):
                if reply[0] == commands[-1][0].lower().encode():
                    click.echo(f"listening to {pattern} in {namespace}", err=True)
                continue
            channel, message = reply[-2], reply[-1]
            if reply[0] == b"smessage":
                channel, _, message = message.partition(b"\n")
            try:
                topic = check_topic(channel.removeprefix(prefix).decode("ascii", "replace"))
                if matches(pattern, topic):
                    now_ms = time.time_ns() // 1_000_000
                    _print_event(decode_message(topic, message, HARD_MAX_PAYLOAD_BYTES, now_ms), as_json)
            except HeadgateError as error:
                click.echo(f"set aside a message of {len(message)} bytes: {error.message}", err=True)


def _as_json_text(text: str) -> str | None:
    """Return words that are no JSON as JSON text in the shell's quotes, ready to paste; None where that would not help."""
    import json
    import shlex

    import msgspec

    try:
        msgspec.json.decode(text)
        return None  # the fault is another one
    except (msgspec.DecodeError, UnicodeEncodeError):
        if len(text) > _MAX_QUOTED or any(0xD800 <= ord(character) < 0xE000 for character in text):
            return None
    except RecursionError:
        return None
    return shlex.quote(json.dumps(text, ensure_ascii=not text.isprintable()))


def _print_event(event: Event, as_json: bool) -> None:
    """Print one event on one line. No control character of a hostile payload reaches the terminal."""
    import msgspec

    if as_json:
        parts: dict[str, object] = {"topic": event.topic, "data": msgspec.Raw(event.data), "id": event.id, "time": event.time_ms}
        if event.offset is not None:
            parts |= {"epoch": event.epoch, "offset": event.offset}
        line = msgspec.json.encode(parts)
    else:
        line = b"%b %b %b" % (b"-" if event.offset is None else b"%d" % event.offset, event.topic.encode(), event.data)
    click.echo(for_terminal(line))
