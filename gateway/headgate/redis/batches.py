"""Batches: gathers calls that append one event each into calls of `headgate_append_batch`, and splits the replies.

In: calls of `headgate_append`, in order; later the reply to each batch. Out: the calls of the batches, then a reply for each
event, as `headgate_append` gives it. log.lua defines batches and their replies.

A batch is bounded in events and bytes, because all other clients of Redis wait while it runs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headgate.errors import HeadgateError

from .connections import Command
from .faults import refused, reply_error

# Redis takes less than a millisecond. Batches twice as large would save 1 % per event.
MAX_BATCH_EVENTS = 100
MAX_BATCH_BYTES = 128 * 1024

FUNCTION = "headgate_append_batch"
_KEY, _TOPIC, _PAYLOAD, _ID, _BY = 3, 4, 5, 6, 7


class Batch(NamedTuple):
    """One call, and the number of events in it."""

    command: Command
    events: int

    def replies(self, reply: Any) -> list[Any]:
        """Return (epoch, offset, whether it is a duplicate) or an error for each event.

        Raises:
            BusRefused: the reply does not belong to this call.
        """
        if isinstance(reply, HeadgateError):
            return [reply] * self.events
        try:
            replies = [each for line in reply.split(b"\n") for each in _read_line(line, self.events)]
        except ValueError:
            replies = []
        if len(replies) != self.events:
            raise refused(f"the function library did not answer for {self.events} events")
        return replies


def _read_line(line: bytes, at_most: int) -> list[Any]:
    if line.startswith(b"-"):
        return [reply_error(line[1:])]
    epoch, first, events = line.split(b" ")
    offset, count = int(first), int(events)
    if not count:
        return [(epoch, offset, 1)]
    return [(epoch, offset + index, 0) for index in range(min(count, at_most + 1))]


def in_batches(calls: Sequence[Command]) -> list[Batch]:
    """Return the batches for a list of calls on one log, in order."""
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
