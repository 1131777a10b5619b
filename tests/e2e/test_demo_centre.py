"""The notification centre: it keeps each notification until the user reads it, as the user chose for its type."""

from __future__ import annotations

import re
from contextlib import closing

from playwright.sync_api import expect

from headgate.redis.client import call, open_client
from headgate.redis.data_folder import find_private_redis
from headgate.redis.keys import seen_key
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop, publish
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_server import DEADLINE_S, wait_until


def test_a_notification_is_kept_until_it_is_read(open_board: OpenBoard, shop: Shop) -> None:
    """The bell shows and names the count; the list names the event and its author; reading lowers the count."""
    number = shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed", note="Nobody home")
    shop.change(number, status="shipped", carrier="UPS")
    expect(ana.bell()).to_have_accessible_name("Notifications, 2 unread")
    ana.bell().click()
    expect(ana.notification(f"Order {number} failed")).to_contain_text("Nobody home")
    mark = ana.view.get_by_role("button", name=f"Mark as read: Order {number} failed", exact=True)
    mark.click()
    expect(mark).to_have_count(0)  # hidden: it is read
    expect(ana.bell()).to_have_accessible_name("Notifications, 1 unread")
    expect(ana.centre()).to_contain_text("1 unread")
    # The focus goes on to what is still to be read.
    expect(ana.view.get_by_role("button", name=f"Mark as read: Order {number} shipped", exact=True)).to_be_focused()


def test_a_notification_that_the_open_centre_shows_need_not_be_mailed(
    open_board: OpenBoard, shop: Shop, gateway: GatewayProcess
) -> None:
    """The page reports the notifications that the list shows, also new ones while it is open, and this user's only."""
    number = shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed")
    expect(ana.bell()).to_have_accessible_name("Notifications, 1 unread")
    with closing(open_client(find_private_redis(gateway.folder / "data") or "", timeout_s=DEADLINE_S)) as redis:
        before = call(redis, "ZCARD", seen_key("notifications", "ana"))
        ana.bell().click()
        wait_until(lambda: call(redis, "ZCARD", seen_key("notifications", "ana")) == before + 1, "the first is told")
        shop.change(number, status="shipped")
        wait_until(lambda: call(redis, "ZCARD", seen_key("notifications", "ana")) == before + 2, "the second is told")

        assert not call(redis, "EXISTS", seen_key("notifications", "ben"))


def test_all_is_read_at_once(open_board: OpenBoard, shop: Shop) -> None:
    """The count goes, the list stays, and no button is left to mark anything as read."""
    number = shop.create()
    ana = open_board("ana")
    for status in ("failed", "shipped", "failed"):
        shop.change(number, status=status)
    expect(ana.bell()).to_have_accessible_name("Notifications, 3 unread")
    ana.bell().click()
    ana.view.get_by_role("button", name="Mark all as read").click()
    expect(ana.bell()).to_have_accessible_name("Notifications")
    expect(ana.centre()).to_contain_text("All read")
    expect(ana.view.locator(".notification", has_text=f"Order {number} ")).to_have_count(4)  # and that it came in
    expect(ana.view.get_by_role("button", name="Mark as read")).to_have_count(0)


def test_the_centre_works_with_the_keyboard_alone(open_board: OpenBoard, shop: Shop) -> None:
    """Tab to the bell, Enter opens, Tab goes in, Escape closes and gives the focus back."""
    number = shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed")
    expect(ana.bell()).to_have_accessible_name("Notifications, 1 unread")
    ana.tab_to(ana.bell())
    ana.page.keyboard.press("Enter")
    expect(ana.centre()).to_be_visible()
    ana.page.keyboard.press("Tab")
    expect(ana.view.get_by_role("button", name="Mark all as read")).to_be_focused()
    ana.page.keyboard.press("Escape")
    expect(ana.centre()).to_be_hidden()
    expect(ana.bell()).to_be_focused()


def test_a_type_for_the_centre_only_makes_no_toast(open_board: OpenBoard, shop: Shop) -> None:
    """Its events are subscribed and listed, and make no toast."""
    number, other = shop.create(), shop.create()
    ana = open_board("ana")
    ana.prefer("shipped", "centre")
    shop.change(number, status="shipped")
    shop.change(other, status="failed")
    # Events come in order: when the later one is told, the earlier one would have been.
    expect(ana.toast(f"Order {other} failed")).to_be_visible()
    expect(ana.toast(f"Order {number} shipped")).to_have_count(0)
    ana.bell().click()
    expect(ana.notification(f"Order {number} shipped")).to_be_visible()
    expect(ana.notification(f"Order {other} failed")).to_be_visible()
    assert ana.asked("unsubscribe") == []


def test_a_type_that_is_off_reaches_neither(open_board: OpenBoard, shop: Shop) -> None:
    """The client unsubscribes from it; its older notifications stay."""
    number, other = shop.create(), shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed")
    expect(ana.bell()).to_have_accessible_name("Notifications, 1 unread")
    ana.prefer("failed", "off")
    assert ana.asked("unsubscribe") == ["orders.*.failed"]
    shop.change(other, status="failed")
    shop.change(other, status="shipped")
    expect(ana.bell()).to_have_accessible_name("Notifications, 2 unread")
    ana.bell().click()
    expect(ana.notification(f"Order {number} failed")).to_be_visible()
    expect(ana.notification(f"Order {other} shipped")).to_be_visible()
    expect(ana.notification(f"Order {other} failed")).to_have_count(0)


