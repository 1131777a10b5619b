"""Trouble of the demo: only where there is an operator, one at a time, bounded, and on time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate.errors import BusUnavailable, HeadgateError, LimitReached
from headgate_server.demo.orders import OrderBook
from headgate_server.demo.trouble import AWAY_EVENTS, EVENTS_PER_S, MAX_EVENTS_AT_ONCE, Troubles


class World:
    """Troubles on a clock that the test moves, with an operator that restarts nothing, and loses what the test chooses."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.while_away: list[Callable[[], object]] = []
        self.newest = (0, 0)
        self.error: Exception | None = None
        self.times_s: list[float] = []
        self.during: Callable[[], object] = lambda: None
        self.saved = 0
        self.book = OrderBook(self.publish, keep=self)
        self.troubles = Troubles(self.book, now_s=lambda: self.now_s, sleep=self.sleep)

    def publish(self, events: Sequence[Any]) -> list[object]:
        self.during()
        self.times_s += [self.now_s] * len(events)
        return [self.error or "receipt"] * len(events)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def load(self) -> list[dict[str, Any]]:
        return []

    def save(self, _orders: list[dict[str, Any]]) -> None:
        self.saved += 1

    def restart(self, while_away: Callable[[], object]) -> None:
        self.while_away.append(while_away)

    def lose_end(self, seconds: float) -> tuple[int, int]:
        if self.error is not None:
            raise self.error
        return self.newest

    def burst(self, events: int, over_s: float = 0) -> int:
        return self.troubles.burst({"id": "abc", "events": events, "over_s": over_s}, "ana")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("events", "over_s"), [(1, 10), (40, 4), (60, 2), (500, 0.05), (500, 10)])
def test_a_burst_is_spread_over_its_time(world: World, events: int, over_s: float) -> None:
    """In slices, of which none has more than its share, and the last ends in time."""
    assert world.burst(events, over_s) == events
    took_s = [at - 1000.0 for at in world.times_s]
    assert len(took_s) == events
    assert all(nth * over_s / events <= at + 0.1 for nth, at in enumerate(took_s))
    assert took_s[-1] <= over_s


def test_a_slow_bus_does_not_stretch_a_burst(world: World) -> None:
    """The remaining events move closer together."""
    world.during = lambda: world.sleep(0.5 if len(world.times_s) < 5 else 0)
    world.burst(40, 4)
    assert world.times_s[-1] - 1000.0 <= 4


@pytest.mark.parametrize(
    "trouble", [lambda world: world.burst(10), lambda world: world.troubles.lose(world.lose_end)], ids=["burst", "loss"]
)
def test_a_trouble_that_fails_is_an_error_and_the_next_one_runs(world: World, trouble: Callable[[World], int]) -> None:
    """Nothing is held on to."""
    world.error = BusUnavailable("gone")
    with pytest.raises(BusUnavailable):
        trouble(world)
    world.error = None
    assert trouble(world) in (0, 10)


def test_there_is_one_trouble_at_a_time(world: World) -> None:
    """While a burst runs, no other trouble begins, and it goes on."""
    refused: list[HeadgateError] = []

    def meddle() -> None:
        others: list[Callable[[], object]] = [
            lambda: world.burst(1),
            lambda: world.troubles.lose(world.lose_end),
            lambda: world.troubles.restart(world.restart, "def", "ben"),
        ]
        for other in others:
            with pytest.raises(LimitReached, match="troubles at a time") as error:
                other()
            refused.append(error.value)

    world.during = meddle
    assert world.burst(5) == 5
    assert len(refused) == 3
    assert world.while_away == []


def test_so_many_events_a_second_are_published_and_no_more(world: World) -> None:
    """The refusal says when to try again."""
    for _ in range(MAX_EVENTS_AT_ONCE // 500):
        world.burst(500)
    with pytest.raises(LimitReached, match="events of bursts") as refused:
        world.burst(500)
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s >= 500 / EVENTS_PER_S
    world.now_s += refused.value.retry_after_s
    assert world.burst(500) == 500


def test_a_restart_publishes_when_the_operator_says_that_browsers_are_away(world: World) -> None:
    """Not before; and a process before its restart takes no more trouble, which would be lost with it."""
    assert world.troubles.restart(world.restart, "abc", "ana") == AWAY_EVENTS
    assert world.times_s == []
    world.while_away[0]()
    assert len(world.times_s) == AWAY_EVENTS
    with pytest.raises(LimitReached, match="troubles at a time"):
        world.troubles.lose(world.lose_end)


def test_a_restart_whose_burst_cannot_be_published_still_happens(world: World) -> None:
    """The page misses its events, and says so."""
    world.troubles.restart(world.restart, "abc", "ana")
    world.error = BusUnavailable("gone")
    world.while_away[0]()


def test_a_loss_is_counted_and_every_order_is_kept_again(world: World) -> None:
    """Redis has lost its newest writes of the orders too, and they are to survive the next restart."""
    world.newest = (100, 70)
    assert (world.troubles.lose(world.lose_end), world.saved) == (30, 1)
    world.newest = (70, 70)
    assert world.troubles.lose(world.lose_end) == 0  # a quiet second


def test_a_gateway_without_an_operator_has_no_trouble(demo: FlaskClient, as_ana: dict[str, str]) -> None:
    """Neither the buttons nor the actions, and the refusal says how to get them."""
    assert 'data-operator="no"' in demo.get("/").text
    for path in ("restart", "lose"):
        answer = demo.post(f"/demo/{path}", json={"id": "abc"}, headers=as_ana)
        assert (answer.status_code, "it takes `headgate demo`" in answer.get_json()["detail"]) == (404, True)


def test_trouble_needs_a_token(demo: FlaskClient, world: World, as_ana: dict[str, str]) -> None:
    """Another site's page cannot make a browser send one."""
    demo.application.extensions["headgate.operator"] = world
    assert 'data-operator="yes"' in demo.get("/").text
    for path in ("restart", "lose"):
        assert demo.post(f"/demo/{path}", json={"id": "abc"}).status_code == 401
    assert world.while_away == []
    assert demo.post("/demo/restart", json={"id": "a b"}, headers=as_ana).status_code == 400
    assert demo.post("/demo/lose", json={}, headers=as_ana).get_json() == {"lost": 0}
    answer = demo.post("/demo/restart", json={"id": "abc"}, headers=as_ana)
    assert (answer.status_code, answer.get_json()) == (202, {"published": AWAY_EVENTS})
