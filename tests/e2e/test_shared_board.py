"""Two people, one board: what one does, the other sees."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Route, expect

from headgate.redis.embedded import EmbeddedRedis
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import VIEWPORT, OpenBoard
from tests.e2e.shop import Shop, publish, publish_by_command
from tests.support.gateway_process import GatewayProcess, StartGateway

# The buttons of each status by name, and the status that each leads to.
OFFERED = {
    "new": {"Move order {} to packed": "packed", "Fail order {}": "failed"},
    "packed": {"Move order {} to shipped": "shipped", "Fail order {}": "failed"},
    "shipped": {"Fail order {}": "failed"},
    "failed": {"Move order {} to new": "new"},
}


def test_a_note_of_one_person_is_seen_by_the_other(open_board: OpenBoard, shop: Shop) -> None:
    """Saved over HTTP, published, dispatched, shown; and still there for who comes later."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.write(number, "Post by bike")
    expect(ben.note(number)).to_have_value("Post by bike")
    expect(ben.card(number)).to_contain_text("by Ana")
    assert shop.order(number)["note"] == "Post by bike"
    expect(open_board("ben").note(number)).to_have_value("Post by bike")


@pytest.mark.parametrize("status", OFFERED)
def test_every_button_of_a_card_does_what_its_name_says(open_board: OpenBoard, shop: Shop, status: str) -> None:
    """In each status what is offered is what leads somewhere, no two buttons do the same, and each leads where it says."""
    ana, ben = open_board("ana"), open_board("ben")
    number = shop.create()
    for name, target in OFFERED[status].items():
        if shop.order(number)["status"] != status:
            shop.change(number, status=status)
        expect(ana.card_in(status, number)).to_be_visible()
        offered = ana.card(number).get_by_role("button").evaluate_all("buttons => buttons.map(button => button.ariaLabel)")
        assert offered == [each.format(number) for each in (*OFFERED[status], "Delete order {}")]
        ana.button(name.format(number)).click()
        for board in (ana, ben):
            expect(board.card_in(target, number)).to_be_visible()
        assert shop.order(number)["status"] == target


