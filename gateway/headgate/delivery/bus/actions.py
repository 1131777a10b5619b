"""The actions that the feed returns for its caller to carry out, at most a few for each read. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from headgate.errors import HeadgateError
from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.redis.lineage import Head

# Structs, not dataclasses, as creating the class takes a twentieth of the time, and creating an object a tenth.


class SimpleAction(Enum):
    """The actions without a parameter. Answer CONFIGURE and READ_LINK_HEAD with `Feed.answer(head)`."""

    UP = "up"  # notify the clients that the feed is live
    DOWN = "down"  # notify the clients that the feed is no longer live
    SYNCED = "synced"  # a fence has passed: everything up to the position has been handed on, and its sources are active
    WAKE = "wake"  # call `Feed.wake` soon, because it may subscribe to something or expedite a fence
    # Store the retention, which begins an epoch unless this Redis process writes the present one. The head has the lineage.
    CONFIGURE = "configure"
    READ_LINK_HEAD = "read link head"  # on the subscriber connection, before it subscribes


class Deliver(msgspec.Struct, frozen=True, eq=False):
    """Hand these events on, in order. While this is under way, a `live` one takes more events from `Feed.more`."""

    events: list[Event]
    live: bool


class Gap(msgspec.Struct, frozen=True):
    """Notify the clients that offsets `first`…`last` of the log will not come."""

    first: int
    last: int
    reason: GapReason


class LineChanged(msgspec.Struct, frozen=True):
    """Notify the clients that the log continues in the epoch of `head`, and shares everything up to `end` with the line before.

    The position was `was_offset`, and is now at most `end`. If it was above, the log has lost the events between the two. The
    events of the new line come next. Without an `end` the log was replaced, with no epoch in common, and the position is at
    the head.
    """

    head: Head
    end: int | None
    was_offset: int


class Quarantine(msgspec.Struct, frozen=True):
    """Count an undeliverable message."""

    error: HeadgateError


class ReadHead(msgspec.Struct, frozen=True):
    """Read the head by `EventLog.head(*known)`. Answer with `Feed.answer(head)`."""

    known: tuple[str | int, ...]


class ReadLog(msgspec.Struct, frozen=True):
    """Read a page with `after` < offset ≤ `upto`, of `epoch` only. Answer with `Feed.answer(entries)`."""

    after: int
    upto: int
    epoch: str | None


class ReadFenceHead(msgspec.Struct, frozen=True):
    """Read the head for a fence, as `ReadHead` does. Answer with `Feed.fence_head` or `Feed.fence_failed`."""

    number: int
    expedited: bool
    known: tuple[str | int, ...]


class Ping(msgspec.Struct, frozen=True):
    """Send PING with this token on the subscriber connection."""

    token: bytes


class SendCommands(msgspec.Struct, frozen=True):
    """Send these commands on the subscriber connection, then call `Feed.sent`."""

    commands: list[tuple[bytes, ...]]


class Close(msgspec.Struct, frozen=True):
    """Close the connection. `error` is the reason; None means that fences were late."""

    error: HeadgateError | None


Action: TypeAlias = (
    SimpleAction | Deliver | Gap | LineChanged | Quarantine | ReadHead | ReadLog | ReadFenceHead | Ping
    | SendCommands | Close
)  # fmt: skip
