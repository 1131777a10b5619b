"""The actions that the feed asks its shell for: all of its output. Small values, at most a few for each read. No I/O."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headgate.errors import HeadgateError
from headgate.events.event import Event
from headgate.protocol.packets import GapReason
from headgate.redis.entries import Head

from .interest import Source

# Structs, not dataclasses: the classes are made in a twentieth of the time, and so are their objects in a tenth.


class Deliver(msgspec.Struct, eq=False):
    """Hand these events on, in order. While that is under way, a `live` one takes more of them from `Feed.more`."""

    events: list[Event]
    live: bool


class Gap(msgspec.Struct, frozen=True):
    """Tell the clients that offsets `first`…`last` of the log will not come."""

    first: int
    last: int
    reason: GapReason


class LogLost(msgspec.Struct, frozen=True):
    """Tell the clients that the log is another one: no epoch in common. The position was at `was_offset`, and is at `head`."""

    head: Head
    was_offset: int


class LineChanged(msgspec.Struct, frozen=True):
    """Tell the clients that the log goes on in the epoch of `head`, and shares with the one before everything up to `end`.

    The position was at `was_offset`, and is not above `end` now: the events of the new line above it come next. The log has lost
    everything from `end + 1` to `was_offset`, which is nothing unless `end` is below `was_offset`.
    """

    head: Head
    end: int
    was_offset: int


class Up(msgspec.Struct, frozen=True):
    """Tell the clients that the feed is live."""


class Down(msgspec.Struct, frozen=True):
    """Tell the clients that the feed is live no longer."""


class Synced(msgspec.Struct, frozen=True):
    """A fence has passed: everything up to the position has been handed on. `sources` are active from now on."""

    sources: frozenset[Source]


class Quarantine(msgspec.Struct, frozen=True):
    """Count a message that cannot be delivered."""

    error: HeadgateError


class Configure(msgspec.Struct, frozen=True):
    """Store the retention in Redis, which begins an epoch if the log has none that this Redis process writes.

    Answer with `Feed.answer(head)`, and the lineage.
    """


class ReadHead(msgspec.Struct, frozen=True):
    """Read the head of the log, as `EventLog.head` does with what is `known`. Answer with `Feed.answer(head)`."""

    known: tuple[str | int, ...]


class ReadLinkHead(msgspec.Struct, frozen=True):
    """Read the head of the log on the subscriber connection, which has not subscribed yet. Answer with `Feed.answer(head)`."""


class ReadLog(msgspec.Struct, frozen=True):
    """Read a page of the log: `after` < offset ≤ `upto`, of `epoch` only. Answer with `Feed.answer(entries)`."""

    after: int
    upto: int
    epoch: str | None


class ReadFenceHead(msgspec.Struct, frozen=True):
    """Read the head of the log for a fence, as `ReadHead` does. Answer with `Feed.fence_head`, or `Feed.fence_failed`."""

    number: int
    expedited: bool
    known: tuple[str | int, ...]


class Ping(msgspec.Struct, frozen=True):
    """Send PING with this token on the subscriber connection."""

    token: bytes


class Subscribe(msgspec.Struct, frozen=True):
    """Send the commands that subscribe to sources. Say `Feed.sent` when they are out."""

    sources: list[Source]


class Unsubscribe(msgspec.Struct, frozen=True):
    """Send the commands that unsubscribe from sources. Say `Feed.sent` when they are out."""

    sources: list[Source]


class Wake(msgspec.Struct, frozen=True):
    """Call `Feed.wake` soon: it may have something to subscribe to, or a fence to expedite."""


class Close(msgspec.Struct, frozen=True):
    """Close the connection. `error` is the reason; None: fences were late."""

    error: HeadgateError | None


Action: TypeAlias = (
    Deliver
    | Gap
    | LineChanged
    | LogLost
    | Up
    | Down
    | Synced
    | Quarantine
    | Configure
    | ReadHead
    | ReadLinkHead
    | ReadLog
    | ReadFenceHead
    | Ping
    | Subscribe
    | Unsubscribe
    | Wake
    | Close
)
