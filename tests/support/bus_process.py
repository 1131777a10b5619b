"""A bus listener in a process of its own, patched by gevent as a gateway is: what it tells its namespace, as lines of JSON.

Run as a program (`python -m tests.support.bus_process`) it is the listener; imported, it is the test's end of it.
"""

from __future__ import annotations

import json
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


class BusProcess:
    """One listener on the namespace `notifications`, with a fence every tenth of a second.

    No fence is too late: a busy machine would otherwise have the connection replaced, with all that was on its way, in the middle
    of any test.

    Attributes:
        told: everything that it told, in order: `["route", [offset, …]]`, `["missing", first, last, reason]`,
            `["log_lost", epoch, offset]`, `["bus", up]`, `["fenced"]`.
    """

    def __init__(self, redis_url: str, patterns: Sequence[str]) -> None:
        self.told: list[list[Any]] = []
        self._grown = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.bus_process", redis_url, *patterns],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._collect, daemon=True).start()

    @property
    def offsets(self) -> list[int | None]:
        """The offsets of every event that was routed."""
        return [offset for _, offsets in self.only("route") for offset in offsets]

    def only(self, *kinds: str) -> list[list[Any]]:
        """Return what was told of these kinds, in order."""
        with self._grown:
            return [entry for entry in self.told if entry[0] in kinds]

    def wait_for(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Wait until `condition()` is true, looking again whenever something was told; return what it returned."""
        give_up = time.monotonic() + deadline_s
        with self._grown:
            while not (found := condition()):
                left_s = give_up - time.monotonic()
                if left_s <= 0 or self._process.poll() is not None:
                    pytest.fail(f"not within {deadline_s:g} s: {what}; last told: {self.told[-8:]}")
                self._grown.wait(min(left_s, 0.5))
        return found

    def wait_until_up(self) -> None:
        """Wait until the feed is live; what was told so far is forgotten."""
        self.wait_for(lambda: ["bus", True] in self.told, "the bus to be up", START_DEADLINE_S)
        with self._grown:
            self.told.clear()

    def wait_for_fences(self, count: int) -> None:
        """Wait until so many more fences were passed."""
        before = len(self.only("fenced"))
        self.wait_for(lambda: len(self.only("fenced")) >= before + count, f"{count} fences")

    def close(self) -> None:
        """End it. Idempotent."""
        self._process.kill()
        self._process.wait()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of one
            with self._grown:
                self.told.append(json.loads(line))
                self._grown.notify_all()


def main(redis_url: str, *patterns: str) -> None:
    """Be the listener, until standard input ends."""
    from gevent import monkey

    monkey.patch_all()
    from gevent.fileobject import FileObject

    from headgate.bus import feed
    from headgate.bus.listener import Bus
    from headgate.runtime import logging as logs
    from headgate.settings import Settings

    def tell(*entry: Any) -> None:
        sys.stdout.write(json.dumps(entry) + "\n")
        sys.stdout.flush()

    class Teller:
        def route(self, events: Any, more: Any) -> None:
            tell("route", [event.offset for event in events])

        def missing(self, first: int, last: int, reason: Any) -> None:
            tell("missing", first, last, reason.value)

        def log_lost(self, head: Any) -> None:
            tell("log_lost", head.epoch, head.offset)

        def bus_changed(self, up: bool) -> None:
            tell("bus", up)

        def fenced(self) -> None:
            tell("fenced")

    logs.configure("info")
    feed.LATE_FENCES = 1_000_000
    bus = Bus("notifications", redis_url, Settings(fence_interval_s=0.1), Teller())
    for pattern in patterns:
        bus.acquire(pattern)
    bus.start()
    FileObject(0, "r").read()  # sys.stdin would stop the loop


if __name__ == "__main__":
    main(*sys.argv[1:])
