"""Publishes for many callers at once. Their events of one moment go to Redis in one round trip.

In: prepared events, from greenlets that wait for their outcome, and from callbacks of the loop. Out: to the publisher, all
events since its last call; to each caller a receipt or an error for each of its events. Events gather during a round trip for
the next one, so no caller waits for a timer, and round trips grow with the load.

Promises. 1. The events of a caller keep their order, and so do the callers. 2. Each event succeeds or fails alone. 3. The queue
is bounded, in events and bytes. Beyond that a caller is refused. 4. When Redis does not answer, the callers queued after that
round trip fail with it, so no caller waits for two, and later ones fail at once until Redis answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from headgate.errors import BusUnavailable, HeadgateError, LimitReached
from headgate.runtime.loop import DeferredWrites, Idle, in_hub_after, spawn
from headgate.services.publisher import Prepared, Publisher, Receipt

# One round trip is five full calls of Redis (`services/log_writer.py`). Packing it and reading its replies takes 1.4 ms.
MAX_BATCH_EVENTS = 500
MAX_BATCH_BYTES = 1024 * 1024
# Of a namespace's queue.
MAX_WAITING_EVENTS = 20_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
FULL_RETRY_S = 1
# Between them the loop reads the next requests, so that Redis gets these before all answers are written. With all at once, 64
# callers who wait for each answer left Redis idle while we wrote, and us while it worked: 0.8 times as many events per second.
ANSWERS_AT_ONCE = 32

Outcome = Receipt | HeadgateError

log = structlog.get_logger("headgate.publish_queue")


class _Batch:
    """The events of one round trip, the greenlets that wait for it, and the callbacks for single events by their place."""

    __slots__ = ("_waiting", "callbacks", "events", "outcomes", "size_bytes")

    def __init__(self) -> None:
        self.events: list[Prepared] = []
        self.size_bytes = 0
        self.outcomes: Sequence[Outcome] | None = None
        self._waiting: list[Idle] = []
        self.callbacks: list[tuple[int, Callable[[Outcome], object]]] = []

    def take(self, events: Sequence[Prepared], first: int) -> int:
        """Take events from `first` on while there is room, at least one; return how many."""
        count, size_bytes = 0, self.size_bytes
        room = MAX_BATCH_EVENTS - len(self.events)
        for event in events[first : first + room]:
            if size_bytes >= MAX_BATCH_BYTES:
                break
            size_bytes += event.size_bytes
            count += 1
        self.events += events[first : first + count]
        self.size_bytes = size_bytes
        return count

    def has_room(self) -> bool:
        return len(self.events) < MAX_BATCH_EVENTS and self.size_bytes < MAX_BATCH_BYTES

    def wait(self) -> Sequence[Outcome]:
        """Wait for the outcomes of all events and return them. Switches greenlets."""
        if self.outcomes is None:
            rest = Idle()
            self._waiting.append(rest)
            try:
                rest.wait()
            finally:
                if not rest.is_woken:
                    self._waiting.remove(rest)  # the greenlet was killed
        assert self.outcomes is not None  # otherwise this greenlet would still sleep
        return self.outcomes

    def end(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = outcomes
        waiting, self._waiting = self._waiting, []
        for rest in waiting:
            rest.wake()

    def call_back(self, first: int = 0) -> None:
        """Call ANSWERS_AT_ONCE callbacks now, and the others in the next turns of the loop."""
        assert self.outcomes is not None
        end = first + ANSWERS_AT_ONCE
        if end < len(self.callbacks):
            in_hub_after(0, partial(self.call_back, end))
        for place, done in self.callbacks[first:end]:
            try:
                done(self.outcomes[place])
            except Exception:
                log.exception("answering failed")


class PublishQueue:
    """See the module. One per namespace."""

    def __init__(
        self,
        publisher: Publisher,
        published: Callable[[Sequence[Outcome]], object],
        start: Callable[[Callable[[], None]], object] = spawn,
    ) -> None:
        """`published` gets the outcomes of each round trip that Redis has answered; it must not wait.

        `start` runs a function in a new greenlet, from the next turn of the loop.
        """
        self._publisher, self._published, self._start = publisher, published, start
        self._batches: deque[_Batch] = deque()
        self._sending = False
        self._waiting_events = self._waiting_bytes = 0
        self._answers = DeferredWrites(lambda: None)

    def publish(self, events: Sequence[Prepared]) -> list[Outcome]:
        """Publish events, in order; return a receipt or an error for each. Switches greenlets.

        With the error BusUnavailable the event may or may not have been published. Raises LimitReached if the queue is full, and
        BusUnavailable while Redis is stalled, and then publishes nothing.
        """
        outcomes: list[Outcome] = []
        for batch, first, end in self._queued(events):
            outcomes += batch.wait()[first:end]
        return outcomes

    def begin(self, event: Prepared, done: Callable[[Outcome], object]) -> None:
        """Publish an event as `publish`, but without a wait. `done` gets its outcome, in the hub."""
        ((batch, place, _),) = self._queued((event,))
        batch.callbacks.append((place, done))

    def _queued(self, events: Sequence[Prepared]) -> list[tuple[_Batch, int, int]]:
        """Queue events; return their places as (round, first, end). Raises as `publish`."""
        if self._sending and events and not self._batches:  # else these events wait and fail with others
            self._publisher.refuse_while_stalled(events[0].namespace)
        size_bytes = 0
        for event in events:
            size_bytes += event.size_bytes
        if self._waiting_events + len(events) > MAX_WAITING_EVENTS:
            raise LimitReached("publish_queue_events", MAX_WAITING_EVENTS, FULL_RETRY_S)
        if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            raise LimitReached("publish_queue_bytes", MAX_WAITING_BYTES, FULL_RETRY_S)
        self._waiting_events += len(events)
        self._waiting_bytes += size_bytes
        places = self._gather(events)
        if events and not self._sending:
            self._sending = True
            self._start(self._send)
        return places

    def _gather(self, events: Sequence[Prepared]) -> list[tuple[_Batch, int, int]]:
        """Give events their places in rounds; return these as (round, first, end)."""
        if len(events) == 1 and self._batches and (batch := self._batches[-1]).has_room():
            batch.events.append(events[0])
            batch.size_bytes += events[0].size_bytes
            return [(batch, len(batch.events) - 1, len(batch.events))]
        places: list[tuple[_Batch, int, int]] = []
        taken = 0
        while taken < len(events):
            if not self._batches or not self._batches[-1].has_room():
                self._batches.append(_Batch())
            batch = self._batches[-1]
            first = len(batch.events)
            taken += batch.take(events, taken)
            places.append((batch, first, len(batch.events)))
        return places

    def _send(self) -> None:
        """Send one round after the other until none is left."""
        try:
            while self._batches:
                sent = self._batches.popleft()
                try:
                    outcomes: Sequence[Outcome] = self._publisher.publish_prepared(sent.events)
                except HeadgateError as error:
                    self._fail(sent, error)
                    if isinstance(error, BusUnavailable):
                        while self._batches:
                            self._fail(self._batches.popleft(), error)
                except Exception:
                    log.exception("publishing failed")
                    self._fail(sent, BusUnavailable("the gateway failed; its log says why"))
                else:
                    self._end(sent, outcomes)
                    self._published(outcomes)
        finally:
            self._sending = False

    def _fail(self, sent: _Batch, error: HeadgateError) -> None:
        self._end(sent, [error] * len(sent.events))

    def _end(self, sent: _Batch, outcomes: Sequence[Outcome]) -> None:
        self._waiting_events -= len(sent.events)
        self._waiting_bytes -= sent.size_bytes
        sent.end(outcomes)
        if sent.callbacks:
            self._answers.add(sent.call_back)  # later, so that the next round trip begins before
