"""Preferences and toasts: people are told what they chose, what is off is off on the wire, and text stays text."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop, publish
from tests.support.gateway_process import GatewayProcess

# Each tries to run when it is treated as markup, in another way; `pwned` is what they would set.
HOSTILE = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<svg/onload=window.pwned=1>",
    "\"><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "</code></div><style>*{display:none}</style>",
    "<a href='javascript:window.pwned=1'>click</a>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.pwned=1>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u202e<b>reversed</b>",
]


def test_a_chosen_event_is_told_and_can_be_dismissed(open_board: OpenBoard, shop: Shop) -> None:
    """In a live region, with a button that says what it dismisses."""
    number = shop.create()
    ana = open_board("ana")
    shop.change(number, status="failed", note="Nobody home")
    toast = ana.toast(f"Order {number} failed")
    expect(toast).to_contain_text("Nobody home")
    expect(toast).to_contain_text("by Ben")
    expect(ana.view.locator("[aria-live=polite]", has=toast)).to_have_count(1)
    ana.view.get_by_role("button", name=f"Dismiss: Order {number} failed", exact=True).click()
    expect(toast).to_have_count(0)


def test_a_type_that_is_switched_off_is_unsubscribed_and_not_told(
    open_board: OpenBoard, shop: Shop, gateway: GatewayProcess
) -> None:
    """The request goes out, the panel drops the pattern, and of two later events only the chosen one is told."""
    number, other = shop.create(), shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.choose("shipped", False)
    assert ana.asked("unsubscribe") == ["orders.*.shipped"]
    publish(gateway, f"orders.{number}.shipped", {"carrier": "UPS"})
    shop.change(other, status="failed")
    # Events come in order: when the later one is told, the earlier one would have been.
    expect(ana.toast(f"Order {other} failed")).to_be_visible()
    expect(ana.toast(f"Order {number} shipped")).to_have_count(0)
    expect(ben.toast(f"Order {number} shipped")).to_be_visible()


def test_a_type_that_is_switched_on_again_is_told_again(open_board: OpenBoard, shop: Shop) -> None:
    """Subscribed anew, for what happens from then on."""
    number = shop.create()
    ana = open_board("ana")
    ana.choose("shipped", False)
    ana.choose("shipped", True)
    assert ana.asked("subscribe") == ["orders.*.shipped"]
    shop.change(number, status="shipped")
    expect(ana.toast(f"Order {number} shipped")).to_be_visible()


def test_nothing_comes_over_the_wire_for_what_is_not_subscribed(
    open_board: OpenBoard, shop: Shop, gateway: GatewayProcess
) -> None:
    """With everything about orders off, an order's event is not even sent to this browser."""
    number = shop.create()
    ana = open_board("ana")
    for name in ("shipped", "failed", "created", "live"):
        ana.choose(name, False)
    expect(ana.view.locator("#banner")).to_contain_text("not live")
    shop.change(number, status="shipped")
    publish(gateway, "users.ana.ping", "are you there?")
    expect(ana.toast("users.ana.ping")).to_be_visible()
    assert ana.events(f"orders.{number}.shipped") == []
    expect(ana.card_in("new", number)).to_be_visible()


def test_a_board_that_goes_live_again_shows_what_it_missed(open_board: OpenBoard, shop: Shop) -> None:
    """Changes, new orders and deletions alike."""
    changed, deleted = shop.create(), shop.create()
    ana = open_board("ana")
    ana.choose("live", False)
    shop.change(changed, status="packed")
    shop.delete(deleted)
    created = shop.create()
    ana.choose("live", True)
    expect(ana.card_in("packed", changed)).to_be_visible()
    expect(ana.card_in("new", created)).to_be_visible()
    expect(ana.card(deleted)).to_have_count(0)


def test_wildcards_match_as_they_say(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """`orders.#` takes a topic of any depth; `orders.*.shipped` exactly one word in between."""
    ana, ben = open_board("ana"), open_board("ben")
    ana.choose("everything", True)
    publish(gateway, "orders.7.parcel.2.shipped", {"carrier": "deep"})
    publish(gateway, "users.ben.done", "after it")
    expect(ana.toast("Order 7 parcel")).to_contain_text("orders.7.parcel.2.shipped")
    expect(ben.toast("users.ben.done")).to_be_visible()
    expect(ben.view.locator(".toast")).to_have_count(1)


def test_an_event_that_several_chosen_patterns_match_is_told_once(open_board: OpenBoard, shop: Shop) -> None:
    """One toast, however many choices it fits."""
    number = shop.create()
    ana = open_board("ana")
    ana.choose("everything", True)
    shop.change(number, status="shipped")
    shop.change(number, status="failed")
    expect(ana.toast(f"Order {number} failed")).to_have_count(1)
    expect(ana.toast(f"Order {number} shipped")).to_have_count(1)


def test_another_users_messages_stay_with_that_user(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """Ben is told what is for Ben; to Ana it is not even sent."""
    ana, ben = open_board("ana"), open_board("ben")
    publish(gateway, "users.ben.note", "for Ben only")
    publish(gateway, "users.ana.note", "for Ana only")
    expect(ben.toast("users.ben.note")).to_contain_text("for Ben only")
    expect(ana.toast("users.ana.note")).to_contain_text("for Ana only")
    assert ana.events("users.ben.note") == []


def test_choices_are_kept_over_a_reload(open_board: OpenBoard) -> None:
    """The client subscribes again to the chosen types, and to no others."""
    ana = open_board("ana")
    ana.choose("shipped", False)
    ana.choose("updated", True)
    ana.open()
    assert "shipped" not in ana.chosen()
    assert "updated" in ana.chosen()
    expect(ana.chip("orders.*.shipped")).to_have_count(0)


@pytest.mark.parametrize("text", HOSTILE)
def test_script_in_a_payload_stays_text(open_board: OpenBoard, shop: Shop, gateway: GatewayProcess, text: str) -> None:
    """In a card's fields, in a toast and in the list of events it is shown as it was written, and nothing runs."""
    number = shop.create()
    ana = open_board("ana")
    publish(gateway, f"orders.{number}.failed", {"customer": text, "note": text, "carrier": text, "by": text})
    publish(gateway, "users.ana.hello", text)
    expect(ana.card_in("failed", number)).to_contain_text(text)
    expect(ana.field(number, "note")).to_have_value(text)
    expect(ana.toast("users.ana.hello")).to_contain_text(text)
    assert ana.page.evaluate("window.pwned") is None
    assert ana.view.locator("body :is(img, iframe, style, script, math), .toast svg, .card svg, .toast a, .card a").count() == 0
    assert len(ana.page.frames) == 1
