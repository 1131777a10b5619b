"""A worker of a consumer takes pages of work, calls the consumer, and settles its answers, with one thread and one object.

In: pages from the store. Out: an answer to the store as soon as it is known. After the death of a process, begun work without
an answer repeats, which is one task, or one page of a batch consumer. While Redis does not answer, the worker remembers its
answers, waits and tries again, with jitter. SystemExit from the consumer's code counts as any other fault, so the thread never
ends.

While it is busy, another thread calls `keep`, so that no other worker gets the work (`TaskLeases`).
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from headgate.consumers.base import Consumer, Context, Defer, Delivery, OutcomeUnknown, Reject, Retry
from headgate.consumers.notification import WITHDRAWN
from headgate.errors import BusRefused, BusUnavailable, InvalidTopic
from headgate.events.numbers import check_items, is_number
from headgate.events.topic import check_topic, is_probe, matches
from headgate.events.traceparent import is_sampled
from headgate.redis.time_watch import awake_or_asleep_s
from headgate.runtime import metrics
from headgate.runtime.spans import consuming

from .routing import WANTS_FAULTS, Routing
from .spec import ConsumerSpec
from .store import Answer, LeasedTask, Store, TaskPage, back, dead, defer_for, done, held, instead
from .task import GAVE_UP, OUTCOME_UNKNOWN, POISON, REJECTED, UNREADABLE, WHY_DEAD, Task

# Handing out a page blocks Redis, for 0.3 ms with 25 entries and 1.5 ms with 100, at the same rate for the consumer.
PAGE_TASKS = 25
# The largest delay of a page that later ones make up for.
PACE_SLACK_S = 0.01
# Longest wait for something new. After it, the worker checks whether to stop, and for tasks that other instances deferred or
# abandoned.
IDLE_S = 0.5
SHORTEST_WAIT_S = 0.01
# Faults of the consumer's code in one task before it is set aside.
MAX_FAULTS = 5
# For so long after the last success in this process, a worker in a pause leaves the work to the others. Afterwards it defers the
# events, so that they are not trimmed from the log, which at a high rate holds only seconds.
RECENT_S = 5.0
# Attempts with an unknown outcome (the answer was lost, or the process ended), and so the most copies for a receiver.
MAX_UNKNOWN = 3
# Maximum tasks of one event.
MAX_KEYS = 1000
# Ceilings of the first and the last wait for Redis, short because a new primary may appear at any moment.
BUS_FIRST_S, BUS_LAST_S = 0.2, 1.0
# Ceiling of the last wait for a consumer that cannot start.
START_LAST_S = 5.0
MAX_REASON_CHARACTERS = 200
LONGEST_S = 366 * 86400.0
# After this many doublings every ceiling is reached. Keeps 2 ** n small.
_MAX_DOUBLINGS = 40

_BusError = (BusUnavailable, BusRefused)


class SharedByWorkers:
    """What the workers of a consumer in one process share.

    `taking` is held by the worker that takes a page. That worker keeps it while it handles a task that one more lost process
    would make `poison`, so that no concurrent task is blamed. `succeeded_s` is when one of them last did its work. The rest are
    the counters of the consumer, resolved once.
    """

    def __init__(self, consumer: str) -> None:
        self.taking = threading.Lock()
        self.succeeded_s = -math.inf
        self.handled = metrics.CONSUMER_HANDLED.labels(consumer)
        self.withdrawn = {why: metrics.CONSUMER_WITHDRAWN.labels(consumer, why) for why in WITHDRAWN}
        self.wants_faults = {why: metrics.CONSUMER_WANTS_FAULTS.labels(consumer, why) for why in WANTS_FAULTS}
        self.retried = metrics.CONSUMER_RETRIED.labels(consumer)
        self.waiting = metrics.CONSUMER_WAITING.labels(consumer)
        self.full = metrics.CONSUMER_FULL.labels(consumer)
        self.dead = {why: metrics.CONSUMER_DEAD.labels(consumer, why) for why in WHY_DEAD}
        self.dead_dropped = metrics.CONSUMER_DEAD_DROPPED.labels(consumer)
        self.missed = metrics.CONSUMER_MISSED.labels(consumer)
        self.logs_lost = metrics.CONSUMER_LOGS_LOST.labels(consumer)


class TaskLeases:
    """The leases of one worker, which another thread renews (`keep`) while the worker is busy.

    A lock is held while leases move, so a task cannot move between its release and its answer. Work that lasts longer than a
    third of the lease becomes a leased task outside the log, and its lease is renewed, so neither another process nor the log's
    retention can take it away.

    After a lease without a renewal (the process was stopped, or Redis unreachable), others may have the work. Work not begun by
    then is given up.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._leased: dict[int, LeasedTask] = {}
        self._begun: set[int] = set()
        self._since_s = 0.0

    def take(self, work: Sequence[LeasedTask], since_s: float) -> None:
        """Renew the leases of only this work from now on. It was requested at `since_s`."""
        with self._lock:
            self._leased, self._begun = {id(leased): leased for leased in work}, set()
            self._since_s = since_s

    def begin(self, group: Sequence[LeasedTask], now_s: float) -> bool:
        """Begin this work; return whether it is still ours."""
        with self._lock:
            self._give_up(now_s)
            self._begun = {id(leased) for leased in group}
            return self._begun <= self._leased.keys()

    def release(self, group: Sequence[LeasedTask]) -> None:
        """Stop renewing these leases, because their answers follow."""
        with self._lock:
            for leased in group:
                self._leased.pop(id(leased), None)

    def name(self, leased: LeasedTask, key: str) -> bool:
        """Give an event's only part its key. Returns False for a task, because its name already contains a key."""
        with self._lock:
            if key and (leased.moving or not leased.in_log):
                return False
            leased.task = msgspec.structs.replace(leased.task, key=key, split=True)
            return True

    def keep(self, store: Store, now_s: float) -> None:
        """Renew leases older than a third of their length, for the whole length. Called by another thread.

        Raises as `redis.client.call`; try again.
        """
        with self._lock:
            self._give_up(now_s)
            if not self._leased or now_s - self._since_s < self._lease_ms / 3000:
                return
            in_log = [leased for leased in self._leased.values() if leased.in_log]
            names = [leased.name for leased in self._leased.values() if not leased.in_log]
            if in_log:
                moves = [answer for t in in_log for answer in (held(t), done(t), defer_for(t.task, self._lease_ms, t.out))]
                for leased in in_log:  # before Redis does it, because its answer may be lost
                    leased.moving, leased.packed = leased.task.name, leased.task.pack()
                store.settle(moves)
                for leased in in_log:
                    leased.name = leased.task.name
            if names:
                store.renew(names, self._lease_ms)
            self._since_s = now_s

    def _give_up(self, now_s: float) -> None:
        if now_s - self._since_s >= self._lease_ms / 1000:
            self._leased = {name: leased for name, leased in self._leased.items() if name in self._begun}


