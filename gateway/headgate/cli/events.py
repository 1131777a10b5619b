"""`headgate publish` publishes an event or the events of a file. Imports only click; the command imports the rest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, open_redis, redis_option, with_options
from .output import print_done

if TYPE_CHECKING:
    from headgate.services.publisher import Publisher

# A command has no next call to delay, so it waits longer than a publisher in an application.
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
@click.option("--id-for", "id_for_s", metavar="SECONDS", type=click.IntRange(1, 86400), help="Remember the id for this long.")
@click.option("--user", metavar="NAME", help="Publish to this user alone, of any name: the topic becomes users.WORD.TOPIC.")
@click.option("--strict-namespace", is_flag=True, help="Refuse a namespace that no gateway has served, instead of a warning.")
@click.option("--skip-bad", is_flag=True, help="With --file: publish the valid lines, even if others are invalid.")
@click.option("--new-ids", is_flag=True, help="With --file: give each event a new id, so that it is added again.")
@click.option("--from-line", metavar="N", type=click.IntRange(1), help="With --file: begin with this line.")
@click.option("--receipts", metavar="PATH", help="With --file: where its receipts are. Default: FILE.receipts, and none for -.")
@with_options(redis_option, json_option)
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
) -> None:
    """Publish one event and print its receipt, or publish the events of a file. JSON is the data; - reads it from standard input.

    A line of a file is {"topic": …, "data": …}, with an optional "id", as `headgate replay` writes it. All lines are checked
    before the first is published. Receipts are kept next to the file, so the same command, run again after Ctrl-C or a fault,
    adds only the events that the log does not have, at any later time. In another log it adds all of them. A file with changed
    published lines is refused. Standard input has receipts only with --receipts. Without them, a repeated line adds nothing
    while its id counts, for 300 s (less at a high rate).

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
            _publish_one(publisher, topic, data, event_id, id_for_s, user)
    elif file is not None:
        from headgate.redis.event_ids import SentEvents

        from .bulk_file import namespace_limit, publish_file

        client = open_redis(redis_url)
        with open_publisher(max_payload_bytes=namespace_limit(client, namespace)) as publisher:
            publish_file(
                publisher,
                SentEvents(client, namespace),
                file,
                receipts=receipts,
                skip_bad=skip_bad,
                new_ids=new_ids,
                from_line=from_line,
            )


def _publish_one(
    publisher: Publisher, topic: str, data: str, event_id: str | None, id_for_s: int | None, user: str | None
) -> None:
    import msgspec

    from headgate.errors import BusUnavailable, HeadgateError, NotSerializable
    from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

    # One byte above any limit is enough for a refusal, without reading forever.
    text = sys.stdin.buffer.read(HARD_MAX_PAYLOAD_BYTES + 1) if data == "-" else data.encode(errors="surrogateescape")
    try:
        data_json = msgspec.Raw(text.strip())
        event = publisher.prepare(topic, data_json, id=event_id, user=user, id_for_s=id_for_s, check_schemas=False)
        [receipt] = publisher.publish_prepared([event])
        if isinstance(receipt, HeadgateError):
            raise receipt
    except BusUnavailable as error:
        again = f"if it was published all the same, repeating it with --id {event.id} adds nothing"
        error.__notes__ = ["; ".join([*getattr(error, "__notes__", [])[:1], again])]
        error.parts = {**error.parts, "id": event.id}
        raise
    except NotSerializable as error:
        if data.startswith(("{", "[")) and ("'" in data or '"' not in data):  # of Python, or a shell took the quotes
            error.add_note('write keys and texts in double quotes, and all of it in single ones, as in \'{"carrier": "UPS"}\'')
        elif data != "-" and (quoted := _as_json_text(data)):
            error.add_note(f"to publish this as text, write {quoted}")
        raise
    text = f"offset {receipt.offset} epoch {receipt.epoch} id {receipt.id}"
    print_done(
        text + (" (duplicate, not added)" if receipt.duplicate else ""),
        {"epoch": receipt.epoch, "offset": receipt.offset, "id": receipt.id, "duplicate": receipt.duplicate},
    )


def _as_json_text(text: str) -> str | None:
    """Return words other than JSON as JSON text in shell quotes, ready to paste, or None if that would not help."""
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
