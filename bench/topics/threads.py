"""Matchers under several threads: those that are made for one are shared behind a lock, the concurrent trie as it is.

Each thread subscribes and unsubscribes its own subscribers, and matches between two changes. With the global interpreter lock
one thread runs at a time, so more threads bring no more operations: the figures show the cost of sharing.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Sequence

from .matchers import Matcher

THREADS = (1, 4)


class Locked:
    """A matcher that one thread uses at a time."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._lock = threading.Lock()

    def subscribe(self, pattern: str, subscriber: int) -> None:
        with self._lock:
            self._matcher.subscribe(pattern, subscriber)

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        with self._lock:
            self._matcher.unsubscribe(pattern, subscriber)

    def match(self, topic: str) -> Collection[int]:
        with self._lock:
            return self._matcher.match(topic)


def operations_per_s(
    matcher: Matcher, threads: int, patterns: Sequence[str], topics: Sequence[str], matches_per_change: int, budget_s: float
) -> float:
    """Return operations (matches and changes) per second of CPU of all threads.

    Each of the patterns is subscribed to, by its number.
    """
    done = [0] * threads
    stop = threading.Event()

    def work(thread: int) -> None:
        mine = itertools.cycle(range(thread, len(patterns), threads))
        source = itertools.cycle(topics[thread::threads])
        while not stop.is_set():
            number = next(mine)
            matcher.unsubscribe(patterns[number], number)
            for _ in range(matches_per_change):
                matcher.match(next(source))
            matcher.subscribe(patterns[number], number)
            for _ in range(matches_per_change):
                matcher.match(next(source))
            done[thread] += 2 + 2 * matches_per_change

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    began_s, used_s = time.monotonic(), time.process_time()
    for worker in workers:
        worker.start()
    # CPU, not wall time: on a busy machine the threads may wait long. No longer than ten times that in all.
    while time.process_time() - used_s < budget_s and time.monotonic() - began_s < 10 * budget_s:
        time.sleep(0.01)
    stop.set()
    for worker in workers:
        worker.join()
    return sum(done) / (time.process_time() - used_s)
