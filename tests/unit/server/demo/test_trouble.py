"""Trouble of the demo: only where there is an operator, one at a time, not too often, and told in the record of a burst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.errors import BusUnavailable, InvalidRequest, LimitReached
from headgate_server.demo.bursts import Bursts
from headgate_server.demo.orders import OrderBook
from headgate_server.demo.trouble import AWAY_EVENTS, MAX_PER_WINDOW, WINDOW_S, Loss, Trouble


class RecordingOperator:
    """Restarts nothing, and loses what the test says."""

    def __init__(self, carried: Mapping[str, Any] | None = None) -> None:
        self.carried: Mapping[str, Any] = carried or {}
        self.while_away: list[Callable[[], Mapping[str, object]]] = []
        self.newest = (0, 0)
        self.error: Exception | None = None
        self.lost: list[float] = []

    def restart(self, while_away: Callable[[], Mapping[str, object]]) -> None:
        self.while_away.append(while_away)

    def lose_end(self, seconds: float) -> tuple[int, int]:
        if self.error is not None:
            raise self.error
        self.lost.append(seconds)
        return self.newest


class World:
    """A trouble with its bursts, on a clock that the test moves."""

    def __init__(self, carried: Mapping[str, Any] | None = None, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.operator = RecordingOperator(carried)
        self.scans: list[Mapping[str, object]] = []
        self.bursts = Bursts(lambda turn, by, stamp: self.scans.append(stamp), now_s=lambda: self.now_s)
        self.kept: list[str] = []
        self.book = OrderBook(lambda topic, data: None, keep=self, clock_s=lambda: self.now_s)
        self.trouble = Trouble(self.operator, self.bursts, self.book, now_s=lambda: self.now_s)

    def load(self) -> list[dict[str, Any]]:
        return []

    def save(self, orders: Iterable[Mapping[str, Any]]) -> None:
        self.kept.extend(order["id"] for order in orders)

    def forget(self, order_id: str) -> None:
        raise AssertionError(f"nothing deletes order {order_id}")


def test_a_restart_publishes_when_the_operator_says_that_browsers_are_away() -> None:
    """Not before; and what is carried over makes the next process know the burst and the trouble there was."""
    world = World()
    assert world.trouble.restart("abc", "ana") == AWAY_EVENTS
    assert world.scans == []
    carried = world.operator.while_away[0]()
    assert len(world.scans) == AWAY_EVENTS
    after = World(carried, now_s=1001.0)
    record = after.bursts.record("abc")
    assert (record.published, record.done, record.by) == (AWAY_EVENTS, True, "ana")
    for _ in range(MAX_PER_WINDOW - 1):
        after.trouble.lose("ana")
    with pytest.raises(LimitReached):
        after.trouble.lose("ana")


def test_a_restart_whose_burst_cannot_be_published_still_happens() -> None:
    """The page is told that the burst did not run: there is no record of it."""
    world = World()
    world.trouble.restart("abc", "ana")
    world.bursts.start({"id": "abc", "events": 1}, "ben")
    assert world.operator.while_away[0]()["burst"] is None


@pytest.mark.parametrize("burst_id", [None, "", "a b", 7])
def test_a_restart_needs_the_id_of_a_burst(burst_id: object) -> None:
    """A wrong one restarts nothing."""
    world = World()
    with pytest.raises(InvalidRequest):
        world.trouble.restart(burst_id, "ana")
    assert world.operator.while_away == []


def test_a_process_that_is_about_to_restart_takes_no_more_trouble() -> None:
    """It would be lost with it."""
    world = World()
    world.trouble.restart("abc", "ana")
    with pytest.raises(LimitReached, match="troubles at a time"):
        world.trouble.lose("ana")
    with pytest.raises(LimitReached, match="troubles at a time"):
        world.trouble.restart("def", "ana")


def test_a_loss_is_told_and_noted_in_the_record_of_the_last_burst() -> None:
    """Every page that asks for the record can compare it with what it was told."""
    world = World()
    world.bursts.start({"id": "abc", "events": 60}, "ana")
    world.operator.newest = (100, 70)
    assert world.trouble.lose("ana") == Loss(71, 100, 30)
    assert world.bursts.record("abc").lost == 30
    assert world.operator.lost == [1.0]


def test_every_order_is_kept_again_after_a_loss() -> None:
    """Redis has lost the newest writes to the kept orders too, and they are to survive the next restart."""
    world = World()
    orders = [order.id for order in world.book.all()]
    world.kept.clear()
    world.trouble.lose("ana")
    assert world.kept == orders


def test_a_quiet_second_loses_nothing() -> None:
    """The log ends where it ended."""
    world = World()
    world.operator.newest = (100, 100)
    assert world.trouble.lose("ana").count == 0


def test_a_loss_that_fails_can_be_tried_again() -> None:
    """The error is the operator's, and nothing is held on to."""
    world = World()
    world.operator.error = BusUnavailable("it does not start")
    with pytest.raises(BusUnavailable):
        world.trouble.lose("ana")
    world.operator.error = None
    assert world.trouble.lose("ana").count == 0


def test_trouble_is_possible_again_after_a_while() -> None:
    """At most so many in any window."""
    world = World()
    for _ in range(MAX_PER_WINDOW):
        world.trouble.lose("ana")
    with pytest.raises(LimitReached) as refused:
        world.trouble.lose("ana")
    assert refused.value.retry_after_s == WINDOW_S
    world.now_s += WINDOW_S
    world.trouble.lose("ana")


def test_a_gateway_without_an_operator_has_no_trouble(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """Neither the buttons nor the routes: nobody but who started the demo can have offered them."""
    page = demo.get("/").text
    assert 'data-operator="no"' in page
    for path in ("restart", "lose"):
        assert demo.post(f"/demo/{path}", json={"id": "abc"}, headers=as_ana).status_code == 404


def test_trouble_needs_a_token(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """Another site's page cannot make a browser send one."""
    operator = RecordingOperator()
    demo.application.extensions["headgate.operator"] = operator
    assert 'data-operator="yes"' in demo.get("/").text
    for path in ("restart", "lose"):
        assert demo.post(f"/demo/{path}", json={"id": "abc"}).status_code == 401
    assert operator.lost == []
    assert operator.while_away == []
    assert demo.post("/demo/lose", headers=as_ana).get_json() == {"first": 1, "last": 0, "count": 0}
    answer = demo.post("/demo/restart", json={"id": "abc"}, headers=as_ana)
    assert (answer.status_code, answer.get_json()) == (202, {"id": "abc", "events": AWAY_EVENTS})
