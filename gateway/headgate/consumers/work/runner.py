"""Runs one consumer in this process, with its worker threads and the thread that renews their leases.

In: the consumer's specification (spec.py) and the Redis URL. Out: handled events, until `stop`. Several processes may run the
same consumer and share its group.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import structlog

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.redis.client import Client, check_primary, open_client
from headgate.redis.keys import group_key
from headgate.redis.loads import process_name
from headgate.redis.registry import give_word, take_out
from headgate.redis.time_watch import WATCH_EVERY_S, TimeWatch
from headgate.runtime.logging import throttled
from headgate.runtime.metrics import CONSUMER_AGE_SECONDS, CONSUMER_LAG
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings

from .spec import ConsumerSpec
from .state import context_of
from .store import Store
from .worker import SharedByWorkers, Worker

DRAIN_S = 10.0
# The consumer leaves an old primary this fast even if all workers are busy. Longer than ASK_EVERY_SENTINEL_S of
# redis/primary_switch.py, because otherwise every second check would come a moment too early.
KEEP_EVERY_S = 0.25
# Longer than an attempt of our own consumers with their default time limits (a mail: ten answers of 30 s, then 600 s).
HUNG_S = 900.0


class Runner:
    """Runs one consumer.

    Args:
        settings: only `max_payload_bytes` is read.

    Raises BusRefused if `redis_url` is not a Redis URL.
    """

    def __init__(self, spec: ConsumerSpec, redis_url: str, settings: Settings) -> None:
        self._spec, self._url, self._limit = spec, redis_url, settings.max_payload_bytes
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._shared = SharedByWorkers(spec.name)
        self._log = throttled(
            structlog.get_logger("headgate.consumers").bind(consumer=spec.name, namespace=spec.namespace).warning
        )
        self._publisher = Publisher(redis_url, namespace=spec.namespace, max_payload_bytes=self._limit)
        self._clients: list[Client] = []
        self._workers = [self._worker() for _ in range(spec.runner.workers)]
        self._threads: list[threading.Thread] = []
        self._keeper = threading.Thread(target=self._keep, name=f"{spec.name}-keeper", daemon=True)

    def open(self) -> int:
        """Create the consumer's group unless it exists, and return the last offset before its next read.

        Optional before `start`, whose workers do the same. Raises as `redis.client.call`.
        """
        return self._store().open(self._spec.runner.start)[1]

    def start(self) -> None:
        """Start the threads and return. They wait for Redis without a time limit, and run until `stop`."""
        for number, worker in enumerate(self._workers):
            thread = threading.Thread(target=worker.run, name=f"{self._spec.name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._keeper.start()

    def status(self, hung_s: float = HUNG_S) -> tuple[int, str | None]:
        """Return the number of running worker threads, and their trouble in one line without secrets, or None.

        A worker whose attempt lasts longer than `hung_s` has trouble, too.
        """
        trouble = next((worker.trouble for worker in self._workers if worker.trouble), None)
        took_s = time.monotonic() - min(worker.active_s for worker in self._workers)
        if trouble is None and took_s > hung_s:
            trouble = f"an attempt has lasted {took_s:.0f} s"
        return sum(thread.is_alive() for thread in self._threads), trouble

    def ask_to_stop(self) -> None:
        """Ask the workers to finish their current tasks and take no new ones. Returns at once."""
        self._stopping.set()

    def stop(self, drain_s: float = DRAIN_S) -> bool:
        """Finish the work at hand, give the rest back, and return whether that was done within `drain_s`. Idempotent.

        A worker that is still busy then, or waits for Redis to take its answer, ends with the process, and Redis hands the work
        out again.
        """
        self.ask_to_stop()
        deadline_s = time.monotonic() + drain_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._ended.set()
        for thread in (*self._threads, self._keeper):
            if thread.ident is not None:
                thread.join(0.1)
        drained = not any(thread.is_alive() for thread in self._threads)
        if drained:
            self._publisher.close()
            for client in self._clients:
                client.close()
        return drained

    def _worker(self) -> Worker:
        store = self._store()
        context = context_of(self._spec, store, self._publisher)
        return Worker(self._spec, context, store, self._log, self._stopping, self._shared)

    def _store(self) -> Store:
        self._clients.append(open_client(self._url))
        return Store(self._clients[-1], self._url, self._spec.namespace, self._spec.name, self._limit)

    def _keep(self) -> None:
        """Renew the leases of all workers, and watch the group's clock, backlog and primary, over a separate connection."""
        store, watch = self._store(), TimeWatch()
        group, name = group_key(self._spec.namespace, self._spec.name), process_name()
        next_tick_s = 0.0
        while True:
            try:
                check_primary(store.client)
                group_ms = 0  # as of a group that is not open
                if time.monotonic() >= next_tick_s:
                    group_ms = store.tick(*watch.words())
                    watch.observe(group_ms)
                    if group_ms:
                        give_word(store.client, group, name)
                    next_tick_s = time.monotonic() + WATCH_EVERY_S
                for worker in self._workers:
                    worker.keep(store)
                if group_ms:  # last, since a fault of this must not end a lease
                    self._measure(store)
            except (BusUnavailable, BusRefused) as error:
                self._log("consumer waits for Redis", reason=error.message)
            if self._ended.wait(min(KEEP_EVERY_S, self._spec.runner.lease_s / 3)):
                break
        with suppress(HeadgateError):  # its entry expires soon
            take_out(store.client, group, name)

    def _measure(self, store: Store) -> None:
        """Set the gauges of the backlog, here because a worker may be busy for long."""
        progress = store.progress()
        if progress.handled_ms:
            CONSUMER_AGE_SECONDS.labels(self._spec.name).set((progress.now_ms - progress.handled_ms) / 1000)
        CONSUMER_LAG.labels(self._spec.name).set(store.lag())
