"""Catching up: a client whose queue overflowed reads on from the log, in order, and is live again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.fault.checker import Noted
from tests.fault.many_clients import BrowserClient
from tests.support.log_clients import Grounds, LogGround, offsets, wait_for_offset


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """A gateway with a namespace for each test."""
    settings = {"queue_frames": 16, "queue_bytes": 131072, "send_buffer_bytes": 4096, "write_deadline_s": 60}
    with Grounds(tmp_path_factory.mktemp("grounds"), 10, **settings) as grounds:
        yield grounds


@pytest.fixture
def ground(grounds: Grounds) -> Iterator[LogGround]:
    """A namespace of the test's own."""
    with grounds.fresh() as ground:
        yield ground


def fullness(client: BrowserClient) -> list[str]:
    """Return what a client was told of its queue, in order: `warning`, `on` (full), `off` (live again)."""
    told = [entry.what.partition(" ") for entry in client.record.entries if isinstance(entry, Noted)]
    return [state for kind, _, state in told if kind == "backpressure"]


def test_a_client_that_stopped_reading_gets_everything_in_order(ground: LogGround) -> None:
    """Told that its queue was full, then that it is live again; nothing is missing."""
    swarm, client = ground.client(receive_buffer_bytes=4096)
    swarm.each(lambda one: one.stall())
    ground.publish(500, size=1000)
    swarm.each(lambda one: one.read_on())
    last = ground.publish(5)[-1]
    swarm.wait(lambda: client.offset == last and fullness(client)[-1:] == ["off"], "the client to be live again")
    assert offsets(client) == list(range(1, last + 1))
    # Told once, and once more each time that it was live again before a gateway that is late had routed the last of them.
    assert "on" in fullness(client)
    assert all(before != after for before, after in pairwise(fullness(client)))
    assert client.record.gaps() == []
    ground.check(swarm)


def test_an_undeliverable_entry_is_told_as_one(ground: LogGround) -> None:
    """Put into the log by hand: live clients and readers are told of the same offset."""
    live, live_client = ground.client()
    late, late_client = ground.client()
    wait_for_offset(late, ground.publish(1)[-1])
    late.leave()
    # One step: a log that is ahead of its head begins anew as soon as a gateway connects.
    ground.redis.call(
        "EVAL",
        "redis.call('XADD', KEYS[1], '2-0', 'topic', 'a', 'id', 'e', 'time', '1', 'data', '{broken') "
        "redis.call('HSET', KEYS[2], 'offset', 2)",
        2, ground.log, ground.head,
    )  # fmt: skip
    wait_for_offset(live, ground.publish(1)[-1])
    late.open()
    wait_for_offset(late, 3)
    for client in (live_client, late_client):
        assert [(gap.first, gap.last, gap.reason) for gap in client.record.gaps()] == [(2, 2, "quarantined")]
        assert offsets(client) == [1, 3]
