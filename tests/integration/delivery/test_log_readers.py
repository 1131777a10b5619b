"""Clients of a gateway process that read the log: one whose queue overflowed, and one that comes back.

tests/unit/node/test_gateway.py and test_joining.py have every other way to read the log, on a model of Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.fault.checker import Noted
from tests.fault.many_clients import BrowserClient
from tests.support.log_clients import Grounds, LogGround, offsets, resumed, wait_for_offset


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """A gateway with a namespace for each test."""
    settings = {"queue_frames": 16, "queue_bytes": 131072, "send_buffer_bytes": 4096, "write_deadline_s": 60}
    with Grounds(tmp_path_factory.mktemp("grounds"), 2, **settings) as grounds:
        yield grounds


@pytest.fixture
def ground(grounds: Grounds) -> Iterator[LogGround]:
    """A namespace of the test's own."""
    with grounds.fresh() as ground:
        yield ground


def fullness(client: BrowserClient) -> list[str]:
    """Return the notices about a client's queue, in order: `warning`, `on` (full), `off` (live again)."""
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


def test_a_client_goes_on_where_it_was(ground: LogGround) -> None:
    """`resumed: true`, then every event that it missed, then live."""
    swarm, client = ground.client()
    wait_for_offset(swarm, ground.publish(3)[-1])
    swarm.leave()
    ground.publish(150)
    swarm.open()
    ground.publish(3)
    wait_for_offset(swarm, 156)
    assert resumed(client) == [None, True]
    assert offsets(client) == list(range(1, 157))
    ground.check(swarm)
