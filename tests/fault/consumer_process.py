"""Consumers in separate processes, to be killed: they write what they do to a file, slowly enough to be hit anywhere.

Each task is a line `<offset> <key> <attempt>`, written with fsync as a receiver outside would have it, so the tasks in the file
have been done. Before and after it there is a pause of up to a few milliseconds, so that a kill falls between receiving and
doing, between doing and acknowledging, or elsewhere.

`python -m tests.fault.consumer_process <redis url> <file> <lease, s> [batch]` starts none by itself. For each line `start` on
its input it forks one, which consumes until SIGTERM, and writes its process id; for each `wait <process id>`, how that one
exited. (To load Python and the packages again for each would take most of the test's time.)
"""

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from queue import SimpleQueue

from headgate.consumers import Consumer, Defer, Delivery
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.settings.settings import Settings

NAME, NAMESPACE = "killed", "notifications"
LONGEST_PAUSE_S = 0.004
# Some events are for several recipients, some are deferred for a while, all by their numbers.
PARTS_EVERY, HELD_EVERY = 7, 11


def keys_of(number: int) -> Sequence[str]:
    """Return the parts of an event's work."""
    return ("x", "y", "z") if number % PARTS_EVERY == 0 else ("",)


class Lines(Consumer):
    """Writes a line for each delivery."""

    def start(self) -> None:
        """Open the file."""
        self._file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._random = random.Random(os.getpid())

    def keys(self, delivery: Delivery) -> Sequence[str]:
        """Some have three."""
        return keys_of(delivery.value())

    def handle(self, delivery: Delivery) -> Defer | None:
        """Write a line between two pauses; some only after they were deferred."""
        if delivery.value() % HELD_EVERY == 0 and not delivery.deferred:
            return Defer(time.time() + 0.05)
        self._write([delivery])
        return None

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Write the lines of a page at once."""
        self._write(deliveries)

    def _write(self, deliveries: Sequence[Delivery]) -> None:
        time.sleep(self._random.uniform(0, LONGEST_PAUSE_S))
        os.write(self._file, b"".join(f"{d.offset} {d.key or '-'} {d.attempt}\n".encode() for d in deliveries))
        os.fsync(self._file)
        time.sleep(self._random.uniform(0, LONGEST_PAUSE_S))


class Pages(Lines):
    """Writes a page at a time."""

    batch = True


def consume(ready: int) -> bool:
    """Consume until SIGTERM, then drain; return whether that was done in time."""
    asked: SimpleQueue[int] = SimpleQueue()  # not an Event, whose lock the handler would wait for inside its wait
    signal.signal(signal.SIGTERM, lambda number, _: asked.put(number))
    consumer = Pages if sys.argv[4:] == ["batch"] else Lines
    options = RunnerOptions(start="oldest", lease_s=float(sys.argv[3]), max_waiting=100_000)
    runner = Runner(ConsumerSpec(NAME, consumer, Lines.Options(), ("#",), NAMESPACE, options), sys.argv[1], Settings())
    runner.open()
    runner.start()
    os.write(ready, b"r")
    asked.get()
    return runner.stop()


def start() -> int:
    """Fork a consumer, and return its process id once it consumes."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if consume(writing) else 1)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return pid


def main() -> None:
    """Carry out the input, to its end; no consumer outlives it."""
    running: set[int] = set()
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "start":
            pid = start()
            running.add(pid)
            print(pid, flush=True)
        else:
            pid = int(rest[0])
            running.discard(pid)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
