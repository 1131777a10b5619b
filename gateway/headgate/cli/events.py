"""`headgate publish` and `headgate tail`: publish events, and print live ones. Imports click only, each command the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, need_namespace, redis_option
from .output import Trusted, echo, one_line_errors, paint, print_done
from .since import EXPECTED, Since, read_since

if TYPE_CHECKING:
    from headgate.events.event import Event
    from headgate.redis.entries import Entry
    from headgate.services.publisher import Publisher

# A command delays no next call, so it waits longer than a publisher in an application.
TIMEOUT_S = 10.0
# Words given instead of JSON are shown in quotes, to paste, up to this length.
_MAX_QUOTED = 200


@click.command()
@click.argument("topic", required=False)
@click.argument("data", metavar="JSON", required=False)
@click.option(
    "--file", "file", metavar="FILE", help="Publish the events of a file instead, one JSON object a line; - is standard input."
)
@namespace_option
@click.option(
    "--id",
    "event_id",
    metavar="ID",
    help="Publish at most once under this id and on this topic, for 300 s (less at a high rate).",
)
@click.option("--id-for", "id_for_s", metavar="SECONDS", type=click.IntRange(1, 86400), help="Remember the id for so long.")
@click.option("--user", metavar="NAME", help="Publish to this user alone, of any name: the topic becomes users.WORD.TOPIC.")
@click.option("--strict-namespace", is_flag=True, help="Refuse a namespace that no gateway has served, instead of a warning.")
@click.option("--skip-bad", is_flag=True, help="Of a file: publish the good lines. Without it, one bad line keeps all out.")
@click.option("--new-ids", is_flag=True, help="Of a file: give each event a new id, so that it is added again.")
@click.option("--from-line", metavar="N", type=click.IntRange(1), help="Of a file: begin with this line.")
@click.option("--receipts", metavar="PATH", help="Of a file: where its receipts are. Default: FILE.receipts, and none for -.")
@redis_option
@json_option
@one_line_errors
def publish(
    topic: str | None,
    data: str | None,
    file: str | None,
    namespace: str,
    event_id: str | None,
    id_for_s: int | None,
    user: str | None,
    strict_namespace: bool,
    skip_bad: bool,
    new_ids: bool,
    from_line: int | None,
    receipts: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Publish one event and print its receipt, or publish the events of a file. JSON is the data; - reads it from standard input.

    A line of a file is {"topic": …, "data": …}, with an optional "id", as `headgate replay` writes it. All lines are checked
    before the first is published. Receipts are kept next to the file, so the same command, run again after Ctrl-C or a fault,
    adds only the events that the log does not have, at any later time; in another log it adds all of them. A file whose
    published lines have changed is refused. Standard input has receipts only with --receipts; without them, a repeated line
    adds nothing while its id counts, for 300 s (less at a high rate).

    Exit code 0: every event is in the log. 1: at least one is not, or its outcome is unknown. 3: everything was published, but
    standard output did not take the receipts, which are on standard error.
    """
    import logging
    from functools import partial

    from headgate.services.publisher import Publisher
    from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

    if (file is None) == (topic is None) or (data is None) != (topic is None):
        raise click.UsageError("expected TOPIC and JSON, or --file FILE")
    if file is not None and (event_id is not None or user is not None):
        raise click.UsageError("--id and --user go with TOPIC and JSON")
    if id_for_s is not None and event_id is None:
        raise click.UsageError("--id-for goes with --id")
    if file is None and (receipts is not None or from_line is not None or new_ids or skip_bad):
        raise click.UsageError("--receipts, --from-line, --new-ids and --skip-bad go with --file FILE")
    logging.basicConfig(format="headgate: %(message)s")
    # The namespace's own limit in Redis applies.
    open_publisher = partial(Publisher, redis_url, namespace=namespace, strict_namespace=strict_namespace, timeout_s=TIMEOUT_S)
    if topic is not None and data is not None:
        with open_publisher(max_payload_bytes=HARD_MAX_PAYLOAD_BYTES) as publisher:
            _publish_one(publisher, topic, data, event_id, id_for_s, user, as_json)
    elif file is not None:
        from headgate.redis.sent_events import SentEvents

        from .bulk_file import namespace_limit, open_log, publish_file

        with (
            open_log(redis_url, namespace) as client,
            open_publisher(max_payload_bytes=namespace_limit(client, namespace)) as publisher,
        ):
            publish_file(
                publisher,
                SentEvents(client, namespace),
                file,
                receipts=receipts,
                skip_bad=skip_bad,
                new_ids=new_ids,
                from_line=from_line,
                as_json=as_json,
            )


def _publish_one(
    publisher: Publisher, topic: str, data: str, event_id: str | None, id_for_s: int | None, user: str | None, as_json: bool
) -> None:
    import msgspec

    from headgate.errors import NotSerializable
    from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

    # One byte above any limit is enough for a refusal, without reading forever.
    text = sys.stdin.buffer.read(HARD_MAX_PAYLOAD_BYTES + 1) if data == "-" else data.encode(errors="surrogateescape")
    try:
        receipt = publisher.publish(topic, msgspec.Raw(text.strip()), id=event_id, user=user, id_for_s=id_for_s)
    except NotSerializable as error:
        if data != "-" and (quoted := _as_json_text(data)):
            error.add_note(f"to publish this as text, write {quoted}")
        raise
    text = f"offset {receipt.offset} epoch {receipt.epoch} id {receipt.id}"
    print_done(
        text + (" (duplicate, not added)" if receipt.duplicate else ""),
        {"epoch": receipt.epoch, "offset": receipt.offset, "id": receipt.id, "duplicate": receipt.duplicate},
        as_json=as_json,
    )


