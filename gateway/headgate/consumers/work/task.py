"""A task: one part of an event's work that is kept in Redis until it is done, deferred or to be tried again. No I/O.

The payload's bytes are packed as they are. Fields may be added at the end, with a default: an older body is still read.
"""

from __future__ import annotations

import hashlib

import msgspec

_LATEST_MS = 10**13 - 1


class Task(msgspec.Struct, array_like=True):
    """An event, the part of its work that this is, and how it has fared.

    `split` says that the consumer was asked for the event's keys; `attempt` counts the times that it was handed out and
    answered; `failures` and `faults` the answers in a row that were failures at all, and faults of the consumer's code, since
    `failing_since_ms`; `unknown` the attempts whose outcome is unknown: the answer was lost, or the process ended.
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

    @property
    def name(self) -> str:
        """The name of the task in Redis (groups.lua): names sort as the events do, and end with a hash of the key."""
        return f"{min(self.time_ms, _LATEST_MS):013d}-{self.epoch}-{self.offset:015d}-{_key_hash(self.key)}"

    def pack(self) -> bytes:
        """Return the task as `unpack` reads it."""
        return _encoder.encode(self)


def unpack(body: bytes) -> Task:
    """Return a task from what `Task.pack` made.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _decoder.decode(body)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Task)


def _key_hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
