"""The user who deleted an order can restore it for all users; one clear message says when it is too late."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from headgate_server.demo.orders import MAX_DELETED
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop

# The least that an Undo is offered for, and what it is not offered beyond when nobody looks.
LEAST_MS = 10_000
MOST_MS = 20_500
# Ahead of the page's clock by the time that one request may take, and not so far that the client misses a ping.
AHEAD_S = 15


def delete(board: BoardPage, number: str) -> int:
    """Delete an order, and return the version of the deletion."""
    with board.page.expect_response(f"**/demo/orders/{number}") as deleted:
        board.button(f"Delete order {number}").click()
    return int(deleted.value.json()["version"])


def test_undo_brings_the_same_order_back_for_everybody(open_board: OpenBoard, shop: Shop) -> None:
    """The other user sees it go and come back, as it was."""
    number = shop.create()
    before = shop.change(number, note="Fragile")
    ana, ben = open_board("ana"), open_board("ben")
    delete(ana, number)
    expect(ana.notice(f"Deleted order {number}")).to_contain_text(before["customer"])
    expect(ben.card(number)).to_have_count(0)
    expect(ben.view.locator(".notice")).to_have_count(0)
    ana.button(f"Undo: restore order {number}").click()
    for board in (ana, ben):
        expect(board.card_in("new", number)).to_contain_text(before["customer"])
        expect(board.note(number)).to_have_value("Fragile")
    expect(ana.card(number)).to_be_focused()
    after = shop.order(number)
    assert after == {**before, "version": after["version"], "by": "ana"}
    told = dict.fromkeys(message[1] for message in ben.received if message[0] == "event" and number in message[1])
    assert list(told) == [f"orders.{number}.deleted", f"orders.{number}.restored"]


@pytest.mark.parametrize("held", ["nothing", "pointer", "focus"])
def test_an_undo_is_offered_for_long_enough(open_board: OpenBoard, shop: Shop, held: str) -> None:
    """For ten seconds at least; it expires, but not under the pointer or the focus of who is about to use it."""
    number = shop.create()
    ana = open_board("ana")
    ana.page.clock.install()
    ana.open()
    ana.page.clock.pause_at(ana.page.evaluate("Date.now()") / 1000 + AHEAD_S)
    ana.button(f"Delete order {number}").click()
    undo = ana.button(f"Undo: restore order {number}")
    expect(undo).to_be_visible()
    ana.page.mouse.move(5, 5)
    if held == "pointer":
        undo.hover()
    elif held == "focus":
        undo.focus()
    ana.page.clock.fast_forward(LEAST_MS)
    expect(undo).to_be_visible()
    if held != "nothing":
        ana.page.clock.fast_forward(MOST_MS)
        expect(undo).to_be_visible()
        ana.page.mouse.move(5, 5)
        ana.bell().focus()
    ana.page.clock.fast_forward(MOST_MS)
    expect(undo).to_have_count(0)


def test_an_undo_that_comes_too_late_says_so(open_board: OpenBoard, shop: Shop) -> None:
    """One message: the server has forgotten the order."""
    number = shop.create()
    ana = open_board("ana")
    delete(ana, number)
    ana.button(f"Undo: restore order {number}").hover()
    for _ in range(MAX_DELETED):
        shop.delete(shop.create())
    ana.button(f"Undo: restore order {number}").click()
    expect(ana.notice(f"Order {number} was not restored")).to_contain_text("can no longer be restored")
    expect(ana.card(number)).to_have_count(0)


def test_an_undo_does_not_undo_what_someone_else_did_meanwhile(open_board: OpenBoard, shop: Shop) -> None:
    """Ben has restored the order and changed it: Ana gets a message, and sees his version; or has deleted it again."""
    number, other = shop.create(), shop.create()
    ana = open_board("ana")
    shop.restore(number, delete(ana, number))
    shop.change(number, note="mine now")
    expect(ana.note(number)).to_have_value("mine now")
    ana.button(f"Undo: restore order {number}").click()
    expect(ana.notice(f"Order {number} is back already")).to_be_visible()
    expect(ana.note(number)).to_have_value("mine now")
    assert shop.order(number)["by"] == "ben"
    shop.restore(other, delete(ana, other))
    shop.delete(other)
    ana.button(f"Undo: restore order {other}").click()
    expect(ana.notice(f"Order {other} was not restored")).to_contain_text("was deleted again by ben in the meantime")
    expect(ana.card(other)).to_have_count(0)
