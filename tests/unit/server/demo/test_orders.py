"""The book of the demo: published before it counts, bounded, and the same in the next process."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate_server.demo.orders import MAX_ORDERS, OrderBook


class World:
    """A bus that refuses from the `refused`-th event on, and the lasting part of a process, as JSON; `down` without Redis."""

    def __init__(self) -> None:
        self.published: list[tuple[str, Any]] = []
        self.refused: int | None = None
        self.kept = "[]"
        self.down = False

    def book(self, at_s: float = 1_000.0) -> OrderBook:
        """The book of another process, which begins at this time."""
        return OrderBook(self.publish, users=("ana", "ben", "eve"), keep=self, clock_s=lambda: at_s)

    def publish(self, events: Sequence[tuple[str, object, str | None]]) -> list[object]:
        outcomes: list[object] = []
        for topic, data, _ in events:
            if self.refused is not None and len(self.published) >= self.refused:
                outcomes.append(BusUnavailable("refused"))
            else:
                self.published.append((topic, data))
                outcomes.append("receipt")
        return outcomes

    @contextmanager
    def locked(self) -> Iterator[None]:
        self._check()
        yield

    def load(self) -> list[dict[str, Any]]:
        self._check()
        orders: list[dict[str, Any]] = json.loads(self.kept)
        return orders

    def save(self, orders: list[dict[str, Any]]) -> None:
        self._check()
        self.kept = json.dumps(orders)

    def _check(self) -> None:
        if self.down:
            raise BusUnavailable("down")


@pytest.fixture
def world() -> World:
    return World()


def test_orders_outlive_the_process(world: World) -> None:
    """The next process has each of them as people left it, and numbers and versions go on."""
    before = world.book()
    made = before.create("ana")
    moved = before.move("42", "shipped", "ana")
    before.scan(range(1, 4), "ben", "abc")
    after = world.book(500.0)  # a clock that went back
    assert after.all() == before.all()
    assert {each.id: each for each in after.all()}["42"] == moved
    newest, newer = max(order.version for order in before.all()), after.create("ben")
    assert (int(newer.id), newer.version > newest) == (int(made.id) + 1, True)


def test_a_version_is_never_used_twice(world: World) -> None:
    """Not even after a refused publish, because boards may have seen it."""
    book = world.book()
    world.refused = 0
    with pytest.raises(BusUnavailable):
        book.move("42", "new", "ana")
    world.refused = None
    versions = [order.version for order in book.all()]
    assert book.move("42", "new", "ana").version == max(versions) + 2


def test_a_burst_cut_short_keeps_the_changes_that_were_published(world: World) -> None:
    """The caller gets the bus's error, and book and events agree."""
    book = world.book()
    world.refused = 5
    with pytest.raises(BusUnavailable):
        book.scan(range(1, 21), "ana", "abc")
    newest = {data["id"]: data["version"] for _, data in world.published}
    assert len(newest) == 5
    assert {order.id: order.version for order in book.all()} == {order.id: order.version for order in world.book().all()} | newest


def test_a_full_book_drops_its_oldest_order(world: World) -> None:
    """Every page is notified, and a number is never used twice."""
    book = world.book()
    oldest = book.all()[0]
    made = [book.create("ana").id for _ in range(MAX_ORDERS + 1 - len(book.all()))]
    assert len(book.all()) == MAX_ORDERS
    assert oldest.id not in [order.id for order in book.all()]
    assert [topic for topic, _ in world.published[-2:]] == [f"orders.{oldest.id}.deleted", f"orders.{made[-1]}.created"]


def test_everyone_but_the_one_who_failed_an_order_gets_an_item(world: World) -> None:
    """An order that fails once more, or is moved on, makes none."""
    book = world.book()
    for status in ("new", "failed", "failed"):
        book.move("42", status, "ana")
    topics = [topic for topic, _ in world.published]
    items = [f"users.{user}.inbox.orders.failed" for user in ("ben", "eve")]
    assert topics == ["orders.42.updated", "orders.42.failed", *items, "orders.42.updated"]


def test_a_kept_order_of_another_form_is_left_out(world: World) -> None:
    """Another release may have kept other fields, and the rest of the book is read."""
    orders = [asdict(order) for order in world.book().all()]
    world.kept = json.dumps([{"id": "42", "colour": "red"}, *orders[:3]])
    assert [asdict(order) for order in world.book().all()] == orders[:3]


def test_a_book_that_cannot_be_read_is_no_seeded_one(world: World) -> None:
    """While Redis is unreachable there are no orders to show, and afterwards the kept ones."""
    made = world.book().create("ana")
    book = world.book()
    world.down = True
    with pytest.raises(BusUnavailable):
        book.all()
    world.down = False
    assert made in book.all()


def test_a_change_that_cannot_be_kept_still_counts(world: World) -> None:
    """It is published, so boards show it, and this process goes on with it."""
    book = world.book()
    book.all()
    world.down = True
    assert book.move("42", "new", "ana") in book.all()


def test_processes_beside_each_other_have_one_book(world: World) -> None:
    """Workers and gateways of one Redis. None overwrites the change of another one, and numbers go on over all."""
    one, other = world.book(), world.book(2_000.0)
    first, second = one.create("ana"), other.create("ben")
    moved = one.move("42", "shipped", "ana")
    assert int(second.id) == int(first.id) + 1
    assert one.all() == other.all() == world.book().all()
    assert {first, second, moved} <= set(one.all())


def test_a_redis_that_has_lost_the_end_gets_it_again_with_the_next_change(world: World) -> None:
    """The process that made the change still has it."""
    book = world.book()
    book.all()
    before = world.kept
    moved = book.move("42", "shipped", "ana")
    world.kept = before
    made = book.create("ana")
    assert {moved, made} <= set(world.book().all())