def test_preferences_are_one_persons_own(open_board: OpenBoard) -> None:
    """In one browser a reload keeps Ana's choices, and Ben has his own."""
    ana = open_board("ana")
    ana.prefer("shipped", "centre")
    ana.prefer("failed", "off")
    ana.open()
    expect(ana.way("shipped", "centre")).to_be_checked()
    expect(ana.way("failed", "off")).to_be_checked()
    expect(ana.chip("orders.*.failed")).to_have_count(0)
    ana.page.get_by_role("link", name="Ben", exact=True).click()
    expect(ana.page).to_have_url(re.compile("user=ben"))
    ana.wait_until_live()
    expect(ana.way("shipped", "toast")).to_be_checked()
    expect(ana.way("failed", "toast")).to_be_checked()


def test_a_preference_is_chosen_with_the_arrow_keys(open_board: OpenBoard) -> None:
    """Three ways are one stop of the Tab key, as radio buttons are."""
    ana = open_board("ana")
    ana.tab_to(ana.way("shipped", "toast"))
    ana.page.keyboard.press("ArrowRight")
    expect(ana.way("shipped", "centre")).to_be_focused()
    expect(ana.way("shipped", "centre")).to_be_checked()
    ana.page.keyboard.press("Tab")
    expect(ana.way("failed", "toast")).to_be_focused()


def test_the_list_is_bounded(open_board: OpenBoard, shop: Shop) -> None:
    """After a burst of five hundred events the list keeps and counts the newest hundred."""
    ana = open_board("ana")
    ana.prefer("everything", "centre")
    shop.burst(500, 2.0)
    expect(ana.verdict()).to_contain_text("500 published, 500 shown")
    expect(ana.view.locator(".notification")).to_have_count(100)
    expect(ana.bell()).to_have_accessible_name("Notifications, 100 unread")


def test_markup_in_a_notification_stays_text(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """The centre shows markup from an event as text."""
    text = "<img src=x onerror='window.pwned = 1'>"
    ana = open_board("ana")
    publish(gateway, "users.ana.hello", {"text": text})
    ana.bell().click()
    expect(ana.notification("users.ana.hello")).to_contain_text(text)
    assert ana.page.evaluate("window.pwned") is None
    assert ana.view.locator(".notification img").count() == 0


def test_nobody_is_told_of_what_they_have_done(open_board: OpenBoard, shop: Shop) -> None:
    """Ana ships an order: Ben has a notification, and Ana none; the title counts what is not read."""
    number, other = shop.create(), shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.view.get_by_role("button", name=f"Fail order {number}", exact=True).click()
    shop.change(other, status="failed")
    expect(ben.toast(f"Order {number} failed")).to_be_visible()
    expect(ana.toast(f"Order {other} failed")).to_be_visible()
    expect(ana.toast(f"Order {number} failed")).to_have_count(0)
    expect(ana.bell()).to_have_accessible_name("Notifications, 1 unread")
    expect(ana.page).to_have_title("(1) Orders · Headgate demo")
    expect(ben.bell()).to_have_accessible_name("Notifications, 1 unread")


def test_an_open_centre_takes_the_place_of_toasts(open_board: OpenBoard, shop: Shop) -> None:
    """Opening it clears them, and what comes while it is open is in the list only."""
    number = shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed")
    expect(ana.toast(f"Order {number} failed")).to_be_visible()
    ana.bell().click()
    expect(ana.view.locator(".toast")).to_have_count(0)
    shop.change(number, status="shipped")
    expect(ana.notification(f"Order {number} shipped")).to_be_visible()
    expect(ana.view.locator(".toast")).to_have_count(0)


def test_the_centre_is_there_after_a_reload_and_leads_to_the_order(open_board: OpenBoard, shop: Shop) -> None:
    """Filled from the log: what was read stays read, what was not is counted; no toast repeats. A title goes to its card."""
    number = shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed")
    shop.change(number, status="shipped")
    expect(ana.bell()).to_have_accessible_name("Notifications, 2 unread")
    ana.bell().click()
    mark = ana.view.get_by_role("button", name=f"Mark as read: Order {number} failed", exact=True)
    mark.click()
    expect(mark).to_have_count(0)

    ana.page.reload()
    ana.wait_until_live()
    expect(ana.bell()).to_have_accessible_name("Notifications, 1 unread")
    expect(ana.view.locator(".toast")).to_have_count(0)
    ana.bell().click()
    expect(ana.notification(f"Order {number} failed")).to_have_class(re.compile("is-read"))
    ana.view.get_by_role("button", name=f"Order {number} shipped", exact=True).click()
    expect(ana.centre()).to_be_hidden()
    expect(ana.card_in("shipped", number)).to_be_focused()
    expect(ana.bell()).to_have_accessible_name("Notifications")
