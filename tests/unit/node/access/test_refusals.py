"""Refusals: each is counted and reported; a client that is refused too often is disconnected."""

from typing import Any

from headgate.errors import BusUnavailable, Forbidden
from headgate.node.access.access import Refusals
from tests.support.held_clock import HeldClock
from tests.unit.node.connections import RecordedNamespace, joined

NO = Forbidden("subscribe to", "secret.#")


def test_one_refusal_too_many_ends_the_connection_once() -> None:
    """The answer is sent all the same."""
    done: list[tuple[Any, ...]] = []
    client = joined(RecordedNamespace(), "s", done).real()
    refusals = Refusals(3, HeldClock())
    for _ in range(3):
        assert refusals.refuse("notifications", client, NO)["code"] == "forbidden"
    assert done == []
    for _ in range(2):
        assert refusals.refuse("notifications", client, NO)["code"] == "forbidden"
    assert done == [("end", "s", "refused too often")]


def test_one_refusal_is_forgiven_each_second() -> None:
    """A page with a refusal now and then, for hours, means no harm."""
    done: list[tuple[Any, ...]] = []
    client, clock = joined(RecordedNamespace(), "s", done).real(), HeldClock()
    refusals = Refusals(3, clock)
    for _ in range(100):
        refusals.refuse("notifications", client, NO)
        clock.now_s += 1
    assert done == []


def test_a_refusal_that_may_be_tried_again_does_not_count() -> None:
    """While Redis is unreachable every client is refused, and none is at fault."""
    done: list[tuple[Any, ...]] = []
    client = joined(RecordedNamespace(), "s", done).real()
    refusals = Refusals(1, HeldClock())
    for _ in range(100):
        refusals.refuse("notifications", client, BusUnavailable("away"))
    assert done == []


def test_a_connection_that_is_over_leaves_nothing_behind() -> None:
    """Another connection of the same id starts from zero."""
    done: list[tuple[Any, ...]] = []
    client = joined(RecordedNamespace(), "s", done).real()
    refusals = Refusals(1, HeldClock())
    refusals.refuse("notifications", client, NO)
    refusals.forget("s")
    refusals.forget("s")
    refusals.refuse("notifications", client, NO)
    assert done == []
