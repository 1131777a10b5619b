"""The router finds the clients of events from the bus. No I/O, never waits.

In: events in log order, from the bus listener. Out: passes of the fan-out, one slice (at most MAX_SLICE_BYTES of frames)
after the other. Events without a client here cost one match and are not encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.events.event import Event
from headgate.protocol.frames import event_frame

from .client import Client
from .direct import Run
from .fanout import MAX_SLICE_BYTES, Matched, Pass
from .matcher import SubscriptionMatcher
from .tally import Tallies, Traced


class Router:
    """Matches and slices.

    `matched` counts events with clients here, `plain` those of them without an offset, `unwanted` events without clients.
    `routed` counts each matched event once for each of its clients, at the end of its pass.
    """

    def __init__(
        self,
        namespace: str,
        matcher: SubscriptionMatcher[Client],
        tallies: Tallies | None = None,
        traced: Traced | None = None,
    ) -> None:
        self._namespace = namespace.encode()
        self._matcher = matcher
        self._tallies = tallies if tallies is not None and tallies.every else None
        self._traced = traced
        self._start = 0
        self.matched = self.plain = self.unwanted = self.routed = 0

    def match(self, events: Iterable[Event]) -> list[Matched]:
        """Return the events with clients here, framed, in order."""
        matched: list[Matched] = []
        audience_of = self._matcher.match
        for event in events:
            audience = audience_of(event.topic)
            if not audience.clients:
                self.unwanted += 1
                continue
            if event.offset is None:
                self.plain += 1
            frame = event_frame(self._namespace, event)
            if self._tallies is not None and event.offset is not None:
                frame.tally = self._tallies.of(event.offset)
            if self._traced is not None and event.traceparent is not None:
                self._traced.route(event, frame)
            matched.append(Matched(frame, audience))
        self.matched += len(matched)
        return matched

    def written(self, run: Run) -> None:
        """Count directly written events, and their deliveries."""
        self.matched += run.matched
        self.unwanted += run.unwanted
        self.routed += run.routed
        if self._tallies is None:
            return
        tallies = {offset: self._tallies.of(offset) for offset, _ in run.tallied}
        for offset, clients in run.tallied:
            if (tally := tallies[offset]) is not None:
                tally.matched += clients
        for left in run.left:
            for frame in left.frames:
                frame.tally = tallies.get(frame.offset or 0)

    def passes(self, matched: Iterable[Matched]) -> Iterator[Pass]:
        """Yield passes over matched events, in order. Advance each to its end before the next."""
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

    def passed(self, pass_: Pass) -> None:
        """Count the deliveries of an ended pass."""
        self.routed += pass_.routed
        if self._traced is not None:
            self._traced.passed(matched.frame for matched in pass_.events)

    def _pass(self, slice_: list[Matched]) -> Pass:
        # This stride is coprime to most sizes, so consecutive passes start far apart.
        self._start += 7919
        return Pass(slice_, self._start)
