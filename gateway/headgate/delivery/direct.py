"""Direct writes send the first events of a read straight to the sockets of their few clients, in one call of C. Optional.

In: replies of the bus that the feed has not seen, and the position of the feed. Out: frames on sockets, and a `Run`, which
reports what was taken. The feed and the fan-out do the rest, and without this module's C (`_native.c`) the whole work, with the
same results (tests/unit/delivery/test_direct.py).

A run takes messages from the front as long as each
- is a logged event without a trace, in the epoch of the feed, at the offset that follows, with a payload that is surely JSON;
- has at most 15 clients, each of which may be written to directly, or reads the event from the log.
It ends with the first other message, after some 64 writes, and before its frames exceed a slice. It does not switch greenlets, so
no other code sees a part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headgate.errors import InvalidTopic
from headgate.events.topic import check_topic
from headgate.events.wire.frames import Frame, WrittenFrame
from headgate.installation import build_in_use, native
from headgate.redis.keys import channel_prefix, mixed_prefix

from .bus.feed import Front
from .client import Client
from .matcher import Audience, SubscriptionMatcher
from .tally import Tallies

if TYPE_CHECKING:
    from headgate._native import Writer


class Run(NamedTuple):
    """The result of a call."""

    taken: int  # replies
    matched: int  # events with clients here
    unwanted: int  # events without
    routed: int  # deliveries, where each matched event counts once for each of its clients
    writes: int  # one for each client
    times: list[tuple[int, int]]  # matched events by their time, [(ms since 1970, events), …]
    tallied: list[tuple[int, int]]  # matched events with a tally, [(offset, clients), …]
    # Clients with a socket that took only the first bytes of its frames, or broke. The fan-out continues with these.
    left: list[tuple[Client, int, OSError | None, list[Frame]]]
    crowd: bool  # the next event has too many clients; the fan-out joins it with what follows
    full: bool  # the next event is left for another call, as other work comes first


class DirectWriter:
    """The direct writes of one namespace. `database` is the number of the log's."""

    def __init__(
        self, namespace: str, matcher: SubscriptionMatcher[Client], max_payload_bytes: int, tallies: Tallies, database: int = 0
    ) -> None:
        self._matcher, self._tallies = matcher, tallies
        # Only channels of users and the feed channel have a slash at this index. Their messages begin with the topic.
        mark_at = len(mixed_prefix(namespace, database)) - 1
        prefix_bytes = len(channel_prefix(namespace, database))
        self._writer: Writer = native("Writer")(
            namespace.encode(), prefix_bytes, mark_at, max_payload_bytes, tallies.step, self._find
        )

    def take(self, replies: list[list[bytes]], front: Front) -> Run:
        """Write the usual events at the front, and move `front` past them. Never switches greenlets.

        A bug of ours may raise after some of the writes; `front` then shows the progress.
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
        left = [(client, sent, error, [WrittenFrame(*parts) for parts in frames]) for client, sent, error, frames in left]
        self._tallies.left_out(matched - len(tallied), front.reached)
        return Run(taken, matched, unwanted, routed, writes, times, tallied, left, crowd, full)

    def _find(self, topic: str) -> Audience[Client] | None:
        try:
            return self._matcher.match(check_topic(topic))
        except InvalidTopic:
            return None


def direct_writer(
    namespace: str, matcher: SubscriptionMatcher[Client], max_payload_bytes: int, tallies: Tallies, database: int = 0
) -> DirectWriter | None:
    """Return the direct writer of a namespace, or None where it was not built."""
    if build_in_use() == "python":
        return None
    return DirectWriter(namespace, matcher, max_payload_bytes, tallies, database)
