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


def test_undo_brings_the_same_order_back_for_everybody(open_board: OpenBoard, shop: Shop) -> None:
    """The other user sees it go and come back, and gets a toast for the deletion and one for the restoration."""
    number = shop.create()
    before = shop.change(number, carrier="GLS", note="Fragile")
    ana, ben = open_board("ana"), open_board("ben")
    ben.choose("everything", True)
    ana.delete_button(number).click()
    expect(ana.deletion(number)).to_contain_text(f"Deleted order {number}")
    expect(ana.deletion(number)).to_contain_text(before["customer"])
    expect(ben.card(number)).to_have_count(0)
    expect(ben.deletion(number)).to_have_count(0)
    ana.undo_button(number).click()
    for board in (ana, ben):
        expect(board.card_in("new", number)).to_contain_text(before["customer"])
        expect(board.field(number, "carrier")).to_have_value("GLS")
        expect(board.field(number, "note")).to_have_value("Fragile")
    expect(ana.deletion(number)).to_have_count(0)
    after = shop.order(number)
    assert after == {**before, "version": after["version"], "by": "ana"}
    expect(ben.toast(f"Order {number} was deleted")).to_contain_text("by Ana")
    expect(ben.toast(f"Order {number} was restored")).to_contain_text("by Ana")
    assert [
        message[1] for message in ben.received if message[0] == "event" and number in message[1] and "replayed" not in message[3]
    ] == [
        f"orders.{number}.deleted",
        f"orders.{number}.restored",
    ]


def test_a_deletion_is_undone_with_the_keyboard_alone(open_board: OpenBoard, shop: Shop) -> None:
    """Enter deletes, and the Undo has the focus: Escape goes back to the board, Enter restores and goes to the card."""
    left, number = shop.create(), shop.create()
    ana = open_board("ana")
    ana.go_to(ana.delete_button(number))
    ana.page.keyboard.press("Enter")
    expect(ana.undo_button(number)).to_be_focused()
    ana.page.keyboard.press("Escape")
    expect(ana.deletion(number)).to_have_count(0)
    expect(ana.card(left)).to_be_focused()
    ana.go_to(ana.delete_button(left))
    ana.page.keyboard.press("Enter")
    expect(ana.undo_button(left)).to_be_focused()
    ana.page.keyboard.press("Enter")
    expect(ana.card(left)).to_be_focused()
    expect(ana.deletion(left)).to_have_count(0)
    assert shop.order(left)["by"] == "ana"


def test_a_deletion_is_told_to_who_cannot_see_it(open_board: OpenBoard, shop: Shop) -> None:
    """The status region is in the page before it has any text."""
    number = shop.create()
    ana = open_board("ana")
    region = ana.view.get_by_role("status", name="Deleted orders")
    expect(region).to_have_count(1)
    expect(region).to_have_text("")
    ana.delete_button(number).click()
    expect(region).to_contain_text(f"Deleted order {number}")


@pytest.fixture
def timed(open_board: OpenBoard) -> BoardPage:
    """A board with a clock that the test controls: it moves only when the test moves it."""
    board = open_board("ana")
    board.page.clock.install()
    board.open()
    board.page.clock.pause_at(board.page.evaluate("Date.now()") / 1000 + AHEAD_S)
    return board


def test_an_undo_is_offered_for_long_enough_and_goes_by_itself(timed: BoardPage, shop: Shop) -> None:
    """The notice stays for ten seconds at least, and expires."""
    number = shop.create()
    timed.delete_button(number).click()
    expect(timed.undo_button(number)).to_be_visible()
    timed.page.mouse.move(5, 5)
    timed.page.clock.fast_forward(LEAST_MS)
    expect(timed.undo_button(number)).to_be_visible()
    timed.page.clock.fast_forward(MOST_MS)
    expect(timed.deletion(number)).to_have_count(0)


@pytest.mark.parametrize("held", ["pointer", "focus"])
def test_an_undo_does_not_vanish_under_who_is_about_to_use_it(timed: BoardPage, shop: Shop, held: str) -> None:
    """The pointer on the notice or the focus in it keeps it; when both leave, its time starts."""
    number = shop.create()
    timed.delete_button(number).click()
    undo = timed.undo_button(number)
    if held == "pointer":
        undo.hover()
    else:
        undo.focus()
    timed.page.clock.fast_forward(3 * MOST_MS)
    expect(undo).to_be_visible()
    if held == "pointer":
        timed.page.mouse.move(5, 5)
    else:
        timed.view.locator("#bell").focus()
    timed.page.clock.fast_forward(LEAST_MS)
    expect(undo).to_be_visible()
    timed.page.clock.fast_forward(MOST_MS)
    expect(timed.deletion(number)).to_have_count(0)


def test_an_undo_that_comes_too_late_says_so(open_board: OpenBoard, shop: Shop) -> None:
    """One message replaces the Undo: the server has forgotten the order."""
    number = shop.create()
    ana = open_board("ana")
    ana.delete_button(number).click()
    expect(ana.undo_button(number)).to_be_visible()
    ana.undo_button(number).hover()
    for _ in range(MAX_DELETED):
        shop.delete(shop.create())
    ana.undo_button(number).click()
    expect(ana.deletion(number)).to_contain_text(f"Order {number} was not restored")
    expect(ana.deletion(number)).to_contain_text("can no longer be restored")
    expect(ana.undo_button(number)).to_have_count(0)
    expect(ana.deletion(number)).to_have_count(1)
    expect(ana.card(number)).to_have_count(0)


def test_an_undo_does_not_undo_what_someone_else_did_meanwhile(open_board: OpenBoard, shop: Shop) -> None:
    """Ben has restored the order and changed it: Ana gets a message, and sees his version."""
    number = shop.create()
    ana = open_board("ana")
    with ana.page.expect_response(f"**/demo/orders/{number}") as deleted:
        ana.delete_button(number).click()
    shop.restore(number, deleted.value.json()["version"])
    shop.change(number, note="mine now")
    expect(ana.field(number, "note")).to_have_value("mine now")
    ana.undo_button(number).click()
    expect(ana.deletion(number)).to_contain_text(f"Order {number} is back already")
    expect(ana.deletion(number)).to_contain_text("Ben changed it last")
    expect(ana.undo_button(number)).to_have_count(0)
    expect(ana.field(number, "note")).to_have_value("mine now")
    assert shop.order(number)["by"] == "ben"


def test_an_undo_does_not_undo_a_later_deletion(open_board: OpenBoard, shop: Shop) -> None:
    """Ben has restored the order and deleted it again: his deletion stands."""
    number = shop.create()
    ana = open_board("ana")
    with ana.page.expect_response(f"**/demo/orders/{number}") as deleted:
        ana.delete_button(number).click()
    shop.restore(number, deleted.value.json()["version"])
    shop.delete(number)
    ana.undo_button(number).click()
    expect(ana.deletion(number)).to_contain_text("was deleted again by ben in the meantime")
    expect(ana.undo_button(number)).to_have_count(0)
    expect(ana.card(number)).to_have_count(0)


def test_an_undo_that_does_not_get_through_can_be_tried_again(open_board: OpenBoard, shop: Shop) -> None:
    """The message gives the reason, and the Undo stays."""
    number = shop.create()
    ana = open_board("ana")
    ana.delete_button(number).click()
    ana.page.route("**/restore", lambda route: route.abort(), times=1)
    ana.undo_button(number).click()
    expect(ana.deletion(number)).to_contain_text("the server cannot be reached")
    ana.undo_button(number).click()
    expect(ana.card(number)).to_be_visible()
    expect(ana.deletion(number)).to_have_count(0)
