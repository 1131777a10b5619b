"""Checks and publishes a file of events, for `headgate publish --file`, with a progress bar on a terminal.

In: a path, or - for standard input, which is copied to a temporary file so that it can be checked first. Out: a summary, an
error for each bad line with its number, receipts with which the same command continues, and an exit code, which is 0 only if
every line is in the log.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import closing, contextmanager
from secrets import token_hex
from typing import IO

import click

from headgate.redis.client import Client, call
from headgate.redis.event_ids import SentEvents
from headgate.redis.keys import head_key
from headgate.services.publisher import Publisher
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

from .bulk import AGAIN, Bulk, Outcome
from .output import counted, echo, fail, print_done, print_json, wants_json
from .receipts import Receipts

# Beyond this size, standard input is stored on disk.
_IN_MEMORY_BYTES = 16 * 1024 * 1024
# The longest line, with a payload at the hard limit, topic, id and names.
_MAX_LINE_BYTES = 1024 * 1024 + 4096


def namespace_limit(client: Client, namespace: str) -> int:
    """Return the largest payload of the log of a namespace, so that a larger one is detected before sending any."""
    limit = call(client, "HGET", head_key(namespace), "max_payload_bytes")
    return int(limit) if limit and limit.isdigit() else HARD_MAX_PAYLOAD_BYTES


def publish_file(
    publisher: Publisher,
    log: SentEvents,
    path: str,
    *,
    receipts: str | None,
    skip_bad: bool,
    new_ids: bool,
    from_line: int | None,
) -> None:
    """Publish the lines of a file; end with exit code 1 if one of them is not in the log.

    `receipts` is the path of the file of receipts. With None it is next to the file, and there is none for standard input.
    """
    with _opened(path) as file, _receipts(path, receipts, new_ids) as kept:
        run = kept.run if kept is not None else token_hex(8) if new_ids else ""
        name = "" if kept is None else kept.file
        bulk = Bulk(publisher, run=run, file=name, from_line=from_line, receipts=None if kept is None else (kept, log))

        def lines() -> Iterator[bytes]:
            file.seek(0)
            file.seek(len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0)
            return _lines(file)

        try:
            if kept is not None:
                kept.check_unchanged(lines())
            if not skip_bad:
                outcome = bulk.check(lines())
                if outcome.refused:
                    _print_outcome(outcome)
                    if wants_json():
                        print_json(outcome)
                    fail("nothing was published: a line is bad (--skip-bad publishes the others)")
            bulk.settle(lines)
            # A progress bar by bytes, if standard error is a terminal.
            size, at_terminal = file.seek(0, io.SEEK_END), sys.stderr.isatty()
            with click.progressbar(length=size, label="publishing", file=sys.stderr, hidden=not at_terminal) as bar:
                outcome = bulk.publish(lines(), lambda _: bar.update(file.tell() - bar.pos))
        except KeyboardInterrupt:
            if kept is not None:
                echo(f"headgate: interrupted; {AGAIN}", err=True)
            raise
    _print_outcome(outcome)
    if bulk.elsewhere:
        echo(f"{bulk.elsewhere} lines had receipts of events that this log does not have, and were published to it", err=True)
    known = f", {outcome.duplicates} of them were there already" if outcome.duplicates else ""
    at = "" if outcome.first_offset is None else f"; offsets {outcome.first_offset} to {outcome.last_offset}"
    print_done(f"published {counted(outcome.published, 'event')}{known}{at}", outcome)
    sys.exit(1 if outcome.refused else 0)


@contextmanager
def _receipts(path: str, receipts: str | None, new_ids: bool) -> Iterator[Receipts | None]:
    if receipts is None and not os.path.isfile(path):  # standard input, or a pipe
        yield None
        return
    with closing(Receipts(receipts or f"{path}.receipts", new_ids=new_ids)) as kept:
        yield kept


def _print_outcome(outcome: Outcome) -> None:
    """Report the faults on standard error. For a program they are in the JSON."""
    if wants_json():
        return
    for fault in outcome.faults:
        echo(f"line {fault.line}: {fault.reason}", err=True)
    if outcome.refused > len(outcome.faults):
        echo(f"and {outcome.refused - len(outcome.faults)} more", err=True)


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path != "-":
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed below
        except OSError as error:
            fail(f"{path}: {error.strerror}")
        with file:
            yield file
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as kept:
        try:
            shutil.copyfileobj(sys.stdin.buffer, kept)
        except OSError as error:
            fail(f"standard input cannot be kept in a temporary file ({error.strerror}): publish from a file, or set TMPDIR")
        kept.seek(0)
        yield kept


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines. Cuts an oversized line, which makes it invalid JSON."""
    while line := file.readline(_MAX_LINE_BYTES):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(_MAX_LINE_BYTES)
