"""The cost of a large topic: one writer of its members and one reader, both in this process.

    python -m bench.presence_members [members]

The pages are objects that record the time of each notice; Redis is private. `at a time` is the longest CPU time of
this thread between two turns of the loop.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import gc  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import msgspec  # noqa: E402

from bench.presence import TOPIC, counts  # noqa: E402
from headgate.events.wire.frames import Frame  # noqa: E402
from headgate.node.presence.presence import Presence  # noqa: E402
from headgate.redis.client import Client, call, open_client  # noqa: E402
from headgate.redis.embedded import start_private_redis  # noqa: E402
from headgate.settings.settings import Settings  # noqa: E402
from tests.support.presence_world import Page  # noqa: E402

MEMBERS, JOINS = 10_000, 100
# Between two turns of the greenlet that takes the times, and between some enters.
TICK_S, GAP_S, TOGETHER = 0.0005, 1e-6, 5


class CountedPage(Page):
    """A page that records the time of each notice, not its content."""

    told_s = 0.0

    def offer_control(self, frame: Frame, *, flush: bool = True) -> None:
        self.told_s = time.monotonic()


class Turns:
    """The longest CPU time between two turns of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        gevent.spawn(self._run)

    def _run(self) -> None:
        before_s = time.thread_time()
        while True:
            gevent.sleep(TICK_S)
            now_s = time.thread_time()
            self.longest_s, before_s = max(self.longest_s, now_s - before_s), now_s


def resident_kb() -> float:
    """Return the memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * 4.096


def wait_until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds."""
    while not condition():
        gevent.sleep(0.001)


def measure(redis: Client, url: str, members: int) -> None:
    """Measure, and print."""
    turns = Turns()
    settings = Settings(max_presence_members=members + JOINS)
    nothing: Any = lambda *_, **__: None  # noqa: E731
    home, other = (Presence("n", url, settings, nothing) for _ in range(2))

    def enter(page: CountedPage) -> None:
        home.prepare(page.session, TOPIC)
        home.rooms.enter(page.session, TOPIC, page, page.user, '{"at":"door"}')

    def step(what: str, act: Callable[[], object]) -> None:
        gevent.sleep(0.05)
        before, began_s, cpu_s, turns.longest_s = counts(redis), time.monotonic(), time.process_time(), 0.0
        act()
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        spent = ", ".join(f"{name} {now - before[name]}" for name, now in counts(redis).items() if now > before[name])
        print(f"{what}: {took_s:.2f} s, {cpu_s:.2f} s CPU, {1000 * turns.longest_s:.1f} ms at a time; {spent}", flush=True)

    pages = [CountedPage(f"user{number:05}", f"s{number}") for number in range(members)]

    def all_enter() -> None:
        for number, page in enumerate(pages):
            enter(page)
            if number % TOGETHER == 0:
                gevent.sleep(GAP_S)
        wait_until(lambda: not home.rooms.has_writes)

    memory_kb = resident_kb()
    step(f"{members} enter", all_enter)
    print(f"  memory: {(resident_kb() - memory_kb) / members:.2f} KB a member")
    watcher = CountedPage("watcher", "w")
    parts: list[Any] = []

    def read_parts() -> None:
        parts.append(other.rooms.watch("w", TOPIC, watcher))
        while parts[-1]["next"] is not None:
            parts.append(other.rooms.page("w", TOPIC, parts[-1]["next"]))
            gevent.sleep(GAP_S)

    memory_kb = resident_kb()
    step("another process reads them", lambda: other.prepare("w", TOPIC))
    print(f"  memory: {(resident_kb() - memory_kb) / members:.2f} KB a member")
    step("a page reads them in parts", read_parts)
    print(f"  {len(parts)} parts, {sum(len(msgspec.json.encode(part)) for part in parts) / 1000:.0f} KB")
    seen_ms: list[float] = []

    def join_one_by_one() -> None:
        for number in range(JOINS):
            watcher.told_s, began_s = 0.0, time.monotonic()
            enter(CountedPage(f"late{number:03}", f"l{number}"))
            wait_until(lambda: watcher.told_s)
            seen_ms.append(1000 * (watcher.told_s - began_s))
            gevent.sleep(0.05)  # no two of them may share a write

    step(f"{JOINS} more, one after the other", join_one_by_one)
    seen_ms.sort()
    print(f"  seen at the other process: median {seen_ms[JOINS // 2]:.1f} ms, p99 {seen_ms[-2]:.1f} ms")

    def flush() -> None:
        call(redis, "FLUSHALL")
        gevent.sleep(3)

    step("FLUSHALL, and 3 s", flush)
    print(f"  members at the other process: {len(other.rooms.open[TOPIC])}, and {members + JOINS} are there")
    for each in (home, other):
        each.close()


def main() -> None:
    """Measure with a private Redis."""
    members = int(sys.argv[1]) if len(sys.argv) > 1 else MEMBERS
    with tempfile.TemporaryDirectory() as folder, start_private_redis(Path(folder) / "redis") as server:
        measure(open_client(server.url), server.url, members)


if __name__ == "__main__":
    main()
