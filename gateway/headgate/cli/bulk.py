"""Publishes events from lines of NDJSON, for `headgate publish --file`.

In: lines, each a JSON object `{"topic", "data", "id"?}` as `headgate replay` and `headgate tail --json` write them (other members
are ignored). Out: batches in the log in the order of the lines, a count, and one error with its number for each bad line.

A line without an id gets one from its number and text, from the file, and from the run if ids are to be new. Receipts
(receipts.py) record the lines in the log, which are not sent again. Without receipts a second try adds nothing while the ids
count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec

from headgate.errors import BusUnavailable, HeadgateError
from headgate.redis.event_ids import SentEvents
from headgate.services.publisher import Prepared, Publisher, Receipt

from .receipts import Receipts, digested, file_fault

MAX_BATCH_EVENTS = 500
MAX_BATCH_BYTES = 4 * 1024 * 1024
# The most faults to list. Others are only counted.
MAX_LISTED = 100
AGAIN = "continue with the same command"
_TOPIC = 4  # of a prepared command
_PLACE = re.compile(r" - at `\$\.?(.*)`$")


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One event. An unknown name is refused, since `user` or `namespace` would promise more than `topic` does.

    `time`, `epoch` and `offset`, which `headgate replay` writes, are ignored.
    """

    topic: str
    data: msgspec.Raw
    id: str | None = None
    time: msgspec.Raw = msgspec.Raw()
    epoch: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Line).decode


class LineFault(msgspec.Struct):
    """An unpublished line, and the reason."""

    line: int
    reason: str


class Outcome(msgspec.Struct):
    """The result for all lines, for programs. `published` lines are in the log, and `duplicates` of them were there before."""

    published: int = 0
    duplicates: int = 0
    refused: int = 0
    epoch: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    faults: list[LineFault] = []

    def fault(self, line: int, reason: str) -> None:
        """Count an unpublished line; keep the first MAX_LISTED."""
        self.refused += 1
        if len(self.faults) < MAX_LISTED:
            self.faults.append(LineFault(line, reason))

    def known(self) -> None:
        """Count a line published by an earlier run."""
        self.published += 1
        self.duplicates += 1

    def receipt(self, receipt: Receipt) -> None:
        """Count a line in the log."""
        self.published += 1
        self.duplicates += receipt.duplicate
        if not receipt.duplicate:
            self.first_offset = receipt.offset if self.first_offset is None else self.first_offset
            self.last_offset, self.epoch = receipt.offset, receipt.epoch


