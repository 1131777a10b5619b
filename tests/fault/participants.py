"""Publishers, consumers and pages as processes, to be paused and killed. Each writes a journal, a JSON array per line.

`python -m tests.fault.participants publish <url> <journal> <name> <events per s> <payload, bytes> <own patterns>` publishes at
a fixed rate; after a failed publish an event is published again with the same id, every 50 ms, as applications do. For each
line `burst <events> <payload, bytes> <topic>` on its input it publishes that too; it ends with its input.
- ["try", id, topic]: written before each attempt, so that a kill hides nothing.
- ["got", id, topic, sent_s, at_s, epoch, offset]: a receipt.

`python -m tests.fault.participants consume <url> <journal> <group> [<pattern> <unless read, s>]` does every event, from the
oldest on, or those of a pattern with items that were not read in time.
- ["did", at_s, epoch, offset, id]: written before the consumer says that it is done.

`pages.mjs` is pages (pages.py), `inbox_pages.mjs` the inboxes of people (test_f43_inbox.py). `Participant` is the test's end of
each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

import msgspec

from headgate.consumers import Consumer, Delivery
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.errors import BusRefused, BusUnavailable
from headgate.services.publisher import Publisher, PublishManyError, Receipt
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES, Settings
from tests.fault.site import NAMESPACE, TOPICS

RETRY_S = 0.05
TIMEOUT_S = 0.5
# The envelope of an event's padding: its id and time.
ENVELOPE_BYTES = 80
# Longer than a starved process sleeps, shorter than a pause.
LEASE_S = 5.0
BATCH_BYTES = 8 * 1024 * 1024
BATCH_EVENTS = 200
STOP_S = 30.0
# Of ten events, so many are published to one of the patterns that one browser alone has.
OWN_EVERY = 10


class Participant:
    """A process that writes a journal, and ends with its input. Use as a context manager.

    Attributes:
        entries: its journal, as far as `read` has read it.
    """

    def __init__(self, role: str, url: str, journal: Path, *words: object) -> None:
        pages = Path("tests", "fault", f"{role}.mjs")
        program = ["node", str(pages)] if role.endswith("pages") else [sys.executable, "-m", "tests.fault.participants", role]
        self.entries: list[list[Any]] = []
        self._journal, self._read_bytes = journal, 0
        journal.touch()
        self._process = subprocess.Popen(
            [*program, url, str(journal), *map(str, words)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            text=True,
        )

    def read(self) -> list[list[Any]]:
        """Return the whole journal, with the lines since the last time."""
        with self._journal.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read_bytes += sum(map(len, whole))
        self.entries += map(msgspec.json.decode, whole)
        return self.entries

    def ask(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def pause(self) -> None:
        """Stop it (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would. Idempotent."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Close its input and wait until it has ended. Idempotent."""
        self._process.communicate(timeout=STOP_S)

    def __enter__(self) -> Participant:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()


class _Journal:
    """A file that gets whole lines, each in one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, *entries: list[Any]) -> None:
        os.write(self._file, b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))


class _Publishing:
    """Publishes events with ids under its name, until it is asked to stop."""

    def __init__(self, publisher: Publisher, journal: _Journal, name: str) -> None:
        self._publisher, self._journal, self._name = publisher, journal, name
        self._number = 0
        self.is_asked_to_stop: Callable[[], bool] = lambda: False

    def publish(self, topics: list[str], payload_bytes: int) -> None:
        """Publish an event to each topic, in one batch, until there is a receipt of each."""
        batch: list[tuple[str, object, str | None]] = []
        for topic in topics:
            self._number += 1
            event_id = f"{self._name}-{self._number}"
            data = {"id": event_id, "at_s": time.monotonic(), "pad": "x" * max(0, payload_bytes - ENVELOPE_BYTES)}
            batch.append((topic, data, event_id))
        while batch:
            self._journal.write(*(["try", event_id, topic] for topic, _, event_id in batch))
            sent_s = time.monotonic()
            outcomes = self._attempt(batch)
            at_s = time.monotonic()
            left = []
            for event, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Receipt):
                    self._journal.write(["got", outcome.id, event[0], sent_s, at_s, outcome.epoch, outcome.offset])
                else:
                    assert outcome is None or isinstance(outcome, BusUnavailable | BusRefused), outcome
                    left.append(event)
            batch = left
            if batch:
                time.sleep(RETRY_S)
                if self.is_asked_to_stop():
                    return

    def _attempt(self, batch: list[tuple[str, object, str | None]]) -> list[Any]:
        try:
            if len(batch) == 1:
                topic, data, event_id = batch[0]
                return [self._publisher.publish(topic, data, event_id)]
            return list(self._publisher.publish_many(batch))
        except PublishManyError as error:
            return list(error.outcomes)
        except (BusUnavailable, BusRefused):
            return [None] * len(batch)


def publish(url: str, path: str, name: str, per_s: str, payload_bytes: str, own_patterns: str) -> None:
    """Publish on schedule, and the bursts of the input, to its end; late ones are not caught up for more than a second."""
    asked: SimpleQueue[list[str] | None] = SimpleQueue()

    def read_input() -> None:
        for line in sys.stdin:
            asked.put(line.split()[1:])
        asked.put(None)

    reader = Thread(target=read_input, daemon=True)
    reader.start()
    interval_s, own = 1 / float(per_s), int(own_patterns)
    with Publisher(url, timeout_s=TIMEOUT_S, max_payload_bytes=HARD_MAX_PAYLOAD_BYTES) as publisher:
        publishing = _Publishing(publisher, _Journal(path), name)
        publishing.is_asked_to_stop = lambda: not reader.is_alive()
        number, next_s = 0, time.monotonic()
        while True:
            try:
                burst = asked.get(timeout=max(0.001, next_s - time.monotonic()))
            except Empty:
                next_s = max(next_s + interval_s, time.monotonic() - 1)
                number += 1
                is_own = own and number % OWN_EVERY == 0
                topic = f"own.p{number * 7919 % own}.changed" if is_own else f"load.t{number % TOPICS}.changed"
                publishing.publish([topic], int(payload_bytes))
                continue
            if burst is None:
                return
            count, size_bytes, topic = int(burst[0]), int(burst[1]), burst[2]
            at_once = max(1, min(BATCH_EVENTS, BATCH_BYTES // size_bytes))
            for first in range(0, count, at_once):
                topics = [topic.format(n % TOPICS) for n in range(first, min(count, first + at_once))]
                publishing.publish(topics, size_bytes)


def consume(url: str, path: str, group: str, pattern: str = "#", unless_read_s: str = "0") -> None:
    """Consume to the end of the input, then drain."""
    journal = _Journal(path)

    class Writing(Consumer):
        def handle(self, delivery: Delivery) -> None:
            journal.write(["did", time.monotonic(), delivery.epoch, delivery.offset, delivery.id])

    options = RunnerOptions(
        start="oldest",
        lease_s=LEASE_S,
        retry_first_s=0.1,
        retry_last_s=1.0,
        max_waiting=100_000,
        unless_read_s=float(unless_read_s),
    )
    runner = Runner(
        ConsumerSpec(group, Writing, Writing.Options(), (pattern,), NAMESPACE, options),
        url,
        Settings(max_payload_bytes=HARD_MAX_PAYLOAD_BYTES),
    )
    runner.start()
    sys.stdin.read()
    runner.stop()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "publish":
        publish(*arguments)
    else:
        consume(*arguments)
