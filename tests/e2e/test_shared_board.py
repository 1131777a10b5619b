"""Two people, two browsers, one board: what one does, the other sees."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Route, expect

from headgate.redis.embedded import EmbeddedRedis
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import DEADLINE_MS, VIEWPORT, OpenBoard
from tests.e2e.shop import Shop, publish, publish_by_command
from tests.support.gateway_process import GatewayProcess, StartGateway


def test_an_edit_in_one_browser_is_seen_in_the_other(open_board: OpenBoard, shop: Shop) -> None:
    """Saved over HTTP, published, dispatched, shown; and still there for who comes later."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.write(number, "carrier", "Post by bike")
    expect(ben.field(number, "carrier")).to_have_value("Post by bike")
    expect(ben.card(number)).to_contain_text("by Ana")
    assert shop.order(number)["carrier"] == "Post by bike"
    expect(open_board("ben").field(number, "carrier")).to_have_value("Post by bike")


def test_a_move_in_one_browser_moves_the_card_in_the_other(open_board: OpenBoard, shop: Shop) -> None:
    """By its button, one column at a time; the other is told of the one that counts."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.move_button(number, "packed").click()
    expect(ben.card_in("packed", number)).to_be_visible()
    ana.move_button(number, "shipped").click()
    expect(ben.card_in("shipped", number)).to_be_visible()
    expect(ben.toast(f"Order {number} shipped")).to_contain_text("by Ana")


def test_an_order_fails_by_one_button(open_board: OpenBoard, shop: Shop) -> None:
    """From any column at once: the event that on-call people are mailed about. A failed order cannot fail again."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    fail = ana.view.get_by_role("button", name=f"Fail order {number}", exact=True)
    fail.click()
    expect(ben.card_in("failed", number)).to_be_visible()
    expect(ben.toast(f"Order {number} failed")).to_contain_text("by Ana")
    expect(ana.card_in("failed", number)).to_be_focused()
    expect(fail).to_be_hidden()


# The buttons of each status by name, and the status that each leads to.
OFFERED = {
    "new": {"Move order {} to packed": "packed", "Fail order {}": "failed"},
    "packed": {"Move order {} to new": "new", "Move order {} to shipped": "shipped", "Fail order {}": "failed"},
    "shipped": {"Move order {} to packed": "packed", "Fail order {}": "failed"},
    "failed": {"Move order {} to shipped": "shipped"},
}


@pytest.mark.parametrize("status", OFFERED)
def test_every_button_of_a_card_does_what_its_name_says(open_board: OpenBoard, shop: Shop, status: str) -> None:
    """In each status what is offered is what leads somewhere, no two buttons do the same, and each leads where it says."""
    ana = open_board("ana")
    number = shop.create()
    for name, target in OFFERED[status].items():
        if shop.order(number)["status"] != status:
            shop.change(number, status=status)
        expect(ana.card_in(status, number)).to_be_visible()
        offered = ana.card(number).get_by_role("button").evaluate_all("buttons => buttons.map(button => button.ariaLabel)")
        assert offered == [each.format(number) for each in (*OFFERED[status], "Delete order {}")]
        ana.view.get_by_role("button", name=name.format(number), exact=True).click()
        expect(ana.card_in(target, number)).to_be_visible()
        assert shop.order(number)["status"] == target