class Worker:
    """One thread's work for a consumer.

    Args:
        store: its group, over a client of this worker's own.
        log: events with fields, for operators.
        stopping: set when the worker must finish its current task and return.
    """

    def __init__(
        self,
        spec: ConsumerSpec,
        context: Context,
        store: Store,
        log: Callable[..., None],
        stopping: threading.Event,
        shared: SharedByWorkers,
    ) -> None:
        self._spec, self._context, self._store = spec, context, store
        self._log, self._stopping, self._shared = log, stopping, shared
        self._lease_ms = round(spec.runner.lease_s * 1000)
        self._wanted = lru_cache(maxsize=4096)(self._matches)
        self._asks_keys = spec.consumer.keys is not Consumer.keys
        self._opened = False
        self._next_tick_s = 0.0
        self._next_page_s = 0.0
        # The group's clock minus the monotonic clock, independent of this machine's wall clock.
        self._group_ahead_s = 0.0
        self._page_event_s = spec.runner.workers / spec.runner.max_per_s if spec.runner.max_per_s else 0.0
        self._waiting = 0
        self._leases = TaskLeases(self._lease_ms)
        self._routing: Routing | None = None
        self.trouble: str | None = None
        # When it last began something that may block, on the monotonic clock.
        self.active_s = time.monotonic()

    def run(self) -> None:
        """Work until `stopping` is set, then give back tasks not begun. Never raises."""
        consumer: Consumer | None = None
        failures = 0
        while not self._stopping.is_set():
            last_s, self.active_s = BUS_LAST_S, time.monotonic()
            try:
                if consumer is None:
                    consumer = self._begin()
                self._turn(consumer)
                failures, self.trouble = 0, None
                continue
            except _BusError as error:
                self._waits_for_bus(error)
            except BaseException as error:  # noqa: BLE001 - a consumer that cannot start, or our own fault; logged, and tried again
                self.trouble, last_s = type(error).__name__, START_LAST_S
                self._log("consumer failed", exc_info=True)
            failures += 1
            self._leases.take((), 0.0)
            self._stopping.wait(delay_s(failures, BUS_FIRST_S, last_s))
        self._until_answered(self._store.confirm)
        self._store.close()
        if self._routing is not None:
            self._routing.close()
            self._routing = None
        if consumer is not None:
            try:
                consumer.close()
            except BaseException:  # noqa: BLE001 - an operator's code; nothing depends on it now
                self._log("consumer failed to close", exc_info=True)

    def keep(self, store: Store) -> None:
        """As `TaskLeases.keep`."""
        self._leases.keep(store, awake_or_asleep_s())

    def _begin(self) -> Consumer:
        if self._routing is None:
            self._routing = Routing(self._spec, self._context.state, self._wants_fault)
        consumer = self._spec.consumer(self._spec.options, self._context)
        try:
            consumer.start()
        except BaseException:
            with suppress(BaseException):
                consumer.close()
            raise
        return consumer

    # One page ------------------------------------------------------------------------------------------------------------

    def _turn(self, consumer: Consumer) -> None:
        self._tick(consumer)
        if not self._opened:
            self._store.open(self._spec.runner.start)
            self._opened = True
        self._until_answered(self._store.confirm)
        if (pause_s := self._pause_s(consumer)) > 0:
            self._stopping.wait(min(pause_s, IDLE_S))
            return
        now_s = time.monotonic()
        self._next_page_s = max(self._next_page_s, now_s - PACE_SLACK_S)
        if self._next_page_s > now_s and self._stopping.wait(self._next_page_s - now_s):
            return
        with ExitStack() as taking:
            taking.enter_context(self._shared.taking)
            asked_s = awake_or_asleep_s()
            page = self._store.take(PAGE_TASKS, self._lease_ms, self._spec.runner.max_waiting, self._wanted)
            if page is None or not any(_is_last_chance(leased) for leased in page.work):
                taking.close()
            self._handle_page(consumer, page, asked_s)

    def _pause_s(self, consumer: Consumer) -> float:
        """Return how long to leave the work to the other workers of this process."""
        return consumer.pause_s() if time.monotonic() - self._shared.succeeded_s < RECENT_S else 0.0

    def _handle_page(self, consumer: Consumer, page: TaskPage | None, asked_s: float) -> None:
        if page is None:
            self._log("Redis does not know the consumer any more; it begins with all that is there")
            self._shared.logs_lost.inc()
            self._store.open("lost")
            self._stopping.wait(BUS_FIRST_S)  # a Redis that evicts keys may lose it again at once
            return
        self._account(page)
        self._next_page_s += self._page_event_s * (len(page.work) + len(page.unwanted))
        self._leases.take(page.work, asked_s)
        if page.unwanted:
            self._acknowledge(page.epoch, page.unwanted)
        if page.work:
            self._work(consumer, page.work)
        elif not page.unwanted:
            self._wait(consumer, page)

    def _now_ms(self) -> int:
        return round(1000 * (self._group_ahead_s + time.monotonic()))

    def _account(self, page: TaskPage) -> None:
        self._group_ahead_s = page.now_ms / 1000 - time.monotonic()
        self._waiting = page.waiting
        self._shared.waiting.set(page.waiting)
        full = page.waiting >= self._spec.runner.max_waiting
        self._shared.full.set(full)
        if full:
            self._log("consumer is full: no new events are taken while so many wait", waiting=page.waiting)
        if page.is_redis_full:
            self._log("no new events are taken while Redis is full", lag=page.head - page.position)
        if page.missed:
            self._shared.missed.inc(page.missed)
            self._log("events were trimmed from the log before the consumer got them", missed=page.missed)
        if page.lost:
            self._shared.logs_lost.inc()
            self._log("the log is another one; the consumer begins with its first event")

    def _wait(self, consumer: Consumer, page: TaskPage) -> None:
        limits = [IDLE_S]
        if page.due_in_s is not None:
            limits.append(page.due_in_s)
        if consumer.tick_s is not None:
            limits.append(self._next_tick_s - time.monotonic())
        timeout_s = max(SHORTEST_WAIT_S, min(limits))
        if not page.epoch or page.is_redis_full or page.waiting >= self._spec.runner.max_waiting:
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
        except BaseException:  # noqa: BLE001 - an operator's code; logged, and called again when due
            self._log("consumer's tick failed", exc_info=True)

    def _work(self, consumer: Consumer, work: Sequence[LeasedTask]) -> None:
        fit = []
        for leased in work:
            if leased.error is not None:
                self._dead_letter([leased], UNREADABLE, leased.error.message)
            elif leased.task.unknown + leased.out > MAX_UNKNOWN:
                why = OUTCOME_UNKNOWN if leased.task.unknown else POISON
                self._dead_letter(
                    [leased], why, f"the outcome of {MAX_UNKNOWN} attempts is unknown: the process ended before an answer"
                )
            else:
                fit.append(leased)
        if consumer.batch:
            fresh = [leased for leased in fit if not leased.task.failures]
            groups = [fresh] * bool(fresh) + [[leased] for leased in fit if leased.task.failures]
        else:
            groups = [list(group) for _, group in groupby(fit, lambda leased: leased.mark or id(leased))]
        left: list[LeasedTask] = []
        for group in groups:
            full = self._waiting >= self._spec.runner.max_waiting and group[0].in_log
            if self._stopping.is_set() or full or self._pause_s(consumer) > 0:
                left += group
                continue
            if not self._begins(group):
                continue
            if consumer.batch:
                self._handle_many(consumer, group)
            else:
                self._handle(consumer, group)
            self._tick(consumer)
        if left and self._begins(left):
            self._settle(left, lambda leased: [back(leased)])

    def _begins(self, group: Sequence[LeasedTask]) -> bool:
        """Return whether this work is still ours. Otherwise Redis hands it out again."""
        self.active_s = time.monotonic()
        is_ours = self._leases.begin(group, awake_or_asleep_s())
        if not is_ours:
            self._log("leases ended before their work began; any instance may have it")
        return is_ours

    # One task, and those that go together ---------------------------------------------------------------------------------

    def _handle(self, consumer: Consumer, group: Sequence[LeasedTask]) -> None:
        try:
            if not (group := self._routed(group)):
                return
            first = group[0]
            if first.mark:
                with self._span(group):
                    answer = consumer.handle_together(first.task.key, [self._delivery(leased) for leased in group])
            else:
                if self._asks_keys and not first.task.split:
                    if not (keys := _checked_keys(consumer.keys(self._delivery(first)))):
                        self._finish(group)
                        return
                    if len(keys) > MAX_KEYS:
                        raise Reject(f"{len(keys)} keys, at most {MAX_KEYS} are allowed")
                    if len(keys) > 1 or not self._leases.name(first, keys[0]):
                        # Each part becomes a task that is due now, for the next page.
                        parts = [msgspec.structs.replace(first.task, key=key, split=True) for key in keys]
                        self._settle([first], lambda leased: [done(leased), *(defer_for(part, 0) for part in parts)])
                        return
                with self._span(group):
                    answer = self._beyond_rate(consumer, first) or consumer.handle(self._delivery(first))
            delay_ms = None if answer is None else _delay_ms(answer)
        except BaseException as error:  # noqa: BLE001 - an operator's code; see _failed
            self._failed(group, error)
        else:
            self._shared.handled.inc(len(group))
            if answer is None or delay_ms is None:
                self._shared.succeeded_s = time.monotonic()
                self._finish(group)
                if self._routing is not None:
                    self._routing.sent([self._delivery(leased) for leased in group])
            else:
                self._keep(group, delay_ms, answer.together)

    def _routed(self, group: Sequence[LeasedTask]) -> Sequence[LeasedTask]:
        """Return the part of a group to do now. Defers tasks that wait for their user, and finishes withdrawn ones."""
        routing = self._routing
        if routing is None or not routing.is_on:
            return group
        # Rule on all tasks before answering any, because an error of Redis repeats the questions for the whole group.
        ruled = [(leased, *self._rule(routing, leased)) for leased in group]
        for leased, wait_ms, user, why in ruled:
            if wait_ms:
                self._keep([leased], wait_ms, together=False)
            elif why is not None:
                self._shared.withdrawn[why].inc()
                self._finish([leased])
                routing.record(user, self._delivery(leased), why)
        return [leased for leased, wait_ms, _, why in ruled if not wait_ms and why is None]

    def _rule(self, routing: Routing, leased: LeasedTask) -> tuple[int, str | None, str | None]:
        """Return how long to wait for the user, the user, and the reason of a withdrawal (or None)."""
        task, delivery = leased.task, self._delivery(leased)
        if (user := routing.user(delivery)) is None:
            return 0, None, None
        is_new = not (task.deferred or task.split or task.failures)
        # After a change of the wall clock, only one of the two may have followed it.
        age_ms = self._now_ms() - max(leased.clock_ms, task.time_ms)
        if is_new and (wait_ms := routing.wait_ms(task.topic, age_ms)):
            return wait_ms, user, None
        why = routing.withdrawn(user, delivery, is_first=not (task.split or task.asked))
        leased.task = msgspec.structs.replace(task, asked=True)
        return 0, user, why

    def _beyond_rate(self, consumer: Consumer, leased: LeasedTask) -> Defer | None:
        """Return a Defer for work beyond the rate. Each task is admitted once, for all its attempts."""
        runner, task = self._spec.runner, leased.task
        if not runner.rate or consumer.keeps_rate or task.admitted or self._routing is None:
            return None
        delivery = self._delivery(leased)
        name = f"rate {self._routing.user(delivery) or ''} {task.key}"
        if (room_s := self._context.state.within_rate(name, runner.rate, runner.rate_period_s, delivery.identity)) is not None:
            return Defer(room_s)
        leased.task = msgspec.structs.replace(task, admitted=True)
        return None

    def _wants_fault(self, why: str, error: BaseException | None) -> None:
        self._shared.wants_faults[why].inc()
        self._log("wants gave no answer; the notification goes out", why=why, exc_info=error)

    def _handle_many(self, consumer: Consumer, group: Sequence[LeasedTask]) -> None:
        try:
            answer: object = consumer.handle_many([self._delivery(leased) for leased in group])  # type: ignore[func-returns-value]
            if answer is not None:
                raise TypeError(f"expected None of handle_many, got {answer!r:.80}")
        except BaseException as error:  # noqa: BLE001 - as in _handle
            if len(group) == 1 or isinstance(error, (Retry, *_BusError)):
                self._failed(group, error)
                return
            for leased in group:  # handle each alone, to find the one at fault
                self._handle_many(consumer, [leased])
        else:
            self._shared.handled.inc(len(group))
            self._shared.succeeded_s = time.monotonic()
            self._finish(group)

    def _span(self, group: Sequence[LeasedTask]) -> AbstractContextManager[object]:
        """Return a span of OpenTelemetry for work, in the trace of the first recorded event, if any."""
        task = next((leased.task for leased in group if leased.task.traceparent and is_sampled(leased.task.traceparent)), None)
        if task is None:
            return nullcontext()
        group_name, attempt = self._spec.name, task.attempt + 1
        attributes: dict[str, str | int] = {"messaging.consumer.group.name": group_name, "headgate.attempt": attempt}
        return consuming(task.traceparent, self._spec.namespace, task.topic, attributes)

    def _delivery(self, leased: LeasedTask) -> Delivery:
        task = leased.task
        return Delivery(
            task.topic, task.data, task.id, task.time_ms, task.epoch, task.offset, task.traceparent, None,
            self._spec.namespace, self._spec.name, task.key, task.attempt + leased.out, task.deferred,
            task.unknown + leased.out - 1, task.admitted,
        )  # fmt: skip

    # Answers ---------------------------------------------------------------------------------------------------------------

    def _finish(self, group: Sequence[LeasedTask]) -> None:
        self._leases.release(group)
        if all(leased.in_log and not leased.moving for leased in group):
            self._acknowledge(group[0].leased_in, [leased.task.offset for leased in group])
        else:
            self._settle(group, lambda leased: [done(leased)], is_done=True)

    def _acknowledge(self, epoch: str, offsets: Sequence[int]) -> None:
        if self._store.acknowledge(epoch, offsets):
            self._until_answered(self._store.confirm)

    def _keep(self, group: Sequence[LeasedTask], delay_ms: int, together: bool) -> None:
        def answers(leased: LeasedTask) -> list[Answer]:
            kept = _answered(leased, deferred=True, together=together, failures=0, faults=0, failing_since_ms=0, reason="")
            return [instead(leased, kept, delay_ms)]

        self._settle(group, answers)

    def _retry(
        self,
        group: Sequence[LeasedTask],
        reason: str,
        after_s: float | None = None,
        *,
        fault: bool = False,
        unknown: bool = False,
    ) -> None:
        options, now_ms, reason = self._spec.runner, self._now_ms(), reason[:MAX_REASON_CHARACTERS]
        failures = max(leased.task.failures for leased in group) + 1
        wait_s = max(delay_s(failures, options.retry_first_s, options.retry_last_s), min(after_s or 0.0, LONGEST_S))
        if unknown:  # spares a slow receiver, and keeps attempts for after a short outage
            wait_s = max(wait_s, options.retry_last_s)

        def answers(leased: LeasedTask) -> list[Answer]:
            since_ms = leased.task.failing_since_ms or now_ms
            kept = _answered(
                leased, unknown, failures=failures, faults=leased.task.faults + fault, failing_since_ms=since_ms, reason=reason
            )  # fmt: skip
            if now_ms - since_ms >= options.retry_for_s * 1000:
                return self._to_dead_letters(leased, OUTCOME_UNKNOWN if kept.unknown else GAVE_UP, reason)
            if fault and kept.faults >= MAX_FAULTS:
                return self._to_dead_letters(leased, POISON, reason)
            if unknown and kept.unknown >= MAX_UNKNOWN:
                return self._to_dead_letters(leased, OUTCOME_UNKNOWN, reason)
            self._shared.retried.inc()
            if not fault:  # which has a line with its traceback
                self._log("work failed and is tried again", reason=reason)
            return [instead(leased, kept, round(wait_s * 1000))]

        self._settle(group, answers)

    def _failed(self, group: Sequence[LeasedTask], error: BaseException) -> None:
        """Answer work after an exception. A fault of the code is logged with its traceback and tried again."""
        match error:
            case Retry():
                for leased in group:  # its part was begun, so it has been counted for a rate that the consumer keeps
                    leased.task = msgspec.structs.replace(leased.task, admitted=leased.task.admitted or leased.task.split)
                self._retry(group, error.reason, error.after_s, unknown=isinstance(error, OutcomeUnknown))
            case Reject():
                self._dead_letter(group, REJECTED, error.reason)
            case BusUnavailable() | BusRefused():
                self._retry(group, error.message)
            case _:
                self._log("consumer's code failed", exc_info=True, attempt=group[0].task.attempt + group[0].out)
                self._retry(group, f"{type(error).__name__} in the consumer's code", fault=True)

    def _dead_letter(self, group: Sequence[LeasedTask], why: str, reason: str) -> None:
        self._settle(group, lambda leased: self._to_dead_letters(leased, why, reason[:MAX_REASON_CHARACTERS]))

    def _to_dead_letters(self, leased: LeasedTask, why: str, reason: str) -> list[Answer]:
        runner = self._spec.runner
        self._shared.dead[why].inc()
        self._log("event went to the dead letters", why=why, reason=reason)
        return [done(leased), dead(_answered(leased), why, reason, runner.max_dead, runner.max_dead_bytes)]

    def _settle(
        self, group: Sequence[LeasedTask], answers: Callable[[LeasedTask], list[Answer]], *, is_done: bool = False
    ) -> None:
        """Answer work. After a lease without a renewal others may have had it, so only an answer with `is_done` counts."""
        self._leases.release(group)
        all_answers = [answer for leased in group for answer in ([] if is_done else [held(leased)]) + answers(leased)]
        self._waiting, dropped = self._until_answered(self._store.settle, all_answers)
        self._shared.waiting.set(self._waiting)
        if dropped:
            self._shared.dead_dropped.inc(dropped)
            self._log("dead letters dropped for newer ones", count=dropped)

    # Waiting for Redis ------------------------------------------------------------------------------------------------------

    def _until_answered(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Repeat a step until Redis has answered, also after `stopping`: the process ends without an answer if it has to."""
        failures = 0
        while True:
            try:
                return step(*arguments)
            except _BusError as error:
                self._waits_for_bus(error)
                failures += 1
                time.sleep(delay_s(failures, BUS_FIRST_S, BUS_LAST_S))

    def _waits_for_bus(self, error: BusUnavailable | BusRefused) -> None:
        self.trouble = error.message
        self._log("consumer waits for Redis", reason=error.message)

    def _matches(self, topic: str) -> bool:
        """Return whether to read a topic. Probes are skipped. Invalid topics are read, to set them aside for inspection."""
        try:
            check_topic(topic)
        except InvalidTopic:
            return True
        return not is_probe(topic) and any(matches(pattern, topic) for pattern in self._spec.patterns)


def delay_s(failures: int, first_s: float, last_s: float, draw: Callable[[], float] = random.random) -> float:
    """Return the delay after the `failures`-th failure in a row, counted from 1, in seconds from 0 to a ceiling.

    The ceiling is `first_s`, doubled for each further failure, at most `last_s`. Full jitter spreads the retries of tasks that
    failed together. `draw` returns a number from 0 to 1.
    """
    ceiling_s = min(last_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return ceiling_s * draw()


def _checked_keys(keys: Sequence[str] | None) -> tuple[str, ...]:
    """Return the keys without duplicates. Raises TypeError or UnicodeEncodeError for keys that cannot be stored."""
    parts = tuple(dict.fromkeys(check_items(() if keys is None else keys, "keys", "texts")))
    wrong = next((type(key).__name__ for key in parts if not isinstance(key, str)), None)
    if wrong:
        raise TypeError(f"keys: expected a list of texts, got {wrong}")
    for key in parts:
        key.encode()
    return parts


def _is_last_chance(leased: LeasedTask) -> bool:
    """Return whether the next lost process would make this task `poison`."""
    return leased.out > 1 and leased.task.unknown + leased.out >= MAX_UNKNOWN


def _answered(leased: LeasedTask, unknown: bool = False, /, **changes: Any) -> Task:
    """Return the task after this answer, which answers only the last of its deliveries."""
    task = leased.task
    return msgspec.structs.replace(
        task, attempt=task.attempt + leased.out, unknown=task.unknown + leased.out - 1 + unknown, **changes
    )  # fmt: skip


def _delay_ms(answer: Defer) -> int:
    """Return how long to wait. Raises TypeError for an invalid Defer or none, as when `handle` is a coroutine."""
    is_one = isinstance(answer, Defer) and isinstance(answer.together, bool) and is_number(answer.until_s, -math.inf, math.inf)
    if not is_one:
        raise TypeError(f"expected None or Defer(seconds since 1970), got {answer!r:.80}")
    now_s = time.time()
    # Rounded up, so that it is not due early by Redis' clock, which has whole milliseconds.
    return max(0, math.ceil(max(0.0, min(answer.until_s, now_s + LONGEST_S)) * 1000) - int(now_s * 1000))
