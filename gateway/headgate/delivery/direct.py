"""Direct writes: the events at the front of a read, straight to the sockets of their few clients, in one call of C. Optional.

In: replies of the bus that the feed has not seen, and where the feed stands. Out: frames on sockets, and a `Run` that says what
was taken. Everything but the usual case is left where it is, for the feed and the fan-out; so nothing is lost where this module's
C (`_native.c`) was not built, and both ways come to the same (tests/unit/delivery/test_direct.py).

A run takes messages from the front as long as each
- is a logged event without a trace, in the epoch of the feed, at the offset that follows, with a payload that is surely JSON;
- has at most 15 clients, each of which may be written to directly, or reads the log, which brings it the event; or none at all.
It ends with the first other message, behind some 64 writes, and before its frames are more than a slice. All clients of a run are
written to in one go: nobody else has a turn, so nobody sees a part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from headgate.build import Build, build_in_use
from headgate.errors import InvalidTopic
from headgate.events.topic import check_topic
from headgate.protocol.frames import Frame, written_frame
from headgate.redis.keys import channel_prefix, mixed_prefix

from .client import Client
from .matcher import Audience, SubscriptionMatcher
from .tally import Tallies

try:
    from headgate._native import Writer
except ImportError:  # it was not built
    Writer = None  # type: ignore[assignment,misc]

# Wire, size of its header, topic, offset, size of the payload, time in ms.
_Parts: TypeAlias = tuple[bytes, int, str, int, int, int]


class Front(Protocol):
    """Where the feed stands, before replies that it has not seen.

    `reached`, `head` and `consecutive` are those of the feed's own rule for what follows: the next offset, or, where holes are
    events that nobody here needs, any above `reached` that is not too far ahead. A run moves `reached`.
    """

    epoch: str
    reached: int
    head: int
    consecutive: bool


class Left(NamedTuple):
    """A client whose socket took only the first `sent` bytes of its frames, or broke."""

    client: Client
    sent: int
    error: OSError | None
    frames: list[Frame]


class Run(NamedTuple):
    """What a call has taken and written.

    Attributes:
        taken: so many replies.
        matched, unwanted: events that somebody here wanted, and those that nobody did.
        routed: each of the matched ones once for each of its clients.
        writes: one for each client.
        times: how many of the matched were published when, [(ms since 1970, events), …].
        tallied: of which of them a tally is kept, [(offset, clients), …].
        left: clients that the fan-out has to go on with.
        crowd: whether the next event has too many clients: the fan-out joins what follows with it.
        full: whether the next event is left for another call: others come first.
    """

    taken: int
    matched: int
    unwanted: int
    routed: int
    writes: int
    times: list[tuple[int, int]]
    tallied: list[tuple[int, int]]
    left: list[Left]
    crowd: bool
    full: bool


class DirectWriter:
    """The direct writes of one namespace."""

    def __init__(
        self,
        namespace: str,
        matcher: SubscriptionMatcher[Client],
        max_payload_bytes: int,
        tallies: Tallies,
        native: Callable[..., Any],
        database: int = 0,
    ) -> None:
        self._matcher = matcher
        self._tallies = tallies
        # Messages on channels with a slash there, those of users and the feed channel, begin with the topic.
        mark_at = len(mixed_prefix(namespace, database)) - 1
        prefix_bytes = len(channel_prefix(namespace, database))
        self._writer = native(namespace.encode(), prefix_bytes, mark_at, max_payload_bytes, tallies.step, self._find)

    def take(self, replies: list[list[bytes]], front: Front) -> Run:
        """Write the events at the front that are the usual case, and move `front` behind them. Never waits, never switches.

        A fault of ours, which raises, may come behind some of the writes: `front` says up to where.
        """
        writer = self._writer
        writer.tally_every = self._tallies.step
        try:
            taken, front.reached, matched, unwanted, routed, writes, times, tallied, left, crowd, full = writer.take(
                replies, self._matcher.known, front.epoch, front.reached, front.head, front.consecutive
            )
        except Exception:
            front.reached = writer.written
            raise
        self._tallies.left_out(matched - len(tallied), front.reached)
        return Run(taken, matched, unwanted, routed, writes, times, tallied, [_left(*each) for each in left], crowd, full)

    def _find(self, topic: str) -> Audience[Client] | None:
        try:
            return self._matcher.match(check_topic(topic))
        except InvalidTopic:
            return None


def direct_writer(
    namespace: str, matcher: SubscriptionMatcher[Client], max_payload_bytes: int, tallies: Tallies, database: int = 0
) -> DirectWriter | None:
    """Return what writes directly in a namespace, or None where that was not built. `database`: the number of the log's."""
    if Writer is None or build_in_use() is Build.PYTHON:
        return None
    return DirectWriter(namespace, matcher, max_payload_bytes, tallies, Writer, database)


def _left(client: Client, sent: int, error: OSError | None, frames: list[_Parts]) -> Left:
    return Left(client, sent, error, [written_frame(*parts) for parts in frames])