def test_a_card_is_dragged_to_another_column(open_board: OpenBoard, shop: Shop) -> None:
    """With the mouse, across columns at once."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.card(number).locator("h4").drag_to(ana.view.locator('.column[data-status="failed"] h3'))
    for board in (ana, ben):
        expect(board.card_in("failed", number)).to_be_visible()


def test_a_card_is_moved_with_the_keyboard_alone(open_board: OpenBoard, shop: Shop) -> None:
    """Tab to the card, arrows go to its neighbours, Shift and an arrow moves it, and the focus stays with it."""
    below, number = shop.create(), shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.tab_to(ana.card(number))
    ana.page.keyboard.press("ArrowDown")
    expect(ana.card_in("new", below)).to_be_focused()
    ana.page.keyboard.press("ArrowRight")
    expect(ana.view.locator('.column[data-status="packed"] .card:focus')).to_have_count(1)
    ana.card(number).focus()
    ana.page.keyboard.press("Shift+ArrowRight")
    expect(ben.card_in("packed", number)).to_be_visible()
    expect(ana.card_in("packed", number)).to_be_focused()
    assert shop.order(below)["status"] == "new"


def test_new_orders_appear_and_deleted_ones_go(open_board: OpenBoard, shop: Shop) -> None:
    """On the other board, without a reload."""
    ana, ben = open_board("ana"), open_board("ben")
    numbers = "cards => cards.map(card => card.dataset.id)"
    before = set(ben.view.locator(".card").evaluate_all(numbers))
    ana.button("New order by Ana").click()
    expect(ben.view.locator(".card")).to_have_count(len(before) + 1)
    (number,) = set(ben.view.locator(".card").evaluate_all(numbers)) - before
    ana.button(f"Delete order {number}").click()
    expect(ben.card(number)).to_have_count(0)


def test_two_edits_of_different_fields_are_both_kept(open_board: OpenBoard, shop: Shop) -> None:
    """Someone moves the order while someone else is typing a note; text and focus go with the card, and nothing is half saved."""
    number = shop.create()
    ana = open_board("ana")
    ana.note(number).press_sequentially("half a sen")
    shop.change(number, status="packed")
    expect(ana.card_in("packed", number)).to_be_visible()
    expect(ana.note(number)).to_be_focused()
    assert shop.order(number)["note"] == ""
    ana.page.keyboard.type("tence")
    ana.page.keyboard.press("Enter")
    expect(ana.card(number)).to_contain_text("by Ana")
    after = shop.order(number)
    assert (after["note"], after["status"]) == ("half a sentence", "packed")


def test_an_edit_that_is_committed_while_another_is_being_saved_is_saved_too(open_board: OpenBoard, shop: Shop) -> None:
    """Enter, a word more, and on to another place, all before the server has answered."""
    number = shop.create()
    ana = open_board("ana")
    held: list[Route] = []
    ana.page.route("**/demo/orders/*", lambda route: held.append(route), times=1)
    with ana.page.expect_request("**/demo/orders/*"):
        ana.write(number, "first")
    ana.note(number).press_sequentially(" and last")
    ana.bell().focus()
    held[0].continue_()
    expect(open_board("ben").note(number)).to_have_value("first and last")
    assert shop.order(number)["note"] == "first and last"


@pytest.mark.parametrize("key", ["Enter", "Escape"])
def test_two_edits_of_one_field_are_put_before_the_person(open_board: OpenBoard, shop: Shop, key: str) -> None:
    """Nothing is overwritten unseen, what was typed is kept; a second Enter means it, Escape takes what the other wrote."""
    number = shop.create()
    ana = open_board("ana")
    ana.note(number).fill("mine")
    shop.change(number, note="theirs")
    expect(ana.card(number)).to_contain_text("by Ben")
    ana.note(number).press("Enter")
    expect(ana.card(number).get_by_role("alert")).to_contain_text("Ben wrote “theirs” meanwhile")
    expect(ana.note(number)).to_have_value("mine")
    assert shop.order(number)["note"] == "theirs"
    ana.note(number).press(key)
    expect(ana.card(number).get_by_role("alert")).to_have_text("")
    expect(ana.card(number)).to_contain_text("by Ana" if key == "Enter" else "by Ben")
    expect(ana.note(number)).to_have_value("mine" if key == "Enter" else "theirs")
    assert shop.order(number)["note"] == ("mine" if key == "Enter" else "theirs")


def test_an_event_from_the_command_line_is_merged_into_the_order(
    open_board: OpenBoard, shop: Shop, gateway: GatewayProcess
) -> None:
    """`headgate publish orders.<n>.shipped '{"note": "UPS"}'`: what it says is taken, what it leaves out stays."""
    number = shop.create()
    customer = shop.order(number)["customer"]
    boards = [open_board("ana"), open_board("ben")]
    publish_by_command(gateway, f"orders.{number}.shipped", {"note": "UPS"})
    for board in boards:
        expect(board.card_in("shipped", number)).to_contain_text(customer)
        expect(board.note(number)).to_have_value("UPS")


def test_an_event_about_an_unknown_order_makes_a_card(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """With what is known, and without what the shop cannot do for it; it can be taken off this board again."""
    ana = open_board("ana")
    publish(gateway, "orders.9001.failed", {"note": "no such street"})
    expect(ana.card_in("failed", "9001")).to_contain_text("Unknown customer")
    expect(ana.note("9001")).to_have_value("no such street")
    expect(ana.card("9001").get_by_role("button")).to_have_count(1)
    ana.button("Take order 9001 off this board").click()
    expect(ana.card("9001")).to_have_count(0)
    expect(ana.view.locator(".notice")).to_have_count(0)


def test_data_that_is_no_order_harms_nothing(open_board: OpenBoard, shop: Shop, gateway: GatewayProcess) -> None:
    """Text, null, lists, wrong types and hostile names: the verb counts, the rest stays as it was."""
    number = shop.create()
    customer = shop.order(number)["customer"]
    ana = open_board("ana")
    for data in ("text", None, [1, 2], {"customer": 7, "status": "lost", "id": "1", "__proto__": {"x": 1}, "constructor": "y"}):
        publish(gateway, f"orders.{number}.updated", data)
    publish(gateway, f"orders.{number}.shipped", 42)
    expect(ana.card_in("shipped", number)).to_contain_text(customer)


def test_a_board_that_was_offline_catches_up(open_board: OpenBoard, shop: Shop) -> None:
    """It says that it is not connected, and shows what happened meanwhile when it is back."""
    number = shop.create()
    ana = open_board("ana")
    ana.page.context.set_offline(True)
    expect(ana.pill()).to_have_text("Reconnecting…")
    shop.change(number, note="while away")
    ana.page.context.set_offline(False)
    ana.wait_until_live()
    expect(ana.note(number)).to_have_value("while away")


def test_without_redis_a_change_is_refused_and_everyone_is_told(
    browser: Browser, start_gateway: StartGateway, start_redis: Callable[[], EmbeddedRedis]
) -> None:
    """Readiness says what is missing, the board says so too, and an edit comes back as not saved.

    The Redis is not the gateway's own, which it would start again within half a second.
    """
    redis = start_redis()
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis.url}, "--demo")
    with browser.new_context(viewport=VIEWPORT) as context:
        ana = BoardPage(context.new_page(), gateway.url, "ana")
        ana.open()
        redis.close()
        expect(ana.pill()).to_have_text("Without Redis")
        ana.write("42", "nobody will know")
        expect(ana.card("42").get_by_role("alert")).to_contain_text("Not saved: the bus is unavailable")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{gateway.url}/healthz", timeout=30)
        assert refused.value.code == 503
        assert "bus" in json.loads(refused.value.read())["missing"]
        assert Shop(gateway.url, "ben").order("42")["note"] == "Fragile"


def test_both_people_share_a_page(browser: Browser, gateway: GatewayProcess, shop: Shop) -> None:
    """A change on the left shows on the right, each sees that the other is there, and where the other's pointer is."""
    number = shop.create()
    with browser.new_context(viewport={"width": 1600, "height": 1000}) as context:
        page = context.new_page()
        page.goto(gateway.url)
        left, right = BoardPage(page, gateway.url, "ana"), BoardPage(page, gateway.url, "ben", 1, listen=False)
        for board, other in ((left, "Ben"), (right, "Ana")):
            board.wait_until_live()
            expect(board.view.locator(".peers")).to_have_text(f"{other} is here")
        left.write(number, "from the left")
        expect(right.note(number)).to_have_value("from the left")
        expect(right.card(number)).to_contain_text("by Ana")
        left.card(number).hover()
        expect(right.view.locator(".pointer")).to_have_text("Ana")
        apart = """([card, pointer]) => {
          const [box, point] = [card, pointer].map(each => each.getBoundingClientRect());
          return Math.hypot(point.left - (box.left + box.right) / 2, point.top - (box.top + box.bottom) / 2);
        }"""
        shown = [right.card(number).element_handle(), right.view.locator(".pointer").element_handle()]
        page.wait_for_function(f"shown => ({apart})(shown) < 30", arg=shown)
        page.mouse.move(0, 0)
        expect(right.view.locator(".pointer")).to_have_count(0)
        assert left.faults == []
