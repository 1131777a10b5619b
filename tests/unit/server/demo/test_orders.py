"""Deleted orders of the demo: restored as they were, for a while, once, and never over what others have done meanwhile."""

from __future__ import annotations

from dataclasses import asdict, replace

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


def test_a_book_after_a_restart_has_larger_versions() -> None:
    """So boards that have seen the old ones take what it says."""
    before = OrderBook(lambda _topic, _data: None, clock_s=lambda: 1_000.0)
    after = OrderBook(lambda _topic, _data: None, clock_s=lambda: 1_001.0)
    newest = max(before.change(order.id, {"version": order.version, "note": "x"}, "ana").version for order in before.all())
    assert newest < after.since == min(order.version for order in after.all())
