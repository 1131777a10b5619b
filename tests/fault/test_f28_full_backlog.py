"""F28: Redis is full of the tasks of a consumer with an unreachable receiver; then the receiver is back."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.consumers import Consumer, Delivery, Retry
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.errors import BusRefused
from headgate.redis.client import open_client
from headgate.redis.keys import group_key, log_key
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.fault.figures import Figures
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

BACKLOG, PAYLOAD_BYTES = 1000, 4096
# For connections and a few events, which is less than the log has, or the tasks.
ROOM_BYTES = 4 * 1024 * 1024
NAMESPACE, NAME = "notifications", "mail"
DEADLINE_S = 120.0


class Receiver(Consumer):
    """Delivers to a receiver that is unreachable at first."""

    done: Counter[int]
    is_back: threading.Event

    def handle(self, delivery: Delivery) -> None:
        """Note the number of the event, once the receiver is there."""
        if not self.is_back.is_set():
            raise Retry("nobody answers")
        number, _ = delivery.value()
        self.done[number] += 1


@pytest.fixture
def start_runner(redis: RedisProcess) -> Iterator[Callable[[type[Receiver]], Runner]]:
    """Start the consumer; it is stopped with the test."""
    started: list[Runner] = []

    def start(receiver: type[Receiver]) -> Runner:
        options = RunnerOptions(start="oldest", retry_first_s=0.5, retry_last_s=1.0)
        spec = ConsumerSpec(NAME, receiver, receiver.Options(), ("#",), NAMESPACE, options)
        runner = Runner(spec, redis.url, Settings())
        started.append(runner)
        runner.start()
        return runner

    yield start
    for runner in started:
        runner.stop()


def can_publish(publisher: Publisher) -> bool:
    """Publish, and return whether that was accepted."""
    try:
        publisher.publish("a", [BACKLOG, ""])
    except BusRefused:
        return False
    return True


def test_everything_is_done_when_the_receiver_is_back(
    redis: RedisProcess, start_runner: Callable[[type[Receiver]], Runner], tmp_path: Path, figures: Figures
) -> None:
    """Nothing else makes room than answers, and a gateway, which can start then, trims the log. Then publishing goes on."""
    receiver: Any = type("Receiving", (Receiver,), {"done": Counter(), "is_back": threading.Event()})
    client = open_client(redis.url)
    log = EventLog(NAMESPACE, client, 65536)
    log.configure(10_000, 600)
    empty_bytes = redis.call("INFO", "memory")["used_memory"]
    with Publisher(redis.url, namespace=NAMESPACE) as publisher:
        for hundred in range(BACKLOG // 100):
            first = hundred * 100
            publisher.publish_many([("a", [number, "x" * PAYLOAD_BYTES]) for number in range(first, first + 100)])
        start_runner(receiver)
        held = f"{group_key(NAMESPACE, NAME)}:held"
        wait_until(lambda: redis.call("ZCARD", held) == BACKLOG, "every task to wait for the receiver", DEADLINE_S)

        redis.call("CONFIG", "SET", "maxmemory", empty_bytes + ROOM_BYTES)
        with pytest.raises(BusRefused, match="out of memory"):
            publisher.publish("a", "one more")
        with GatewayProcess(tmp_path / "gateway", {"HEADGATE_REDIS_URL": redis.url}):
            receiver.is_back.set()
            back_s = time.monotonic()
            wait_until(lambda: len(receiver.done) == BACKLOG, "the backlog to be done", DEADLINE_S)
            done_s = time.monotonic() - back_s
            wait_until(lambda: can_publish(publisher), "publishing to go on", DEADLINE_S)
            wait_until(lambda: len(receiver.done) == BACKLOG + 1, "the next event to be done", DEADLINE_S)
            kept = redis.call("XLEN", log_key(NAMESPACE))
    client.close()

    lost = BACKLOG + 1 - len(receiver.done)
    figures("F28", f"{BACKLOG} waiting tasks in a full Redis: lost", lost, "", "0 (checked)")
    figures("F28", "done after the receiver is back", done_s, "s", "≤ the longest pause + backlog")
    assert set(receiver.done.values()) == {1}
    assert 0 < kept < BACKLOG  # half of the memory is for the log
