"""One worker of a consumer: takes pages of work, has the consumer do it, settles its answers. One thread, one consumer object.

In: pages from the store. Out: answers to the store, each as soon as it is known: a process that dies doubles what it had begun
and not yet answered, which is one piece of work, or one page of a batch consumer. While Redis does not answer, it waits and tries
again, with jitter, and remembers what it has to say.

Work that lasts longer than a third of the lease is moved out of the log by `keep`, which another thread calls: it becomes a piece
in hand, whose lease is renewed, so that neither another process nor the log's retention can take it away meanwhile.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from headgate.consumers.base import Consumer, Context, Delivery, Hold, Reject, Retry
from headgate.consumers.sparse_log import SparseLog
from headgate.errors import BusRefused, BusUnavailable, InvalidTopic
from headgate.topic import check_topic, matches

from .backoff import delay_s
from .metrics import GAVE_UP, POISON, REJECTED, UNREADABLE, Tally
from .spec import ConsumerSpec
from .store import Answer, Page, Store, Taken, back, dead, done, hold, hold_for
from .task import Piece

# While Redis hands out a page it does nothing else: 0.3 ms for 25 entries, 1.5 ms for 100, at the same rate for the consumer.
PAGE_PIECES = 25
# How late a page may be for those behind it to make up for it.
PACE_SLACK_S = 0.01
# The longest wait for something new: after it, what other instances held or left behind is looked for.
IDLE_S = 0.5
SHORTEST_WAIT_S = 0.01
# How often work may be handed out without an answer, or fail by a fault of the consumer's code, before it is set aside.
MAX_DELIVERIES = 5
# Into how many pieces one event may be split.
MAX_KEYS = 1000
# Waits for Redis: the ceiling of the first and of the last.
BUS_FIRST_S, BUS_LAST_S = 0.2, 5.0
MAX_REASON_CHARACTERS = 200
LONGEST_S = 366 * 86400.0

Log = Callable[..., None]
_BusError = (BusUnavailable, BusRefused)


class Abandoned(Exception):
    """The drain took too long while an answer waited for Redis: the work is left to its lease."""


class Worker:
    """One thread's work for a consumer.

    Args:
        spec: the consumer.
        context: what the consumer is given.
        store: its group, over a client of this worker's own.
        tally: what is counted.
        log: events with fields, for operators.
        stopping: set when the worker is to finish what it has begun and return.
        abandoned: set when it is not to wait for Redis any more.
    """

    def __init__(
        self,
        spec: ConsumerSpec,
        context: Context,
        store: Store,
        tally: Tally,
        log: SparseLog,
        stopping: threading.Event,
        abandoned: threading.Event,
    ) -> None:
        self._spec, self._context, self._store = spec, context, store
        self._tally, self._log = tally, log
        self._stopping, self._abandoned = stopping, abandoned
        self._lease_ms = round(spec.runner.lease_s * 1000)
        self._wanted = lru_cache(maxsize=4096)(self._matches)
        self._asks_keys = spec.consumer.keys is not Consumer.keys
        self._opened = False
        self._next_tick_s = 0.0
        self._next_page_s = 0.0
        self._page_event_s = spec.runner.workers / spec.runner.max_per_s if spec.runner.max_per_s else 0.0
        self._held = 0
        # What is in hand, and since when; the lock is held while `keep` moves it.
        self._lock = threading.Lock()
        self._in_hand: dict[int, Taken] = {}
        self._taken_s = 0.0
        self.trouble: str | None = None

    def run(self) -> None:
        """Work until `stopping` is set; never raises. What was not begun by then is given back."""
        consumer: Consumer | None = None
        failures = 0
        while not self._stopping.is_set():
            try:
                if consumer is None:
                    consumer = self._begin()
                self._turn(consumer)
                failures, self.trouble = 0, None
                continue
            except Abandoned:
                break
            except _BusError as error:
                self._waits_for_bus(error)
            except Exception as error:  # noqa: BLE001 - a consumer that cannot start, or a fault of ours: told, and tried again
                self.trouble = type(error).__name__
                self._log("consumer failed", exc_info=True)
            failures += 1
            self._let_go()
            self._stopping.wait(delay_s(failures, BUS_FIRST_S, BUS_LAST_S))
        with suppress(Abandoned):
            self._surely(self._store.confirm)
        self._store.close()
        if consumer is not None:
            try:
                consumer.close()
            except Exception:  # noqa: BLE001 - somebody's code; nothing depends on it any more
                self._log("consumer failed to close", exc_info=True)

    def interrupt(self) -> None:
        """End a wait for something new; `stopping` is set. From any thread."""
        self._store.interrupt()

    def keep(self, store: Store) -> None:
        """Keep what is in hand for another lease, if it has been there for a third of one. Called by another thread.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; try again.
        """
        with self._lock:
            if not self._in_hand or time.monotonic() - self._taken_s < self._lease_ms / 3000:
                return
            in_log = [taken for taken in self._in_hand.values() if taken.in_log]
            names = [taken.name for taken in self._in_hand.values() if not taken.in_log]
            if in_log:
                store.settle([answer for t in in_log for answer in (done(t), hold_for(t.piece, self._lease_ms, t.out))])
                for taken in in_log:
                    taken.name = taken.piece.name
            if names:
                store.renew(names, self._lease_ms)

    def _begin(self) -> Consumer:
        consumer = self._spec.consumer(self._spec.options, self._context)
        try:
            consumer.start()
        except Exception:
            with suppress(Exception):
                consumer.close()
            raise
        return consumer

    # One page ------------------------------------------------------------------------------------------------------------

    def _turn(self, consumer: Consumer) -> None:
        self._tick(consumer)
        if not self._opened:
            self._store.open(self._spec.runner.start)
            self._opened = True
        self._surely(self._store.confirm)
        if not self._keep_pace():
            return
        page = self._store.take(PAGE_PIECES, self._lease_ms, self._spec.runner.max_held, self._wanted)
        if page is None:
            self._log("Redis does not know the consumer any more; it begins with all that is there")
            self._tally.logs_lost.inc()
            self._store.open("lost")
            return
        self._account(page)
        self._next_page_s += self._page_event_s * (len(page.work) + len(page.unwanted))
        self._hold_in_hand(page.work)
        if page.unwanted:
            self._acknowledge(page.epoch, page.unwanted)
        if page.work:
            self._work(consumer, page.work)
        elif not page.unwanted:
            self._wait(consumer, page)

    def _keep_pace(self) -> bool:
        """Wait until a page may be taken; return False when there will be none any more."""
        now_s = time.monotonic()
        self._next_page_s = max(self._next_page_s, now_s - PACE_SLACK_S)
        return self._next_page_s <= now_s or not self._stopping.wait(self._next_page_s - now_s)

    def _account(self, page: Page) -> None:
        self._held = page.held
        self._tally.held.set(page.held)
        self._tally.lag.set(page.head - page.position)
        full = page.held >= self._spec.runner.max_held
        self._tally.full.set(full)
        if full:
            self._log("consumer is full: no new events are taken while so many are held", held=page.held)
        if page.missed:
            self._tally.missed.inc(page.missed)
            self._log("events were trimmed from the log before the consumer got them", missed=page.missed)
        if page.lost:
            self._tally.logs_lost.inc()
            self._log("the log is another one; the consumer begins with its first event")

    def _wait(self, consumer: Consumer, page: Page) -> None:
        limits = [IDLE_S]
        if page.due_in_s is not None:
            limits.append(page.due_in_s)
        if consumer.tick_s is not None:
            limits.append(self._next_tick_s - time.monotonic())
        timeout_s = max(SHORTEST_WAIT_S, min(limits))
        if not page.epoch or page.held >= self._spec.runner.max_held:
            self._stopping.wait(timeout_s)
        else:
            self._store.wait(page.position, timeout_s)

    def _tick(self, consumer: Consumer) -> None:
        if consumer.tick_s is None or time.monotonic() < self._next_tick_s:
            return
        self._next_tick_s = time.monotonic() + consumer.tick_s
        try:
            consumer.tick()
        except _BusError as error:
            self._waits_for_bus(error)
        except Exception:  # noqa: BLE001 - somebody's code: told, and called again at its time
            self._log("consumer's tick failed", exc_info=True)

    def _work(self, consumer: Consumer, work: Sequence[Taken]) -> None:
        fit = []
        for taken in work:
            if taken.error is not None:
                self._bury([taken], UNREADABLE, taken.error.message)
            elif taken.out > MAX_DELIVERIES:
                self._bury([taken], POISON, f"handed out {MAX_DELIVERIES} times without an answer")
            else:
                fit.append(taken)
        if consumer.batch:
            fresh = [taken for taken in fit if not taken.piece.failures]
            groups = [fresh] * bool(fresh) + [[taken] for taken in fit if taken.piece.failures]
        else:
            groups = [list(group) for _, group in groupby(fit, lambda taken: taken.mark or id(taken))]
        left: list[Taken] = []
        for group in groups:
            full = self._held >= self._spec.runner.max_held and group[0].in_log
            if self._stopping.is_set() or full:
                left += group
                continue
            if consumer.batch:
                self._handle_many(consumer, group)
            else:
                self._handle(consumer, group)
            self._tick(consumer)
        if left:
            self._settle(left, lambda taken: [back(taken)])

    # One piece, and those that go together ---------------------------------------------------------------------------------

    def _handle(self, consumer: Consumer, group: Sequence[Taken]) -> None:
        first = group[0]
        try:
            if first.mark:
                answer = consumer.handle_together(first.piece.key, [self._delivery(taken) for taken in group])
            else:
                if self._asks_keys and not first.piece.parted:
                    keys = tuple(dict.fromkeys(consumer.keys(self._delivery(first))))
                    if not keys:
                        self._finish(group)
                        return
                    if len(keys) > MAX_KEYS:
                        raise Reject(f"{len(keys)} keys, at most {MAX_KEYS} are allowed")
                    if len(keys) > 1 or not self._name(first, keys[0]):
                        self._split(first, keys)
                        return
                answer = consumer.handle(self._delivery(first))
            until_ms = None if answer is None else _until_ms(answer)
        except Retry as error:
            self._retry(group, error.reason, error.after_s)
        except Reject as error:
            self._bury(group, REJECTED, error.reason)
        except _BusError as error:
            self._retry(group, error.message)
        except Exception as error:  # noqa: BLE001 - somebody's code: told with its traceback, and tried again
            self._fault(group, error)
        else:
            self._tally.handled.inc(len(group))
            if answer is None or until_ms is None:
                self._finish(group)
            else:
                self._keep(group, until_ms, answer.together)

    def _handle_many(self, consumer: Consumer, group: Sequence[Taken]) -> None:
        try:
            consumer.handle_many([self._delivery(taken) for taken in group])
        except Retry as error:
            self._retry(group, error.reason, error.after_s)
        except _BusError as error:
            self._retry(group, error.message)
        except Exception as error:  # noqa: BLE001 - as in _handle
            if len(group) > 1:  # whose fault it is shows when each is handed over by itself
                for taken in group:
                    self._handle_many(consumer, [taken])
            elif isinstance(error, Reject):
                self._bury(group, REJECTED, error.reason)
            else:
                self._fault(group, error)
        else:
            self._tally.handled.inc(len(group))
            self._finish(group)

    def _delivery(self, taken: Taken) -> Delivery:
        piece = taken.piece
        return Delivery(
            piece.topic, piece.data, piece.id, piece.time_ms, piece.epoch, piece.offset,
            self._spec.namespace, self._spec.name, piece.key, piece.attempt + taken.out, piece.held,
        )  # fmt: skip

    # Answers ---------------------------------------------------------------------------------------------------------------

    def _finish(self, group: Sequence[Taken]) -> None:
        self._let_go(group)
        if all(taken.in_log for taken in group):
            self._acknowledge(group[0].piece.epoch, [taken.piece.offset for taken in group])
        else:
            self._settle(group, lambda taken: [done(taken)])

    def _acknowledge(self, epoch: str, offsets: Sequence[int]) -> None:
        if self._store.acknowledge(epoch, offsets):
            self._surely(self._store.confirm)

    def _name(self, taken: Taken, key: str) -> bool:
        """Give the only part of an event's work its key; return False for a piece, whose name has its key in it already."""
        with self._lock:
            if key and not taken.in_log:
                return False
            taken.piece = msgspec.structs.replace(taken.piece, key=key, parted=True)
            return True

    def _split(self, taken: Taken, keys: Sequence[str]) -> None:
        """Keep each part by itself, due now; the next page has them."""
        parts = [msgspec.structs.replace(taken.piece, key=key, parted=True) for key in keys]
        self._settle([taken], lambda taken: [done(taken), *(hold_for(part, 0) for part in parts)])

    def _keep(self, group: Sequence[Taken], until_ms: int, together: bool) -> None:
        def answers(taken: Taken) -> list[Answer]:
            kept = _answered(taken, held=True, together=together, failures=0, faults=0, failing_since_ms=0, reason="")
            return _instead(taken, hold(kept, until_ms))

        self._settle(group, answers)

    def _retry(self, group: Sequence[Taken], reason: str, after_s: float | None = None, *, fault: bool = False) -> None:
        options, now_ms, reason = self._spec.runner, round(time.time() * 1000), reason[:MAX_REASON_CHARACTERS]
        failures = max(taken.piece.failures for taken in group) + 1
        wait_s = max(delay_s(failures, options.retry_first_s, options.retry_last_s), min(after_s or 0.0, LONGEST_S))

        def answers(taken: Taken) -> list[Answer]:
            since_ms = taken.piece.failing_since_ms or now_ms
            if now_ms - since_ms >= options.retry_for_s * 1000:
                return self._dead(taken, GAVE_UP, reason)
            if fault and taken.piece.faults + 1 >= MAX_DELIVERIES:
                return self._dead(taken, POISON, reason)
            kept = _answered(
                taken, failures=failures, faults=taken.piece.faults + fault, failing_since_ms=since_ms, reason=reason
            )  # fmt: skip
            self._tally.retried.inc()
            return _instead(taken, hold_for(kept, round(wait_s * 1000)))

        self._settle(group, answers)

    def _fault(self, group: Sequence[Taken], error: Exception) -> None:
        self._log("consumer's code failed", exc_info=True, attempt=group[0].piece.attempt + group[0].out)
        self._retry(group, f"{type(error).__name__} in the consumer's code", fault=True)

    def _bury(self, group: Sequence[Taken], why: str, reason: str) -> None:
        self._settle(group, lambda taken: self._dead(taken, why, reason[:MAX_REASON_CHARACTERS]))

    def _dead(self, taken: Taken, why: str, reason: str) -> list[Answer]:
        self._tally.dead[why].inc()
        self._log("event went to the dead letters", why=why, reason=reason)
        return [done(taken), dead(_answered(taken), why, reason, self._spec.runner.max_dead)]

    def _settle(self, group: Sequence[Taken], answers: Callable[[Taken], list[Answer]]) -> None:
        self._let_go(group)
        all_answers = [answer for taken in group for answer in answers(taken)]
        self._held, dropped = self._surely(self._store.settle, all_answers)
        self._tally.held.set(self._held)
        if dropped:
            self._tally.dead_dropped.inc(dropped)

    # In hand, and waiting for Redis -----------------------------------------------------------------------------------------

    def _hold_in_hand(self, work: Sequence[Taken]) -> None:
        with self._lock:
            self._in_hand = {id(taken): taken for taken in work}
            self._taken_s = time.monotonic()

    def _let_go(self, group: Sequence[Taken] | None = None) -> None:
        """Take what is about to be answered (None: everything) out of `keep`'s reach: from here on its place does not change."""
        with self._lock:
            if group is None:
                self._in_hand = {}
            else:
                for taken in group:
                    self._in_hand.pop(id(taken), None)

    def _surely(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Take a step until Redis has answered.

        Raises:
            Abandoned: it did not, and the drain is over.
        """
        failures = 0
        while True:
            try:
                return step(*arguments)
            except _BusError as error:
                self._waits_for_bus(error)
                failures += 1
                if self._abandoned.wait(delay_s(failures, BUS_FIRST_S, BUS_LAST_S)):
                    raise Abandoned from error

    def _waits_for_bus(self, error: BusUnavailable | BusRefused) -> None:
        self.trouble = error.message
        self._log("consumer waits for Redis", reason=error.message)

    def _matches(self, topic: str) -> bool:
        """Return whether a topic is wanted; what is none, too: it is set aside where it can be looked at."""
        try:
            check_topic(topic)
        except InvalidTopic:
            return True
        return any(matches(pattern, topic) for pattern in self._spec.patterns)


def _answered(taken: Taken, **changes: Any) -> Piece:
    """Return the piece of a taken one as it is after this answer."""
    return msgspec.structs.replace(taken.piece, attempt=taken.piece.attempt + taken.out, **changes)


def _instead(taken: Taken, answer: Answer) -> list[Answer]:
    """Return what keeps a piece in place of what was taken: an entry of the log is acknowledged, a piece is overwritten."""
    return [done(taken), answer] if taken.in_log else [answer]


def _until_ms(answer: Hold) -> int:
    return math.ceil(min(answer.until_s, time.time() + LONGEST_S) * 1000)  # not before it
