"""Asking for the past: `subscribe` with `since`, and `replay` of a range."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.log_clients import DEADLINE_S, Grounds, LogGround, ask, offsets, wait_for_offset


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """A gateway with a namespace for each test."""
    with Grounds(tmp_path_factory.mktemp("grounds"), 25, write_deadline_s=60, read_burst=64, read_per_s=20) as grounds:
        yield grounds


@pytest.fixture
def ground(grounds: Grounds) -> Iterator[LogGround]:
    """A namespace with ten events: odd ones are orders, even ones bills."""
    with grounds.fresh() as ground:
        for number in range(1, 11):
            ground.publish(1, "orders.1" if number % 2 else "bills.1")
        yield ground


def subscribe(ground: LogGround, **request: Any) -> tuple[Any, Any, Any]:
    """Connect a client without patterns and subscribe it; return swarm, client, acknowledgement."""
    swarm, client = ground.client("nothing")
    return swarm, client, ask(swarm, client, "subscribe", request)


@pytest.mark.parametrize(
    ("since", "pattern", "expected"),
    [
        ({"offset": 6}, "#", range(7, 11)),
        ({"time": 0}, "bills.*", range(2, 11, 2)),
        ({"last": 2}, "orders.*", [7, 9]),
    ],
)
def test_a_subscription_begins_in_the_past_and_goes_on_live(ground: LogGround, since: Any, pattern: str, expected: Any) -> None:
    """In order, each once, with no seam between."""
    swarm, client, answer = subscribe(ground, pattern=pattern, since=since)
    assert answer["ok"]
    live = ground.publish(1, "orders.1")[0], ground.publish(1, "bills.1")[0]
    wanted = [*expected, *(offset for offset in live if _is_wanted(pattern, offset))]
    swarm.wait(lambda: len(offsets(client)) >= len(wanted), "the events")
    ask(swarm, client, "unsubscribe", {"pattern": "nothing"})  # whatever was under way has come before this answer
    assert offsets(client) == wanted


def _is_wanted(pattern: str, offset: int) -> bool:
    return pattern == "#" or (offset % 2 == 1) == (pattern == "orders.*")


def test_a_time_is_looked_up_in_the_log(ground: LogGround) -> None:
    """The events since then by Redis' clock: a moment that lies between two events finds the second."""
    seconds, micros = ground.redis.call("TIME")
    middle_ms = int(seconds) * 1000 + int(micros) // 1000 + 2
    deadline = time.monotonic() + DEADLINE_S
    while int(ground.redis.call("TIME")[0]) * 1000 + int(ground.redis.call("TIME")[1]) // 1000 <= middle_ms:
        assert time.monotonic() < deadline
    later = ground.publish(2)
    swarm, client, answer = subscribe(ground, pattern="#", since={"time": middle_ms})
    assert answer["ok"]
    swarm.wait(lambda: len(offsets(client)) >= 2, "the events since then")
    assert offsets(client) == later


def test_a_range_is_replayed_in_the_acknowledgement(ground: LogGround) -> None:
    """Topic, data and meta of what matches; `next` is null when that was all."""
    swarm, client = ground.client("nothing")
    answer = ask(swarm, client, "replay", {"pattern": "orders.*", "from": 3, "to": 8})
    assert answer["ok"]
    assert [(topic, meta["offset"], meta["replayed"]) for topic, _, meta in answer["events"]] == [
        ("orders.1", 3, True), ("orders.1", 5, True), ("orders.1", 7, True),
    ]  # fmt: skip
    assert answer["events"][0][1]["id"] == answer["events"][0][2]["id"]
    assert answer["next"] is None
    assert offsets(client) == []


def test_a_long_range_is_replayed_page_by_page(ground: LogGround) -> None:
    """`next` says where to go on; together the pages are the range, each event once, and none is larger than its bound."""
    ground.publish(250, "orders.1", size=1000)
    swarm, client = ground.client("nothing")
    found, first, pages = [], 1, 0
    while first is not None:
        answer = ask(swarm, client, "replay", {"pattern": "#", "from": first, "to": 260})
        assert sum(len(str(data)) for _, data, _ in answer["events"]) < 2 * 65536
        found += [meta["offset"] for _, _, meta in answer["events"]]
        first, pages = answer["next"], pages + 1
    assert found == list(range(1, 261))
    assert pages > 3


def test_a_range_that_is_gone_is_replayed_as_nothing(ground: LogGround) -> None:
    """The offsets say what is missing."""
    ground.redis.call("XTRIM", ground.log, "MINID", 5)
    swarm, client = ground.client("nothing")
    answer = ask(swarm, client, "replay", {"pattern": "#", "from": 1, "to": 6})
    assert ([meta["offset"] for _, _, meta in answer["events"]], answer["next"]) == ([5, 6], None)
    answer = ask(swarm, client, "replay", {"pattern": "#", "from": 1000, "to": 2000})
    assert (answer["events"], answer["next"]) == ([], None)


def test_a_gap_of_a_drop_subscription_is_repaired_by_replay(ground: LogGround) -> None:
    """What it was told of, it can have."""
    swarm, client = ground.client("orders.*", overflow="drop", receive_buffer_bytes=4096)
    witness, _ = ground.client("bills.*")
    swarm.each(lambda one: one.stall())
    ground.publish(600, "orders.1", size=2000)
    wait_for_offset(witness, ground.publish(1, "bills.1")[-1])  # the gateway has dealt with all before it
    swarm.each(lambda one: one.read_on())
    swarm.wait(lambda: bool(client.record.gaps()), "a gap")
    (gap,) = client.record.gaps()
    assert (gap.reason, gap.recoverable) == ("overflow", True)
    repaired: list[int] = []
    first = gap.first
    while first is not None:
        answer = ask(swarm, client, "replay", {"pattern": "orders.*", "from": first, "to": gap.last})
        repaired += [meta["offset"] for _, _, meta in answer["events"]]
        first = answer["next"]
    assert len(repaired) == gap.count
    assert sorted({*offsets(client), *repaired}) == list(range(11, 611))
