"""The router: events from the bus → who gets them. Pure of I/O; never waits.

In: events in log order, from the bus listener. Out: passes of the fan-out, one slice (at most MAX_SLICE_BYTES of frames)
after the other. Events that nobody here wants cost one match and are not encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.event import Event
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import event_packet

from .client import Client
from .fanout import MAX_SLICE_BYTES, Matched, Pass
from .matcher import SubscriptionMatcher


class Router:
    """Matches and slices.

    `matched` counts events that somebody here wanted, `plain` those of them that have no offset, `unwanted` the others.
    """

    def __init__(self, namespace: str, matcher: SubscriptionMatcher[Client]) -> None:
        self._namespace = namespace
        self._matcher = matcher
        self._start = 0
        self.matched = self.plain = self.unwanted = 0

    def match(self, events: Iterable[Event]) -> list[Matched]:
        """Return the events that somebody here wants, framed, in order."""
        matched: list[Matched] = []
        for event in events:
            audience = self._matcher.match(event.topic)
            if not audience.clients:
                self.unwanted += 1
                continue
            self.matched += 1
            if event.offset is None:
                self.plain += 1
            frame = message_frame(
                event_packet(self._namespace, event),
                topic=event.topic,
                offset=event.offset,
                payload_bytes=len(event.data),
            )
            matched.append(Matched(frame, audience))
        return matched

    def passes(self, matched: Iterable[Matched]) -> Iterator[Pass]:
        """Yield passes over matched events, in order; each must be advanced to its end before the next is asked for."""
        slice_: list[Matched] = []
        size = 0
        for each in matched:
            if slice_ and size + len(each.frame.wire) > MAX_SLICE_BYTES:
                yield self._pass(slice_)
                slice_, size = [], 0
            slice_.append(each)
            size += len(each.frame.wire)
        if slice_:
            yield self._pass(slice_)

    def _pass(self, slice_: list[Matched]) -> Pass:
        # A stride that is coprime to most sizes: consecutive passes start far apart.
        self._start += 7919
        return Pass(slice_, self._start)
