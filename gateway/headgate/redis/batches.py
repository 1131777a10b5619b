"""Batches: calls that append one event each, gathered into calls of `headgate_append_batch`, and its answers taken apart.

In: calls of `headgate_append`, in order; later the reply to each batch. Out: the calls of batches; then a reply for each
event, as the function for one event would have given it. log.lua says what a batch is and what it answers.

A batch is bounded in events and bytes: while Redis works on one, everybody else waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headgate.errors import HeadgateError

from .connections import Command
from .faults import refused, reply_error

# Less than a millisecond of Redis. Twice as many events in a batch would take a hundredth less for each.
MAX_BATCH_EVENTS = 100
MAX_BATCH_BYTES = 128 * 1024

FUNCTION = "headgate_append_batch"
_KEY, _TOPIC, _PAYLOAD, _ID, _BY = 3, 4, 5, 6, 7


class Batch(NamedTuple):
    """One call, and how many events are in it."""

    command: Command
    events: int

    def replies(self, reply: Any) -> list[Any]:
        """Return a reply, or an error, for each event: (epoch, offset, whether it was there already).

        Raises:
            BusRefused: it is no answer to this call.
        """
        if isinstance(reply, HeadgateError):
            return [reply] * self.events
        try:
            found = [each for line in reply.split(b"\n") for each in _read_line(line, self.events)]
        except ValueError:
            found = []
        if len(found) != self.events:
            raise refused(f"the function library did not answer for {self.events} events")
        return found


def _read_line(line: bytes, at_most: int) -> list[Any]:
    if line.startswith(b"-"):
        return [reply_error(line[1:])]
    epoch, first, events = line.split(b" ")
    offset, count = int(first), int(events)
    if not count:
        return [(epoch, offset, 1)]
    return [(epoch, offset + index, 0) for index in range(min(count, at_most + 1))]


def in_batches(calls: Sequence[Command]) -> list[Batch]:
    """Return batches that append the events of calls of one log, in order."""
    batches: list[Batch] = []
    words: list[str | bytes | int] = []
    events = size = 0
    for call in calls:
        payload = call[_PAYLOAD]
        size += len(payload)  # type: ignore[arg-type]
        if events and (events >= MAX_BATCH_EVENTS or size > MAX_BATCH_BYTES):
            batches.append(Batch(("FCALL", FUNCTION, 1, call[_KEY], *words), events))
            words, events, size = [], 0, len(payload)  # type: ignore[arg-type]
        words += (call[_TOPIC], payload, call[_ID], call[_BY] if len(call) > _BY else "")
        events += 1
    batches.append(Batch(("FCALL", FUNCTION, 1, calls[0][_KEY], *words), events))
    return batches
