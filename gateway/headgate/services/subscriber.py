"""The subscriber iterates over the log of a namespace, for services, scripts, tests and notebooks.

In: patterns and a start. Out: events in log order, and a Gap in place of lost ones. It reads Redis itself, without a gateway, a
WebSocket or gevent, and gateways do not know about it.

It reads the whole log, a page at a time, and skips events that match no pattern. At the end it waits in a blocking read (XREAD)
of up to BLOCK_S, which costs Redis one waiting client, and then reads the head. A Pub/Sub connection would need a channel for
each pattern, a fence to prove that nothing is missing, and reads of the log as well. Polling would wake each process many times
a second to get events within 1 ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic
from typing import TypeVar

from headgate.errors import BusUnavailable, InvalidPattern, InvalidRequest, stays_in_its_process
from headgate.events.numbers import check_seconds, is_whole
from headgate.events.topic import DEFAULT_NAMESPACE, MAX_KNOWN_TOPICS, check_namespace, check_pattern, matches
from headgate.events.wire.requests import Position
from headgate.events.wire.stream_text import read_cursor
from headgate.redis.client import call_at, database, drop_idle, open_client
from headgate.redis.faults import reading
from headgate.redis.keys import log_key
from headgate.redis.lineage import Head, LogPosition
from headgate.redis.log import PAGE_EVENTS, EventLog
from headgate.redis.log_walk import Item, LogWalk
from headgate.services.publisher import url_or_default

OLDEST = "oldest"
EXPECTED_SINCE = (
    "None (from now on), a cursor <epoch>:<offset>, a position of a publisher, an offset from 0 on, 'oldest', or a datetime "
    "with a time zone"
)
MAX_PATTERNS = 100
# One wait for the log to grow. Then the subscriber reads the head, which shows whether the log was rolled back or replaced.
BLOCK_S = 1.0
DEFAULT_PATIENCE_S = 30.0
MAX_WAIT_S = 1e9
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0
# Time limit of one command, longer than the wait.
ANSWER_WITHIN_S = 5.0
# An idle thread ends after this time.
THREAD_REST_S = 5.0
_MAX_OFFSET = 10**15
_POSITION = frozenset(("epoch", "offset"))
# No epoch has this name, so an answer for it includes the lineage.
_ANOTHER_EPOCH = "0" * 16

Since = str | int | datetime | LogPosition | None

R = TypeVar("R")

log = logging.getLogger("headgate.subscriber")


class Subscriber:
    """Iterates over the events of a namespace's log, by `for` and by `async for`.

        for item in Subscriber("redis://localhost", "orders.#", since=cursor):
            ...

    Each item is an `Event` (topic, data, id, time_ms, epoch, offset; `value()` decodes the data) or a `Gap`. After an iteration
    has ended or raised, the next one continues from there. Threads may share a subscriber; each item goes to one of them.

    Args:
        redis_url: as of `Publisher`.
        patterns: 1 to 100 topics, with `*` for one word and `#` for any number of words.
        since: the start. None starts now, at `with` or `async with`, or else at the request for the first item. A cursor (see
            `cursor`) or a result of `Publisher.position` starts after it. An offset starts after it, in the current log; after
            0, a Gap reports trimmed events. "oldest" starts with the oldest event in the log. A datetime starts with the first
            event from then on.
        namespace: namespace of the log.
        wait_s: how long to wait at the end of the log for the next item before the iteration ends. None waits forever.
        patience_s: how long Redis may be unreachable, as in a failover.

    Raises:
        InvalidPattern, InvalidRequest (`since`, `wait_s`, `patience_s`), UnknownNamespace: an argument is invalid.
        BusUnavailable, BusRefused: as `Publisher`.

    Iterating raises:
        InvalidRequest: `since` is an offset beyond the newest event of the log. A cursor is never refused here. If its log is
            lost, or its events are trimmed or rolled back, a Gap reports the missing part.
        BusUnavailable: Redis has been unreachable for `patience_s`.
        BusRefused: Redis refused it, for example because this user may not read the log.
    """

    def __init__(
        self,
        redis_url: str | None,
        *patterns: str,
        since: Since = None,
        namespace: str = DEFAULT_NAMESPACE,
        wait_s: float | None = None,
        patience_s: float = DEFAULT_PATIENCE_S,
    ) -> None:
        if not 1 <= len(patterns) <= MAX_PATTERNS:
            raise InvalidPattern(patterns, f"expected 1 to {MAX_PATTERNS} patterns after the Redis URL, which may be None")
        checked = tuple(map(check_pattern, patterns))
        self._since = _read_since(since)
        self._namespace = check_namespace(namespace)
        self._wait_s = None if wait_s is None else check_seconds(wait_s, "wait_s", MAX_WAIT_S)
        self._patience_s = check_seconds(patience_s, "patience_s", MAX_WAIT_S)
        self._key = log_key(self._namespace)
        self._client = open_client(url_or_default(redis_url), timeout_s=ANSWER_WITHIN_S, max_connections=1)
        self._reported = ("", 0)  # the epoch and newest offset of the last head
        self._log = EventLog(self._namespace, self._client, reached=lambda: self._reported)
        self._wanted: Callable[[str], bool] = lru_cache(maxsize=MAX_KNOWN_TOPICS)(
            lambda topic: any(matches(pattern, topic) for pattern in checked)
        )
        self._walk: LogWalk | None = None
        self._items: deque[tuple[Position, Item]] = deque()  # at most a page of items, each with the position after it
        self._reached: Position | None = None
        self._lock = Lock()
        self._closed = Flag()
        self._filling: Future[bool] | None = None  # the thread's current run
        self._thread = _DaemonThread()

    __reduce__ = stays_in_its_process

    @property
    def cursor(self) -> str | None:
        """The position after the last returned item, as text. A later subscriber continues there with it as `since`.

        None before the first position or without a log. Store it after handling an item, to handle each at least once.
        """
        return None if self._reached is None or not self._reached.epoch else str(self._reached)

    def __iter__(self) -> Subscriber:
        return self

    def __next__(self) -> Item:
        """Return the next item. Waits for Redis."""
        item = self._locked(lambda: self._hand_out() if self._fill() else None)
        if item is None:
            raise StopIteration
        return item

    def __aiter__(self) -> Subscriber:
        return self

    async def __anext__(self) -> Item:
        """Return the next item. A thread waits for Redis. A cancelled call leaves its item to the next call."""
        while self._filling is not None or not self._items:
            if not await self._in_thread(self._fill) and not self._items:
                raise StopAsyncIteration
        return self._hand_out()

    def close(self) -> None:
        """End the iteration and close the connection, within a second, or five if Redis does not answer. Idempotent.

        Never waits. May be called from any thread.
        """
        self._closed.set()
        if self._lock.acquire(blocking=False):  # otherwise the thread that waits for Redis closes it
            try:
                self._client.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Subscriber:
        self._locked(self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Subscriber:
        await self._in_thread(self._begin)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _in_thread(self, work: Callable[[], bool]) -> bool:
        """Run `work` in the thread, or join the run under way; return its result."""
        filling = self._filling
        if filling is None:
            if self._closed.is_set():
                return False
            filling = self._filling = self._thread.run(partial(self._locked, work))
        try:
            return await asyncio.shield(asyncio.wrap_future(filling))
        finally:
            if filling.done() and self._filling is filling:
                self._filling = None

    def _locked(self, work: Callable[[], R]) -> R:
        """Run `work` in one thread at a time."""
        try:
            with self._lock:
                return work()
        finally:
            if self._closed.is_set():
                self.close()

    def _hand_out(self) -> Item:
        self._reached, item = self._items.popleft()
        if not self._items and self._walk is not None:
            self._reached = self._walk.at  # the rest of the page matches no pattern
        return item

    def _begin(self) -> bool:
        """Set the start position unless it is set."""
        self._patiently(self._start)
        return True

    def _fill(self) -> bool:
        """Read until there is an item; return False at the end of the iteration."""
        until_s = None if self._wait_s is None else monotonic() + self._wait_s
        while not self._items:
            is_at_end = self._patiently(self._read_on)
            if self._closed.is_set() or (is_at_end and until_s is not None and monotonic() >= until_s):
                break
            if is_at_end:
                self._patiently(partial(self._wait, until_s))
        return bool(self._items)

    def _patiently(self, step: Callable[[], bool]) -> bool:
        """Run a step, and repeat it while Redis is unreachable; return False after `close`."""
        since_s: float | None = None
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                with reading(database(self._client)):
                    return step()
            except BusUnavailable as error:
                waited_s = 0.0 if since_s is None else monotonic() - since_s
                if not self._closed.is_set() and waited_s + pause_s > self._patience_s:
                    raise
                if since_s is None:
                    since_s = monotonic()
                    log.warning("waiting for Redis: %s", "; ".join(error.lines()) if self._walk is None else error.message)
            drop_idle(self._client)
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        return False

    def _start(self) -> bool:
        if self._walk is None:
            head = self._log.head(_ANOTHER_EPOCH)
            head.check_primary()
            self._walk = LogWalk(self._position(head), head)
            self._reached = self._walk.at
        return True

    def _read_on(self) -> bool:
        """Read the next page; return whether the log is at its end."""
        self._start()
        assert self._walk is not None
        walk, at = self._walk, self._walk.at
        head = self._log.head(at.epoch, walk.had) if at.epoch and walk.had else self._log.head(at.epoch or _ANOTHER_EPOCH)
        head.check_primary()
        gap = walk.follow(head)
        if gap is not None:
            self._items.append((walk.at, gap))
            return False
        if head.offset <= walk.at.offset:
            self._reached = walk.at  # may be in another epoch
            return True
        self._reported = head.epoch, head.offset
        entries = self._log.page(walk.at.offset, head.offset, epoch=head.epoch, wanted=self._wanted)
        last = head.offset if len(entries) < PAGE_EVENTS else entries[-1].offset
        self._items.extend((Position(head.epoch, offset), item) for offset, item in walk.take(entries, last))
        if not self._items:
            self._reached = walk.at
        return False

    def _wait(self, until_s: float | None) -> bool:
        """Wait for the log to grow."""
        assert self._walk is not None
        wait_s = BLOCK_S if until_s is None else min(BLOCK_S, until_s - monotonic())
        block_ms, after = max(1, int(wait_s * 1000)), f"{self._walk.at.offset}-0"
        call_at(self._client, self._key, "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._key, after)
        return True

    def _position(self, head: Head) -> Position:
        """Return the start position, in a log with this head."""
        since = self._since
        if isinstance(since, Position):
            return since
        if isinstance(since, datetime):
            first = self._log.first_since(round(since.timestamp() * 1000))
            return Position(head.epoch, min(first - 1, head.offset))
        if isinstance(since, int):
            if since > head.offset:
                raise InvalidRequest(f"since: it is beyond the newest event of this log, {head.offset}")
            return Position(head.epoch, since)
        return Position(head.epoch, head.offset if since is None else head.first - 1)


class _DaemonThread:
    """Runs functions in one thread, in order. Unlike an executor's threads, it does not delay the end of the program."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], bool], Future[bool]]] = SimpleQueue()
        self._lock = Lock()
        self._is_running = False

    def run(self, work: Callable[[], bool]) -> Future[bool]:
        """Run `work` in the thread, and start the thread if it has ended."""
        future: Future[bool] = Future()
        with self._lock:
            if not self._is_running:
                Thread(target=self._run, name="headgate-subscriber", daemon=True).start()  # raises if there can be no more
                self._is_running = True
            self._work.put((work, future))
        return future

    def _run(self) -> None:
        while True:
            try:
                work, future = self._work.get(timeout=THREAD_REST_S)
            except Empty:
                with self._lock:
                    if self._work.empty():
                        self._is_running = False
                        return
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the future has it
                future.set_exception(error)
            del work, future  # a waiting thread must not keep the subscriber alive


def _read_since(since: object) -> Position | int | str | datetime | None:
    """Return the start position. Raises InvalidRequest if `since` has none of the forms."""
    if since is None or since == OLDEST or is_whole(since, 0, _MAX_OFFSET):
        return since
    if isinstance(since, datetime) and since.tzinfo is not None:
        return since
    cursor = "{epoch}:{offset}".format_map(since) if isinstance(since, dict) and since.keys() == _POSITION else since
    if isinstance(cursor, str):
        with suppress(InvalidRequest):
            return read_cursor(cursor)
    raise InvalidRequest(f"since={repr(since)[:80]}: expected {EXPECTED_SINCE}")
