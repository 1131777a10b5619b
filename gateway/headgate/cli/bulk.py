"""Bulk: events from lines of NDJSON into the log, for `headgate publish --file`.

In: lines, each a JSON object `{"topic", "data", "id"?}` as `headgate replay` and `headgate tail --json` write them (other members
are passed over). Out: batches in the log in the order of the lines, a count, and one error for each bad line, with its number.

A line without an id gets one made of its number and its text. So a file that is published again within 300 s, after a fault in
the middle, adds only what was missing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from headgate.errors import BusUnavailable, HeadgateError
from headgate.publisher import Prepared, Publisher, Receipt

MAX_BATCH_EVENTS = 500
MAX_BATCH_BYTES = 4 * 1024 * 1024
# Faults that are named; the others are counted.
MAX_TOLD = 100
_PLACE = re.compile(r" - at `\$\.?(.*)`$")


class _BadLine(Exception):
    """A line that is no event; the text says why."""


class _Line(msgspec.Struct):
    topic: str
    data: msgspec.Raw
    id: str | None = None


_decode = msgspec.json.Decoder(_Line).decode


class Fault(NamedTuple):
    """A line that was not published, and why."""

    line: int
    reason: str


class Interrupted(Exception):
    """Redis did not answer: whether the lines from `line` on were published is not known."""

    def __init__(self, line: int, error: HeadgateError) -> None:
        super().__init__(error.message)
        self.line, self.error = line, error


@dataclass(slots=True)
class Outcome:
    """What became of the lines: `published` are in the log, `duplicates` of them were there before."""

    published: int = 0
    duplicates: int = 0
    refused: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    epoch: str = ""
    faults: list[Fault] = field(default_factory=list)

    def fault(self, line: int, reason: str) -> None:
        """Count a line that was not published; the first MAX_TOLD are kept."""
        self.refused += 1
        if len(self.faults) < MAX_TOLD:
            self.faults.append(Fault(line, reason))

    def receipt(self, receipt: Receipt) -> None:
        """Count a line that is in the log."""
        self.published += 1
        self.duplicates += receipt.duplicate
        if not receipt.duplicate:
            self.first_offset = receipt.offset if self.first_offset is None else self.first_offset
            self.last_offset, self.epoch = receipt.offset, receipt.epoch


class Bulk:
    """See the module.

    Args:
        publisher: into whose namespace the events go.
        new_ids: give each event a new id, whatever its line says.
        from_line: the first line that counts.
    """

    def __init__(self, publisher: Publisher, *, new_ids: bool = False, from_line: int = 1) -> None:
        self._publisher, self._new_ids, self._from_line = publisher, new_ids, from_line

    def check(self, lines: Iterable[bytes]) -> Outcome:
        """Return the faults of all lines; nothing is sent."""
        outcome = Outcome()
        for number, prepared in self._prepared(lines):
            if not isinstance(prepared, Prepared):
                outcome.fault(number, prepared)
        return outcome

    def publish(self, lines: Iterable[bytes], progress: Callable[[int], None] = lambda line: None) -> Outcome:
        """Publish the good lines; return what became of all. `progress` is told the last line after each batch.

        Raises:
            Interrupted: Redis did not answer, or refuses everything; what was published before is.
        """
        outcome = Outcome()
        batch: list[tuple[int, Prepared]] = []
        size = number = 0
        for number, prepared in self._prepared(lines):
            if not isinstance(prepared, Prepared):
                outcome.fault(number, prepared)
                continue
            if batch and (len(batch) >= MAX_BATCH_EVENTS or size + prepared.size_bytes > MAX_BATCH_BYTES):
                self._send(batch, outcome)
                progress(number - 1)
                batch, size = [], 0
            batch.append((number, prepared))
            size += prepared.size_bytes
        if batch:
            self._send(batch, outcome)
        progress(number)
        return outcome

    # -- private ------------------------------------------------------------------------------------------------------

    def _prepared(self, lines: Iterable[bytes]) -> Iterator[tuple[int, Prepared | str]]:
        for number, line in enumerate(lines, 1):
            if number < self._from_line or not line.strip():
                continue
            try:
                event = _read(line)
                event_id = None if self._new_ids else event.id or _id_of(number, line)
                yield number, self._publisher.prepare(event.topic, event.data, id=event_id)
            except HeadgateError as error:
                yield number, error.message
            except _BadLine as error:
                yield number, str(error)

    def _send(self, batch: list[tuple[int, Prepared]], outcome: Outcome) -> None:
        try:
            answers = self._publisher.publish_prepared([prepared for _, prepared in batch])
        except BusUnavailable as error:
            raise Interrupted(batch[0][0], error) from error
        for (number, _), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Receipt):
                outcome.receipt(answer)
            else:
                outcome.fault(number, answer.message)


def _read(line: bytes) -> _Line:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = str(error)
        if place := _PLACE.search(said):
            said = said[: place.start()] + (f" in {place[1]}" if place[1] else "")
        raise _BadLine(f'expected {{"topic", "data", "id"?}} as JSON: {said}') from error


def _id_of(number: int, line: bytes) -> str:
    return hashlib.sha256(b"%d\n" % number + line.strip()).hexdigest()[:32]


def summary(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome for a program."""
    return {
        "published": outcome.published,
        "duplicates": outcome.duplicates,
        "refused": outcome.refused,
        "epoch": outcome.epoch or None,
        "first_offset": outcome.first_offset,
        "last_offset": outcome.last_offset,
        "faults": [{"line": fault.line, "reason": fault.reason} for fault in outcome.faults],
    }