def test_a_card_is_dragged_to_another_column(open_board: OpenBoard, shop: Shop) -> None:
    """With the mouse, across columns at once."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    # Its heading: a column that is longer than the window would be scrolled, and the drag would begin elsewhere.
    column = ana.view.locator('.column[data-status="failed"]').locator("h2")
    ana.card(number).locator(".card-head").drag_to(column)
    expect(ana.card_in("failed", number)).to_be_visible()
    expect(ben.card_in("failed", number)).to_be_visible()


def test_a_card_is_moved_with_the_keyboard_alone(open_board: OpenBoard, shop: Shop) -> None:
    """Tab to the card, Shift and an arrow moves it, and the focus stays with it."""
    number = shop.create()
    ana, ben = open_board("ana"), open_board("ben")
    ana.go_to(ana.card(number))
    ana.page.keyboard.press("Shift+ArrowRight")
    expect(ben.card_in("packed", number)).to_be_visible()
    expect(ana.card_in("packed", number)).to_be_focused()
    ana.page.keyboard.press("Shift+ArrowLeft")
    expect(ben.card_in("new", number)).to_be_visible()
    expect(ana.card_in("new", number)).to_be_focused()


def test_arrow_keys_go_from_card_to_card(open_board: OpenBoard, shop: Shop) -> None:
    """Down the column and sideways to the next one that has cards, without moving any."""
    below, number = shop.create(), shop.create()
    ana = open_board("ana")
    ana.go_to(ana.card(number))
    ana.page.keyboard.press("ArrowDown")
    expect(ana.card_in("new", below)).to_be_focused()
    ana.page.keyboard.press("ArrowRight")
    expect(ana.view.locator('.column[data-status="packed"] .card:focus')).to_have_count(1)
    assert shop.order(number)["status"] == shop.order(below)["status"] == "new"


def test_new_orders_appear_and_deleted_ones_go(open_board: OpenBoard, shop: Shop) -> None:
    """In the other browser, without a reload."""
    ana, ben = open_board("ana"), open_board("ben")
    before = set(ben.view.locator(".card").evaluate_all("cards => cards.map(card => card.dataset.id)"))
    ana.view.get_by_role("button", name="New order").click()
    expect(ben.view.locator(".card")).to_have_count(len(before) + 1)
    after = set(ben.view.locator(".card").evaluate_all("cards => cards.map(card => card.dataset.id)"))
    (number,) = after - before
    expect(ben.toast(f"Order {number} came in")).to_be_visible()
    ana.delete_button(number).click()
    expect(ben.card(number)).to_have_count(0)


def test_a_burst_arrives_whole_and_is_told_in_a_bounded_stack(open_board: OpenBoard, shop: Shop) -> None:
    """Fifty events: all of them received, at most four toasts, and a line that says how many more."""
    ana, ben = open_board("ana"), open_board("ben")
    ben.choose("updated", True)

    def live() -> int:  # those of the past come when a type is chosen
        return sum(message[0] == "event" and "replayed" not in message[3] for message in ben.received)

    before = live()
    ana.burst(50)
    expect(ben.view.locator(".toasts .rest")).to_contain_text("and 46 more before")
    assert live() == before + 50
    assert ben.view.locator(".toast").count() <= 4
    expect(ben.figure("missed")).to_have_text("0 in 0")


def test_two_edits_of_different_fields_are_both_kept(open_board: OpenBoard, shop: Shop) -> None:
    """Someone saves the carrier while someone else is typing a note."""
    number = shop.create()
    ana = open_board("ana")
    ana.field(number, "note").fill("typed by Ana")
    shop.change(number, carrier="chosen by Ben")
    expect(ana.field(number, "carrier")).to_have_value("chosen by Ben")
    expect(ana.field(number, "note")).to_have_value("typed by Ana")
    ana.field(number, "note").press("Enter")
    expect(ana.card(number)).to_contain_text("by Ana")
    assert shop.order(number)["note"] == "typed by Ana"
    assert shop.order(number)["carrier"] == "chosen by Ben"


def test_an_edit_that_is_committed_while_another_is_being_saved_is_saved_too(open_board: OpenBoard, shop: Shop) -> None:
    """Enter, a word more, and on to the next field, all before the server has answered."""
    number = shop.create()
    ana = open_board("ana")
    held: list[Route] = []
    ana.page.route("**/demo/orders/*", lambda route: held.append(route), times=1)
    with ana.page.expect_request("**/demo/orders/*"):
        ana.write(number, "note", "first")
    ana.field(number, "note").press_sequentially(" and last")
    ana.field(number, "carrier").focus()
    held[0].continue_()
    expect(open_board("ben").field(number, "note")).to_have_value("first and last")
    assert shop.order(number)["note"] == "first and last"


def test_text_that_is_being_typed_survives_a_move_by_someone_else(open_board: OpenBoard, shop: Shop) -> None:
    """Text and focus go with the card to its new column, and nothing half-written is saved."""
    number = shop.create()
    ana = open_board("ana")
    ana.field(number, "note").press_sequentially("half a sen")
    shop.change(number, status="packed")
    expect(ana.card_in("packed", number)).to_be_visible()
    expect(ana.field(number, "note")).to_be_focused()
    ana.page.keyboard.type("tence")
    expect(ana.field(number, "note")).to_have_value("half a sentence")
    assert shop.order(number)["note"] == ""
    ana.page.keyboard.press("Enter")
    expect(ana.card(number)).to_contain_text("by Ana")
    assert shop.order(number)["note"] == "half a sentence"


def test_two_edits_of_one_field_are_put_before_the_person(open_board: OpenBoard, shop: Shop) -> None:
    """Nothing is overwritten unseen; what was typed is kept; a second Enter means it."""
    number = shop.create()
    ana = open_board("ana")
    ana.field(number, "note").fill("mine")
    shop.change(number, note="theirs")
    expect(ana.card(number)).to_contain_text("by Ben")
    ana.field(number, "note").press("Enter")
    expect(ana.card(number).get_by_role("alert")).to_contain_text("Ben wrote “theirs” meanwhile")
    expect(ana.field(number, "note")).to_have_value("mine")
    assert shop.order(number)["note"] == "theirs"
    ana.field(number, "note").press("Enter")
    expect(ana.card(number)).to_contain_text("by Ana")
    expect(ana.card(number).get_by_role("alert")).to_have_count(0)
    assert shop.order(number)["note"] == "mine"


def test_escape_takes_what_the_other_wrote(open_board: OpenBoard, shop: Shop) -> None:
    """The typed text goes, the saved one shows, and nothing is sent."""
    number = shop.create()
    ana = open_board("ana")
    ana.field(number, "note").fill("mine")
    shop.change(number, note="theirs")
    expect(ana.card(number)).to_contain_text("by Ben")
    ana.field(number, "note").press("Enter")
    expect(ana.card(number).get_by_role("alert")).to_be_visible()
    ana.field(number, "note").press("Escape")
    expect(ana.field(number, "note")).to_have_value("theirs")
    expect(ana.card(number)).to_be_focused()
    assert shop.order(number)["by"] == "ben"


def test_an_event_from_the_command_line_is_merged_into_the_order(
    open_board: OpenBoard, shop: Shop, gateway: GatewayProcess
) -> None:
    """`headgate publish orders.<n>.shipped '{"carrier": "UPS"}'`: what it says is taken, what it leaves out stays."""
    number = shop.create()
    customer = shop.order(number)["customer"]
    ana, ben = open_board("ana"), open_board("ben")
    publish_by_command(gateway, f"orders.{number}.shipped", {"carrier": "UPS"})
    for board in (ana, ben):
        expect(board.card_in("shipped", number)).to_contain_text(customer)
        expect(board.field(number, "carrier")).to_have_value("UPS")
        expect(board.toast(f"Order {number} shipped")).to_contain_text("UPS")


def test_an_event_about_an_unknown_order_makes_a_card(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """With what is known, and without what the shop cannot do for it; it can be taken off this board again."""
    ana = open_board("ana")
    publish(gateway, "orders.9001.failed", {"note": "no such street"})
    expect(ana.card_in("failed", "9001")).to_contain_text("Unknown customer")
    expect(ana.field("9001", "note")).to_have_value("no such street")
    expect(ana.card("9001").get_by_role("button")).to_have_count(1)
    ana.view.get_by_role("button", name="Take order 9001 off this board", exact=True).click()
    expect(ana.card("9001")).to_have_count(0)
    expect(ana.deletion("9001")).to_have_count(0)


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
    expect(ana.view.locator("#connection")).not_to_have_text("Live")
    expect(ana.view.locator("#banner")).to_contain_text("Disconnected")
    shop.change(number, carrier="while away")
    ana.page.context.set_offline(False)
    ana.wait_until_live()
    expect(ana.field(number, "carrier")).to_have_value("while away")
    expect(ana.view.locator("#banner")).to_be_hidden()


def test_without_redis_a_change_is_refused_and_everyone_is_told(
    browser: Browser, start_gateway: StartGateway, start_redis: Callable[[], EmbeddedRedis]
) -> None:
    """Readiness says what is missing, the board says so too, and an edit comes back as not saved.

    The Redis is not the gateway's own, which it would start again within half a second.
    """
    redis = start_redis()
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis.url}, "--demo")
    context = browser.new_context(viewport=VIEWPORT)
    ana = BoardPage(context.new_page(), gateway.url, "ana")
    ana.open()
    ana.look_at_toasts()
    redis.close()
    expect(ana.view.locator("#banner")).to_contain_text("lost Redis")
    ana.write("42", "carrier", "nobody will know")
    expect(ana.toast("Order 42 was not saved")).to_contain_text("the bus is unavailable")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{gateway.url}/healthz", timeout=30)
    assert refused.value.code == 503
    assert "bus" in json.loads(refused.value.read())["missing"]
    assert Shop(gateway.url, "ben").order("42")["carrier"] == "DHL"
    context.close()


def test_two_panes_show_both_people(browser: Browser, gateway: GatewayProcess, shop: Shop) -> None:
    """One page, two same-origin boards; a change on the left shows on the right."""
    number = shop.create()
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    page.goto(f"{gateway.url}/two")
    left, right = (BoardPage(page, gateway.url, user, page.frame(user)) for user in ("ana", "ben"))
    left.wait_until_live()
    right.wait_until_live()
    left.write(number, "note", "from the left")
    expect(right.field(number, "note")).to_have_value("from the left")
    expect(right.card(number)).to_contain_text("by Ana")
    context.close()
