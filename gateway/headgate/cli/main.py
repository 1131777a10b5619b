"""The command line: `headgate publish`, `tail`, `serve`, `consume`, `consumers`, `dead-letters`, `token`, `revoke`, `check` and
`settings`.

In: arguments, and for what is not given the environment (HEADGATE_…). Out: results on standard output, one clear line on
standard error for every fault. Exit codes: 0, 1 for a fault, 2 for wrong usage, 130 after Ctrl-C.

It imports click only; each command imports what it needs. `serve` patches the standard library before anything else of ours is
loaded, and that would be too late once this file had imported it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headgate.consumers.work.dead_letters import DeadLetter, DeadLetters
    from headgate.consumers.work.groups import Standing
    from headgate.event import Event
    from headgate.redis.client import Client

_namespace_option = click.option(
    "--namespace", default="notifications", show_default=True, help="Namespace: one log, one set of limits."
)
_redis_option = click.option(
    "--redis", "redis_url", metavar="URL", help="Redis to use, such as redis://host:6379/0. Default: HEADGATE_REDIS_URL."
)
_config_option = click.option(
    "--config", metavar="FILE", help="Configuration file. Default: HEADGATE_CONFIG, else headgate.toml if it is here."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print each as one JSON object.")
# Words given for JSON are shown in quotes, to paste, up to so many characters.
_MAX_QUOTED = 200
# Commands that need the extra `consumers` alone.
_OF_CONSUMERS = {"consume", "consumers", "dead-letters"}
# JSON escapes most of them by itself; the others may stand in its strings, where an escape means the same.
_TERMINAL_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]")


def _address(_context: click.Context, _option: click.Parameter, given: str | None) -> tuple[str, int] | None:
    """Read HOST:PORT, such as 127.0.0.1:9100 or [::1]:9100."""
    if given is None:
        return None
    host, _, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise click.BadParameter("expected HOST:PORT, such as 127.0.0.1:9100; port 0 picks a free one")
    return host, int(port)


def _one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that Headgate raises on purpose into one line, a second with what to do where there is a usual thing to
    do, and exit code 1; others are bugs and keep their trace. A package that is not installed is one line too, if an extra of
    ours brings it."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        from headgate.errors import HeadgateError
        from headgate.extras import MissingExtra, needing

        path = click.get_current_context().command_path
        try:
            with needing("server" if _OF_CONSUMERS.isdisjoint(path.split()) else "consumers", path):
                command(*args, **kwargs)
        except HeadgateError as error:
            _fail(*error.lines())
        except MissingExtra as error:
            _fail(str(error))
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapper


def _which_letters(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command either ids or --all."""

    @functools.wraps(command)
    def wrapper(letter_ids: tuple[str, ...], all_: bool, **kwargs: Any) -> None:
        if bool(letter_ids) == all_:
            raise click.UsageError("expected one or more IDs, or --all")
        command(letter_ids=letter_ids, all_=all_, **kwargs)

    ids = click.argument("letter_ids", metavar="[ID]...", nargs=-1)
    return ids(click.option("--all", "all_", is_flag=True, help="All that are there now.")(wrapper))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headgate", message="%(prog)s %(version)s")
def main() -> None:
    """Headgate: real-time notifications from Python services to browsers, without silent loss."""


@main.command()
@click.argument("topic")
@click.argument("data", metavar="JSON")
@_namespace_option
@click.option("--id", "event_id", metavar="ID", help="Publish at most once under this id (within 300 s).")
@click.option("--user", metavar="NAME", help="Publish to this user alone: the topic becomes users.NAME.TOPIC.")
@click.option("--strict-namespace", is_flag=True, help="Refuse a namespace that no gateway has served, instead of a warning.")
@_redis_option
@_one_line_errors
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


