"""Resuming: a client that comes back goes on where it was, or is told what is gone, and Redis hardly notices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.delivery.page_cache import PAGE_OFFSETS
from tests.support.log_clients import Grounds, LogGround, offsets, resumed, wait_for_offset


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """A gateway with a namespace for each test."""
    with Grounds(tmp_path_factory.mktemp("grounds"), 5) as grounds:
        yield grounds


@pytest.fixture
def ground(grounds: Grounds) -> Iterator[LogGround]:
    """A namespace of the test's own."""
    with grounds.fresh() as ground:
        yield ground


def test_a_client_goes_on_where_it_was(ground: LogGround) -> None:
    """`resumed: true`, then what it missed, then live."""
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


def test_a_client_whose_log_was_lost_is_told_so_once(ground: LogGround) -> None:
    """`resumed: false`, one gap that cannot be recovered, then the new log."""
    swarm, client = ground.client()
    wait_for_offset(swarm, ground.publish(3)[-1])
    swarm.leave()
    ground.redis.call("DEL", ground.log, ground.head)
    ground.publish(1)
    other, _ = ground.client()  # tells when the gateway has seen the new log
    other.wait(lambda: other.clients[0].epoch != client.epoch, "the new log")
    swarm.open()
    ground.publish(2)
    swarm.wait(lambda: client.offset == 3, "live events of the new log")
    assert resumed(client) == [None, False]
    assert [(gap.reason, gap.recoverable, gap.first) for gap in client.record.gaps()] == [("log_lost", False, None)]
    ground.check(swarm)


def test_a_point_that_is_none_is_refused(ground: LogGround) -> None:
    """Not taken for "nothing to resume", which would hide a loss."""
    swarm = ground.clients(1)
    client = swarm.clients[0]
    client.resume_point = {"epoch": "x", "offset": 1}
    swarm.run(client.open())
    swarm.wait(lambda: any("invalid_request" in str(entry) for entry in client.record.entries), "a refusal")
    assert not client.up


def test_many_clients_back_at_nearby_positions_cost_redis_a_few_reads(ground: LogGround) -> None:
    """Tens for all of them together, not some for each: counted by Redis itself."""
    swarm = ground.clients(200).open(at_once=100)
    groups = [swarm.clients[start : start + 20] for start in range(0, 200, 20)]
    for group in groups:
        # Ten different positions, a few events apart.
        wait_for_offset(swarm, ground.publish(3)[-1]) if group is groups[0] else ground.publish(3)
        swarm.each(lambda client: client.leave(), group)
    ground.publish(300)
    ground.redis.call("CONFIG", "RESETSTAT")
    swarm.reopen()
    wait_for_offset(swarm, 330)
    # A page is an XRANGE and an HGET in one round trip; the fences' functions call XRANGE too.
    reads = ground.redis.call("INFO", "commandstats")["cmdstat_hget"]["calls"]
    # The events in pages, and the last page again for each time that it had grown.
    assert reads <= 2 * (330 // PAGE_OFFSETS + 1) + 10
    ground.check(swarm)
