"""F28: Redis is full of the tasks of a consumer with an unreachable receiver; then the receiver is back."""

import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.consumers import Delivery, Retry
from headgate.errors import BusRefused
from headgate.redis.client import open_client
from headgate.redis.keys import group_key, log_key
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from tests.fault.consuming import consuming
from tests.fault.figures import Figures
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

BACKLOG, PAYLOAD_BYTES = 1000, 4096
# For connections and a few events, which is less than the log has, or the tasks.
ROOM_BYTES = 4 * 1024 * 1024
NAMESPACE, NAME = "notifications", "mail"
DEADLINE_S = 120.0


def can_publish(publisher: Publisher) -> bool:
    """Publish, and return whether that was accepted."""
    try:
        publisher.publish("a", [BACKLOG, ""])
    except BusRefused:
        return False
    return True


def test_everything_is_done_when_the_receiver_is_back(redis: RedisProcess, tmp_path: Path, figures: Figures) -> None:
    """Nothing else makes room than answers, and a gateway, which can start then, trims the log. Then publishing goes on."""
    done: Counter[int] = Counter()
    is_back = threading.Event()

    def handle(delivery: Delivery) -> None:
        if not is_back.is_set():
            raise Retry("nobody answers")
        number, _ = delivery.value()
        done[number] += 1

    client = open_client(redis.url)
    log = EventLog(NAMESPACE, client, 65536)
    log.configure(10_000, 600)
    empty_bytes = redis.call("INFO", "memory")["used_memory"]
    with Publisher(redis.url, namespace=NAMESPACE) as publisher, ExitStack() as consumer:
        for hundred in range(BACKLOG // 100):
            first = hundred * 100
            publisher.publish_many([("a", [number, "x" * PAYLOAD_BYTES]) for number in range(first, first + 100)])
        consumer.enter_context(consuming(redis.url, NAME, handle, start="oldest", retry_first_s=0.5, retry_last_s=1.0))
        held = f"{group_key(NAMESPACE, NAME)}:held"
        wait_until(lambda: redis.call("ZCARD", held) == BACKLOG, "every task to wait for the receiver", DEADLINE_S)

        redis.call("CONFIG", "SET", "maxmemory", empty_bytes + ROOM_BYTES)
        with pytest.raises(BusRefused, match="out of memory"):
            publisher.publish("a", "one more")
        with GatewayProcess(tmp_path / "gateway", {"HEADGATE_REDIS_URL": redis.url}):
            is_back.set()
            back_s = time.monotonic()
            wait_until(lambda: len(done) == BACKLOG, "the backlog to be done", DEADLINE_S)
            done_s = time.monotonic() - back_s
            wait_until(lambda: can_publish(publisher), "publishing to go on", DEADLINE_S)
            wait_until(lambda: len(done) == BACKLOG + 1, "the next event to be done", DEADLINE_S)
            kept = redis.call("XLEN", log_key(NAMESPACE))
    client.close()

    lost = BACKLOG + 1 - len(done)
    figures("F28", f"{BACKLOG} waiting tasks in a full Redis: lost", lost, "", "0 (checked)")
    figures("F28", "done after the receiver is back", done_s, "s", "≤ the longest pause + backlog")
    assert set(done.values()) == {1}
    assert 0 < kept < BACKLOG  # half of the memory is for the log