@main.command()
@click.argument("pattern")
@_namespace_option
@_redis_option
@_json_option
@_one_line_errors
def tail(pattern: str, namespace: str, redis_url: str | None, as_json: bool) -> None:
    """Print live events that match PATTERN (* is one word, # is zero or more) until Ctrl-C."""
    import time

    from headgate.bus.interest import subscription
    from headgate.errors import HeadgateError
    from headgate.event import decode_message
    from headgate.publisher import find_redis_url
    from headgate.redis.client import SubscriberLink
    from headgate.redis.keys import channel_prefix
    from headgate.settings import HARD_MAX_PAYLOAD_BYTES
    from headgate.topic import check_namespace, check_pattern, check_topic, matches

    namespace = check_namespace(namespace)
    command = subscription(namespace, check_pattern(pattern))
    prefix = channel_prefix(namespace).encode()
    link = SubscriberLink(redis_url or find_redis_url())
    link.connect()
    link.send(command)
    while True:
        for reply in link.read():
            if reply[0] in (b"subscribe", b"psubscribe"):
                click.echo(f"listening to {pattern} in {namespace}", err=True)
                continue
            channel, message = reply[-2], reply[-1]
            try:
                topic = check_topic(channel.removeprefix(prefix).decode("ascii", "replace"))
                if matches(pattern, topic):
                    now_ms = time.time_ns() // 1_000_000
                    _print_event(decode_message(topic, message, HARD_MAX_PAYLOAD_BYTES, now_ms), as_json)
            except HeadgateError as error:
                click.echo(f"set aside a message of {len(message)} bytes: {error.message}", err=True)


