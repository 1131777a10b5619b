"""One worker of a consumer: takes pages of work, has the consumer do it, settles its answers. One thread, one consumer object.

In: pages from the store. Out: answers to the store, each as soon as it is known: a process that dies doubles what it had begun
and not yet answered, which is one task, or one page of a batch consumer. While Redis does not answer, it waits and tries
again, with jitter, and remembers what it has to say.

While it works, another thread calls `keep`, so that nobody else gets the work (leases.py).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from headgate.consumers.base import Consumer, Context, Defer, Delivery, OutcomeUnknown, Reject, Retry
from headgate.errors import BusRefused, BusUnavailable, InvalidTopic
from headgate.events.topic import check_topic, is_probe, matches
from headgate.events.traceparent import is_sampled
from headgate.runtime.logging import ThrottledLog
from headgate.runtime.spans import consuming

from .backoff import delay_s
from .leases import Leases
from .metrics import GAVE_UP, OUTCOME_UNKNOWN, POISON, REJECTED, UNREADABLE, ConsumerMetrics
from .routing import Routing
from .spec import ConsumerSpec
from .store import Answer, LeasedTask, Page, Store, back, dead, defer, defer_for, done
from .task import Task

# While Redis hands out a page it does nothing else: 0.3 ms for 25 entries, 1.5 ms for 100, at the same rate for the consumer.
PAGE_TASKS = 25
# How late a page may be for those behind it to make up for it.
PACE_SLACK_S = 0.01
# The longest wait for something new: after it, what other instances deferred or left behind is looked for.
IDLE_S = 0.5
SHORTEST_WAIT_S = 0.01
# How often work may fail by a fault of the consumer's code before it is set aside.
MAX_FAULTS = 5
# Attempts that may have worked (the answer was lost, or the process ended): at most so many copies reach a receiver.
MAX_UNKNOWN = 3
# Into how many tasks one event may be split.
MAX_KEYS = 1000
# Waits for Redis: the ceiling of the first and of the last. A new primary is there from one moment to the next.
BUS_FIRST_S, BUS_LAST_S = 0.2, 1.0
# And of the last wait for a consumer that cannot start.
START_LAST_S = 5.0
MAX_REASON_CHARACTERS = 200
LONGEST_S = 366 * 86400.0

_BusError = (BusUnavailable, BusRefused)


class Abandoned(Exception):
    """The drain took too long while an answer waited for Redis: the work is left to its lease."""


class Worker:
    """One thread's work for a consumer.

    Args:
        spec: the consumer.
        context: what the consumer is given.
        store: its group, over a client of this worker's own.
        metrics: what is counted.
        log: events with fields, for operators.
        stopping: set when the worker is to finish what it has begun and return.
        abandoned: set when it is not to wait for Redis any more.
    """

    def __init__(
        self,
        spec: ConsumerSpec,
        context: Context,
        store: Store,
        metrics: ConsumerMetrics,
        log: ThrottledLog,
        stopping: threading.Event,
        abandoned: threading.Event,
    ) -> None:
        self._spec, self._context, self._store = spec, context, store
        self._metrics, self._log = metrics, log
        self._stopping, self._abandoned = stopping, abandoned
        self._lease_ms = round(spec.runner.lease_s * 1000)
        self._wanted = lru_cache(maxsize=4096)(self._matches)
        self._asks_keys = spec.consumer.keys is not Consumer.keys
        self._opened = False
        self._next_tick_s = 0.0
        self._next_page_s = 0.0
        self._page_event_s = spec.runner.workers / spec.runner.max_per_s if spec.runner.max_per_s else 0.0
        self._waiting = 0
        self._leases = Leases(self._lease_ms)
        self._routing: Routing | None = None
        self.trouble: str | None = None

    def run(self) -> None:
        """Work until `stopping` is set; never raises. Tasks that it has not begun by then are given back."""
        consumer: Consumer | None = None
        failures = 0
        while not self._stopping.is_set():
            last_s = BUS_LAST_S
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
                self.trouble, last_s = type(error).__name__, START_LAST_S
                self._log("consumer failed", exc_info=True)
            failures += 1
            self._leases.release_all()
            self._stopping.wait(delay_s(failures, BUS_FIRST_S, last_s))
        with suppress(Abandoned):
            self._until_answered(self._store.confirm)
        self._store.close()
        if self._routing is not None:
            self._routing.close()
            self._routing = None
        if consumer is not None:
            try:
                consumer.close()
            except Exception:  # noqa: BLE001 - somebody's code; nothing depends on it any more
                self._log("consumer failed to close", exc_info=True)

    def interrupt(self) -> None:
        """End a wait for something new; `stopping` is set. From any thread."""
        self._store.interrupt()

    def keep(self, store: Store) -> None:
        """Keep what is leased for another lease, if it has been there for a third of one. Called by another thread.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; try again.
        """
        self._leases.keep(store, time.monotonic())

    def _begin(self) -> Consumer:
        if self._routing is None:
            self._routing = Routing(self._spec, self._context.state, self._wants_fault)
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
        self._until_answered(self._store.confirm)
        if not self._keep_pace():
            return
        page = self._store.take(PAGE_TASKS, self._lease_ms, self._spec.runner.max_waiting, self._wanted)
        if page is None:
            self._log("Redis does not know the consumer any more; it begins with all that is there")
            self._metrics.logs_lost.inc()
            self._store.open("lost")
            return
        self._account(page)
        self._next_page_s += self._page_event_s * (len(page.work) + len(page.unwanted))
        self._leases.take(page.work, time.monotonic())
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
        self._waiting = page.waiting
        self._metrics.waiting.set(page.waiting)
        self._metrics.lag.set(page.head - page.position)
        if (age_s := _age_s(page, time.time())) is not None:
            self._metrics.age.set(age_s)
        full = page.waiting >= self._spec.runner.max_waiting
        self._metrics.full.set(full)
        if full:
            self._log("consumer is full: no new events are taken while so many wait", waiting=page.waiting)
        if page.missed:
            self._metrics.missed.inc(page.missed)
            self._log("events were trimmed from the log before the consumer got them", missed=page.missed)
        if page.lost:
            self._metrics.logs_lost.inc()
            self._log("the log is another one; the consumer begins with its first event")

    def _wait(self, consumer: Consumer, page: Page) -> None:
        limits = [IDLE_S]
        if page.due_in_s is not None:
            limits.append(page.due_in_s)
        if consumer.tick_s is not None:
            limits.append(self._next_tick_s - time.monotonic())
        timeout_s = max(SHORTEST_WAIT_S, min(limits))
        if not page.epoch or page.waiting >= self._spec.runner.max_waiting:
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
            if self._stopping.is_set() or full:
                left += group
                continue
            if consumer.batch:
                self._handle_many(consumer, group)
            else:
                self._handle(consumer, group)
            self._tick(consumer)
        if left:
            self._settle(left, lambda leased: [back(leased)])

    # One task, and those that go together ---------------------------------------------------------------------------------

    def _handle(self, consumer: Consumer, group: Sequence[LeasedTask]) -> None:
        try:
            group = self._routed(group)
            if not group:
                return
            first = group[0]
            if first.mark:
                with self._span(group):
                    answer = consumer.handle_together(first.task.key, [self._delivery(leased) for leased in group])
            else:
                if self._asks_keys and not first.task.split:
                    keys = tuple(dict.fromkeys(consumer.keys(self._delivery(first))))
                    if not keys:
                        self._finish(group)
                        return
                    if len(keys) > MAX_KEYS:
                        raise Reject(f"{len(keys)} keys, at most {MAX_KEYS} are allowed")
                    if len(keys) > 1 or not self._leases.name(first, keys[0]):
                        self._split(first, keys)
                        return
                with self._span(group):
                    answer = self._beyond_rate(consumer, first) or consumer.handle(self._delivery(first))
            until_ms = None if answer is None else _until_ms(answer)
        except Retry as error:
            self._retry(group, error.reason, error.after_s, unknown=isinstance(error, OutcomeUnknown))
        except Reject as error:
            self._dead_letter(group, REJECTED, error.reason)
        except _BusError as error:
            self._retry(group, error.message)
        except Exception as error:  # noqa: BLE001 - somebody's code: told with its traceback, and tried again
            self._fault(group, error)
        else:
            self._metrics.handled.inc(len(group))
            if answer is None or until_ms is None:
                self._finish(group)
                if self._routing is not None:
                    self._routing.sent([self._delivery(leased) for leased in group])
            else:
                self._keep(group, until_ms, answer.together)

    def _routed(self, group: Sequence[LeasedTask]) -> Sequence[LeasedTask]:
        """Return what of a group is to be done now; keep what waits for its user, and be done with what is withdrawn."""
        routing = self._routing
        if routing is None or not routing.is_on:
            return group
        # All is decided before anything is answered: what Redis does not say is asked again, for all of the group.
        ruled = [(leased, *self._rule(routing, leased)) for leased in group]
        for leased, until_ms, user, why in ruled:
            if until_ms is not None:
                self._keep([leased], until_ms, together=False)
            elif why is not None:
                self._metrics.withdrawn[why].inc()
                self._finish([leased])
                routing.record(user, self._delivery(leased), why)
        return [leased for leased, until_ms, _, why in ruled if until_ms is None and why is None]

    def _rule(self, routing: Routing, leased: LeasedTask) -> tuple[int | None, str | None, str | None]:
        """Return until when a task waits for its user, if it does; the user; and why it is withdrawn, if it is."""
        task, delivery = leased.task, self._delivery(leased)
        user = routing.user(delivery)
        if user is None:
            return None, None, None
        is_new = not (task.deferred or task.split or task.failures)
        if is_new and (until_ms := routing.waits_until_ms(delivery)) is not None:
            return until_ms, user, None
        return None, user, routing.withdrawn(user, delivery, is_first=not (task.split or task.failures))

    def _beyond_rate(self, consumer: Consumer, leased: LeasedTask) -> Defer | None:
        """Return until when work waits that is beyond the rate. What is tried again was within it."""
        runner, task = self._spec.runner, leased.task
        if not runner.rate or consumer.keeps_rate or task.failures or leased.out > 1 or self._routing is None:
            return None
        name = f"rate {self._routing.user(self._delivery(leased)) or ''} {task.key}"
        room_s = self._context.state.within_rate(name, runner.rate, runner.rate_period_s)
        return None if room_s is None else Defer(room_s)

    def _wants_fault(self, why: str, error: BaseException | None) -> None:
        self._metrics.wants_faults[why].inc()
        self._log("wants gave no answer; the notification goes out", why=why, exc_info=error)

    def _handle_many(self, consumer: Consumer, group: Sequence[LeasedTask]) -> None:
        try:
            consumer.handle_many([self._delivery(leased) for leased in group])
        except Retry as error:
            self._retry(group, error.reason, error.after_s, unknown=isinstance(error, OutcomeUnknown))
        except _BusError as error:
            self._retry(group, error.message)
        except Exception as error:  # noqa: BLE001 - as in _handle
            if len(group) > 1:  # whose fault it is shows when each is handed over by itself
                for leased in group:
                    self._handle_many(consumer, [leased])
            elif isinstance(error, Reject):
                self._dead_letter(group, REJECTED, error.reason)
            else:
                self._fault(group, error)
        else:
            self._metrics.handled.inc(len(group))
            self._finish(group)

    def _span(self, group: Sequence[LeasedTask]) -> AbstractContextManager[None]:
        """Return a span of OpenTelemetry for work, in the trace of the first event that is recorded, if any is."""
        task = next((leased.task for leased in group if leased.task.traceparent and is_sampled(leased.task.traceparent)), None)
        if task is None:
            return nullcontext()
        said: dict[str, str | int] = {"messaging.consumer.group.name": self._spec.name, "headgate.attempt": task.attempt + 1}
        return consuming(task.traceparent, self._spec.namespace, task.topic, said)

    def _delivery(self, leased: LeasedTask) -> Delivery:
        task = leased.task
        return Delivery(
            task.topic, task.data, task.id, task.time_ms, task.epoch, task.offset, task.traceparent, None,
            self._spec.namespace, self._spec.name, task.key, task.attempt + leased.out, task.deferred,
        )  # fmt: skip

    # Answers ---------------------------------------------------------------------------------------------------------------

    def _finish(self, group: Sequence[LeasedTask]) -> None:
        self._leases.release(group)
        if all(leased.in_log for leased in group):
            self._acknowledge(group[0].leased_in, [leased.task.offset for leased in group])
        else:
            self._settle(group, lambda leased: [done(leased)])

    def _acknowledge(self, epoch: str, offsets: Sequence[int]) -> None:
        if self._store.acknowledge(epoch, offsets):
            self._until_answered(self._store.confirm)

    def _split(self, leased: LeasedTask, keys: Sequence[str]) -> None:
        """Keep each part by itself, due now; the next page has them."""
        parts = [msgspec.structs.replace(leased.task, key=key, split=True) for key in keys]
        self._settle([leased], lambda leased: [done(leased), *(defer_for(part, 0) for part in parts)])

    def _keep(self, group: Sequence[LeasedTask], until_ms: int, together: bool) -> None:
        def answers(leased: LeasedTask) -> list[Answer]:
            kept = _answered(leased, deferred=True, together=together, failures=0, faults=0, failing_since_ms=0, reason="")
            return _instead(leased, defer(kept, until_ms))

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
        options, now_ms, reason = self._spec.runner, round(time.time() * 1000), reason[:MAX_REASON_CHARACTERS]
        failures = max(leased.task.failures for leased in group) + 1
        wait_s = max(delay_s(failures, options.retry_first_s, options.retry_last_s), min(after_s or 0.0, LONGEST_S))
        if unknown:  # a receiver that was too slow is not hurried, and an outage of minutes does not use up the attempts
            wait_s = max(wait_s, options.retry_last_s)

        def answers(leased: LeasedTask) -> list[Answer]:
            since_ms = leased.task.failing_since_ms or now_ms
            if now_ms - since_ms >= options.retry_for_s * 1000:
                return self._to_dead_letters(leased, GAVE_UP, reason)
            if fault and leased.task.faults + 1 >= MAX_FAULTS:
                return self._to_dead_letters(leased, POISON, reason)
            kept = _answered(
                leased, unknown, failures=failures, faults=leased.task.faults + fault, failing_since_ms=since_ms, reason=reason
            )  # fmt: skip
            if unknown and kept.unknown >= MAX_UNKNOWN:
                return self._to_dead_letters(leased, OUTCOME_UNKNOWN, reason)
            self._metrics.retried.inc()
            return _instead(leased, defer_for(kept, round(wait_s * 1000)))

        self._settle(group, answers)

    def _fault(self, group: Sequence[LeasedTask], error: Exception) -> None:
        self._log("consumer's code failed", exc_info=True, attempt=group[0].task.attempt + group[0].out)
        self._retry(group, f"{type(error).__name__} in the consumer's code", fault=True)

    def _dead_letter(self, group: Sequence[LeasedTask], why: str, reason: str) -> None:
        self._settle(group, lambda leased: self._to_dead_letters(leased, why, reason[:MAX_REASON_CHARACTERS]))

    def _to_dead_letters(self, leased: LeasedTask, why: str, reason: str) -> list[Answer]:
        runner = self._spec.runner
        self._metrics.dead[why].inc()
        self._log("event went to the dead letters", why=why, reason=reason)
        return [done(leased), dead(_answered(leased), why, reason, runner.max_dead, runner.max_dead_bytes)]

    def _settle(self, group: Sequence[LeasedTask], answers: Callable[[LeasedTask], list[Answer]]) -> None:
        self._leases.release(group)
        all_answers = [answer for leased in group for answer in answers(leased)]
        self._waiting, dropped = self._until_answered(self._store.settle, all_answers)
        self._metrics.waiting.set(self._waiting)
        if dropped:
            self._metrics.dead_dropped.inc(dropped)
            self._log("dead letters dropped for newer ones", count=dropped)

    # Waiting for Redis ------------------------------------------------------------------------------------------------------

    def _until_answered(self, step: Callable[..., Any], *arguments: Any) -> Any:
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
        """Return whether a topic is wanted, as a probe never is; what is none, too: it is set aside where it can be looked at."""
        try:
            check_topic(topic)
        except InvalidTopic:
            return True
        return not is_probe(topic) and any(matches(pattern, topic) for pattern in self._spec.patterns)


def _answered(leased: LeasedTask, unknown: bool = False, /, **changes: Any) -> Task:
    """Return the task as it is after this answer; of the times that it was handed out only the last one was answered."""
    task = leased.task
    return msgspec.structs.replace(
        task, attempt=task.attempt + leased.out, unknown=task.unknown + leased.out - 1 + unknown, **changes
    )  # fmt: skip


def _instead(leased: LeasedTask, answer: Answer) -> list[Answer]:
    """Return what keeps a task in place of what was leased: an entry of the log is acknowledged, a task is overwritten."""
    return [done(leased), answer] if leased.in_log else [answer]


def _until_ms(answer: Defer) -> int:
    return math.ceil(min(answer.until_s, time.time() + LONGEST_S) * 1000)  # not before it


def _age_s(page: Page, now_s: float) -> float | None:
    """Return how old what the consumer has not taken yet may be: younger than this page. None: the page does not say."""
    if page.head <= page.position:
        return 0.0
    times_ms = [leased.task.time_ms for leased in page.work if leased.in_log]
    return max(0.0, now_s - max(times_ms) / 1000) if times_ms else None
