"""Toasts: they go by themselves unless someone looks, and leave the focus where it is of use."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop

# As long as a toast is shown, and a little more.
SHOWN_FOR_MS = 9500
# Ahead of the page's clock by the time that one request may take, and not so far that the client misses a ping.
AHEAD_S = 15


@pytest.fixture
def ana(open_board: OpenBoard) -> BoardPage:
    """A board with a clock that the test controls: it moves only when the test moves it."""
    board = open_board("ana")
    board.page.clock.install()
    board.open()
    board.page.clock.pause_at(board.page.evaluate("Date.now()") / 1000 + AHEAD_S)
    return board


def test_toasts_that_come_while_someone_looks_stay(ana: BoardPage, shop: Shop) -> None:
    """The pointer on one toast holds all of them, also new ones; when it leaves, they expire."""
    first = toast_of(ana, shop.create())
    first.hover()
    second = toast_of(ana, shop.create())
    ana.page.clock.fast_forward(SHOWN_FOR_MS)
    expect(second).to_be_visible()
    expect(first).to_be_visible()
    ana.page.mouse.move(5, 5)
    ana.page.clock.fast_forward(SHOWN_FOR_MS)
    expect(ana.view.locator(".toast")).to_have_count(0)


def test_dismissing_by_mouse_holds_nothing(ana: BoardPage, shop: Shop) -> None:
    """The element that had the focus has it again, and the other toasts expire in their time."""
    ana.field("31", "note").focus()
    first, second = (toast_of(ana, shop.create()) for _ in range(2))
    close(first).click()
    expect(first).to_have_count(0)
    expect(ana.field("31", "note")).to_be_focused()
    ana.page.mouse.move(5, 5)
    ana.page.clock.fast_forward(SHOWN_FOR_MS)
    expect(second).to_have_count(0)


def test_dismissing_by_keyboard_goes_from_one_to_the_next_and_back(ana: BoardPage, shop: Shop) -> None:
    """The focus is never lost; toasts wait while the user goes through them with the keyboard."""
    first, second = (toast_of(ana, shop.create()) for _ in range(2))
    # The last stop before the toasts.
    events = ana.view.locator("#timeline")
    events.focus()
    ana.page.keyboard.press("Tab")
    expect(close(first)).to_be_focused()
    ana.page.keyboard.press("Enter")
    expect(close(second)).to_be_focused()
    ana.page.clock.fast_forward(SHOWN_FOR_MS)
    expect(second).to_be_visible()
    ana.page.keyboard.press("Enter")
    expect(second).to_have_count(0)
    expect(events).to_be_focused()


def toast_of(board: BoardPage, number: str) -> Locator:
    """The toast of a new order, once it is there."""
    toast = board.toast(f"Order {number} came in")
    expect(toast).to_be_visible()
    return toast


def close(toast: Locator) -> Locator:
    return toast.get_by_role("button")