@main.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.")
@_redis_option
@click.option("--dev", is_flag=True, help="Development: anonymous clients may subscribe to everything and publish.")
@click.option("--demo", is_flag=True, help="Serve the demo at /.")
@_config_option
@click.option("--with-consumers", is_flag=True, help="Also run the consumers of the configuration file, as a process beside.")
@_one_line_errors
def serve(
    target: str | None,
    host: str | None,
    port: int | None,
    redis_url: str | None,
    dev: bool,
    demo: bool,
    config: str | None,
    with_consumers: bool,
) -> None:
    """Run a Flask application with the gateway inside; without MODULE:APP the ready-made server."""
    from gevent import monkey

    monkey.patch_all()
    from .serve import run

    given = {
        "HEADGATE_HOST": host,
        "HEADGATE_PORT": None if port is None else str(port),
        "HEADGATE_REDIS_URL": redis_url,
        "HEADGATE_DEV": "1" if dev else None,
        "HEADGATE_DEMO": "1" if demo else None,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    sys.exit(run(overrides, target, config, with_consumers=with_consumers))


@main.command()
@_config_option
@click.option("--only", multiple=True, metavar="NAME", help="Only this consumer of the file; repeatable.")
@_redis_option
@click.option("--listen", metavar="HOST:PORT", callback=_address, help="Have a page there with /healthz and /metrics.")
@click.option("--check", "is_check", is_flag=True, help="Only check the file and Redis: a line per consumer, or per fault.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done with each event; nothing is acknowledged.")
@click.option("--since", type=click.IntRange(1), metavar="OFFSET", help="First event of a dry run; without it: the next one.")
@click.option("--parent", type=int, hidden=True, help="End when this process is not the parent any more.")
@_one_line_errors
def consume(
    config: str | None,
    only: tuple[str, ...],
    redis_url: str | None,
    listen: tuple[str, int] | None,
    is_check: bool,
    dry_run: bool,
    since: int | None,
    parent: int | None,
) -> None:
    """Run the consumers of the configuration file: email, webhooks, monitoring, your own."""
    from headgate.consumers.process import command

    if since is not None and not dry_run:
        raise click.UsageError("--since goes with --dry-run; what a new consumer begins with is `start` in its table")
    asked = command.Asked(config, only, redis_url)
    if is_check:
        sys.exit(command.check(asked))
    elif dry_run:
        command.dry_run(asked, since)
    else:
        sys.exit(command.consume(asked, listen, parent))


@main.group()
def consumers() -> None:
    """Look at what consumers have in Redis, and take out one that is not needed any more. None need run for that."""


@consumers.command("list")
@_namespace_option
@_config_option
@_redis_option
@_json_option
@_one_line_errors
def list_consumers(namespace: str, config: str | None, redis_url: str | None, as_json: bool) -> None:
    """List the consumers that a namespace knows: what they have not taken, hold, gave up, and whether the file has them."""
    import dataclasses

    import msgspec

    from headgate.consumers.work.groups import Groups
    from headgate.topic import check_namespace

    namespace = check_namespace(namespace)
    configured = _configured_consumers(config)
    client = _redis_of_consumers(config, redis_url)
    for standing in Groups(client, namespace).standings():
        is_configured = None if configured is None else (namespace, standing.name) in configured
        if as_json:
            click.echo(msgspec.json.encode({**dataclasses.asdict(standing), "configured": is_configured}))
        else:
            _print_standing(standing, is_configured)
    client.close()


@consumers.command("remove")
@click.argument("consumer")
@_namespace_option
@_config_option
@_redis_option
@_one_line_errors
def remove_consumer(consumer: str, namespace: str, config: str | None, redis_url: str | None) -> None:
    """Take CONSUMER out of Redis for good: its place in the log, what it holds, its dead letters, its state.

    Refused while one of its instances has been at work within the last minute.
    """
    from headgate.consumers.work.groups import Groups
    from headgate.topic import check_namespace

    namespace, consumer = check_namespace(namespace), _check_consumer(consumer)
    configured = _configured_consumers(config)
    client = _redis_of_consumers(config, redis_url)
    held, dead = Groups(client, namespace).remove(consumer)
    client.close()
    click.echo(f"removed {consumer}, and with it {held} held and {dead} dead")
    if configured and (namespace, consumer) in configured:
        click.echo("the configuration file still has it: when it runs, it begins anew", err=True)


@main.group("dead-letters")
def dead_letters() -> None:
    """Look at what a consumer gave up, try it again or drop it. Works whether or not the consumer runs."""


def _letters_command(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command of `dead-letters` the argument CONSUMER and what opens its letters: it is called with those in its place."""

    @functools.wraps(command)
    def wrapper(consumer: str, namespace: str, config: str | None, redis_url: str | None, **kwargs: Any) -> None:
        from headgate.consumers.work.dead_letters import DeadLetters
        from headgate.topic import check_namespace

        _check_consumer(consumer)
        client = _redis_of_consumers(config, redis_url)
        command(letters=DeadLetters(client, check_namespace(namespace), consumer), **kwargs)
        client.close()

    return click.argument("consumer")(_namespace_option(_config_option(_redis_option(_one_line_errors(wrapper)))))


@dead_letters.command("list")
@_letters_command
@click.option("--after", metavar="ID", help="Begin after this one. Without it: with the oldest.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many at most.")
@_json_option
def list_letters(letters: DeadLetters, after: str | None, limit: int, as_json: bool) -> None:
    """List dead letters, oldest first: id, when, why, offset and topic, and the reason."""
    page = letters.page(after, limit)
    for letter in page:
        _print_letter(letter, as_json)
    count = letters.count()
    more = f"; go on with --after {page[-1].id}" if len(page) == limit and letters.page(page[-1].id, 1) else ""
    click.echo(f"{count} dead letter{'s' if count != 1 else ''} in all{more}", err=True)


@dead_letters.command("show")
@_letters_command
@click.argument("letter_id", metavar="ID")
@_json_option
def show_letter(letters: DeadLetters, letter_id: str, as_json: bool) -> None:
    """Print one dead letter with its data."""
    letter = letters.show(letter_id)
    if letter is None:
        _fail(f"there is no dead letter {letter_id} (any more)")
    else:
        _print_letter(letter, as_json)
        if not as_json:
            click.echo(_for_terminal(letter.piece.data.decode(errors="replace").encode()))


@dead_letters.command("retry")
@_letters_command
@_which_letters
def retry_letters(letters: DeadLetters, letter_ids: tuple[str, ...], all_: bool) -> None:
    """Have the consumer try dead letters again, as if for the first time."""
    click.echo(f"{letters.retry_all() if all_ else letters.retry(letter_ids)} to be tried again")


@dead_letters.command("drop")
@_letters_command
@_which_letters
def drop_letters(letters: DeadLetters, letter_ids: tuple[str, ...], all_: bool) -> None:
    """Drop dead letters for good."""
    click.echo(f"{letters.drop_all() if all_ else letters.drop(letter_ids)} dropped")


@main.command()
@click.option("--user", required=True, metavar="NAME", help="Whom the token is for.")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="May subscribe to this; repeatable. {sub} is the user.")
@click.option("--publish", "publish_", multiple=True, metavar="PATTERN", help="May publish to this; repeatable.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Namespace that it is for; repeatable. Default: the gateway's first.",
)
@click.option("--ttl", default="1h", show_default=True, metavar="TIME", help="How long it holds: 90, 90s, 15m, 1h or 7d.")
@click.option("--kid", metavar="ID", help="Which configured secret signs it, where there are several.")
@_one_line_errors
def token(
    user: str, subscribe: tuple[str, ...], publish_: tuple[str, ...], namespaces: tuple[str, ...], ttl: str, kid: str | None
) -> None:
    """Print a token for development, signed with HEADGATE_TOKEN_SECRET (or a secret of HEADGATE_TOKEN_KEYS).

    Every user may also subscribe to users.NAME.#, whatever the token says.
    """

    from headgate.auth.tokens import Tokens
    from headgate.errors import SettingsError
    from headgate.settings import Settings

    settings = Settings.from_environment("HEADGATE_TOKEN_")
    tokens = Tokens.configured(settings)
    if tokens is None:
        raise SettingsError(["no secret to sign with: set HEADGATE_TOKEN_SECRET, for the gateway too"])
    names = list(namespaces)
    click.echo(tokens.mint(user, list(subscribe), list(publish_), _seconds(ttl), key_id=kid, namespaces=names))


@main.command()
@click.option("--user", metavar="NAME", help="Refuse this user, whatever the token.")
@click.option("--token-id", metavar="ID", help="Refuse the token with this jti.")
@click.option(
    "--for", "for_", default="1h", show_default=True, metavar="TIME", help="For how long: 90, 90s, 15m, 1h or 7d; 0 lifts it."
)
@_redis_option
@_one_line_errors
def revoke(user: str | None, token_id: str | None, for_: str, redis_url: str | None) -> None:
    """Refuse a user or a token on every gateway, and disconnect who is connected with it, within a second."""
    import os

    from headgate.auth.audit import audit
    from headgate.publisher import Publisher
    from headgate.runtime import logging as logs

    for_s = _seconds(for_)
    with Publisher(redis_url) as publisher:
        publisher.revoke(user=user, token_id=token_id, for_s=for_s)
    logs.configure("info")
    who = f"uid {os.getuid()} on the command line"
    audit.revoked(kind="user" if user is not None else "token", name=user or token_id or "", for_s=for_s, by=who)
    named = f"user {user!r}" if user is not None else f"token {token_id!r}"
    click.echo(f"revoked {named} for {for_s} s" if for_s else f"lifted the revocation of {named}")


@main.command()
@_redis_option
@click.option("--load", is_flag=True, help="Also load Headgate's function libraries, or replace older ones.")
@_one_line_errors
def check(redis_url: str | None, load: bool) -> None:
    """Say which Redis is found, which is needed, whether the function libraries are there, and which namespaces are served."""
    from headgate.consumers.work.store import GROUP_LIBRARY
    from headgate.errors import HeadgateError
    from headgate.publisher import find_redis_url
    from headgate.redis.client import check_server, open_client, redacted_address
    from headgate.redis.faults import NEEDED
    from headgate.redis.functions import LOG_LIBRARY
    from headgate.redis.registry import read_served

    url = redis_url or find_redis_url()
    client = open_client(url)
    name, version = check_server(client)
    click.echo(f"found: {name} {version} at {redacted_address(url)}")
    click.echo(f"needed: {NEEDED}")
    for library, whose, loaded_by in (
        (LOG_LIBRARY, "function library", "publisher or gateway"),
        (GROUP_LIBRARY, "function library of consumers", "consumer"),
    ):
        loaded = library.ensure_loaded(client) if load else library.loaded_version(client)
        state = f"not loaded; the first {loaded_by} loads it" if loaded is None else f"version {loaded}"
        click.echo(f"{whose}: {state} (ours: {library.version})")
    try:
        for namespace, served in read_served(client).items():
            seen = "none seen" if served.seen_s_ago is None else f"the last one seen {served.seen_s_ago} s ago"
            click.echo(f"namespace {namespace}: {served.live} gateway(s) at work, {seen}")
    except HeadgateError as error:
        click.echo(f"which namespaces are served cannot be told: {error.message}")


@main.command()
def settings() -> None:
    """Print every setting as a Markdown table."""
    from headgate.settings import describe

    click.echo("| name | default | expected | what it does |\n|---|---|---|---|")
    for row in describe():
        name, default, expected, doc = (cell.replace("|", "\\|") for cell in row)
        click.echo(f"| `{name}` | {f'`{default}`' if default else ''} | {expected} | {doc} |")


def _check_consumer(name: str) -> str:
    """Return the name of a consumer.

    Raises:
        InvalidRequest: it is none.
    """
    from headgate.errors import InvalidRequest

    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name, re.ASCII):
        raise InvalidRequest(f"a consumer {name[:80]!r}; expected a name of 1 to 64 characters of [A-Za-z0-9_-]")
    return name


def _redis_of_consumers(config: str | None, redis_url: str | None) -> Client:
    """Return a client of the Redis that is given, else of the one that the consumers of the configuration run with."""

    from headgate.consumers.process.config import find_file, read_settings
    from headgate.publisher import find_redis_url
    from headgate.redis.client import open_client
    from headgate.settings import Settings, environment

    if redis_url is None:
        path = find_file(config)
        redis_url = find_redis_url(Settings.read(read_settings(path, environment()) if path else environment()))
    return open_client(redis_url)


def _configured_consumers(config: str | None) -> frozenset[tuple[str, str]] | None:
    """Return (namespace, name) of the consumers in the configuration file; None when there is no file."""
    from headgate.consumers.process.config import find_file, read_names
    from headgate.settings import environment

    path = find_file(config)
    return read_names(path, environment()) if path else None


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


def _seconds(text: str) -> int:
    """Return the seconds of a time such as 90, 90s, 15m, 1h or 7d."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time such as 90, 90s, 15m, 1h or 7d")
    return int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def _print_event(event: Event, as_json: bool) -> None:
    """Print one event on one line. No control character of a hostile payload reaches the terminal."""
    import msgspec

    if as_json:
        parts: dict[str, Any] = {"topic": event.topic, "data": msgspec.Raw(event.data), "id": event.id, "time": event.time_ms}
        if event.offset is not None:
            parts |= {"epoch": event.epoch, "offset": event.offset}
        line = msgspec.json.encode(parts)
    else:
        line = b"%b %b %b" % (b"-" if event.offset is None else b"%d" % event.offset, event.topic.encode(), event.data)
    click.echo(_for_terminal(line))


def _print_letter(letter: DeadLetter, as_json: bool) -> None:
    """Print one dead letter on one line."""
    import datetime

    import msgspec

    piece = letter.piece
    if as_json:
        parts = {"id": letter.id, "time": letter.at_ms, "why": letter.why, "reason": letter.reason}
        parts |= {
            "epoch": piece.epoch,
            "offset": piece.offset,
            "topic": piece.topic,
            "event_id": piece.id,
            "key": piece.key,
        }
        # Of an unreadable one it may be no JSON, and then it is told as text.
        data = piece.data.decode(errors="replace") if letter.why == "unreadable" else msgspec.Raw(piece.data)
        click.echo(_for_terminal(msgspec.json.encode({**parts, "data": data})))
        return
    when = datetime.datetime.fromtimestamp(letter.at_ms / 1000, datetime.UTC).isoformat(timespec="seconds")
    part = f" ({piece.key})" if piece.key else ""
    click.echo(_for_terminal(f"{letter.id} {when} {letter.why} {piece.offset} {piece.topic}{part}: {letter.reason}".encode()))


def _print_standing(standing: Standing, is_configured: bool | None) -> None:
    """Print how a consumer stands on one line."""
    counts = (
        f"lag {standing.lag}, in hand {standing.in_hand}, held {standing.held}, dead {standing.dead}, missed {standing.missed}"
    )
    at_work = "never at work" if standing.idle_s is None else f"at work {standing.idle_s:.0f} s ago"
    known = {None: "", True: ", configured", False: ", not configured"}[is_configured]
    click.echo(f"{standing.name}: {counts}, {at_work}{known}")


def _for_terminal(line: bytes) -> bytes:
    """Return a line of which no control character reaches the terminal. JSON may be laid out over several; this is one."""
    return _TERMINAL_CONTROLS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), re.sub(rb"\s", b" ", line))


def _fail(*lines: str) -> None:
    for line in lines:
        click.echo(f"headgate: {line}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