@click.command()
@click.argument("pattern")
@click.option("--since", metavar="WHEN", help=f"Begin with events of the log: {EXPECTED}.")
@click.option("--times/--no-times", default=None, help="Print the time of each event. Default: on a terminal.")
@click.option("--count", metavar="N", type=click.IntRange(1), help="Exit after N events. Default: run until Ctrl-C.")
@namespace_option
@redis_option
@json_option
@one_line_errors
def tail(
    pattern: str,
    since: str | None,
    times: bool | None,
    count: int | None,
    namespace: str,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Print live events that match PATTERN (* is one word, # is zero or more) until Ctrl-C or the Nth event of --count."""
    import time

    from headgate.diagnosis.live_events import LiveEvents
    from headgate.errors import HeadgateError
    from headgate.events.event import decode_message
    from headgate.events.topic import check_namespace, check_topic, matches
    from headgate.services.publisher import find_redis_url
    from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

    begin = None if since is None else read_since(since, time.time())
    namespace = check_namespace(namespace)
    url = redis_url or find_redis_url()
    shows_times = sys.stdout.isatty() if times is None else times

    left = count

    def show(event: Event) -> None:
        nonlocal left
        _print_event(event, as_json, shows_times)
        if left is not None and (left := left - 1) == 0:
            sys.exit(0)

    live = LiveEvents(url, namespace, pattern)
    past = None if begin is None else _Past(url, namespace, pattern, begin, show)
    if past is not None:
        past.show_all()
    live.listen()
    if past is not None:
        past.show_all()  # events that came before the subscription
    echo(f"listening to {pattern} in {namespace}", err=True)
    _warn_if_unknown(url, namespace)
    for channel_topic, message in live.read():
        try:
            topic = check_topic(channel_topic)
            if matches(pattern, topic):
                event = decode_message(topic, message, HARD_MAX_PAYLOAD_BYTES, time.time_ns() // 1_000_000)
                if past is None or past.is_new(event):
                    show(event)
        except HeadgateError as error:
            echo(f"set aside a message of {len(message)} bytes: {error.message}", err=True)


def _warn_if_unknown(url: str, namespace: str) -> None:
    """Warn if no gateway has served the namespace, as its name may be misspelt. One may start, so `tail` listens anyway."""
    from headgate.errors import HeadgateError, NamespaceNotServed

    try:
        need_namespace(url, namespace)
    except HeadgateError as error:
        if isinstance(error, NamespaceNotServed):  # the listener reports other faults of Redis
            echo(f"headgate: {error.message}", err=True)


class _Past:
    """The logged events before the live ones; recognises a live event that was among them."""

    def __init__(self, url: str, namespace: str, pattern: str, begin: Since, show: Callable[[Event], None]) -> None:
        from headgate.redis.client import open_client
        from headgate.redis.log_range import LogRange

        self._log = LogRange(open_client(url, max_connections=1), namespace)
        self._pattern, self._show = pattern, show
        self._epoch, self._upto = self._log.head()[0], begin.first(self._log) - 1

    def show_all(self) -> None:
        """Show the logged events after the shown ones."""
        upto = self._log.head()[1]
        for event in self._log.events(self._pattern, self._upto + 1, upto, tell_aside):
            self._show(event)
        self._upto = max(self._upto, upto)

    def is_new(self, event: Event) -> bool:
        """Return whether a live event was not shown yet."""
        return event.offset is None or event.epoch != self._epoch or event.offset > self._upto


def tell_aside(entry: Entry) -> None:
    """Report a log entry that cannot be delivered."""
    assert entry.error is not None
    echo(f"set aside the event at offset {entry.offset}: {entry.error.message}", err=True)


def _as_json_text(text: str) -> str | None:
    """Return words that are not JSON as JSON text in shell quotes, ready to paste, or None where that would not help."""
    import json
    import shlex

    import msgspec

    try:
        msgspec.json.decode(text)
        return None  # another fault
    except (msgspec.DecodeError, UnicodeEncodeError):
        if len(text) > _MAX_QUOTED or any(0xD800 <= ord(character) < 0xE000 for character in text):
            return None
    except RecursionError:
        return None
    return shlex.quote(json.dumps(text, ensure_ascii=not text.isprintable()))


def event_line(event: Event) -> bytes:
    """Return one event as JSON, with all its known fields."""
    import msgspec

    parts: dict[str, object] = {"topic": event.topic, "data": msgspec.Raw(event.data), "id": event.id, "time": event.time_ms}
    if event.offset is not None:
        parts |= {"epoch": event.epoch, "offset": event.offset}
    return msgspec.json.encode(parts)


def _print_event(event: Event, as_json: bool, shows_time: bool = False) -> None:
    """Print one event on one line. No control character of a hostile payload reaches the terminal."""
    if as_json:
        echo(event_line(event))
        return
    offset = paint("-" if event.offset is None else str(event.offset), "yellow")
    time = (_time_of(event), " ") if shows_time else ()
    echo(*time, offset, " ", paint(event.topic, "cyan"), " ", event.data)


def _time_of(event: Event) -> Trusted:
    from datetime import datetime

    return paint(datetime.fromtimestamp(event.time_ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], "bright_black")
