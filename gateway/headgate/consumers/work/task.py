"""A task is one part of an event's work, stored in Redis while it is leased, deferred or due for another attempt. No I/O.

The payload's bytes are packed unchanged. New fields go at the end, with a default, so that an older body stays readable.
"""

from __future__ import annotations

import hashlib

import msgspec

# Causes of dead letters, in the letters and in the label `why`.
UNREADABLE, POISON, REJECTED, GAVE_UP, OUTCOME_UNKNOWN = "unreadable", "poison", "rejected", "gave_up", "outcome_unknown"
WHY_DEAD = (UNREADABLE, POISON, REJECTED, GAVE_UP, OUTCOME_UNKNOWN)
_LATEST_MS = 10**13 - 1


class Task(msgspec.Struct, array_like=True):
    """An event, the part of its work, and its attempts so far.

    `split` means that the consumer has named the event's keys. `attempt` counts the deliveries that were answered. `failures`
    counts the failed answers in a row since `failing_since_ms`, and `faults` those caused by the consumer's code. `unknown`
    counts the attempts without a known outcome, because the answer was lost or the process ended. `asked` is True once the
    application was asked whether the user wants it, and `admitted` once it counts for the rate.
    """

    epoch: str
    offset: int
    topic: str
    id: str | None
    time_ms: int
    data: bytes
    key: str = ""
    split: bool = False
    attempt: int = 0
    failures: int = 0
    faults: int = 0
    failing_since_ms: int = 0
    deferred: bool = False
    together: bool = False
    reason: str = ""
    traceparent: str | None = None
    unknown: int = 0
    asked: bool = False
    admitted: bool = False

    @property
    def name(self) -> str:
        """The name of the task in Redis (groups.lua). Names sort as the events do, and end with a hash of the key."""
        key_hash = hashlib.sha256(self.key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{min(self.time_ms, _LATEST_MS):013d}-{self.epoch}-{self.offset:015d}-{key_hash}"

    def pack(self) -> bytes:
        """Pack the task for `unpack`."""
        return _encoder.encode(self)


_encoder = msgspec.msgpack.Encoder()
# Returns a task from the result of `Task.pack`. Raises msgspec.DecodeError for anything else.
unpack = msgspec.msgpack.Decoder(Task).decode
