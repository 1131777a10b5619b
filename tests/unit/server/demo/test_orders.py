"""Deleted orders of the demo: restored as they were, for a while, once, and never over what others have done meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from headgate.errors import BusUnavailable, InvalidRequest, LimitReached
from headgate_server.demo.orders import (
    MAX_DELETED,
    MAX_ORDERS,
    RESTORE_WITHIN_S,
    Order,
    OrderBook,
    OrderConflict,
    OrderDeletedAgain,
    OrderNotRestorable,
)


class Shop:
    """A book on a clock that the test moves; `published` is what boards hear, unless the bus is `down`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.down = False
        self.published: list[tuple[str, object]] = []
        self.book = OrderBook(self.publish, now_s=lambda: self.now_s)

    def publish(self, topic: str, data: object) -> None:
        if self.down:
            raise BusUnavailable("down")
        self.published.append((topic, data))

    def order(self, number: str) -> Order | None:
        return next((order for order in self.book.all() if order.id == number), None)

    def delete(self, number: str, by: str = "ana") -> int:
        """Delete an order at its present version; return the version of the deletion."""
        order = self.order(number)
        assert order is not None
        return self.book.delete(number, order.version, by).version


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_restored_order_is_as_it_was(shop: Shop) -> None:
    """But for who did it last, and a version of its own, above that of the deletion; both are published."""
    before = shop.order("42")
    assert before is not None
    version = shop.delete("42")
    back = shop.book.restore("42", version, "ben")
    assert back == replace(before, version=back.version, by="ben") == shop.order("42")
    assert back.version > version > before.version
    assert [topic for topic, _ in shop.published] == ["orders.42.deleted", "orders.42.restored"]
    assert shop.published[-1][1] == asdict(back)


def test_an_order_that_is_back_is_not_restored_again(shop: Shop) -> None:
    """The refusal holds what it is now, whatever was done with it since."""
    version = shop.delete("42")
    back = shop.book.restore("42", version, "ben")
    changed = shop.book.change("42", {"version": back.version, "note": "kept"}, "ben")
    with pytest.raises(OrderConflict) as refused:
        shop.book.restore("42", version, "ana")
    assert refused.value.to_wire()["current"] == asdict(changed)
    assert changed == shop.order("42")


def test_only_the_last_deletion_of_an_order_can_be_undone(shop: Shop) -> None:
    """An Undo of an earlier one does not undo what someone else meant."""
    first = shop.delete("42")
    shop.book.restore("42", first, "ben")
    second = shop.delete("42", "ben")
    with pytest.raises(OrderDeletedAgain, match="deleted again by ben"):
        shop.book.restore("42", first, "ana")
    assert shop.order("42") is None
    assert shop.book.restore("42", second, "ana") == shop.order("42")


def test_an_order_is_restored_for_a_while_only(shop: Shop) -> None:
    """Until the time is over it is; then the refusal says how long it was."""
    early, late = shop.delete("42"), shop.delete("41")
    shop.now_s += RESTORE_WITHIN_S - 1
    shop.book.restore("42", early, "ana")
    shop.now_s += 1
    with pytest.raises(OrderNotRestorable, match="for 120 s"):
        shop.book.restore("41", late, "ana")
    assert shop.order("41") is None


def test_so_many_deleted_orders_are_remembered_and_no_more(shop: Shop) -> None:
    """The oldest is forgotten first."""
    gone: list[tuple[str, int]] = []
    for _ in range(MAX_DELETED + 1):
        number = shop.book.create("ana").id
        gone.append((number, shop.delete(number)))
    with pytest.raises(OrderNotRestorable):
        shop.book.restore(*gone[0], "ana")
    for number, version in gone[1:]:
        shop.book.restore(number, version, "ana")


def test_a_full_book_restores_nothing(shop: Shop) -> None:
    """The limit is the same as for new orders; with room again it can be undone."""
    version = shop.delete("42")
    while len(shop.book.all()) < MAX_ORDERS:
        shop.book.create("ana")
    with pytest.raises(LimitReached):
        shop.book.restore("42", version, "ana")
    shop.delete("41")
    assert shop.book.restore("42", version, "ana") == shop.order("42")


