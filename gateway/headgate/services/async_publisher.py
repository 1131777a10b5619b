"""The publisher for asyncio. Events that coroutines publish in one turn of the loop share a round trip.

In: topics and data, from coroutines of one event loop. Out: a receipt or an error for each, as from `Publisher`. The loop
checks and encodes data. A `Publisher` in a thread does everything that may wait for Redis, with its connections, breaker,
failover and schemas. Events gather during a round trip for the next one, so no timer is needed.

Promises. 1. Events of one namespace with one `durable` keep the order in which they were published. 2. Each event succeeds or
fails alone. 3. The queue is bounded in events and bytes; a publish beyond that is refused. 4. If Redis does not answer, queued
events fail with that round trip instead of waiting for a second timeout, and later ones at once until Redis answers. 5. The
loop never waits for Redis, and never ends more than MAX_ENDED publishes in one turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from copy import copy
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

import msgspec

from headgate.errors import BusUnavailable, HeadgateError, LimitReached, PublisherClosed, stays_in_its_process
from headgate.events.numbers import check_items
from headgate.events.topic import DEFAULT_NAMESPACE, check_namespace, check_topic
from headgate.redis.durability import read_durable
from headgate.runtime.spans import publishing
from headgate.services.publisher import DEFAULT_TIMEOUT_S, MAX_BATCH_EVENTS, Durable, Prepared, Publisher, Receipt

if TYPE_CHECKING:
    from headgate.services.schemas.check import OnViolation

# For one round trip, two full calls of Redis (log_writer.py). Packing them and reading the replies holds the interpreter for 1
# ms.
MAX_ROUND_EVENTS = 200
MAX_ROUND_BYTES = 1024 * 1024
# Bounds of the queue over all namespaces.
MAX_WAITING_EVENTS = 20_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
# Publishes that end in one turn of the loop. Each wakes a task of the application.
MAX_ENDED = 100
# Concurrent calls other than `publish`, and threads of one publisher.
MAX_CALLS = 100
MAX_THREADS = 4
_FULL_RETRY_S = 1

_Waiting: TypeAlias = tuple[Prepared, asyncio.Future[Receipt]]
# Events that may share a round trip, with the futures of their outcomes. A lane has one round trip at a time.
_Lane: TypeAlias = deque[_Waiting]
Event: TypeAlias = tuple[str, object] | tuple[str, object, str | None]
P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("headgate.publisher")


class QueueState(msgspec.Struct, frozen=True, gc=False):
    """The current queue of a publisher (`events`, `bytes` of payload), its peaks, and the number of refused publishes."""

    events: int
    bytes: int
    most_events: int
    refused: int


def _in_thread(
    method: Callable[Concatenate[Publisher, P], R],
) -> Callable[Concatenate[AsyncPublisher, P], Coroutine[Any, Any, R]]:
    """Return a coroutine function that calls a method of `Publisher` in a thread."""

    @wraps(method)
    async def call(self: AsyncPublisher, /, *args: P.args, **options: P.kwargs) -> R:
        return await self._call(method, *args, **options)

    return call


class AsyncPublisher:
    """Publishes events into the log of a namespace, from the coroutines of one event loop (asyncio or uvloop).

        async with AsyncPublisher() as publisher:
            receipt = await publisher.publish("orders.7.shipped", {"id": 7})

    It starts at `async with` or at the first call, and belongs to the loop of that call. It takes the arguments of `Publisher`,
    and invalid ones raise at the start. `timeout_s` counts from the sending of an event, and the round trip before it may take
    as long. `on_schema_violation` is called in a thread.

    All methods raise PublisherClosed, without sending anything, if it was closed or is used outside its event loop.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        max_payload_bytes: int = 65536,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        strict_namespace: bool = False,
        durable: Durable = None,
        show_by: Iterable[str] = (),
        schemas: str | None = None,
        schema_check: Literal["off", "warn", "refuse"] | None = None,
        on_schema_violation: OnViolation | None = None,
    ) -> None:
        self._make = partial(
            Publisher,
            redis_url,
            namespace=namespace,
            max_payload_bytes=max_payload_bytes,
            timeout_s=timeout_s,
            strict_namespace=strict_namespace,
            durable=durable,
            show_by=show_by,
            schemas=schemas,
            schema_check=schema_check,
            on_schema_violation=on_schema_violation,
        )
        self._namespace = namespace
        self._threads = ThreadPoolExecutor(MAX_THREADS, "headgate-publisher")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Future[Publisher] | None = None
        self._publisher: Publisher | None = None
        self._is_closed = False
        self._idle: asyncio.Future[None] | None = None  # `close` waits for it until all publishes have ended
        self._lanes: dict[tuple[str, Durable], _Lane] = {}
        self._ended: deque[tuple[asyncio.Future[Receipt], Receipt | HeadgateError]] = deque()
        self._calls = self._waiting_events = self._waiting_bytes = self._most_events = self._refused = 0

    __reduce__ = stays_in_its_process

    @property
    def queue(self) -> QueueState:
        """The events that wait to be sent or answered."""
        return QueueState(self._waiting_events, self._waiting_bytes, self._most_events, self._refused)

    async def publish(
        self,
        topic: str,
        data: object,
        id: str | None = None,
        namespace: str | None = None,
        *,
        user: str | None = None,
        by: str | None = None,
        durable: Durable = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> Receipt:
        """Append one event to the log and publish it; return its receipt. Arguments and errors as `Publisher.publish`.

        A publish cancelled before sending sends nothing. A publish cancelled later may or may not have succeeded. Publish the
        event again with the same id while the id counts.

        Raises:
            LimitReached: MAX_WAITING_EVENTS events or MAX_WAITING_BYTES are waiting; nothing was sent.
        """
        publisher = self._publisher_here() or await self._open()
        read_durable(durable)
        name = self._namespace if namespace is None else check_namespace(namespace)
        span = publishing(name, check_topic(topic)) if traceparent is None else nullcontext(traceparent)
        with span as parent:
            event = publisher.prepare(
                topic, data, id, namespace, user=user, by=by, traceparent=parent, id_for_s=id_for_s, check_schemas=False
            )
            try:
                return await self._wait_for(event, durable)
            except BusUnavailable as shared:  # by all events of a round trip
                error = copy(shared)
                error.event_id = event.id
                raise error from None

    async def publish_many(
        self,
        events: Iterable[Event],
        namespace: str | None = None,
        *,
        durable: Durable = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> list[Receipt]:
        """Publish events (topic, data) or (topic, data, id) in order and in one round trip; return their receipts.

        Arguments and errors as `Publisher.publish_many`. A thread encodes them, so do not change them until this returns.
        """
        batch = list(islice(check_items(events, "events", "(topic, data)"), MAX_BATCH_EVENTS + 1))
        return await self._call(
            Publisher.publish_many, batch, namespace, durable=durable, traceparent=traceparent, id_for_s=id_for_s
        )

    check = _in_thread(Publisher.check)
    publish_ephemeral = _in_thread(Publisher.publish_ephemeral)
    position = _in_thread(Publisher.position)
    presence = _in_thread(Publisher.presence)
    presence_page = _in_thread(Publisher.presence_page)
    revoke = _in_thread(Publisher.revoke)

    async def close(self) -> None:
        """Refuse further publishes, wait for current ones, and close. Idempotent.

        A cancelled close does not wait, but the connections still close when all publishes have ended.
        """
        if self._loop is not None and self._loop.is_closed():
            self._end()
            return
        self._check_loop()
        self._is_closed = True
        if self._is_busy():
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        else:
            self._end()

    async def __aenter__(self) -> AsyncPublisher:
        if self._publisher_here() is None:
            await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- beginning and ending ---------------------------------------------------------------------------------------

    def _publisher_here(self) -> Publisher | None:
        """Return the publisher, or None before it exists."""
        if self._is_closed:
            raise PublisherClosed("it was closed")
        self._check_loop()
        return self._publisher

    def _check_loop(self) -> None:
        if self._loop is not None and self._loop is not _running_loop():
            raise PublisherClosed(
                "it belongs to another event loop: make one for each loop, or use Publisher where each call has its own loop "
                "(asyncio.run, an async view under WSGI)"
            )

    async def _open(self) -> Publisher:
        """Create the publisher in a thread, because that loads redis-py and may wait for a private Redis to start."""
        opening = self._opening
        if opening is None or opening.cancelled() or (opening.done() and opening.exception()):  # the next call tries again
            self._loop = _running_loop()
            opening = self._opening = self._run(self._make)
        self._publisher = await asyncio.shield(opening)
        if self._is_closed:
            raise PublisherClosed("it was closed")
        return self._publisher

    def _run(self, call: Callable[[], R]) -> asyncio.Future[R]:
        """Call a function in a thread. The result is BusUnavailable where Python has none for it."""
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._threads, call)
        except RuntimeError as error:  # the system has no more threads, or the program ends
            failed = loop.create_future()
            failed.set_exception(BusUnavailable(f"no thread can send it, use Publisher where the program ends: {error}"))
            return failed

    def _is_busy(self) -> bool:
        return bool(self._lanes or self._ended or self._calls)

    def _note_idle(self) -> None:
        if self._is_closed and not self._is_busy():
            self._end()
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def _end(self) -> None:
        self._is_closed = True
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
        self._threads.shutdown(wait=False)

    # -- other calls ------------------------------------------------------------------------------------------------

    async def _call(self, method: Callable[..., R], *args: Any, **options: Any) -> R:
        """Call a method of the publisher in a thread."""
        publisher = self._publisher_here() or await self._open()
        if self._calls >= MAX_CALLS:
            raise LimitReached("publisher_calls", MAX_CALLS, _FULL_RETRY_S)
        self._calls += 1
        running = self._run(partial(copy_context().run, method, publisher, *args, **options))
        running.add_done_callback(self._call_ended)
        return await asyncio.shield(running)

    def _call_ended(self, running: asyncio.Future[Any]) -> None:
        if not running.cancelled():
            running.exception()  # the caller has the exception, or was cancelled
        self._calls -= 1
        self._note_idle()

    # -- publishing -------------------------------------------------------------------------------------------------

    async def _wait_for(self, event: Prepared, durable: Durable) -> Receipt:
        """Queue an event and return its receipt."""
        loop = asyncio.get_running_loop()
        key = (event.namespace, durable)
        lane = self._lanes.get(key)
        if lane is not None and self._publisher is not None:
            self._publisher.refuse_while_stalled(event.namespace)
        if self._waiting_events >= MAX_WAITING_EVENTS:
            self._refused += 1
            raise LimitReached("publish_queue_events", MAX_WAITING_EVENTS, _FULL_RETRY_S)
        if self._waiting_bytes + event.size_bytes > MAX_WAITING_BYTES:
            self._refused += 1
            raise LimitReached("publish_queue_bytes", MAX_WAITING_BYTES, _FULL_RETRY_S)
        self._waiting_events += 1
        self._waiting_bytes += event.size_bytes
        self._most_events = max(self._most_events, self._waiting_events)
        if lane is None:
            lane = self._lanes[key] = deque()
            loop.call_soon(self._send, key, lane)  # later, to include other events of this turn
        outcome: asyncio.Future[Receipt] = loop.create_future()
        lane.append((event, outcome))
        return await outcome

    def _send(self, key: tuple[str, Durable], lane: _Lane) -> None:
        """Send the next round of a lane; remove an empty lane."""
        assert self._publisher is not None
        sent = self._take(lane)
        if not sent:
            del self._lanes[key]
            self._note_idle()
            return
        running = self._run(partial(self._publisher.publish_prepared, [event for event, _ in sent], durable=key[1]))
        running.add_done_callback(partial(self._answered, key, lane, sent))

    def _take(self, lane: _Lane) -> list[_Waiting]:
        """Take a round from a lane, without cancelled events."""
        sent: list[_Waiting] = []
        size_bytes = 0
        while lane and len(sent) < MAX_ROUND_EVENTS and size_bytes < MAX_ROUND_BYTES:
            event, outcome = lane.popleft()
            if outcome.done():
                self._forget(event)
                continue
            size_bytes += event.size_bytes
            sent.append((event, outcome))
        return sent

    def _answered(
        self,
        key: tuple[str, Durable],
        lane: _Lane,
        sent: Sequence[_Waiting],
        running: asyncio.Future[list[Receipt | HeadgateError]],
    ) -> None:
        """End the publishes of a finished round trip, and send the next one."""
        try:
            self._end_each(sent, running.result())
        except HeadgateError as error:
            self._end_with(sent, error)
            if isinstance(error, BusUnavailable):
                self._end_with(list(lane), error)
                lane.clear()
        except Exception:
            log.exception("publishing failed")
            self._end_with(sent, BusUnavailable("the publisher failed; its log says why"))
        self._send(key, lane)

    def _end_with(self, sent: Sequence[_Waiting], error: HeadgateError) -> None:
        self._end_each(sent, [error] * len(sent))

    def _end_each(self, sent: Sequence[_Waiting], outcomes: Sequence[Receipt | HeadgateError]) -> None:
        """End publishes, a few in each turn of the loop."""
        is_ending = bool(self._ended)
        for (event, outcome), each in zip(sent, outcomes, strict=True):
            self._forget(event)
            self._ended.append((outcome, each))
        if not is_ending:
            self._end_some()

    def _end_some(self) -> None:
        """End some publishes now, and the others in later turns of the loop."""
        for _ in range(min(MAX_ENDED, len(self._ended))):
            outcome, each = self._ended.popleft()
            if outcome.done():  # cancelled
                continue
            if isinstance(each, HeadgateError):
                outcome.set_exception(each)
            else:
                outcome.set_result(each)
        if self._ended:
            asyncio.get_running_loop().call_soon(self._end_some)
        else:
            self._note_idle()

    def _forget(self, event: Prepared) -> None:
        self._waiting_events -= 1
        self._waiting_bytes -= event.size_bytes


def _running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop. Raises PublisherClosed: there is none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise PublisherClosed("no event loop of asyncio runs here: use Publisher, in a thread under trio") from None
