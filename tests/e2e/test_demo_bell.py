"""The bell is the user's inbox: one notification, for its user, read everywhere, and still there after a restart."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import VIEWPORT, OpenBoard
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


@pytest.mark.nightly
def test_what_is_read_in_one_pane_is_read_in_the_other_and_after_a_restart(browser: Browser, gateway: GatewayProcess) -> None:
    """Two devices of Ana's beside each other. One shows the notice, both the item, and a fresh gateway the same."""
    with browser.new_context(viewport=VIEWPORT) as context:
        page = context.new_page()
        page.goto(f"{gateway.url}/?user=ana&twice=1")
        laptop, phone = BoardPage(page, gateway.url, "ana"), BoardPage(page, gateway.url, "ana", 1, listen=False)
        for device in (laptop, phone):
            device.wait_until_live()
        shop = Shop(gateway.url, "ben")
        shop.move("42", "failed")
        shop.move("41", "failed")
        for device in (laptop, phone):
            expect(device.bell()).to_have_accessible_name(re.compile("2 unread"))
        expect(page.locator(".notice", has_text="Order 42 failed")).to_have_count(1)
        laptop.bell().click()
        laptop.button("Mark as read: Order 42 failed").click()
        expect(phone.bell()).to_have_accessible_name(re.compile("1 unread"))
        gateway.stop()
        gateway.start()
        page.goto(f"{gateway.url}/?user=ana&twice=1")
        for device in (laptop, phone):
            expect(device.bell()).to_have_accessible_name(re.compile("1 unread"))
        phone.bell().click()
        expect(phone.item("Order 42 failed")).to_have_attribute("data-read", "yes")
        expect(phone.item("Order 41 failed")).to_have_attribute("data-read", "no")
        assert laptop.faults == []