def test_an_order_whose_event_cannot_be_published_is_not_restored(shop: Shop) -> None:
    """Nobody's board shows what the book does not hold; the Undo works when the bus does."""
    version = shop.delete("42")
    shop.down = True
    with pytest.raises(BusUnavailable):
        shop.book.restore("42", version, "ana")
    assert shop.order("42") is None
    shop.down = False
    assert shop.book.restore("42", version, "ana") == shop.order("42")


def test_an_undo_needs_the_version_of_the_deletion(shop: Shop) -> None:
    """Anything but a number is refused."""
    shop.delete("42")
    for version in (None, True, "1"):
        with pytest.raises(InvalidRequest):
            shop.book.restore("42", version, "ana")


class Kept:
    """What outlives a process, as JSON; `down` while Redis is unreachable."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.down = False

    def load(self) -> list[dict[str, Any]]:
        self._check()
        return [json.loads(row) for row in self.rows.values()]

    def save(self, orders: Iterable[Mapping[str, Any]]) -> None:
        self._check()
        self.rows |= {order["id"]: json.dumps(order) for order in orders}

    def forget(self, order_id: str) -> None:
        self._check()
        del self.rows[order_id]

    def _check(self) -> None:
        if self.down:
            raise BusUnavailable("down")

    def book(self, at_s: float = 1_000.0) -> OrderBook:
        """The book of another process, which begins at this time."""
        return OrderBook(lambda _topic, _data: None, keep=self, clock_s=lambda: at_s)


def test_orders_outlive_the_process() -> None:
    """The next process has each of them as people left it, numbers and versions go on, and what was deleted stays deleted."""
    kept = Kept()
    before = kept.book()
    first, second = before.all()[:2]
    made = before.create("ana")
    moved = before.change(first.id, {"version": first.version, "status": "shipped", "note": "caf\u00e9"}, "ana")
    before.delete(second.id, second.version, "ben")
    before.scan(1, "ana", {"id": "abc"})
    before.keep_all()
    after = kept.book(500.0)  # a clock that went back
    assert after.all() == sorted(before.all(), key=lambda order: int(order.id))
    assert moved in after.all()
    newer = after.create("ben")
    assert (int(newer.id), newer.version > max(order.version for order in before.all())) == (int(made.id) + 1, True)


def test_a_kept_order_of_another_form_is_left_out() -> None:
    """Another release may have kept other fields; the rest of the book is read."""
    kept = Kept()
    orders = kept.book().all()
    kept.rows["42"] = json.dumps({"id": "42", "colour": "red"})
    assert [order.id for order in kept.book().all()] == sorted((each.id for each in orders if each.id != "42"), key=int)


def test_a_book_that_cannot_be_read_is_no_seeded_one() -> None:
    """While Redis is unreachable there are no orders to show, and afterwards the kept ones."""
    kept = Kept()
    made = kept.book().create("ana")
    book = kept.book()
    kept.down = True
    with pytest.raises(BusUnavailable):
        book.all()
    kept.down = False
    assert made in book.all()


def test_a_change_that_cannot_be_kept_still_counts() -> None:
    """It is published, so boards show it, and this process goes on with it."""
    kept = Kept()
    book = kept.book()
    order = book.all()[0]
    kept.down = True
    assert book.change(order.id, {"version": order.version, "note": "published"}, "ana") in book.all()


def test_everyone_but_the_one_who_failed_an_order_gets_an_item() -> None:
    """An order that is moved on or noted makes none."""
    published: list[tuple[str, object]] = []
    book = OrderBook(lambda topic, data: published.append((topic, data)), users=("ana", "ben", "eve"))
    for status in ("new", "failed"):
        book.change("42", {"version": next(order.version for order in book.all() if order.id == "42"), "status": status}, "ana")
    item = {"order": "42", "customer": "Haruto Tanaka", "by": "ana"}
    assert published[2:] == [("users.ben.inbox.orders.failed", item), ("users.eve.inbox.orders.failed", item)]
