"""All consumers of a process, from the first line of output to the drain.

In: the configuration. Out: an exit code, a line for each step, and a line for each fault. Each consumer has a Runner. A consumer
that has lost a worker thread, which only an operator's own code can cause, is restarted with growing delays.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

from headgate.consumers.work.runner import DRAIN_S, Runner
from headgate.consumers.work.spec import ConsumerSpec
from headgate.redis.client import describe_server
from headgate.runtime.metrics import CONSUMER_RESTARTS

from .config import TYPES, Configuration
from .health_page import HealthPage

# Interval between checks of the workers and the parent.
LOOK_S = 0.5
RESTART_FIRST_S, RESTART_LAST_S = 1.0, 60.0
# After this time without a loss, the delay of restarts starts at its first value again.
STEADY_S = 60.0

Say = Callable[[str], None]


class Supervisor:
    """Runs the consumers of one configuration.

    Args:
        configuration: the consumers and settings.
        redis_url: the Redis of their logs.
        say, complain: take one line each, for standard output and standard error.
    """

    def __init__(self, configuration: Configuration, redis_url: str, say: Say, complain: Say) -> None:
        self._url, self._say = redis_url, say
        self._watched = [_Watched(spec, redis_url, configuration, complain) for spec in configuration.consumers]
        # Not an Event: a signal's handler interrupts the main thread anywhere, and inside the Event's own wait it would wait for
        # its lock for ever. A SimpleQueue is reentrant.
        self._signals: SimpleQueue[int] = SimpleQueue()

    def run(self, listen: tuple[str, int] | None = None, parent: int | None = None) -> int:
        """Run until SIGTERM, SIGINT or the end of the parent, then drain. Call it in the main thread.

        Args:
            listen: address of the health and metrics page; None: no page.
            parent: id of the process that ends this one with it; None: none.

        Returns:
            0 if all leased work was finished, 1 if some was unfinished after DRAIN_S; Redis hands it out again.

        Raises:
            BusUnavailable, BusRefused: Redis does not answer, or is too old.
            InvalidRequest: the address is not available.
        """
        self._say(f"using {describe_server(self._url)}")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self._signals.put(number))
        page = HealthPage(listen, self.states) if listen else None
        if page and listen:
            self._say(f"health and metrics at http://{_host(listen[0])}:{page.port}/healthz and /metrics")
        begun = [watched.open() for watched in self._watched]
        for watched, line in zip(self._watched, begun, strict=True):
            watched.begin()
            self._say(line)
        while not self._is_asked_to_stop() and parent in (None, os.getppid()):
            for watched in self._watched:
                watched.check()
        for watched in self._watched:
            watched.runner.ask_to_stop()
        self._say("stopping the consumers")
        drained = self._drain()
        if page:
            page.close()
        return 0 if drained else 1

    def states(self) -> dict[str, object]:
        """Return the state of every consumer, for the health page; `ready` if all workers of all run without trouble."""
        consumers = {watched.spec.name: watched.state() for watched in self._watched}
        return {"ready": all(state["ready"] for state in consumers.values()), "consumers": consumers}

    def _is_asked_to_stop(self) -> bool:
        """Return whether a signal has arrived; waits for one for LOOK_S."""
        try:
            self._signals.get(timeout=LOOK_S)
        except Empty:
            return False
        return True

    def _drain(self) -> bool:
        """Drain all consumers at the same time, each within DRAIN_S."""
        with ThreadPoolExecutor(len(self._watched)) as pool:
            drained = list(pool.map(lambda watched: watched.runner.stop(DRAIN_S), self._watched))
        for watched, is_drained in zip(self._watched, drained, strict=True):
            if not is_drained:
                self._say(f"{watched.spec.name} was still at work after {DRAIN_S:g} s; what it had leased is handed out again")
        return all(drained)


class _Watched:
    """One consumer, its current runner, and the time of its next restart."""

    def __init__(self, spec: ConsumerSpec, redis_url: str, configuration: Configuration, complain: Say) -> None:
        self.spec, self._complain = spec, complain
        self._make: Callable[[], Runner] = lambda: Runner(spec, redis_url, configuration.settings)
        self.runner = self._make()
        self._since_s = 0.0
        self._pause_s = RESTART_FIRST_S
        self._due_s: float | None = None

    def open(self) -> str:
        """Open the consumer's group, and return the line that reports its consumption."""
        offset = self.runner.open()
        return f"consuming {describe(self.spec)}, from offset {offset + 1}"

    def begin(self) -> None:
        """Start the runner."""
        self._due_s, self._since_s = None, time.monotonic()
        self.runner.start()

    def check(self) -> None:
        """Replace a runner that has lost a worker, once its restart is due."""
        if self._due_s is None:
            if self._is_whole():
                return
            if time.monotonic() - self._since_s > STEADY_S:
                self._pause_s = RESTART_FIRST_S
            self._complain(f"{self.spec.name}: a worker has ended; starting it again in {self._pause_s:g} s")
            self._due_s = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, RESTART_LAST_S)
            self.runner.ask_to_stop()
        elif time.monotonic() >= self._due_s and self.runner.stop(0):
            CONSUMER_RESTARTS.labels(self.spec.name).inc()
            self.runner = self._make()
            self.begin()

    def state(self) -> dict[str, object]:
        """Return the state for the health page."""
        workers, trouble = self.runner.status()
        is_ready = self._is_whole() and trouble is None
        return {"ready": is_ready, "namespace": self.spec.namespace, "workers": workers, "trouble": trouble}

    def _is_whole(self) -> bool:
        return self.runner.status()[0] == self.spec.runner.workers


def describe(spec: ConsumerSpec) -> str:
    """Describe a consumer in one line: `notifications as on-call (email): orders.*.failed`."""
    path = f"{spec.consumer.__module__}:{spec.consumer.__qualname__}"
    kind = next((name for name, known in TYPES.items() if known == path), path)
    return f"{spec.namespace} as {spec.name} ({kind}): {', '.join(spec.patterns)}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
