"""How fast a Subscriber reads a log, and how late it has an event for which it waits.

    python -m bench.subscribing    print events per second and CPU µs for each, and the delay from `publish` to the item

The log is read whole, over TCP from a Redis on another core: once by a reader that wants all of it, and once by one that wants a
hundredth. Then events come alone, while the reader waits in another thread of the process that publishes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from threading import Thread
from time import perf_counter, process_time, sleep

from headgate import Gap, Publisher, Subscriber

from .bus import bus_apart
from .variants import LOG_KEY

BATCH_EVENTS = 5000
PAUSE_S = 0.01


def main(words: Sequence[str] | None = None) -> None:
    """Measure; print one JSON object."""
    parser = argparse.ArgumentParser("python -m bench.subscribing", description="Measure reading a log in Python.")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=256, help="of each payload")
    parser.add_argument("--alone", type=int, default=300, help="events that come alone")
    wanted = parser.parse_args(words)
    with bus_apart(has_tcp=True) as bus, bus.client() as client, Publisher(bus.tcp_url) as publisher:
        data = {"pad": "x" * (wanted.bytes - 10)}
        publisher.publish("a", data)
        client.fcall("headgate_configure", 1, LOG_KEY, 2 * wanted.events, 3_600_000, 65536)
        for first in range(0, wanted.events, BATCH_EVENTS):
            publisher.publish_many((f"a.{number % 100}", data) for number in range(first, first + BATCH_EVENTS))
        found = {
            "all": _read(bus.tcp_url, "#", wanted.events),
            "a_hundredth": _read(bus.tcp_url, "a.7", wanted.events),
            "delay_ms": _delays_ms(bus.tcp_url, publisher, wanted.alone),
        }
    print(json.dumps(found, indent=2))


def _read(url: str, pattern: str, events: int) -> dict[str, float]:
    began_s, began_cpu_s = perf_counter(), process_time()
    with Subscriber(url, pattern, since="oldest", wait_s=0) as subscriber:
        items = sum(not isinstance(item, Gap) for item in subscriber)
    took_s, took_cpu_s = perf_counter() - began_s, process_time() - began_cpu_s
    return {"items": items, "events_per_s": round(events / took_s), "cpu_us": round(took_cpu_s / events * 1e6, 1)}


def _delays_ms(url: str, publisher: Publisher, count: int) -> dict[str, float]:
    sent_s: list[float] = []
    delays_s: list[float] = []

    def publish() -> None:
        for number in range(count):
            sleep(PAUSE_S)
            sent_s.append(perf_counter())
            publisher.publish("alone", number)

    with Subscriber(url, "alone") as subscriber:
        thread = Thread(target=publish)
        thread.start()
        for _ in range(count):
            next(subscriber)
            delays_s.append(perf_counter() - sent_s[len(delays_s)])
        thread.join()
    return {"median": round(statistics.median(delays_s) * 1000, 2), "most": round(max(delays_s) * 1000, 2)}


if __name__ == "__main__":
    main()
