"""What the demo keeps in Redis: orders and a secret, for the processes that follow and those beside."""

from __future__ import annotations

import pytest

from headgate.errors import BusUnavailable
from headgate_server.demo.kept import SECRET_BYTES, Kept
from headgate_server.demo.orders import OrderBook
from headgate_server.demo.tokens import DemoTokens


def kept(redis_url: str) -> Kept:
    """What another process sees."""
    return Kept(lambda: redis_url)


def test_a_token_outlives_the_server_that_issued_it(redis_url: str) -> None:
    """The secret is made once: the next server takes the token, and so does one beside it."""
    token = DemoTokens(kept(redis_url).secret).issue("ana")
    assert DemoTokens(kept(redis_url).secret).verify(token) == "ana"
    assert len(kept(redis_url).secret()) >= SECRET_BYTES


def test_orders_outlive_the_server(redis_url: str) -> None:
    """As people left them: one is new, one changed, one gone."""
    book = OrderBook(lambda _topic, _data: None, keep=kept(redis_url))
    first, second = book.all()[:2]
    made = book.create("ana")
    changed = book.change(first.id, {"version": first.version, "note": "caf\u00e9"}, "ben")
    book.delete(second.id, second.version, "ben")
    after = {order.id: order for order in OrderBook(lambda _topic, _data: None, keep=kept(redis_url)).all()}
    assert (after[made.id], after[first.id], second.id in after) == (made, changed, False)
    assert after == {order.id: order for order in book.all()}


def test_a_redis_that_is_not_there_is_an_error_and_not_an_empty_book() -> None:
    """The caller is told that the bus is unavailable, and what is kept stays as it is."""
    with pytest.raises(BusUnavailable):
        OrderBook(lambda _topic, _data: None, keep=kept("redis://127.0.0.1:1/0")).all()
