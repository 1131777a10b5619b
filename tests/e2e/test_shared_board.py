"""Two people, one board: each sees the other's changes."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from headgate.redis.embedded import EmbeddedRedis
from headgate_server.demo.orders import MAX_ORDERS
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import VIEWPORT, OpenBoard, boards_of
from tests.e2e.shop import Shop
from tests.support.gateway_process import GatewayProcess, StartGateway

# The buttons of each status by name, and the status that each leads to.
OFFERED = {
    "new": {"Pack order {}": "packed", "Fail order {}": "failed"},
    "packed": {"Ship order {}": "shipped", "Fail order {}": "failed"},
    "shipped": {"Fail order {}": "failed"},
    "failed": {"Retry order {}": "new"},
}


@pytest.fixture(scope="module")
def boards(browser: Browser, gateway: GatewayProcess) -> Iterator[tuple[BoardPage, BoardPage]]:
    """Ana's board and Ben's, for tests that each make their own orders."""
    with boards_of(browser, gateway) as open_one:
        yield open_one("ana"), open_one("ben")


def test_every_button_of_a_card_does_what_its_name_says(
    boards: tuple[BoardPage, BoardPage], open_board: OpenBoard, shop: Shop
) -> None:
    """In each status every button leads somewhere, and it leads there on both boards; a later reader finds it so."""
    ana, ben = boards
    ends: dict[str, str] = {}
    for status, offered in OFFERED.items():
        number = shop.create()
        for name, target in offered.items():
            if shop.order(number)["status"] != status:
                shop.move(number, status)
            expect(ana.card_in(status, number)).to_be_visible()
            names = ana.card(number).get_by_role("button").evaluate_all("buttons => buttons.map(button => button.ariaLabel)")
            assert names == [each.format(number) for each in offered]
            ana.button(name.format(number)).click()
            for board in (ana, ben):
                expect(board.card_in(target, number).get_by_title("Last change by Ana")).to_be_visible()
            assert shop.order(number)["status"] == target
            ends[number] = target
    later = open_board("ben")
    for number, target in ends.items():
        expect(later.card_in(target, number)).to_be_visible()


def test_a_card_is_dragged_to_another_column(boards: tuple[BoardPage, BoardPage], shop: Shop) -> None:
    """With the mouse, across columns at once."""
    number = shop.create()
    ana, ben = boards
    ana.card(number).locator("h4").drag_to(ana.view.locator('.column[data-status="failed"] h3'))
    for board in (ana, ben):
        expect(board.card_in("failed", number)).to_be_visible()


def test_a_card_is_moved_with_the_keyboard_alone(boards: tuple[BoardPage, BoardPage], shop: Shop) -> None:
    """Tab to its button, press Enter, and the focus goes with the card."""
    number = shop.create()
    ana, ben = boards
    ana.page.locator(".skip").focus()
    expect(ana.button(f"Pack order {number}")).to_be_visible()
    ana.tab_to(ana.button(f"Pack order {number}"))
    ana.page.keyboard.press("Enter")
    expect(ben.card_in("packed", number)).to_be_visible()
    expect(ana.button(f"Ship order {number}")).to_be_focused()


def test_two_moves_at_the_same_time_end_in_one_place(boards: tuple[BoardPage, BoardPage], shop: Shop) -> None:
    numbers = [shop.create() for _ in range(3)]
    ana, ben = boards
    for number in numbers:
        for board, name in ((ana, "Pack"), (ben, "Fail")):
            board.button(f"{name} order {number}").dispatch_event("click")
    for number in numbers:
        for board in (ana, ben):
            expect(board.card_in("new", number)).to_have_count(0)
    for board in (ana, ben):
        for number in numbers:
            expect(board.card_in(shop.order(number)["status"], number)).to_be_visible()


def test_new_orders_appear_and_the_oldest_goes(boards: tuple[BoardPage, BoardPage], shop: Shop) -> None:
    """On the other board, without a reload."""
    ana, ben = boards
    cards = ben.view.locator(".card")
    before = cards.count()
    ana.button("New order by Ana").click()
    expect(cards).to_have_count(before + 1)
    for _ in range(MAX_ORDERS - before):
        shop.create()
    expect(cards).to_have_count(MAX_ORDERS)
    expect(ben.card("31")).to_have_count(0)


@pytest.mark.nightly
def test_a_page_that_is_not_let_in_can_try_again(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """After some refusals the page stops trying, says so, and has a button to try again without a reload."""
    ana = open_board("ana")
    ana.page.route("**/demo/session", lambda route: route.fulfill(json={"token": "forged"}))
    ana.page.goto(f"{gateway.url}/?user=ana")
    ana.page.evaluate("window.stayed = true")
    notice = ana.notice("The gateway does not let this page in").first
    expect(notice).to_contain_text("not authorized: that is not a signed JWT")
    expect(ana.pill()).to_have_text("Refused")
    ana.page.unroute("**/demo/session")
    notice.get_by_role("button", name="Try again").click()
    ana.wait_until_live()
    assert ana.page.evaluate("window.stayed")


def test_without_redis_a_change_is_refused_and_everyone_is_told(
    browser: Browser, start_gateway: StartGateway, start_redis: Callable[[], EmbeddedRedis]
) -> None:
    """Readiness names the missing part, the board says so too, and a move comes back as refused.

    The Redis is not the gateway's own, which it would start again within half a second.
    """
    redis = start_redis()
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis.url}, "--demo")
    with browser.new_context(viewport=VIEWPORT) as context:
        ana = BoardPage(context.new_page(), gateway.url, "ana")
        ana.open()
        redis.close()
        expect(ana.pill()).to_have_text("Without Redis")
        ana.button("Ship order 42").click()
        expect(ana.notice("Order 42 was not moved")).to_contain_text("the bus is unavailable")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{gateway.url}/healthz", timeout=30)
        assert refused.value.code == 503
        assert "bus" in json.loads(refused.value.read())["missing"]
        assert Shop(gateway.url, "ben").order("42")["status"] == "packed"


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
        left.button(f"Pack order {number}").click()
        expect(right.card_in("packed", number)).to_be_visible()
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
