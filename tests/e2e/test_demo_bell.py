"""The bell is the user's inbox: one notification, for its user, until it is read."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop
from tests.support.gateway_process import GatewayProcess, StartGateway


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayProcess:
    """A gateway of each test's own, so that each begins with empty inboxes."""
    return start_gateway(None, "--demo")


@pytest.mark.nightly
def test_an_item_is_for_the_others_and_kept_until_it_is_read(open_board: OpenBoard, shop: Shop) -> None:
    """Ben fails an order: Ana has an item and a notice that names him, and he has none. Reading it lowers the count.

    The keyboard opens the bell (Enter), goes in (Tab), closes it and has the focus back (Escape).
    """
    ana, ben = open_board("ana"), open_board("ben")
    shop.move("42", "failed")
    shop.move("41", "shipped")
    expect(ana.notice("Order 42 failed")).to_contain_text("by Ben")
    expect(ana.bell()).to_have_accessible_name("Notifications of Ana, 2 unread")
    expect(ana.page).to_have_title("(2) Orders · Headgate demo")
    expect(ben.bell()).to_have_accessible_name("Notifications of Ben")
    ana.tab_to(ana.bell())
    ana.page.keyboard.press("Enter")
    panel = ana.page.get_by_role("dialog", name="Notifications of Ana")
    expect(panel).to_be_visible()
    ana.page.keyboard.press("Tab")
    expect(ana.button("Mark all as read")).to_be_focused()
    ana.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(ana.bell()).to_be_focused()
    ana.bell().click()
    expect(ana.item("Order 42 failed")).to_contain_text("Haruto Tanaka · by Ben")
    ana.button("Mark as read: Order 42 failed").click()
    expect(ana.bell()).to_have_accessible_name("Notifications of Ana, 1 unread")
    ana.button("Mark all as read").click()
    expect(ana.bell()).to_have_accessible_name("Notifications of Ana")
    expect(ana.view.locator(".item")).to_have_count(2)
