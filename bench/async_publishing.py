"""Receipts in one event loop: AsyncPublisher, and its neighbours in turns in the same run.

    python -m bench.async_publishing    print receipts per second, CPU µs for each, and the longest turns of the loop

Many tasks publish, wait for the receipt, and publish again, over TCP to a Redis on another core. The neighbours: `Publisher`
by `asyncio.to_thread`, and redis.asyncio alone with the same function and bytes. Then Redis is stopped (SIGSTOP) while they
publish. A turn of the loop is the time from one turn of a task that only yields to the next: by the clock, which shows what other
programs take of the machine as well, and by CPU time, which does not. Python collects no garbage in that time: a full collection
stops every program for 20 to 30 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import secrets
import signal
import statistics
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, perf_counter, process_time
from typing import Any

import redis.asyncio

from headgate import AsyncPublisher, HeadgateError, Publisher

from . import publishing
from .bus import Bus, bus_apart
from .variants import LOG_KEY

Send = Callable[[], Awaitable[object]]
STOPPED_S = 3.0


def main(words: Sequence[str] | None = None) -> None:
    """Measure; print one JSON object."""
    parser = argparse.ArgumentParser("python -m bench.async_publishing", description="Measure publishing in an event loop.")
    parser.add_argument("--tasks", type=int, default=200, help="that publish at the same time")
    parser.add_argument("--calls", type=int, default=20_000, help="of each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=256, help="of the payload")
    parser.add_argument("--uvloop", action="store_true")
    wanted = parser.parse_args(words)
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if wanted.uvloop:
        import uvloop

        new_loop = uvloop.new_event_loop
    with bus_apart(has_tcp=True) as bus, asyncio.Runner(loop_factory=new_loop) as runner:
        print(json.dumps(runner.run(_measure(bus, wanted)), indent=2))


async def _measure(bus: Bus, wanted: argparse.Namespace) -> dict[str, Any]:
    data = {"pad": "x" * (wanted.bytes - 10)}
    payload = json.dumps(data, separators=(",", ":"))
    found: dict[str, Any] = {}
    async with AsyncPublisher(bus.tcp_url) as ours:
        with Publisher(bus.tcp_url) as blocking:
            client = redis.asyncio.Redis.from_url(bus.tcp_url, max_connections=wanted.tasks)
            ways: dict[str, Send] = {
                "async_publisher": lambda: ours.publish(publishing.TOPIC, data),
                "to_thread": lambda: asyncio.to_thread(blocking.publish, publishing.TOPIC, data),
                "redis_asyncio": lambda: client.fcall(
                    "headgate_append", 1, LOG_KEY, publishing.TOPIC, payload, secrets.token_hex(16)
                ),
            }
            per_s: dict[str, list[float]] = {name: [] for name in ways}
            cpu_us: dict[str, list[float]] = {name: [] for name in ways}
            for turn in range(wanted.turns + 1):
                for name, send in ways.items():
                    calls = wanted.calls if name == "async_publisher" else wanted.calls // 5
                    began_s, began_cpu_s = perf_counter(), process_time()
                    await _publish(send, wanted.tasks, calls)
                    if turn:  # the first warms up
                        per_s[name].append(calls / (perf_counter() - began_s))
                        cpu_us[name].append((process_time() - began_cpu_s) / calls * 1e6)
            await client.aclose()
        for name in ways:
            found[name] = {"per_s": round(statistics.median(per_s[name])), "cpu_us": round(statistics.median(cpu_us[name]), 1)}
        began_s = perf_counter()
        await _publish(ways["async_publisher"], 1, wanted.calls // 10)
        found["async_publisher"]["one_task_per_s"] = round(wanted.calls // 10 / (perf_counter() - began_s))
        found["longest_turn_ms"] = {
            "idle": await _longest_turn_ms(asyncio.sleep(1.0)),
            "publishing": await _longest_turn_ms(_publish(ways["async_publisher"], wanted.tasks, wanted.calls)),
        }
        os.kill(bus.pid, signal.SIGSTOP)
        try:
            found["longest_turn_ms"]["redis_stopped"] = await _longest_turn_ms(_publish_anyway(ours, data, wanted.tasks))
        finally:
            os.kill(bus.pid, signal.SIGCONT)
    return found


async def _publish(send: Send, tasks: int, calls: int) -> None:
    async def some() -> None:
        for _ in range(calls // tasks):
            await send()

    await asyncio.gather(*(some() for _ in range(tasks)))


async def _publish_anyway(publisher: AsyncPublisher, data: object, tasks: int) -> None:
    """Publish while nothing answers, a hundred times a second from each task, whatever the error."""
    end_s = monotonic() + STOPPED_S

    async def some() -> None:
        while monotonic() < end_s:
            try:
                await publisher.publish(publishing.TOPIC, data)
            except HeadgateError:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(some() for _ in range(tasks)))


async def _longest_turn_ms(work: Awaitable[object]) -> dict[str, float]:
    """Return the longest turn of the loop during some work, by the clock and by the CPU time of all threads of this process."""
    gc.disable()
    longest_s = longest_cpu_s = 0.0
    ending = asyncio.ensure_future(work)
    before_s, before_cpu_s = perf_counter(), process_time()
    while not ending.done():
        await asyncio.sleep(0)
        now_s, now_cpu_s = perf_counter(), process_time()
        longest_s, longest_cpu_s = max(longest_s, now_s - before_s), max(longest_cpu_s, now_cpu_s - before_cpu_s)
        before_s, before_cpu_s = now_s, now_cpu_s
    await ending
    gc.enable()
    return {"clock": round(longest_s * 1000, 2), "cpu": round(longest_cpu_s * 1000, 2)}


if __name__ == "__main__":
    main()
