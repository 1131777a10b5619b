"""Asking for the past: `subscribe` with `since`, and `replay` of a range."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from headgate.topic import matches
from tests.fault.many_clients import BrowserClient
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
        ({"offset": 0}, "#", range(1, 11)),
        ({"offset": 6}, "#", range(7, 11)),
        ({"offset": 10}, "#", []),
        ({"offset": 2**52}, "#", []),
        ({"offset": 0}, "orders.*", range(1, 11, 2)),
        ({"time": 0}, "bills.*", range(2, 11, 2)),
        ({"last": 3}, "#", [8, 9, 10]),
        ({"last": 2}, "orders.*", [7, 9]),
        ({"last": 1000}, "orders.*", range(1, 11, 2)),
        ({"last": 5}, "carts.#", []),
    ],
)
def test_a_subscription_begins_in_the_past_and_goes_on_live(ground: LogGround, since: Any, pattern: str, expected: Any) -> None:
    """In order, each once, with no seam between."""
    swarm, client, answer = subscribe(ground, pattern=pattern, since=since)
    assert answer["ok"]
    live = ground.publish(1, "orders.1")[0], ground.publish(1, "bills.1")[0]
    wanted = [*expected, *(offset for offset in live if pattern != "carts.#" and _is_wanted(pattern, offset))]
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


def test_the_past_of_one_pattern_does_not_disturb_another(ground: LogGround) -> None:
    """A client that is live for orders asks for the past of bills: no order comes twice."""
    swarm, client = ground.client("orders.*")
    first = ground.publish(3, "orders.1")
    wait_for_offset(swarm, first[-1])
    assert ask(swarm, client, "subscribe", {"pattern": "bills.*", "since": {"offset": 0}})["ok"]
    ground.publish(1, "orders.1")
    last = ground.publish(1, "bills.1")[-1]
    swarm.wait(lambda: last in offsets(client), "the last event")
    orders = [seen.offset for seen in client.record.seen() if seen.topic == "orders.1"]
    bills = [seen.offset for seen in client.record.seen() if seen.topic == "bills.1"]
    assert orders == [*first, last - 1]
    assert bills == [2, 4, 6, 8, 10, last]


def test_a_resume_and_the_past_of_a_new_pattern_go_together(ground: LogGround) -> None:
    """One handshake with both: each pattern gets what it has not had."""
    swarm, client = ground.client("orders.*")
    wait_for_offset(swarm, ground.publish(1, "orders.1")[-1])
    swarm.leave()
    missed = ground.publish(3, "orders.1")
    client.since["bills.*"] = {"last": 2}
    client.patterns["bills.*"] = "catch_up"
    swarm.open()
    last = ground.publish(1, "bills.1")[-1]
    swarm.wait(lambda: last in offsets(client), "the last event")
    assert [seen.offset for seen in client.record.seen() if seen.topic == "orders.1"] == [missed[0] - 1, *missed]
    assert [seen.offset for seen in client.record.seen() if seen.topic == "bills.1"] == [8, 10, last]


def test_the_pasts_of_as_many_patterns_as_a_client_may_have_come_together(ground: LogGround) -> None:
    """One handshake, each pattern with a past of its own, most of which hold nothing: in order, each event once, and on live."""
    for number in range(12):
        ground.publish(20, f"orders.{number}")
        ground.publish(5, "bills.1")
    pasts = {f"orders.{number}": {"last": 3 * number + 1} for number in range(12)}
    pasts |= {f"none.{number}": {"last": 1000} for number in range(80)}
    pasts |= {f"soon.{number}": {"time": number} for number in range(20)}
    pasts |= {f"none.{number}.*": {"last": 1000} for number in range(10)}
    pasts |= {"bills.#": {"last": 7}, "*.*": {"last": 30}, "#": {"offset": 305}, "bills.1": {"time": 0}}
    assert len(pasts) <= 128
    swarm = ground.clients(1, pasts)
    (client,) = swarm.clients
    client.since.update(pasts)
    swarm.open()
    live = ground.publish(1, "bills.1")[-1]
    swarm.wait(lambda: live in offsets(client), "the last event")
    topics = {event.offset: event.topic for event in ground.history.events.values()}
    wanted = {live, *range(306, live)}
    for pattern, since in pasts.items():
        matching = [offset for offset in sorted(topics) if offset < live and matches(pattern, topics[offset])]
        wanted.update(matching[-since["last"] :] if "last" in since else matching if "time" in since else [])
    assert offsets(client) == sorted(wanted)
    assert client.record.gaps() == []


def test_many_pasts_and_live_events_that_come_meanwhile_have_no_seam(ground: LogGround) -> None:
    """Published without a pause while clients join: each event once, none missing between a pattern's past and its present."""
    patterns = [f"orders.{number}" for number in range(100)]
    ground.publish(1, "orders.7")
    joined = Event()

    def publish_on() -> None:
        number = 0
        while not joined.is_set():
            ground.publish(1, f"orders.{number % 100}")
            number += 1

    publishing = Thread(target=publish_on)
    publishing.start()
    try:
        swarms = [ground.clients(1, patterns) for _ in range(10)]
        for swarm in swarms:
            swarm.clients[0].since.update({pattern: {"last": 2} for pattern in patterns})
            swarm.open()
    finally:
        joined.set()
        publishing.join()
    last = ground.publish(1, "orders.7")[-1]
    for swarm in swarms:
        (client,) = swarm.clients
        swarm.wait(lambda client=client: last in offsets(client), "the last event")  # type: ignore[misc]
        seen = offsets(client)
        assert seen == sorted(set(seen)), "twice, or out of order"
        for pattern in patterns:
            of_pattern = [event.offset for event in ground.history.events.values() if event.topic == pattern]
            told = [offset for offset in seen if offset in set(of_pattern)]
            assert told == [offset for offset in of_pattern if told and offset >= told[0]]


def test_who_asks_for_much_of_the_past_waits_for_it_and_the_others_do_not(ground: LogGround) -> None:
    """A page of the log at the pace that one may read at: slower, and never less. A Redis that stands still is asked again."""
    swarm, client = ground.client("nothing")
    witness, _ = ground.client("orders.*")
    answers: list[Any] = []
    pages = 80  # 64 at once, and then as the settings say; no faster than messages may come

    def ask_for_page(one: BrowserClient) -> None:
        def take(answer: Any) -> None:
            if not answer["ok"] and answer["error"]["code"] == "bus_unavailable":
                ask_for_page(one)
            else:
                answers.append(answer)

        one.request("replay", {"pattern": "#", "from": 1, "to": 10}, take)

    def ask_for_all(one: BrowserClient) -> None:
        for _ in range(pages):
            ask_for_page(one)

    swarm.each(ask_for_all, [client])
    wait_for_offset(witness, ground.publish(1, "orders.1")[-1])
    swarm.wait(lambda: len(answers) == pages, "every page")
    assert all(answer["ok"] and len(answer["events"]) == 10 for answer in answers)


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
