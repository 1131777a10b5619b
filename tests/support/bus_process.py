"""A bus listener in a separate process, patched by gevent as a gateway is: what it reports to its namespace, as lines of JSON.

Run as a program (`python -m tests.support.bus_process`) it is the listener; imported, it is the test's end of it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
START_DEADLINE_S = 90.0
PATIENT = 1_000_000


class BusProcess:
    """One listener on the namespace `notifications`, which wants `patterns`, and keeps released ones for `linger_s` longer.

    Args:
        late_fences: so many late ones in a row are a dead connection. By default none is too late, because with fences every
            tenth of a second a busy machine would replace the connection, with all messages on their way, in the middle of any
            test. The answer to the fence's question may be as late then, too, for the same reason.

    Attributes:
        told: everything that it reported, in order: `["route", [[topic, offset, data], …]]`, `["missing", first, last, reason]`,
            `["log_lost", epoch, offset]`, `["line_changed", epoch, end, position]`, `["bus", up]`, `["fenced"]`.
    """

    def __init__(
        self,
        redis_url: str,
        patterns: Sequence[str] = ("#",),
        linger_s: float = 5.0,
        late_fences: int = PATIENT,
        **settings: Any,
    ) -> None:
        self.told: list[list[Any]] = []
        self._answers: list[Any] = []
        self._grown = threading.Condition()
        told = (redis_url, json.dumps(settings), str(linger_s), str(late_fences))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.bus_process", *told, *patterns],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._collect, daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id, for SIGSTOP."""
        return self._process.pid

    @property
    def events(self) -> list[list[Any]]:
        """Every event that was routed: [topic, offset, data]."""
        with self._grown:
            return [event for what, *rest in self.told if what == "route" for event in rest[0]]

    @property
    def offsets(self) -> list[int | None]:
        """The offsets of every event that was routed."""
        return [offset for _, offset, _ in self.events]

    def news(self, *kinds: str) -> list[list[Any]]:
        """Return the reports of these kinds, in order."""
        with self._grown:
            return [entry for entry in self.told if entry[0] in kinds]

    def wait_for(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Wait until `condition()` is true, looking again after each report; return what it returned."""
        give_up = time.monotonic() + deadline_s
        with self._grown:
            while not (found := condition()):
                left_s = give_up - time.monotonic()
                if left_s <= 0 or self._process.poll() is not None:
                    pytest.fail(f"not within {deadline_s:g} s: {what}; last told: {self.told[-8:]}")
                self._grown.wait(min(left_s, 0.5))
        return found

    def wait_until_up(self) -> None:
        """Wait until the feed is proven; earlier reports are forgotten."""
        self.wait_for(lambda: ["bus", True] in self.told, "the bus to be up", START_DEADLINE_S)
        self.forget()

    def forget(self) -> None:
        """Empty `told`."""
        with self._grown:
            self.told.clear()

    def wait_for_fences(self, count: int) -> None:
        """Wait until so many more fences were passed."""
        before = len(self.news("fenced"))
        self.wait_for(lambda: len(self.news("fenced")) >= before + count, f"{count} fences")

    def quarantined(self) -> dict[str, int]:
        """Return the counts of the metric, by code."""
        found: dict[str, int] = self._ask("quarantined")
        return found

    def state(self) -> dict[str, Any]:
        """Return epoch, offset, up and last error as the gateway's readiness would show them."""
        found: dict[str, Any] = self._ask("state")
        return found

    def acquire(self, pattern: str) -> int:
        """Acquire one more pattern; return the position above which its events come."""
        offset: int = self._ask(f"acquire {pattern}")
        return offset

    def release(self, pattern: str) -> int:
        """Release a pattern; return the position."""
        offset: int = self._ask(f"release {pattern}")
        return offset

    def pause(self) -> None:
        """Stop the process (SIGSTOP) until `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process run again."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        self._process.kill()
        self._process.wait()

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        with self._grown:
            before = len(self._answers)
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        self.wait_for(lambda: len(self._answers) > before, f"an answer to {question!r}")
        return self._answers[-1]

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of one
            entry = json.loads(line)
            with self._grown:
                if entry[0] == "answer":
                    self._answers.append(entry[1])
                else:
                    self.told.append(entry)
                self._grown.notify_all()


def main(redis_url: str, settings: str, linger_s: str, late_fences: str, *patterns: str) -> None:
    """Be the listener, until standard input ends."""
    from gevent import monkey

    monkey.patch_all()
    from gevent.fileobject import FileObject

    from headgate.delivery.bus import feed, interest
    from headgate.delivery.bus import listener as bus_module
    from headgate.runtime import logging as logs
    from headgate.runtime.metrics import QUARANTINED
    from headgate.settings.settings import Settings

    def tell(*entry: Any) -> None:
        sys.stdout.write(json.dumps(entry) + "\n")
        sys.stdout.flush()

    class Teller:
        def route(self, events: Any, more: Any) -> None:
            tell("route", [[event.topic, event.offset, event.data.decode()] for event in events])

        def missing(self, first: int, last: int, reason: Any) -> None:
            tell("missing", first, last, reason.value)

        def log_lost(self, head: Any) -> None:
            tell("log_lost", head.epoch, head.offset)

        def line_changed(self, end: int) -> None:
            tell("line_changed", bus.epoch, end, bus.reached)

        def bus_changed(self, up: bool) -> None:
            tell("bus", up)

        def fenced(self) -> None:
            tell("fenced")

        def take(self, replies: Any, front: Any) -> None:
            return None

        def rest(self) -> None:
            raise AssertionError("nothing was taken")

    logs.configure("info")
    interest.LINGER_S = float(linger_s)
    feed.LATE_FENCES = int(late_fences)
    if feed.LATE_FENCES == PATIENT:
        bus_module.LEAST_FENCE_TIMEOUT_S = bus_module.COMMAND_TIMEOUT_S = DEADLINE_S
    bus = bus_module.Bus("notifications", redis_url, Settings(**json.loads(settings)), Teller())
    for pattern in patterns:
        bus.acquire(pattern)
    bus.start()
    for line in FileObject(0, "r"):  # sys.stdin would stop the loop
        question, _, pattern = line.strip().partition(" ")
        if question == "acquire":
            bus.acquire(pattern)
            bus.wait_for(pattern)
            tell("answer", bus.reached)
        elif question == "release":
            bus.release(pattern)
            tell("answer", bus.reached)
        elif question == "state":
            error, reason = (bus.last_error.code, bus.last_error.message) if bus.last_error is not None else (None, None)
            tell("answer", {"epoch": bus.epoch, "offset": bus.reached, "up": bus.up, "error": error, "reason": reason})
        else:
            samples = [sample for metric in QUARANTINED.collect() for sample in metric.samples]
            tell("answer", {s.labels["code"]: int(s.value) for s in samples if s.name.endswith("_total")})


if __name__ == "__main__":
    main(*sys.argv[1:])
