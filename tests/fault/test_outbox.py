"""An outbox while the application, its relay and Redis are killed at each step, with one event for every committed row.

`make faults` has it, with ten thousand commits: it is the relay of an example. tests/examples/test_outbox.py has PostgreSQL and
Django.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from txoutbox.adapters.sqlite import SqliteStorage

from headgate.diagnosis.tracing import NoSuchEvent, trace
from headgate.redis.client import call, open_client
from headgate.redis.keys import log_key
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.site import Load, wait_for
from tests.support.gateway_process import StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_process import RedisProcess

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "notifications"
WAIT_S = 120.0
COMMITS = 10_000
STEPS = ("claimed", "publishing", "published", "acknowledged")


class Shop:
    """A database with orders and an outbox, the Redis that their events go to, and the processes between."""

    def __init__(self, folder: Path, redis: RedisProcess) -> None:
        self.redis, self.database = redis, str(folder / "shop.sqlite3")
        self._relay: subprocess.Popen[bytes] | None = None
        self.made = 0
        SqliteStorage(self.database).create_schema()
        self._rows("CREATE TABLE orders (id INTEGER PRIMARY KEY)")

    def order(self, count: int, step: str = "none") -> None:
        """Have an application make orders, and end it at a step of the last one."""
        words = [self.database, str(self.made + 1), str(count), step]
        ended = self._start("tests.fault.outbox_application", *words).wait(WAIT_S)
        assert ended == (0 if step == "none" else -signal.SIGKILL)
        self.made += count

    def relay(self, step: str = "none", times: int = 1) -> None:
        """Start the relay, to be ended at a step."""
        self._relay = self._start("tests.fault.outbox_relay", self.database, step, str(times))

    def relay_ended(self) -> None:
        """Wait until the relay has killed itself."""
        assert self._relay is not None
        assert self._relay.wait(WAIT_S) == -signal.SIGKILL

    def pending(self) -> int:
        """Return how many rows are not known to be published."""
        [(count,)] = self._rows("SELECT count(*) FROM outbox WHERE status != 'done'")
        return int(count)

    def committed(self) -> list[int]:
        return [number for (number,) in self._rows("SELECT id FROM orders ORDER BY id")]

    def rows(self) -> dict[str, int]:
        """Return the order of each row of the outbox, by the id of its event."""
        return {f"outbox-{row}": json.loads(payload)["id"] for row, payload in self._rows("SELECT id, payload FROM outbox")}

    def close(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait(WAIT_S)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.database, timeout=WAIT_S)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def _start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "HEADGATE_REDIS_URL": self.redis.url}
        return subprocess.Popen([sys.executable, "-m", module, *words], cwd=ROOT, env=environment)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine has the time for a whole trace."""
    monkeypatch.setattr("headgate.diagnosis.tracing.DEADLINE_S", WAIT_S)


@pytest.fixture
def shop(redis: RedisProcess, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, redis)) as shop:
        yield shop


@ONLY_NIGHTLY
def test_every_committed_row_is_one_event_and_no_other_is_there(shop: Shop, load: Load, start_gateway: StartGateway) -> None:
    """Each topic in the order of its rows, and a trace explains each event by the id of its row, and each rollback."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": shop.redis.url}, "--dev")
    client = RawClient(gateway.url, {"subscriptions": [{"pattern": "orders.#"}]})
    client.wait_for(partial(client.named, "welcome"), "welcome", WAIT_S)
    part = COMMITS // (2 * len(STEPS))
    for number, step in enumerate(STEPS):
        shop.order(part, "row")
        shop.relay(step, 1 if step in ("claimed", "acknowledged") else 7 + number)
        shop.relay_ended()
        shop.order(part, "committed")
        waiting = shop.pending()
        shop.relay()
        wait_for(lambda waiting=waiting: shop.pending() < waiting, "rows to be published", WAIT_S)
        shop.redis.kill()
        shop.redis.start()
        wait_for(lambda: shop.pending() == 0, "every row to be published", WAIT_S)
        shop.close()
    assert shop.made >= COMMITS

    redis = open_client(shop.redis.url, timeout_s=WAIT_S)
    entries = call(redis, "XRANGE", log_key(NAMESPACE), "-", "+")
    log = [(fields[b"topic"], fields[b"id"].decode(), json.loads(fields[b"data"])["id"]) for _, fields in entries]
    rows, committed = shop.rows(), shop.committed()
    assert sorted(number for *_, number in log) == committed, "none lost, none doubled, none that was rolled back"
    assert {event_id: number for _, event_id, number in log} == rows
    numbers = defaultdict(list)
    for topic, _, number in log:
        numbers[topic].append(number)
    assert all(each == sorted(each) for each in numbers.values())

    client.wait_for(lambda: len(client.events) >= len(log), "every event", WAIT_S)
    client.close()
    for _, event_id, _ in log:
        found = trace(redis, NAMESPACE, event_id)
        assert (found.id, found.unknown) == (event_id, [])
        assert found.gateways or found.notes[0].startswith(("Not sampled", "No gateway has counted")), found
    newest = max(int(event_id.removeprefix("outbox-")) for event_id in rows)
    with pytest.raises(NoSuchEvent, match="no event"):
        trace(redis, NAMESPACE, f"outbox-{newest + 1}")
    redis.close()
    kills = f"kills: {2 * len(STEPS)} of the application, {len(STEPS)} of the relay, {len(STEPS)} of Redis"
    print(f"{shop.made} transactions, {len(committed)} committed, {len(log)} in the log; {kills}")
