"""Nothing on the board jumps: its Cumulative Layout Shift, over a load, events, and a lost connection."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import DEADLINE_MS
from tests.e2e.shop import Shop
from tests.support.gateway_process import GatewayProcess

# https://web.dev/articles/cls calls 0.1 good. Shifts within half a second of a click or a key do not count.
MOST = 0.02
PHONE, LAPTOP = (390, 844), (1366, 768)
WATCH = """
window.shifts = [];
new PerformanceObserver((list) => shifts.push(...list.getEntries())).observe({ type: "layout-shift", buffered: true });
window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    sockets.push(this);
    if (window.isCut) this.close();
  }
};
"""
# When all that glides has arrived, and two frames later, because the first one's moves are reported before the second is over.
SUM = """async () => {
  await Promise.allSettled(document.getAnimations().map(({ finished }) => finished));
  await new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(shown))));
  return shifts.splice(0).filter(({ hadRecentInput }) => !hadRecentInput).reduce((sum, { value }) => sum + value, 0);
}"""


@pytest.fixture(params=[PHONE, pytest.param(LAPTOP, marks=pytest.mark.nightly)], ids=["phone", "laptop"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A tab that notes each shift, with connections that the test can cut."""
    width, height = request.param
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(DEADLINE_MS)
    context.add_init_script(WATCH)
    yield context.new_page()
    context.close()


def test_nothing_jumps(page: Page, gateway: GatewayProcess, shop: Shop) -> None:
    """Orders come, change and move, a notice comes, the connection breaks and is back, and none of it moves much."""
    board = BoardPage(page, gateway.url, "ana")
    moved = {}
    board.open()
    moved["load"] = page.evaluate(SUM)
    number = shop.create()
    expect(board.card(number)).to_be_visible()
    moved["an order"] = page.evaluate(SUM)
    shop.move(number, "packed")
    expect(board.card_in("packed", number)).to_be_visible()
    moved["a move"] = page.evaluate(SUM)
    shop.burst(20, 0.1)
    expect(board.count("shown")).to_have_text(re.compile(r"\d\d+"))
    moved["a burst"] = page.evaluate(SUM)
    shop.move(number, "failed")
    expect(board.notice(f"Order {number} failed")).to_be_visible()
    moved["a notice"] = page.evaluate(SUM)
    page.evaluate("isCut = true; sockets.forEach((each) => each.close())")
    expect(board.pill()).to_have_text("Reconnecting…")
    moved["a lost connection"] = page.evaluate(SUM)
    page.evaluate("isCut = false")
    board.wait_until_live()
    moved["a connection"] = page.evaluate(SUM)
    assert {what: shift for what, shift in moved.items() if shift > MOST} == {}