class Bulk:
    """See the module.

    Args:
        publisher: for the namespace of the events.
        run: a part of each event's id, even of one given in its line. Lines keep their ids if it is empty.
        file: a part of each missing id, because equal lines of two files are two events.
        from_line: the first line to publish; None for the first.
        receipts: of the file, and the events of the log. With None only ids decide which lines are in the log.

    Attributes:
        elsewhere: lines with receipts of another log, or of events lost by this one.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        run: str = "",
        file: str = "",
        from_line: int | None = None,
        receipts: tuple[Receipts, SentEvents] | None = None,
    ) -> None:
        self._publisher, self._run, self._from_line, self._receipts = publisher, run, from_line, receipts
        self._salt = (run + file).encode()
        self.elsewhere = 0

    def check(self, lines: Iterable[bytes]) -> Outcome:
        """Return the faults of all lines without sending anything."""
        outcome = Outcome()
        for number, line in enumerate(lines, 1):
            if self._counts(number, line) and isinstance(prepared := self._prepare(number, line), str):
                outcome.fault(number, prepared)
        return outcome

    def settle(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Find out which lines of unanswered batches of an earlier run are in the log. Waits for Redis.

        A batch counts as absent if the caller wants to publish from its first line on. Raises HeadgateError if the log no longer
        shows it, or if the result cannot be stored.
        """
        if self._receipts is None:
            return
        receipts, log = self._receipts
        for batch in receipts.unsettled(*log.line(receipts.epochs())):
            if self._from_line == batch.first:
                receipts.settle(batch, [])
            elif batch.last >= (self._from_line or 1):
                sent = [
                    (number, prepared)
                    for number, line in enumerate(islice(lines(), batch.last), 1)
                    if number >= batch.first and line.strip() and isinstance(prepared := self._prepare(number, line), Prepared)
                ]
                positions = log.find([(str(each.command[_TOPIC]), each.id) for _, each in sent], batch.before)
                if positions is None:
                    sent_lines = f"lines {batch.first} to {batch.last} were sent"
                    once_more = f"--from-line {batch.first} publishes them, perhaps once more"
                    raise file_fault(
                        f"{sent_lines}, and whether they are in the log is not known any more",
                        f"{once_more}; --from-line {batch.last + 1} leaves them out",
                    )
                receipts.settle(batch, [(number, *at) for (number, _), at in zip(sent, positions, strict=True) if at])

    def publish(self, lines: Iterable[bytes], progress: Callable[[int], None] = lambda line: None) -> Outcome:
        """Publish the good lines that are not in the log; return the result for all. `progress` gets the last line of each batch.

        Raises HeadgateError, with earlier lines published, if Redis did not answer or refuses everything, or if receipts cannot
        be stored.
        """
        outcome, digest, last = Outcome(), hashlib.sha256(), 0
        published = bytearray()
        if self._receipts is not None:
            receipts, log = self._receipts
            published, self.elsewhere = receipts.published(*log.line(receipts.epochs()))
        batch: list[tuple[int, Prepared]] = []
        size = 0
        for number, line in enumerate(lines, 1):
            if self._counts(number, line):
                if number < len(published) and published[number]:
                    outcome.known()
                elif isinstance(prepared := self._prepare(number, line), str):
                    outcome.fault(number, prepared)
                else:
                    if batch and (len(batch) >= MAX_BATCH_EVENTS or size + prepared.size_bytes > MAX_BATCH_BYTES):
                        self._send(batch, last, digest.hexdigest(), outcome)
                        progress(last)
                        batch, size = [], 0
                    batch.append((number, prepared))
                    size += prepared.size_bytes
            digest.update(digested(line))
            last = number
        if batch:
            self._send(batch, last, digest.hexdigest(), outcome)
        progress(last)
        if self._receipts is not None:
            self._receipts[0].finish()
        return outcome

    # -- private ------------------------------------------------------------------------------------------------------

    def _counts(self, number: int, line: bytes) -> bool:
        return number >= (self._from_line or 1) and bool(line.strip())

    def _prepare(self, number: int, line: bytes) -> Prepared | str:
        """Return the event of a line, or the fault."""
        try:
            event = _decode(line)
            event_id = event.id
            if self._run or event_id is None:
                event_id = hashlib.sha256(b"%s%d\n%s" % (self._salt, number, line.strip())).hexdigest()[:32]
            return self._publisher.prepare(event.topic, event.data, id=event_id)
        except HeadgateError as error:
            return error.message
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = str(error)
            if place := _PLACE.search(reason):
                reason = reason[: place.start()] + (f" in {place[1]}" if place[1] else "")
            return f'expected {{"topic", "data", "id"?}} as JSON: {reason}'

    def _send(self, batch: list[tuple[int, Prepared]], last: int, sha256: str, outcome: Outcome) -> None:
        """Send a batch and store its receipts. `sha256` covers all lines up to `last`."""
        first = batch[0][0]
        try:
            if self._receipts is None:
                self._take(batch, outcome)
            else:
                receipts, log = self._receipts
                sent = receipts.send(first, last, sha256, log.state())
                receipts.settle(sent, self._take(batch, outcome))
        except BusUnavailable as error:  # so it is unknown whether these lines were published
            again = f"continue with --from-line {first}" if self._receipts is None else AGAIN
            raise file_fault(f"line {first} and later: {error.message}", f"every line before is in the log; {again}") from error

    def _take(self, batch: list[tuple[int, Prepared]], outcome: Outcome) -> list[tuple[int, str, int]]:
        """Publish a batch; return the line, epoch and offset of each event in the log."""
        answers = self._publisher.publish_prepared([prepared for _, prepared in batch])
        taken = []
        for (number, _), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Receipt):
                outcome.receipt(answer)
                taken.append((number, answer.epoch, answer.offset))
            else:
                outcome.fault(number, answer.message)
        return taken
