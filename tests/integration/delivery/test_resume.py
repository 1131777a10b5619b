"""Resuming: a client that comes back goes on where it was, or is told what is gone, and Redis hardly notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.delivery.page_cache import PAGE_OFFSETS
from tests.support.log_clients import Grounds, LogGround, ask, noted, offsets, resumed, wait_for_offset


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """A gateway with a namespace for each test."""
    with Grounds(tmp_path_factory.mktemp("grounds"), 20) as grounds:
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


def test_a_client_that_missed_nothing_is_resumed_without_reading(ground: LogGround) -> None:
    """Its position is where the live feed is."""
    swarm, client = ground.client()
    wait_for_offset(swarm, ground.publish(3)[-1])
    swarm.leave()
    swarm.open()
    wait_for_offset(swarm, ground.publish(1)[-1])
    assert resumed(client) == [None, True]
    ground.check(swarm)


def test_only_what_its_patterns_match_comes_back(ground: LogGround) -> None:
    """And the position moves on past the rest."""
    swarm, client = ground.client("bills.*")
    ground.publish(5, "orders.1")
    wait_for_offset(swarm, ground.publish(1, "bills.1")[-1])
    swarm.leave()
    ground.publish(100, "orders.1")
    ground.publish(1, "bills.2")
    ground.publish(100, "orders.1")
    swarm.open()
    wait_for_offset(swarm, ground.publish(1, "bills.3")[-1])
    assert offsets(client) == [6, 107, 208]
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


def test_a_position_that_the_log_has_never_reached_is_not_in_it(ground: LogGround) -> None:
    """A log that stepped back, or a client that makes it up."""
    swarm, client = ground.client()
    wait_for_offset(swarm, ground.publish(3)[-1])
    swarm.leave()
    client.offset = 1000
    swarm.open()
    wait_for_offset(swarm, ground.publish(1)[-1])
    assert resumed(client) == [None, False]
    assert [gap.reason for gap in client.record.gaps()] == ["log_lost"]
    assert offsets(client)[-1] == 4


@pytest.mark.parametrize("point", [{"epoch": "x", "offset": 1}, {"offset": 1}, {"epoch": "a" * 16, "offset": -1}, 5])
def test_a_point_that_is_none_is_refused(ground: LogGround, point: object) -> None:
    """Not taken for "nothing to resume", which would hide a loss."""
    swarm = ground.clients(1)
    client = swarm.clients[0]
    client.resume_point = point
    swarm.run(client.open())
    swarm.wait(lambda: any("invalid_request" in str(entry) for entry in client.record.entries), "a refusal")
    assert not client.up


def test_a_subscription_after_the_welcome_begins_where_it_is_acknowledged(ground: LogGround) -> None:
    """The resume point is the handshake's patterns' alone."""
    swarm, client = ground.client("orders.*")
    wait_for_offset(swarm, ground.publish(3)[-1])
    swarm.leave()
    ground.publish(5, "bills.1")
    swarm.open()
    swarm.each(lambda one: one.subscribe("bills.*"))
    assert ask(swarm, client, "subscribe", {"pattern": "bills.*"})["ok"]
    wait_for_offset(swarm, ground.publish(1, "bills.1")[-1])
    assert offsets(client) == [1, 2, 3, 9]


def test_an_idle_client_gets_a_cursor_when_it_has_resumed(ground: LogGround) -> None:
    """Nothing matched, so no event moved its position; the next resume must not read it all again."""
    swarm, client = ground.client("bills.*")
    wait_for_offset(swarm, ground.publish(1, "bills.1")[-1])
    swarm.leave()
    other, _ = ground.client()  # tells when the feed has come that far; before, there is nothing to tell
    last = ground.publish(50, "orders.1")[-1]
    wait_for_offset(other, last)
    swarm.open()
    wait_for_offset(swarm, last)
    assert offsets(client) == [1]


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


def test_a_trimmed_log_is_one_gap(tmp_path: Path) -> None:
    """From the client's position to the oldest event, then what there is."""
    with Grounds(tmp_path, 1, log_max_events=50) as grounds, grounds.fresh() as ground:
        swarm, client = ground.client()
        wait_for_offset(swarm, ground.publish(3)[-1])
        swarm.leave()
        other, _ = ground.client()  # tells when the feed has come that far; before, the position may still be in the log for it
        ground.publish(200)
        wait_for_offset(other, 203)
        swarm.open()
        wait_for_offset(swarm, 203)
        assert resumed(client) == [None, False]
        assert [(gap.first, gap.last, gap.count, gap.reason, gap.recoverable) for gap in client.record.gaps()] == [
            (4, 153, 150, "trimmed", False)
        ]
        assert offsets(client) == [1, 2, 3, *range(154, 204)]
        ground.check(swarm)


def test_a_log_that_was_emptied_by_hand_is_one_gap(ground: LogGround) -> None:
    """XTRIM to nothing: the head still says how far it had come."""
    swarm, client = ground.client()
    wait_for_offset(swarm, ground.publish(3)[-1])
    swarm.leave()
    ground.publish(20)
    ground.redis.call("XTRIM", ground.log, "MAXLEN", 0)
    swarm.open()
    wait_for_offset(swarm, ground.publish(1)[-1])
    assert [(gap.first, gap.last, gap.reason) for gap in client.record.gaps()] == [(4, 23, "trimmed")]
    assert offsets(client) == [1, 2, 3, 24]
    assert noted(client, "closed") == 1
    ground.check(swarm)
