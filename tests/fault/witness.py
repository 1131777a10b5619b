"""Witnesses: clients and a publisher in a separate process, which measure the delay of events while others make noise.

`python -m tests.fault.witness <url> <Redis' url> <clients>` connects, publishes to them at a fixed rate, and prints `ready`. For
each line of its input it prints a JSON object about the time since the line before: `took_s`, a list of seconds between publish
and arrival, and `closed`, how many connections were lost. It ends with its input. `Witnesses` is the test's end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from itertools import count

from headgate.services.publisher import Publisher
from tests.fault.checker import Noted, Seen
from tests.fault.many_clients import Swarm
from tests.support.line_program import LineProgram

INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Report:
    """The time since the last report, as the witnesses saw it."""

    took_s: list[float]
    closed: int

    def p99_s(self) -> float:
        """Return the time within which 99 % of events came."""
        return sorted(self.took_s)[int(0.99 * (len(self.took_s) - 1))]


class Witnesses(LineProgram):
    """The process. Use as a context manager."""

    def __init__(self, url: str, redis_url: str, clients: int) -> None:
        super().__init__(sys.executable, "-m", "tests.fault.witness", url, redis_url, str(clients))
        assert self.line() == "ready"

    def report(self) -> Report:
        """Return their events since the last report, as soon as they have seen an event."""
        took_s: list[float] = []
        closed = 0
        while not took_s:
            report = Report(**json.loads(self.ask("report")))
            took_s += report.took_s
            closed += report.closed
            time.sleep(INTERVAL_S)
        return Report(took_s, closed)


def publish(redis_url: str) -> None:
    """Publish at a fixed rate until the process ends."""
    with Publisher(redis_url) as publisher:
        for number in count():
            event_id = f"w{number}"
            publisher.publish("witness.seen", {"id": event_id, "at_s": time.monotonic()}, id=event_id)
            time.sleep(INTERVAL_S)


def main() -> None:
    """Connect, and report until the input ends."""
    url, redis_url, clients = sys.argv[1:]
    swarm = Swarm([url], int(clients), lambda index: ["witness.#"], name="witness").open()
    threading.Thread(target=publish, args=(redis_url,), daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        entries = []
        for record in swarm.records:
            new = len(record.entries)
            entries += record.entries[:new]
            del record.entries[:new]
        took_s = [entry.took_s for entry in entries if isinstance(entry, Seen)]
        closed = sum(isinstance(entry, Noted) and entry.what == "closed" for entry in entries)
        print(json.dumps({"took_s": took_s, "closed": closed}), flush=True)
    swarm.close()


if __name__ == "__main__":
    main()
